"""The front for asyncio: it waits for a store's events, and for answers."""

from __future__ import annotations

import asyncio
import contextlib
import select
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


def _finish(waiter: asyncio.Future[bool], is_ready: bool) -> None:
    if not waiter.done():
        waiter.set_result(is_ready)


async def _wait(wish: Wish, waiter: asyncio.Future[bool]) -> bool:
    """Waits for a wish, or for the waiter. Returns True if a descriptor of the wish is ready."""
    loop = asyncio.get_running_loop()
    timer: Optional[asyncio.TimerHandle] = None
    if wish.until is not None:
        timer = loop.call_later(max(0.0, wish.until - time.monotonic()), _finish, waiter, False)
    for descriptor, events in wish.descriptors.items():
        loop.add_reader(descriptor, _finish, waiter, True)
        if events & select.POLLOUT:
            loop.add_writer(descriptor, _finish, waiter, True)
    try:
        return await waiter
    finally:
        if timer is not None:
            timer.cancel()
        for descriptor in wish.descriptors:
            loop.remove_reader(descriptor)
            loop.remove_writer(descriptor)


class AsyncWatch(Front):
    """Like `Watch`, for `async for`. `aclose`, or leaving an `async with`, ends it.

    Cancelling an `__anext__`, for example by a timeout, ends nothing: the next one continues.
    """

    def __init__(self, source: Source, tokens: Optional[TokenFile]) -> None:
        super().__init__(source, tokens)
        # Created in the event loop that uses it.
        self._turn: Optional[asyncio.Lock] = None
        self._waiter: Optional[asyncio.Future[bool]] = None

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
                is_ready = False
                while not self._is_closed:
                    self.commit()
                    event = self._source.step(is_ready)
                    if event is not None:
                        return event
                    self._waiter = asyncio.get_running_loop().create_future()
                    is_ready = await _wait(self._source.wish(), self._waiter)
            except GroupStoreError:
                self._is_closed = True
                raise
            finally:
                if self._is_closed:
                    await self._end_source()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Ends the iteration, also one in which another task waits. An event that wasn't handled is
        delivered again by another one that continues from the same token.
        """
        self._is_closed = True
        if self._waiter is not None:
            _finish(self._waiter, False)
        async with self._lock():
            await self._end_source()

    def _lock(self) -> asyncio.Lock:
        if self._turn is None:
            self._turn = asyncio.Lock()
        return self._turn

    async def _end_source(self) -> None:
        for pause in self._source.end():
            await asyncio.sleep(pause)


class AsyncChanges(AgentFront, AsyncWatch):
    """Like `Changes`, for `async for`. The options are the same."""


class AsyncDirectChanges(DirectFront, AsyncWatch):
    """Like `DirectChanges`, for `async for`."""


async def ask_async(
    operation: str, timeout: Optional[float] = 30.0, path: Optional[Path] = None, **members: Any
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Like `ask`, with asyncio."""
    return await answer_async(Request(operation, timeout, path, members, lambda reply, rows: (reply, rows)))


async def answer_async(request: Request[Answer]) -> Answer:
    """Returns the answer to a request. Raises Refused and NoAgent."""
    is_ready = False
    with contextlib.closing(request):
        while True:
            found = request.step(is_ready)
            if found is not None:
                return found
            is_ready = await _wait(request.wish(), asyncio.get_running_loop().create_future())
