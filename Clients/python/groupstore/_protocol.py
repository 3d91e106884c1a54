"""The wire protocol: lines, requests and the interpretation of answers. Nothing here reads, writes or waits."""

from __future__ import annotations

import base64
import errno
import json
import os
import random
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Optional, Union

from .errors import NoAgent, Refused
from .events import Abandoned, Changed, Connected, Disconnected, Event, Holder, Migrated, Progress, Relocated, Relocating, Reset

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Message = dict[str, Any]

MAX_LINE_LENGTH = 32768
PROTOCOL_VERSION = 1
CONNECT_TIMEOUT = 5.0
GREETING_TIMEOUT = 30.0
"""The seconds that a program which has never answered may take to greet."""
MAX_ENDED_GREETINGS = 5
"""A program that ends this many connections without a greeting isn't an agent."""
CHUNK = 65536


class NotUnderstood(ConnectionError):
    """The peer doesn't speak this protocol."""


def socket_path() -> str:
    """Returns the path of the agent's socket: `$GROUPSTORE_SOCKET`, else `$XDG_RUNTIME_DIR/groupstore/agent.sock`.

    Raises NoAgent if neither variable is set.
    """
    explicit = os.environ.get("GROUPSTORE_SOCKET")
    if explicit:
        return explicit
    directory = os.environ.get("XDG_RUNTIME_DIR")
    if not directory:
        raise NoAgent(
            "no_agent",
            "the agent's socket is unknown: neither GROUPSTORE_SOCKET nor XDG_RUNTIME_DIR is set",
            "set GROUPSTORE_SOCKET to the agent's socket",
        )
    return os.path.join(directory, "groupstore", "agent.sock")


def no_agent(path: str, error: BaseException) -> NoAgent:
    """Returns the error for a first contact that failed."""
    if isinstance(error, NotUnderstood):
        remedy = "check GROUPSTORE_SOCKET, and that both have the same version"
        return NoAgent("not_understood", f"the program at {path} isn't an agent: {error}", remedy)
    remedy = "start one: groupstore agent"
    if isinstance(error, PermissionError):
        remedy = "the agent's owner can add this user to socket: allow"
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return NoAgent("no_agent", f"no agent at {path}: {reason}", remedy)


def agent_lost(path: str) -> NoAgent:
    """Returns the error for a program that ends each connection."""
    return NoAgent(
        "agent_lost",
        f"the program at {path} ends each connection",
        "check GROUPSTORE_SOCKET and the agent's log, or start it: groupstore agent",
    )


def agent_silent(path: str) -> NoAgent:
    """Returns the error for a program that doesn't answer."""
    return NoAgent(
        "agent_silent", f"the agent at {path} did not answer in time", "check whether it is stopped; see its log"
    )


# --- Lines ---------------------------------------------------------------------------------------------------------


class LineBuffer:
    """Bytes that arrived, and the lines that are complete."""

    def __init__(self, limit: int = MAX_LINE_LENGTH) -> None:
        self._bytes = bytearray()
        self._searched = 0
        self._limit = limit

    def append(self, data: bytes) -> None:
        """Adds bytes that arrived."""
        self._bytes += data

    def message(self) -> Optional[Message]:
        """Removes the next line and returns its object; None if there is no complete line.

        Raises NotUnderstood for a line that is too long or holds no JSON object.
        """
        end = self._bytes.find(b"\n", self._searched)
        if (len(self._bytes) if end < 0 else end + 1) > self._limit:
            raise NotUnderstood(f"it sent a line of more than {self._limit} bytes")
        if end < 0:
            self._searched = len(self._bytes)
            return None
        line = bytes(self._bytes[:end])
        del self._bytes[: end + 1]
        self._searched = 0
        return _object(line)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _object(line: bytes) -> Message:
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise NotUnderstood("it sent a line that is no JSON") from None
    if not isinstance(value, dict):
        raise NotUnderstood("it sent a line that is no JSON object")
    return value


def encoded(message: Message) -> bytes:
    """Returns a line. A value that is bytes or a path is sent as text, or in base64 if it isn't UTF-8."""
    members: Message = {}
    for key, value in message.items():
        if isinstance(value, (bytes, os.PathLike)):
            raw = os.fsencode(value)
            try:
                members[key] = raw.decode("utf-8")
            except UnicodeDecodeError:
                members[key + "_b64"] = base64.b64encode(raw).decode("ascii")
        else:
            members[key] = value
    return json.dumps(members, separators=(",", ":")).encode() + b"\n"


# --- Members: each function raises NotUnderstood for a value of another type ------------------------------------------


def _text(message: Mapping[str, Any], key: str, default: str = "") -> str:
    value = message.get(key, default)
    if not isinstance(value, str):
        raise NotUnderstood(f"{key} is no text")
    return value


def _number(message: Mapping[str, Any], key: str) -> float:
    value = message.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise NotUnderstood(f"{key} is no number")
    return float(value)


def _flag(message: Mapping[str, Any], key: str) -> bool:
    value = message.get(key, False)
    if not isinstance(value, bool):
        raise NotUnderstood(f"{key} is neither true nor false")
    return value


def _names(message: Mapping[str, Any], key: str) -> Optional[list[str]]:
    value = message.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise NotUnderstood(f"{key} is no list of names")
    return value


def _objects(message: Mapping[str, Any], key: str) -> Optional[list[Message]]:
    value = message.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise NotUnderstood(f"{key} is no list of objects")
    return value


def _holder(message: Message) -> Holder:
    pid = message.get("pid", 0)
    if not isinstance(pid, int) or isinstance(pid, bool):
        raise NotUnderstood("pid is no number")
    return Holder(pid, _text(message, "program", "?"), _flag(message, "elsewhere"))


def _holders(message: Mapping[str, Any], key: str) -> list[Holder]:
    return [_holder(each) for each in _objects(message, key) or []]


def path_bytes(message: Mapping[str, Any], key: str) -> bytes:
    """Returns a path, which is sent in base64 if it isn't UTF-8. Empty if there is none."""
    try:
        if key + "_b64" in message:
            return base64.b64decode(_text(message, key + "_b64"), validate=True)
        return _text(message, key).encode("utf-8")
    except ValueError:
        raise NotUnderstood(f"{key} is no path") from None


def _path(message: Mapping[str, Any], key: str) -> str:
    return os.fsdecode(path_bytes(message, key))


def refusal(message: Mapping[str, Any]) -> Refused:
    """Returns the error of a reply or a summary that has one."""
    error = message.get("error")
    if not isinstance(error, dict):
        raise NotUnderstood("it refused without an error")
    hint = error.get("hint")
    return Refused(
        _text(error, "code", "unknown"),
        _text(error, "message"),
        hint if isinstance(hint, str) else "",
        _holders(error, "holders"),
    )


def event(message: Message) -> Optional[Event]:
    """Returns an event, or None for a message of a later agent that this client doesn't know."""
    if message.get("token") is None:
        return None
    kind, token = message.get("type"), _text(message, "token")
    if kind == "change":
        return Changed(token, _names(message, "tables"), _flag(message, "complete"), _objects(message, "rows"))
    if kind in ("relocating", "migrating") and message.get("fraction") is not None:
        return Progress(token, kind, _number(message, "fraction"), _text(message, "doing"))
    if kind == "relocating":
        return Relocating(token, _holders(message, "waiting_for"))
    if kind == "relocated":
        return Relocated(token, _path(message, "from"), _path(message, "to"))
    if kind == "migrated":
        former = _text(message, "from_model") if message.get("from_model") is not None else None
        return Migrated(token, former, _text(message, "to_model"))
    if kind == "abandoned":
        return Abandoned(token, _text(message, "outcome"), _text(message, "message"))
    if kind == "reset":
        return Reset(token, _text(message, "reason"))
    return None


def check_greeting(message: Message) -> bool:
    """Returns True for a greeting. Raises NotUnderstood for one of another version of the protocol."""
    if message.get("type") != "hello":
        return False
    if message.get("proto") != PROTOCOL_VERSION:
        raise NotUnderstood(f"it uses protocol version {message.get('proto')}")
    return True


# --- Requests -------------------------------------------------------------------------------------------------------


def names(value: Optional[Iterable[str]], option: str) -> Optional[list[str]]:
    """Returns the names of an option. One text isn't a list of names: its letters would be taken for them."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{option} takes a list of names: [{value!r}]")
    return None if value is None else list(value)


NAME_LISTS = ("tables", "entities", "operations", "authors", "except_authors")


@dataclass(frozen=True)
class Selection:
    """The options that select events and what they say."""

    tables: Optional[list[str]] = None
    entities: Optional[list[str]] = None
    operations: Optional[list[str]] = None
    authors: Optional[list[str]] = None
    except_authors: Optional[list[str]] = None
    rows: bool = False
    durable: bool = False
    detail: bool = True
    progress: bool = False

    def lists(self) -> dict[str, list[str]]:
        """Returns the lists of names that are given."""
        values = {name: getattr(self, name) for name in NAME_LISTS}
        return {name: value for name, value in values.items() if value is not None}

    def members(self) -> Message:
        """Returns the members of a request."""
        message: Message = dict(self.lists())
        if self.rows:
            message["rows"] = True
        if self.durable:
            message["durable"] = True
        if not self.detail:
            message["detail"] = False
        if self.progress:
            message["progress"] = True
        return message


class Subscription:
    """A subscription across connections: its token, and what is known of the agent."""

    def __init__(
        self, store: Path, since: Optional[str], selection: Selection, path: Optional[Path], wait: bool
    ) -> None:
        self.store = os.fsencode(store)
        self.token = since
        self.selection = selection
        self.path = os.fsdecode(path) if path else socket_path()
        # An agent that was there once is waited for.
        self.awaits_agent = wait
        self.has_reported_loss = False
        self.failures = 0

    def request(self) -> bytes:
        """Returns the request that subscribes after the token."""
        message: Message = {"id": 1, "op": "subscribe", "bookmarks": True, "store": self.store}
        if self.token is not None:
            message["since"] = self.token
        return encoded({**message, **self.selection.members()})

    def receive(self, message: Message) -> Optional[Event]:
        """Returns the event to deliver, if any. Raises Refused, and NotUnderstood."""
        if message.get("ok") is False:
            raise refusal(message)
        if check_greeting(message):
            self.awaits_agent = True
            return None
        if message.get("ok") is True:
            token = _text(message, "token")
            self.awaits_agent = True
            had_reported_loss, self.has_reported_loss, self.failures = self.has_reported_loss, False, 0
            if self.token is not None:
                return Connected(self.token) if had_reported_loss else None
            self.token = token
            return Reset(token, "subscribed")
        found = event(message)
        # A bookmark isn't an event, but it advances the token.
        if message.get("token") is not None:
            self.token = _text(message, "token")
        return found

    def lost(self, error: BaseException, connected: bool) -> Optional[Disconnected]:
        """Returns what to report of a connection that failed, if anything. Raises NoAgent if there never was an agent.

        `connected` says that something accepted the connection.
        """
        if not self.awaits_agent:
            if isinstance(error, NotUnderstood):
                raise no_agent(self.path, error) from error
            if connected and self.failures >= MAX_ENDED_GREETINGS:
                raise agent_lost(self.path) from error
            if not connected and not is_busy(error):
                raise no_agent(self.path, error) from error
        if self.has_reported_loss:
            return None
        self.has_reported_loss = True
        return Disconnected()

    def pause(self) -> float:
        """Returns the seconds until the next attempt: random, so that an agent's clients don't all return at once."""
        maximum = min(2.0, 0.05 * 2.0 ** min(self.failures, 10))
        self.failures += 1
        return random.uniform(maximum / 2, maximum)


def is_busy(error: BaseException) -> bool:
    """Returns True if something listens at the socket and doesn't accept connections just now."""
    if isinstance(error, (TimeoutError, socket.timeout)):
        return True
    return isinstance(error, OSError) and error.errno in (errno.EAGAIN, errno.EINPROGRESS, errno.ECONNRESET)


class Exchange:
    """One request and its answer."""

    def __init__(self, operation: str, members: Mapping[str, Any]) -> None:
        self.request = encoded({"id": 1, "op": operation, **members})
        self._lines = LineBuffer()
        self._rows: list[Message] = []
        self._parts: list[str] = []

    def receive(self, data: bytes) -> Optional[tuple[Message, list[Message]]]:
        """Returns the reply and the rows before it, once they are complete. Raises Refused, and NotUnderstood."""
        if not data:
            raise ConnectionError("the agent ended the connection")
        self._lines.append(data)
        while True:
            message = self._lines.message()
            if message is None:
                return None
            if message.get("ok") is False:
                raise refusal(message)
            if message.get("ok") is True:
                return message, self._rows
            if not check_greeting(message) and message.get("id") == 1:
                self._add(message)

    def _add(self, message: Message) -> None:
        """Adds a row, or a part of one that is longer than a line."""
        if message.get("type") != "part":
            self._rows.append(message)
            return
        self._parts.append(_text(message, "data"))
        if _flag(message, "last"):
            # A character may be escaped in a part and not in the whole.
            self._rows.append(_object("".join(self._parts).encode("utf-8", "surrogatepass")))
            self._parts = []
