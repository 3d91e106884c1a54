"""What to do next: the states of a subscription, of a request and of the output of `groupstore watch`.

Nothing here reads, writes, waits or asks for the time. `_sources` moves the bytes, and the fronts wait.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import random
import signal
from collections.abc import Mapping
from typing import Any, Callable, Generic, Optional, TypeVar

from . import _protocol as protocol
from ._protocol import LineBuffer, Message, Path, Selection
from .errors import NoAgent, ProgramFailed, Refused
from .events import Connected, Disconnected, Event, Reset

MAX_OUTPUT_LINE_LENGTH = 1 << 20
MAX_ERRORS_LENGTH = 8192

log = logging.getLogger("groupstore")
Answer = TypeVar("Answer")


class Subscription:
    """A subscription across connections: its token, and what is known of the agent.

    Offline: connect at `until`. Online: read; something that has never greeted has time until `until`.
    """

    def __init__(
        self, store: Path, since: Optional[str], selection: Selection, path: Optional[Path], wait: bool
    ) -> None:
        self.store = os.fsencode(store)
        self.token = since
        self.path = os.fsdecode(path) if path else protocol.socket_path()
        self.until: Optional[float] = 0.0
        self.lost_at: Optional[float] = None
        """When the agent was lost, in seconds; None while it serves the subscription, or before it ever did."""
        self.place: Optional[bytes] = None
        """The store's path, as the agent names it; None before it has served the subscription."""
        self._selection = selection
        self._lines: Optional[LineBuffer] = None
        # An agent that was there once is waited for.
        self._awaits_agent = wait
        self._has_reported_loss = False
        self._failures = 0

    @property
    def is_online(self) -> bool:
        """True if something has accepted the connection."""
        return self._lines is not None

    def connect(self, now: float) -> bytes:
        """Goes online. Returns the request that subscribes after the token."""
        self._lines = LineBuffer()
        self.until = None if self._awaits_agent else now + protocol.GREETING_TIMEOUT
        message: Message = {"id": 1, "op": "subscribe", "bookmarks": True, "store": self.store}
        if self.token is not None:
            message["since"] = self.token
        return protocol.encoded({**message, **self._selection.members()})

    def receive(self, data: bytes) -> None:
        """Takes bytes of the agent; none: the connection has ended, which is a ConnectionError."""
        if not data:
            raise ConnectionError("the agent ended the connection")
        assert self._lines is not None
        self._lines.append(data)

    def event(self, now: float) -> Optional[Event]:
        """Returns the next event that has arrived. Raises Refused, NoAgent after a silence, and NotUnderstood."""
        while self._lines is not None:
            message = self._lines.message()
            if message is None:
                if self.until is not None and now >= self.until:
                    raise protocol.agent_silent(self.path)
                break
            found = self._event(message)
            if found is not None:
                return found
        return None

    def _event(self, message: Message) -> Optional[Event]:
        if message.get("ok") is False:
            raise protocol.refusal(message)
        if protocol.check_greeting(message):
            self._awaits_agent, self.until = True, None
            return None
        if message.get("ok") is True:
            token = protocol.text(message, "token")
            self._awaits_agent, self.until, self.lost_at = True, None, None
            self.place = protocol.path_bytes(message, "path") or None
            had_reported_loss, self._has_reported_loss, self._failures = self._has_reported_loss, False, 0
            if self.token is not None:
                return Connected(self.token) if had_reported_loss else None
            self.token = token
            return Reset(token, "subscribed")
        found = protocol.event(message)
        # A bookmark isn't an event, but it advances the token.
        if message.get("token") is not None:
            self.token = protocol.text(message, "token")
        return found

    def lose(self, error: BaseException, now: float) -> Optional[Disconnected]:
        """Goes offline after a failure. Returns what to report, if anything.

        Raises NoAgent if there never was an agent, or one that has never answered stays away. The first attempt after a report is due at once. Later ones follow
        random pauses, so that an agent's clients don't all return at once.
        """
        was_online, self._lines, self.until = self.is_online, None, now
        if not self._awaits_agent:
            if isinstance(error, protocol.NotUnderstood):
                raise protocol.no_agent(self.path, error) from error
            if was_online and self._failures >= protocol.MAX_ENDED_GREETINGS:
                raise protocol.agent_lost(self.path) from error
            if not was_online and not _is_busy(error) and not self._may_return(now):
                raise protocol.no_agent(self.path, error) from error
        if self.lost_at is None:
            self.lost_at = now
        if not self._has_reported_loss:
            self._has_reported_loss = True
            return Disconnected()
        maximum = min(2.0, 0.05 * 2.0 ** min(self._failures, 10))
        self._failures += 1
        self.until = now + random.uniform(maximum / 2, maximum)
        return None

    def _may_return(self, now: float) -> bool:
        """True if something was there before, and may be starting again: an agent may end while it is asked."""
        return self.lost_at is not None and now < self.lost_at + protocol.GREETING_TIMEOUT

    def resume(self, token: Optional[str], now: float) -> None:
        """Looks for the agent again, after the events since its loss came from elsewhere, up to the token."""
        self.rewind(token)
        self.lost_at = now

    def rewind(self, token: Optional[str]) -> None:
        """Goes offline after an interruption, and continues after the token."""
        self.token, self._lines, self.until = token, None, 0.0


def _is_busy(error: BaseException) -> bool:
    """Returns True if something listens at the socket and doesn't accept connections just now."""
    return isinstance(error, OSError) and error.errno in (errno.EAGAIN, errno.ECONNRESET)


class Exchange(Generic[Answer]):
    """One request and its answer, which `read` makes of the reply and the rows before it."""

    def __init__(
        self, operation: str, members: Mapping[str, Any], read: Callable[[Message, list[Message]], Answer]
    ) -> None:
        self.request = protocol.encoded({"id": 1, "op": operation, **members})
        self._read = read
        self._lines = LineBuffer()
        self._rows: list[Message] = []
        self._parts: list[str] = []

    def receive(self, data: bytes) -> Optional[Answer]:
        """Takes bytes of the agent. Returns the answer once it is complete. Raises Refused, and NotUnderstood."""
        if not data:
            raise ConnectionError("the agent ended the connection")
        self._lines.append(data)
        while True:
            message = self._lines.message()
            if message is None:
                return None
            if message.get("ok") is False:
                raise protocol.refusal(message)
            if message.get("ok") is True:
                return self._read(message, self._rows)
            if not protocol.check_greeting(message) and message.get("id") == 1:
                self._add(message)

    def _add(self, message: Message) -> None:
        """Adds a row, or a part of one that is longer than a line."""
        if message.get("type") != "part":
            self._rows.append(message)
            return
        self._parts.append(protocol.text(message, "data"))
        if protocol.flag(message, "last"):
            # A character may be escaped in a part and not in the whole.
            self._rows.append(protocol.parsed("".join(self._parts).encode("utf-8", "surrogatepass")))
            self._parts = []

    @staticmethod
    def failure(path: str, error: BaseException, was_online: bool) -> NoAgent:
        """Returns the error for a request that got no answer."""
        if isinstance(error, BlockingIOError):
            return protocol.agent_silent(path)
        if was_online and not isinstance(error, protocol.NotUnderstood):
            return protocol.agent_lost(path)
        return protocol.no_agent(path, error)


class ProgramOutput:
    """The output of the program that watches a store: its events, its warnings and the reason for its end."""

    def __init__(self, since: Optional[str]) -> None:
        self.rewind(since)

    def rewind(self, token: Optional[str]) -> None:
        """Begins with the output of another program, which continues after the token."""
        self.token = token
        self._is_first = token is None
        self._lines = LineBuffer(MAX_OUTPUT_LINE_LENGTH)
        self._errors = bytearray()
        self._refusal: Optional[Refused] = None

    def receive(self, data: bytes) -> None:
        """Takes bytes of the standard output."""
        self._lines.append(data)

    def warn(self, data: bytes) -> None:
        """Takes bytes of the standard error."""
        self._errors += data
        del self._errors[:-MAX_ERRORS_LENGTH]

    def event(self) -> Optional[Event]:
        """Returns the next event that has arrived. Raises ProgramFailed for output that isn't understood."""
        try:
            while True:
                message = self._lines.message()
                if message is None:
                    return None
                found = self._event(message)
                if found is not None:
                    self._log_warnings()
                    return found
        except protocol.NotUnderstood as error:
            why = f"the output of groupstore watch isn't understood: {error}"
            raise ProgramFailed("not_understood", why, "check that both have the same version") from error

    def _event(self, message: Message) -> Optional[Event]:
        kind, token = message.get("type"), message.get("token")
        if kind == "watching":
            if message.get("exists") is False:
                log.warning("%s doesn't exist yet; waiting for it", os.fsdecode(protocol.path_bytes(message, "path")))
            if not self._is_first:
                return None
            self.token = token if isinstance(token, str) else ""
            return Reset(self.token, "subscribed")
        if kind == "summary":
            self._refusal = protocol.refusal(message) if isinstance(message.get("error"), dict) else self._refusal
            return None
        found = protocol.event(message)
        if isinstance(token, str):
            self.token = token
        return found

    def _log_warnings(self) -> None:
        """Logs what stands on standard error. The last text before the program's end belongs to its error instead."""
        for line in self._said().splitlines():
            log.warning("%s", line)
        self._errors.clear()

    def _said(self) -> str:
        return self._errors.decode("utf-8", "replace")

    def end(self, status: int) -> ProgramFailed:
        """Returns the reason for an end that nobody asked for."""
        if self._refusal is not None:
            return ProgramFailed(self._refusal.code, self._refusal.message, self._refusal.remedy, status)
        how, said = f"with exit status {status}", self._said().strip()
        if status < 0:
            how = f"by signal {-status}"
            with contextlib.suppress(ValueError):
                how = f"by {signal.Signals(-status).name}"
        message = f"groupstore watch ended {how}" + (f": {said}" if said else "")
        return ProgramFailed("program_failed", message, "watch again after the last token", status)
