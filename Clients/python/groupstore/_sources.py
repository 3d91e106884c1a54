"""Where events and answers come from. Nothing here waits: the fronts do, for what `wish` returns."""

from __future__ import annotations

import abc
import contextlib
import os
import select
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, Callable, Generic, NamedTuple, Optional

from . import _protocol as protocol
from ._core import Answer, Exchange, Subscription
from ._protocol import Message, Path
from .errors import GroupStoreError
from .events import Event

RETRY_INTERVAL = 0.05
"""The seconds between attempts of a request that has no deadline to connect to a busy agent."""


class Wish(NamedTuple):
    """What to wait for: that one of the descriptors is ready, but no longer than until a time of `time.monotonic`."""

    descriptors: Mapping[int, int]
    """What each descriptor is to be ready for: POLLIN and POLLOUT."""
    until: Optional[float] = None


class Source(abc.ABC):
    """A store's events, for a front that waits. Only the thread or task whose turn it is calls anything here."""

    @property
    def is_direct(self) -> bool:
        """True if the events come without an agent."""
        return False

    @property
    @abc.abstractmethod
    def token(self) -> Optional[str]:
        """The token of the last event that `step` returned, or a later one if the following events are left out."""

    @abc.abstractmethod
    def step(self, is_ready: bool) -> Optional[Event]:
        """Does what can be done at once, and returns an event if one has arrived. Raises GroupStoreError at the end.

        `is_ready` says that the front has waited, and a descriptor of the wish is ready.
        """

    @abc.abstractmethod
    def wish(self) -> Wish:
        """Returns what to wait for after a `step` without an event."""

    @abc.abstractmethod
    def rewind(self, token: Optional[str]) -> None:
        """Continues after the token, once `end` has freed everything."""

    @abc.abstractmethod
    def end(self) -> Iterator[float]:
        """Frees everything. Yields the seconds to sleep before it goes on."""


class Connection:
    """A connection to the agent that doesn't block."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            # Either the agent's queue has a place, or this raises BlockingIOError.
            self._socket.connect(path)
        except BaseException:
            self._socket.close()
            raise
        self._unsent = b""

    def send(self, data: bytes) -> None:
        """Sends the bytes, in parts if they are many."""
        self._unsent += data
        with contextlib.suppress(BlockingIOError):
            self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def receive(self) -> Optional[bytes]:
        """Returns what has arrived; None if nothing has, no bytes at the end."""
        if self._unsent:
            self.send(b"")
        try:
            return self._socket.recv(protocol.CHUNK)
        except BlockingIOError:
            return None

    def descriptors(self) -> Mapping[int, int]:
        """Returns what to wait for."""
        return {self._socket.fileno(): select.POLLIN | (select.POLLOUT if self._unsent else 0)}

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()


class AgentSource(Source):
    """A subscription and its connection."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._connection: Optional[Connection] = None

    @property
    def token(self) -> Optional[str]:
        return self._subscription.token

    @property
    def subscription(self) -> Subscription:
        """What is known of the agent."""
        return self._subscription

    def step(self, is_ready: bool) -> Optional[Event]:
        core, now = self._subscription, time.monotonic()
        try:
            if self._connection is None:
                if core.until is not None and now < core.until:
                    return None
                self._connection = Connection(core.path)
                self._connection.send(core.connect(now))
            elif is_ready:
                data = self._connection.receive()
                if data is not None:
                    core.receive(data)
            return core.event(now)
        except GroupStoreError:
            raise
        except (OSError, ValueError) as error:
            self._close()
            return core.lose(error, now)

    def wish(self) -> Wish:
        return Wish(self._connection.descriptors() if self._connection else {}, self._subscription.until)

    def rewind(self, token: Optional[str]) -> None:
        self._subscription.rewind(token)

    def end(self) -> Iterator[float]:
        self._close()
        return iter(())

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def __del__(self) -> None:
        # After an iteration that nobody closed.
        self._close()


class Request(Generic[Answer]):
    """One request and its connection."""

    def __init__(
        self,
        operation: str,
        timeout: Optional[float],
        path: Optional[Path],
        members: Mapping[str, Any],
        read: Callable[[Message, list[Message]], Answer],
    ) -> None:
        self._path = os.fsdecode(path) if path else protocol.socket_path()
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._exchange = Exchange(operation, members, read)
        self._connection: Optional[Connection] = None

    def step(self, is_ready: bool) -> Optional[Answer]:
        """Does what can be done at once, and returns the answer once it is complete. Raises Refused and NoAgent."""
        try:
            if self._connection is None:
                self._connection = Connection(self._path)
                self._connection.send(self._exchange.request)
            elif is_ready:
                data = self._connection.receive()
                answer = None if data is None else self._exchange.receive(data)
                if answer is not None:
                    return answer
        except GroupStoreError:
            raise
        except (OSError, ValueError) as error:
            if self._deadline is not None or not isinstance(error, BlockingIOError):
                raise self._exchange.failure(self._path, error, self._connection is not None) from error
        # However slowly the parts arrive, one timeout applies.
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise protocol.agent_silent(self._path)
        return None

    def wish(self) -> Wish:
        """Returns what to wait for after a `step` without an answer."""
        if self._connection is None:
            return Wish({}, time.monotonic() + RETRY_INTERVAL)
        return Wish(self._connection.descriptors(), self._deadline)

    def close(self) -> None:
        """Ends the connection."""
        if self._connection is not None:
            self._connection.close()
