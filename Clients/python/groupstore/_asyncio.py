"""The form for asyncio: an asynchronous iterator of a store's events."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import os
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Optional

from . import _protocol as protocol
from ._blocking import Ended, request_error
from ._protocol import Path, Selection, Subscription
from ._tokens import TokenFile
from .errors import NoAgent, Refused
from .events import Event


class AsyncWatch(abc.ABC):
    """Like `Watch`, for `async for`. `aclose`, or leaving an `async with`, ends it.

    Cancelling an `__anext__`, for example by a timeout, ends nothing: the next one continues.
    """

    def __init__(self, token_file: Optional[Path]) -> None:
        self._is_closed = False
        # Created in the event loop that uses it.
        self._turn: Optional[asyncio.Lock] = None
        self._tokens = TokenFile(token_file) if token_file else None

    @property
    @abc.abstractmethod
    def token(self) -> Optional[str]:
        """The token of the last event that was returned, or a later one if the following events are left out."""

    @property
    @abc.abstractmethod
    def is_direct(self) -> bool:
        """True if the store is watched without an agent."""

    def __aiter__(self) -> AsyncWatch:
        return self

    async def __aenter__(self) -> AsyncWatch:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            if error is None:
                self.commit()
        finally:
            await self.aclose()

    async def __anext__(self) -> Event:
        async with self._lock():
            try:
                if not self._is_closed:
                    self.commit()
                    return await self._next()
            except Ended:
                pass
            finally:
                if self._is_closed:
                    await self._drop()
        raise StopAsyncIteration

    def commit(self) -> None:
        """Says that the last event is handled: with `token_file`, its token is written.

        The next `__anext__` and the end of an `async with` block without an exception do so too. Raises OSError if it
        can't be written.
        """
        if self._tokens is not None:
            self._tokens.write(self.token)

    async def aclose(self) -> None:
        """Ends the iteration, also one in which another task waits. An event that wasn't handled is
        delivered again by another one that continues from the same token.
        """
        self._is_closed = True
        self._wake()
        async with self._lock():
            await self._drop()

    def _lock(self) -> asyncio.Lock:
        if self._turn is None:
            self._turn = asyncio.Lock()
        return self._turn

    @abc.abstractmethod
    async def _next(self) -> Event:
        """Returns the next event. Raises Ended after `aclose`."""

    @abc.abstractmethod
    def _wake(self) -> None:
        """Wakes the task that is in `__anext__`, if there is one."""

    @abc.abstractmethod
    async def _drop(self) -> None:
        """Closes what is open. Only the task whose turn it is calls this."""


class AsyncChanges(AsyncWatch):
    """Like `Changes`, for `async for`. The options are the same."""

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
        self._reader: Optional[asyncio.StreamReader] = None
        self._writer: Optional[asyncio.StreamWriter] = None
        self._lines = protocol.LineBuffer()
        self._greeting: Optional[asyncio.TimerHandle] = None
        self._is_silent = False
        self._pausing: Optional[asyncio.Future[None]] = None
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

    @property
    def token(self) -> Optional[str]:
        """The token of the last event that was returned, or a later one if the following events are left out."""
        return self._subscription.token

    @property
    def is_direct(self) -> bool:
        """False: the events come from the agent."""
        return False

    def __del__(self) -> None:
        self._disconnect()

    async def _next(self) -> Event:
        while not self._is_closed:
            try:
                event = await self._step()
            except (NoAgent, Refused):
                self._is_closed = True
                raise
            if event is not None:
                return event
            self.commit()
        raise Ended

    async def _step(self) -> Optional[Event]:
        """Returns an event, or None after anything else."""
        connected = self._reader is not None
        try:
            if self._reader is None:
                await self._connect()
                connected = True
            message = self._lines.message()
            if message is not None:
                event = self._subscription.receive(message)
                if self._subscription.awaits_agent:
                    self._stop_greeting()
                return event
            # Another task may have closed meanwhile.
            data = await self._reader.read(protocol.CHUNK) if self._reader is not None else b""
            if not data:
                raise ConnectionError("the agent ended the connection")
            self._lines.append(data)
            return None
        except (OSError, ValueError, asyncio.TimeoutError) as error:
            self._disconnect()
            if self._is_closed:
                raise Ended from None
            if self._is_silent and not self._subscription.awaits_agent:
                raise protocol.agent_silent(self._subscription.path) from None
            cause = TimeoutError() if isinstance(error, asyncio.TimeoutError) else error
            report = self._subscription.lost(cause, connected)
            if report is None:
                await self._pause()
            return report

    async def _connect(self) -> None:
        self._reader, writer = await asyncio.wait_for(
            asyncio.open_unix_connection(self._subscription.path), protocol.CONNECT_TIMEOUT
        )
        self._writer = writer
        self._lines = protocol.LineBuffer()
        if self._is_closed:
            raise ConnectionError("closed")
        writer.write(self._subscription.request())
        if not self._subscription.awaits_agent:
            self._greeting = asyncio.get_running_loop().call_later(protocol.GREETING_TIMEOUT, self._give_up)

    def _give_up(self) -> None:
        self._is_silent = True
        if self._writer is not None:
            self._writer.close()

    def _stop_greeting(self) -> None:
        timer, self._greeting = self._greeting, None
        if timer is not None:
            timer.cancel()

    async def _pause(self) -> None:
        pausing = self._pausing = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait([pausing], timeout=self._subscription.pause())
        finally:
            self._pausing = None

    def _wake(self) -> None:
        if self._pausing is not None and not self._pausing.done():
            self._pausing.set_result(None)
        if self._writer is not None:
            self._writer.close()

    async def _drop(self) -> None:
        self._disconnect()

    def _disconnect(self) -> None:
        self._stop_greeting()
        writer, self._reader, self._writer = self._writer, None, None
        if writer is not None:
            # The event loop may be closed, and the connection with it.
            with contextlib.suppress(RuntimeError):
                writer.close()


async def ask_async(
    operation: str, timeout: Optional[float] = 30.0, path: Optional[Path] = None, **members: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Like `ask`, with asyncio."""
    place = os.fsdecode(path) if path else protocol.socket_path()
    exchange = protocol.Exchange(operation, members)
    writer: Optional[asyncio.StreamWriter] = None

    async def answer() -> tuple[dict[str, Any], list[dict[str, Any]]]:
        nonlocal writer
        reader, writer = await asyncio.open_unix_connection(place)
        writer.write(exchange.request)
        while True:
            received = exchange.receive(await reader.read(protocol.CHUNK))
            if received is not None:
                return received

    try:
        return await asyncio.wait_for(answer(), timeout)
    except (OSError, ValueError, asyncio.TimeoutError) as error:
        cause = TimeoutError() if isinstance(error, asyncio.TimeoutError) else error
        raise request_error(place, cause, writer is not None) from error
    finally:
        if writer is not None:
            writer.close()
