"""The blocking form: an iterator of a store's events."""

from __future__ import annotations

import abc
import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Optional

from . import _protocol as protocol
from ._protocol import Path, Selection, Subscription
from ._tokens import TokenFile
from .errors import NoAgent, Refused
from .events import Event


class Ended(Exception):
    """The time is over, or the iterator was closed."""


def remaining(deadline: Optional[float]) -> Optional[float]:
    """Returns the seconds until a deadline, at least 0."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


class Watch(abc.ABC):
    """A store's events, one after another. Iteration ends only with `close`.

    Any thread may call any method. If several threads wait for events, each event goes to one of them. A `with` block
    closes it. `KeyboardInterrupt` and other exceptions from outside lose no event: the next call of `next` continues.
    """

    def __init__(self, token_file: Optional[Path]) -> None:
        self._tokens = TokenFile(token_file) if token_file else None
        self._turn = threading.Lock()
        self._closing = threading.Event()

    @property
    @abc.abstractmethod
    def token(self) -> Optional[str]:
        """The token of the last event that was returned, or a later one if the following events are left out.

        Save it once you have handled the event, and pass it as `since`: each change is then delivered at least once.
        `token_file` does so by itself.
        """

    @property
    @abc.abstractmethod
    def is_direct(self) -> bool:
        """True if the store is watched without an agent."""

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

        A call says that the event before is handled: with `token_file`, its token is written first. Raises NoAgent,
        Refused and ProgramFailed, which end the iteration, and OSError if the token can't be written.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self._turn.acquire(timeout=-1 if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX)):
            return None
        try:
            if self._closing.is_set():
                return None
            self.commit()
            return self._next(deadline)
        except Ended:
            return None
        finally:
            self._turn.release()
            if self._closing.is_set():
                self._clean()

    def commit(self) -> None:
        """Says that the last event is handled: with `token_file`, its token is written.

        `next` and the end of a `with` block without an exception do so too. Raises OSError if it can't be written.
        """
        if self._tokens is not None:
            self._tokens.write(self.token)

    def close(self) -> None:
        """Ends the iteration, also one in which another thread waits. An event that wasn't handled is
        delivered again by another one that continues from the same token.
        """
        self._closing.set()
        self._wake()
        self._clean()

    def _clean(self) -> None:
        """Frees everything after the end. If a thread is still in `next`, it does so when it leaves."""
        if self._turn.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._turn.release()

    @abc.abstractmethod
    def _next(self, deadline: Optional[float]) -> Event:
        """Returns the next event. Raises Ended if none comes before the deadline, or `close` was called."""

    @abc.abstractmethod
    def _wake(self) -> None:
        """Wakes the thread that is in `next`, if there is one."""

    @abc.abstractmethod
    def _drop(self) -> None:
        """Closes what is open. Only the thread whose turn it is calls this."""


class Changes(Watch):
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
      rows, if the store keeps a history.
    - `rows`: Adds the rows to the changes, if the store keeps a history.
    - `durable`: Requests tokens that are valid with any agent, if the store keeps a history.
    - `detail`: With False, the agent doesn't determine which tables changed, and publishes sooner.
    - `progress`: Adds Progress events while the store is relocated or migrated.
    - `wait`: Waits for an agent that isn't there yet, and reports Disconnected meanwhile, instead of raising NoAgent.
    - `token_file`: Continues after the token in this file, which need not exist, and keeps it up to date: a token is
      written when its event is handled. See `Watch.next` and `Watch.commit`. `since` takes precedence.
    """

    def __init__(
        self,
        store: Path,
        since: Optional[str] = None,
        tables: Optional[Iterable[str]] = None,
        path: Optional[Path] = None,
        *,
        entities: Optional[Iterable[str]] = None,
        operations: Optional[Iterable[str]] = None,
        authors: Optional[Iterable[str]] = None,
        except_authors: Optional[Iterable[str]] = None,
        rows: bool = False,
        durable: bool = False,
        detail: bool = True,
        progress: bool = False,
        wait: bool = False,
        token_file: Optional[Path] = None,
    ) -> None:
        super().__init__(token_file)
        if since is None and self._tokens is not None:
            since = self._tokens.read()
        selection = Selection(
            tables=protocol.names(tables, "tables"),
            entities=protocol.names(entities, "entities"),
            operations=protocol.names(operations, "operations"),
            authors=protocol.names(authors, "authors"),
            except_authors=protocol.names(except_authors, "except_authors"),
            rows=rows,
            durable=durable,
            detail=detail,
            progress=progress,
        )
        self._subscription = Subscription(store, since, selection, path, wait)
        self._socket: Optional[socket.socket] = None
        self._lines: Optional[protocol.LineBuffer] = None
        self._greeting_deadline: Optional[float] = None

    @property
    def token(self) -> Optional[str]:
        """The token of the last event that was returned, or a later one if the following events are left out."""
        return self._subscription.token

    @property
    def is_direct(self) -> bool:
        """False: the events come from the agent."""
        return False

    def _next(self, deadline: Optional[float]) -> Event:
        while not self._closing.is_set():
            token = self._subscription.token
            try:
                event = self._step(deadline)
            except (Ended, OSError):
                raise
            except (NoAgent, Refused):
                self.close()
                raise
            except BaseException:
                # An interruption between the parts of a line, or after an event was taken: it is requested again.
                self._subscription.token = token
                self._drop()
                raise
            if event is not None:
                return event
            self.commit()
        raise Ended

    def _step(self, deadline: Optional[float]) -> Optional[Event]:
        """Returns an event, or None after anything else."""
        connected = self._lines is not None
        try:
            if not connected:
                if remaining(deadline) == 0:
                    raise Ended
                self._connect(remaining(deadline))
                connected = True
            return self._receive(deadline)
        except (OSError, ValueError) as error:
            if self._closing.is_set():
                raise Ended from None
            self._drop()
            if not connected and isinstance(error, socket.timeout) and remaining(deadline) == 0:
                raise Ended from None
            report = self._subscription.lost(error, connected)
            if report is None:
                self._pause(deadline)
            return report

    def _connect(self, left: Optional[float]) -> None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket = connection
        # With a timeout, connect doesn't block: if the agent accepts nobody it is retried, and close() ends that.
        connection.settimeout(protocol.CONNECT_TIMEOUT if left is None else min(left, protocol.CONNECT_TIMEOUT))
        connection.connect(self._subscription.path)
        connection.sendall(self._subscription.request())
        self._greeting_deadline = time.monotonic() + protocol.GREETING_TIMEOUT
        self._lines = protocol.LineBuffer()

    def _receive(self, deadline: Optional[float]) -> Optional[Event]:
        connection, lines = self._socket, self._lines
        if connection is None or lines is None or self._closing.is_set():
            raise ConnectionError("closed")
        # A line may arrive in parts across several timeouts, so the parts are kept.
        message = lines.message()
        if message is not None:
            return self._subscription.receive(message)
        left = remaining(deadline)
        if not self._subscription.awaits_agent:
            greeting = remaining(self._greeting_deadline)
            if greeting == 0:
                raise protocol.agent_silent(self._subscription.path)
            left = greeting if left is None or greeting is None else min(left, greeting)
        connection.settimeout(left)
        try:
            data = connection.recv(protocol.CHUNK)
        except (socket.timeout, BlockingIOError):
            if remaining(deadline) == 0:
                raise Ended from None
            return None
        if not data:
            raise ConnectionError("the agent ended the connection")
        lines.append(data)
        return None

    def _pause(self, deadline: Optional[float]) -> None:
        pause, left = self._subscription.pause(), remaining(deadline)
        self._closing.wait(pause if left is None else min(pause, left))

    def _wake(self) -> None:
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _drop(self) -> None:
        connection, self._socket, self._lines = self._socket, None, None
        if connection is not None:
            connection.close()


def ask(
    operation: str, timeout: Optional[float] = 30.0, path: Optional[Path] = None, **members: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Sends one request to the agent. Returns the reply, and the rows before it, as dictionaries.

        reply, rows = groupstore.ask("status")

    The operations and their members are those of the wire protocol; a member may be a path. `timeout` applies to the
    whole answer. Raises Refused and NoAgent.
    """
    place = os.fsdecode(path) if path else protocol.socket_path()
    deadline = None if timeout is None else time.monotonic() + timeout
    exchange = protocol.Exchange(operation, members)
    connected = False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(timeout)
            connection.connect(place)
            connected = True
            connection.sendall(exchange.request)
            answer = None
            while answer is None:
                if deadline is not None:
                    connection.settimeout(max(0.001, deadline - time.monotonic()))
                data = connection.recv(protocol.CHUNK)
                # However slowly the parts arrive, one timeout applies.
                if deadline is not None and data and time.monotonic() > deadline:
                    raise socket.timeout("timed out")
                answer = exchange.receive(data)
            return answer
        except (OSError, ValueError) as error:
            raise request_error(place, error, connected) from error


def request_error(path: str, error: BaseException, connected: bool) -> NoAgent:
    """Returns the error for a request that got no answer."""
    if protocol.is_busy(error) and not isinstance(error, ConnectionError):
        return protocol.agent_silent(path)
    if connected and not isinstance(error, protocol.NotUnderstood):
        return protocol.agent_lost(path)
    return protocol.no_agent(path, error)
