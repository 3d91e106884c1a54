"""Watching a store without an agent: `groupstore watch --direct` as a child process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from typing import Optional

from . import _protocol as protocol
from ._asyncio import AsyncWatch
from ._blocking import Ended, Watch, remaining
from ._protocol import Path, Selection
from .errors import ProgramFailed
from .events import Event, Reset

PROGRAM = "groupstore"
END_TIMEOUT = 2.0
"""The seconds that the program may take to end."""
MAX_LINE_LENGTH = 1 << 20
MAX_ERRORS_LENGTH = 8192
NO_PROGRAM = "install groupstore, or pass its path as program"

log = logging.getLogger("groupstore")


def _escaped(names: Iterable[str]) -> str:
    return ",".join(each.replace("\\", "\\\\").replace(",", "\\,") for each in names)


def _arguments(selection: Selection) -> list[bytes]:
    """Returns the program's options for a selection."""
    words = [f"--{name.replace('_', '-')}={_escaped(value)}" for name, value in selection.lists().items()]
    words += [f"--{name}" for name in ("rows", "durable") if getattr(selection, name)]
    return [word.encode() for word in words]


class Child:
    """The program that watches a store. Nothing here waits, except for the end of the program."""

    def __init__(self, store: Path, since: Optional[str], selection: Selection, program: Optional[Path]) -> None:
        self.token = since
        self._begins = since is None
        command = [os.fsencode(program or PROGRAM), b"watch", b"--json", b"--direct"]
        if since is not None:
            command.append(b"--since=" + since.encode())
        command += _arguments(selection)
        try:
            # In a session of its own: the terminal's Ctrl-C is for this program, which ends the child.
            self._process = subprocess.Popen(
                [*command, b"--", os.fsencode(store)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            reason = error.strerror or str(error)
            message = f"can't start {os.fsdecode(program or PROGRAM)}: {reason}"
            raise ProgramFailed("no_program", message, NO_PROGRAM) from error
        assert self._process.stdout is not None and self._process.stderr is not None
        self._output, self._errors = self._process.stdout, self._process.stderr
        for pipe in (self._output, self._errors):
            os.set_blocking(pipe.fileno(), False)
        self._lines = protocol.LineBuffer(MAX_LINE_LENGTH)
        self._said = bytearray()
        self._failure: Optional[ProgramFailed] = None

    @property
    def descriptors(self) -> list[int]:
        """The descriptors to wait for."""
        return [pipe.fileno() for pipe in (self._output, self._errors) if not pipe.closed]

    def event(self) -> Optional[Event]:
        """Reads what has arrived and returns the next event; None if there is none yet. Raises ProgramFailed."""
        while True:
            try:
                message = self._lines.message()
                if message is not None:
                    event = self._event(message)
                    if event is not None:
                        self._pass_on()
                        return event
                    continue
            except protocol.NotUnderstood as error:
                self.end()
                why = f"the output of groupstore watch isn't understood: {error}"
                raise ProgramFailed("not_understood", why, "check that both have the same version") from error
            self._read_errors()
            try:
                data = os.read(self._output.fileno(), protocol.CHUNK)
            except BlockingIOError:
                return None
            if not data:
                raise self._ended()
            self._lines.append(data)

    def _event(self, message: protocol.Message) -> Optional[Event]:
        kind = message.get("type")
        if kind == "watching":
            if not self._begins:
                return None
            self.token = message["token"] if isinstance(message.get("token"), str) else ""
            return Reset(self.token, "subscribed")
        if kind == "summary":
            if isinstance(message.get("error"), dict):
                refusal = protocol.refusal(message)
                self._failure = ProgramFailed(refusal.code, refusal.message, refusal.remedy)
            return None
        event = protocol.event(message)
        if event is not None and isinstance(message.get("token"), str):
            self.token = message["token"]
        return event

    def _read_errors(self) -> None:
        if self._errors.closed:
            return
        try:
            while True:
                data = os.read(self._errors.fileno(), protocol.CHUNK)
                if not data:
                    self._errors.close()
                    return
                self._said += data
                del self._said[:-MAX_ERRORS_LENGTH]
        except BlockingIOError:
            pass

    def _pass_on(self) -> None:
        """Logs warnings. The last text before the program's end belongs to its error instead."""
        text = self._said.decode("utf-8", "replace")
        self._said.clear()
        for line in text.splitlines():
            log.warning("%s", line)

    def _ended(self) -> ProgramFailed:
        """Returns the reason for an end that nobody asked for."""
        status = self._wait()
        self._read_errors()
        said = self._said.decode("utf-8", "replace").strip()
        self._close()
        if self._failure is not None:
            self._failure.exit_status = status
            return ProgramFailed(self._failure.code, self._failure.message, self._failure.remedy, status)
        how = f"by {_signal_name(-status)}" if status < 0 else f"with exit status {status}"
        message = f"groupstore watch ended {how}" + (f": {said}" if said else "")
        return ProgramFailed("program_failed", message, "watch again after the last token", status)

    def _wait(self) -> int:
        try:
            return self._process.wait(END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def end(self) -> None:
        """Ends the program, at the latest after some seconds, and frees everything."""
        if self._process.poll() is None:
            self._process.terminate()
            self._wait()
        self._close()

    def _close(self) -> None:
        self._output.close()
        self._errors.close()

    async def end_async(self) -> None:
        """Ends the program without blocking the event loop."""
        try:
            if self._process.poll() is None:
                self._process.terminate()
            deadline = time.monotonic() + END_TIMEOUT
            while self._process.poll() is None and time.monotonic() < deadline:
                await asyncio.sleep(0.005)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._close()

    def __del__(self) -> None:
        # After an iteration that nobody closed. A constructor that failed has no process.
        process = getattr(self, "_process", None)
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()
            self._close()


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


class DirectChanges(Watch):
    """A store's events without an agent, from the program `groupstore watch --direct` as a child process.

    The store need not exist yet. The first event is a Reset (reason `subscribed`) unless there is a token to continue
    from. Disconnected and Connected don't occur. A token says whether the store was written since, but not how often;
    with rows, a filter of rows or `durable`, it is a position in the store's history, if the store keeps one.

    Raises ProgramFailed, from `next`: the program's code, message, remedy and exit status.

    - `store`: The database file. Its directory exists.
    - `since`: A token after which to begin.
    - `tables`, `entities`, `operations`, `authors`, `except_authors`, `rows`, `durable`: As for `Changes`. The program
      runs an agent of its own for rows, filters of rows and durable tokens; it ends with the program.
    - `program`: The program; by default, `groupstore` on `$PATH`.
    - `token_file`: As for `Changes`.
    """

    def __init__(
        self,
        store: Path,
        since: Optional[str] = None,
        tables: Optional[Iterable[str]] = None,
        *,
        entities: Optional[Iterable[str]] = None,
        operations: Optional[Iterable[str]] = None,
        authors: Optional[Iterable[str]] = None,
        except_authors: Optional[Iterable[str]] = None,
        rows: bool = False,
        durable: bool = False,
        program: Optional[Path] = None,
        token_file: Optional[Path] = None,
    ) -> None:
        super().__init__(token_file)
        if since is None and self._tokens is not None:
            since = self._tokens.read()
        # A later change of the working directory doesn't move the store.
        self._store = os.path.abspath(os.fsencode(store))
        self._selection = Selection(
            tables=protocol.names(tables, "tables"),
            entities=protocol.names(entities, "entities"),
            operations=protocol.names(operations, "operations"),
            authors=protocol.names(authors, "authors"),
            except_authors=protocol.names(except_authors, "except_authors"),
            rows=rows,
            durable=durable,
        )
        self._program = program
        self._token = since
        self._child: Optional[Child] = None
        # One end of it becomes readable to wake the thread in `next`.
        self._waking = socket.socketpair()

    @property
    def token(self) -> Optional[str]:
        """The token of the last event that was returned."""
        return self._token

    @property
    def is_direct(self) -> bool:
        """True."""
        return True

    def _next(self, deadline: Optional[float]) -> Event:
        try:
            if self._child is None:
                self._child = Child(self._store, self._token, self._selection, self._program)
            event = self._wait(self._child, deadline)
            self._token = self._child.token
            return event
        except Ended:
            raise
        except ProgramFailed:
            self._closing.set()
            raise
        except BaseException:
            # An interruption after an event was taken: another child continues after the last one that was returned.
            self._drop_child()
            raise

    def _wait(self, child: Child, deadline: Optional[float]) -> Event:
        while not self._closing.is_set():
            event = child.event()
            if event is not None:
                return event
            poll = select.poll()
            for descriptor in [*child.descriptors, self._waking[0].fileno()]:
                poll.register(descriptor, select.POLLIN)
            left = remaining(deadline)
            if not poll.poll(None if left is None else left * 1000) and remaining(deadline) == 0:
                break
        raise Ended

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._waking[1].shutdown(socket.SHUT_WR)

    def _drop(self) -> None:
        self._drop_child()
        for each in self._waking:
            each.close()

    def __del__(self) -> None:
        for each in getattr(self, "_waking", ()):
            each.close()

    def _drop_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()


class AsyncDirectChanges(AsyncWatch):
    """Like `DirectChanges`, for `async for`."""

    def __init__(
        self,
        store: Path,
        since: Optional[str] = None,
        tables: Optional[Iterable[str]] = None,
        *,
        entities: Optional[Iterable[str]] = None,
        operations: Optional[Iterable[str]] = None,
        authors: Optional[Iterable[str]] = None,
        except_authors: Optional[Iterable[str]] = None,
        rows: bool = False,
        durable: bool = False,
        program: Optional[Path] = None,
        token_file: Optional[Path] = None,
    ) -> None:
        super().__init__(token_file)
        if since is None and self._tokens is not None:
            since = self._tokens.read()
        self._store = os.path.abspath(os.fsencode(store))
        self._selection = Selection(
            tables=protocol.names(tables, "tables"),
            entities=protocol.names(entities, "entities"),
            operations=protocol.names(operations, "operations"),
            authors=protocol.names(authors, "authors"),
            except_authors=protocol.names(except_authors, "except_authors"),
            rows=rows,
            durable=durable,
        )
        self._program = program
        self._token = since
        self._child: Optional[Child] = None
        self._waiter: Optional[asyncio.Future[None]] = None

    @property
    def token(self) -> Optional[str]:
        """The token of the last event that was returned."""
        return self._token

    @property
    def is_direct(self) -> bool:
        """True."""
        return True

    async def _next(self) -> Event:
        if self._child is None:
            self._child = Child(self._store, self._token, self._selection, self._program)
        child = self._child
        while not self._is_closed:
            try:
                event = child.event()
            except ProgramFailed:
                self._is_closed = True
                raise
            if event is not None:
                self._token = child.token
                return event
            await self._readable(child)
        raise Ended

    async def _readable(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        descriptors = child.descriptors
        for descriptor in descriptors:
            loop.add_reader(descriptor, _finish, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            for descriptor in descriptors:
                loop.remove_reader(descriptor)

    def _wake(self) -> None:
        if self._waiter is not None:
            _finish(self._waiter)

    async def _drop(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            await child.end_async()


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
