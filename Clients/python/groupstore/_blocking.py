"""The blocking front: it waits for a store's events, and for answers."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from types import TracebackType
from typing import Any, Optional

from ._core import Answer
from ._front import AgentFront, DirectFront, Front
from ._protocol import Path
from ._sources import Request, Source, Wish
from ._tokens import TokenFile
from .errors import GroupStoreError
from .events import Event

LONGEST_WAIT = 86400.0
"""The seconds that one wait takes at most: `poll` takes no more than some weeks."""


def _wait(wish: Wish, deadline: Optional[float] = None, waking: Optional[socket.socket] = None) -> bool:
    """Waits for a wish, no longer than until the deadline. Returns True if a descriptor of the wish is ready."""
    poll = select.poll()
    for descriptor, events in wish.descriptors.items():
        poll.register(descriptor, events)
    if waking is not None:
        poll.register(waking, select.POLLIN)
    now = time.monotonic()
    until = min(each for each in (wish.until, deadline, now + LONGEST_WAIT) if each is not None)
    return any(descriptor in wish.descriptors for descriptor, _ in poll.poll(max(0.0, until - now) * 1000))


class Watch(Front):
    """A store's events, one after another. Iteration ends only with `close`.

    Any thread may call any method. If several threads wait for events, each event goes to one of them. A `with` block
    closes it. `KeyboardInterrupt` and other exceptions from outside lose no event: the next call of `next` continues.
    """

    def __init__(self, source: Source, tokens: Optional[TokenFile]) -> None:
        super().__init__(source, tokens)
        self._turn = threading.Lock()
        # One end of it becomes readable to wake the thread in `next`.
        self._waking = socket.socketpair()

    def __iter__(self) -> Watch:
        return self

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            if error is None:
                self.commit()
        finally:
            self.close()

    def __next__(self) -> Event:
        event = self.next()
        if event is None:
            raise StopIteration
        return event

    def next(self, timeout: Optional[float] = None) -> Optional[Event]:
        """Returns the next event, or None if none came within `timeout` seconds, or after `close`.

        A call marks the previous event as handled: with `token_file`, its token is written first. Raises NoAgent,
        Refused and ProgramFailed, which end the iteration, and OSError if the token can't be written.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._turn.acquire(timeout=-1 if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX)):
            return None
        try:
            return self._next(deadline)
        finally:
            self._turn.release()
            if self._is_closed:
                self._clean()

    def _next(self, deadline: Optional[float]) -> Optional[Event]:
        is_ready = False
        while not self._is_closed:
            self.commit()
            token = self.token
            try:
                event = self._source.step(is_ready)
                if event is not None:
                    return event
                is_ready = _wait(self._source.wish(), deadline, self._waking[0])
                if not is_ready and deadline is not None and time.monotonic() >= deadline:
                    return None
            except GroupStoreError:
                self._is_closed = True
                raise
            except BaseException:
                # An interruption between the parts of a line, or after an event was taken: it is requested again.
                self._end_source()
                self._source.rewind(token)
                raise
        return None

    def close(self) -> None:
        """Ends the iteration, also one in which another thread waits. An event that wasn't handled is
        delivered again by another one that continues from the same token.
        """
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._waking[1].shutdown(socket.SHUT_WR)
        self._clean()

    def _clean(self) -> None:
        """Frees everything after the end. If a thread is still in `next`, it does so when it leaves."""
        if self._turn.acquire(blocking=False):
            try:
                self._end_source()
                self._close_waking()
            finally:
                self._turn.release()

    def _end_source(self) -> None:
        for pause in self._source.end():
            time.sleep(pause)

    def _close_waking(self) -> None:
        for each in self._waking:
            each.close()

    def __del__(self) -> None:
        # After an iteration that nobody closed. A constructor that failed has nothing to close.
        if hasattr(self, "_waking"):
            self._close_waking()


class Changes(AgentFront, Watch):
    """A store's events from the agent.

    The first event is a Reset (reason `subscribed`) unless there is a token to continue from: a program that reads the
    store after it misses nothing. Stays subscribed across restarts of the agent: reopens a lost connection, first at
    once, later every two seconds, and continues after the last event that was returned. Changes in between arrive as
    one change or as a Reset; after a Reset, everything you know is stale.

    Raises Refused if the agent refuses the subscription, and NoAgent if there never was one at the socket: `next` does.

    - `store`: GROUP_ID/NAME.
    - `since`: A token after which to begin.
    - `tables`: Leaves out changes that are known to affect only other tables.
    - `path`: The agent's socket; by default, the environment names it.
    - `entities`, `operations` (`insert`, `update`, `delete`), `authors`, `except_authors`: Leave out changes by their
      rows, if the store keeps a history. `operations` also if the agent reads its pages (`rows: true`).
    - `rows`: Adds the rows to the changes, if the store keeps a history or the agent reads its pages.
    - `durable`: Requests tokens that are valid with any agent, if the store keeps a history or the agent reads its
      pages.
    - `detail`: With False, the agent doesn't determine which tables changed, and publishes sooner.
    - `progress`: Adds Progress events while the store is relocated or migrated.
    - `wait`: Waits for an agent that isn't there yet, and reports Disconnected meanwhile, instead of raising NoAgent.
    - `token_file`: Continues after the token in this file, which need not exist, and keeps it up to date: a token is
      written when its event is handled. See `Watch.next` and `Watch.commit`. `since` takes precedence.
    """


class DirectChanges(DirectFront, Watch):
    """A store's events without an agent, from the program `groupstore watch --direct` as a child process.

    The store need not exist yet. The first event is a Reset (reason `subscribed`) unless there is a token to continue
    from. Disconnected and Connected don't occur. A token says whether the store was written since, but not how often;
    with rows, a filter of rows or `durable`, it is a position in the store's history, if the store keeps one.

    `next` raises ProgramFailed, with the program's code, message, remedy and exit status, ProgramMissing if there is no
    program, and DirectoryMissing.

    - `store`: The database file. Its directory exists.
    - `since`: A token after which to begin.
    - `tables`, `entities`, `operations`, `authors`, `except_authors`, `rows`, `durable`: As for `Changes`. The program
      runs an agent of its own for rows, filters of rows and durable tokens; it ends with the program.
    - `program`: The program; by default, `groupstore` on `$PATH`.
    - `token_file`: As for `Changes`.
    """


def ask(
    operation: str, timeout: Optional[float] = 30.0, path: Optional[Path] = None, **members: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Sends one request to the agent. Returns the reply, and the rows before it, as dictionaries.

        reply, rows = groupstore.ask("status")

    The operations and their members are those of the wire protocol; a member may be a path. `timeout` applies to the
    whole answer. Raises Refused and NoAgent.
    """
    return answer(Request(operation, timeout, path, members, lambda reply, rows: (reply, rows)))


def answer(request: Request[Answer]) -> Answer:
    """Returns the answer to a request. Raises Refused and NoAgent."""
    is_ready = False
    with contextlib.closing(request):
        while True:
            found = request.step(is_ready)
            if found is not None:
                return found
            is_ready = _wait(request.wish())
