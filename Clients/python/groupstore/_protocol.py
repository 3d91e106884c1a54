"""The wire protocol: lines, requests and the interpretation of answers. Nothing here reads, writes or waits."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Optional, Union

from ._rows import ChangedRow, row
from .errors import InvalidOption, NoAgent, Refused, UnknownOperation
from .events import (
    Abandoned,
    BranchChanged,
    Changed,
    Event,
    Hazard,
    HazardOver,
    Holder,
    Migrated,
    Progress,
    Relocated,
    Relocating,
    Reset,
)

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Message = dict[str, Any]

MAX_LINE_LENGTH = 32768
PROTOCOL_VERSION = 1
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
        return parsed(line)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def parsed(line: bytes) -> Message:
    """Returns the object of a line. Raises NotUnderstood."""
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


def text(message: Mapping[str, Any], key: str, default: str = "") -> str:
    """Returns a text."""
    value = message.get(key, default)
    if not isinstance(value, str):
        raise NotUnderstood(f"{key} is no text")
    return value


def _number(message: Mapping[str, Any], key: str) -> float:
    value = message.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise NotUnderstood(f"{key} is no number")
    return float(value)


def flag(message: Mapping[str, Any], key: str) -> bool:
    """Returns true or false; false if there is none."""
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


def _rows(message: Mapping[str, Any], key: str) -> Optional[list[ChangedRow]]:
    lines = _objects(message, key)
    try:
        return None if lines is None else [row(line, {}) for line in lines]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NotUnderstood(f"{key} has a row that can't be read: {error!r}") from None


def _pid(message: Message, key: str) -> int:
    pid = message.get(key, 0)
    if not isinstance(pid, int) or isinstance(pid, bool):
        raise NotUnderstood(f"{key} is no number")
    return pid


def _holder(message: Message) -> Holder:
    return Holder(_pid(message, "pid"), text(message, "program", "?"), flag(message, "elsewhere"))


def _holders(message: Mapping[str, Any], key: str) -> list[Holder]:
    return [_holder(each) for each in _objects(message, key) or []]


def path_bytes(message: Mapping[str, Any], key: str) -> bytes:
    """Returns a path, which is sent in base64 if it isn't UTF-8. Empty if there is none."""
    try:
        if key + "_b64" in message:
            return base64.b64decode(text(message, key + "_b64"), validate=True)
        return text(message, key).encode("utf-8")
    except ValueError:
        raise NotUnderstood(f"{key} is no path") from None


def _path(message: Mapping[str, Any], key: str) -> str:
    return os.fsdecode(path_bytes(message, key))


def refusal(message: Mapping[str, Any]) -> Refused:
    """Returns the error of a reply or a summary that has one."""
    error = message.get("error")
    if not isinstance(error, dict):
        raise NotUnderstood("it refused without an error")
    hint, code = error.get("hint"), text(error, "code", "unknown")
    kind = UnknownOperation if code == "unknown_op" else Refused
    return kind(
        code,
        text(error, "message"),
        hint if isinstance(hint, str) else "",
        _holders(error, "holders"),
    )


def event(message: Message) -> Optional[Event]:
    """Returns an event, or None for a message of a later agent that this client doesn't know."""
    if message.get("token") is None:
        return None
    kind, token = message.get("type"), text(message, "token")
    if kind == "change" and message.get("branch") is not None:
        return BranchChanged(token, _pid(message, "branch"), _names(message, "tables"), flag(message, "complete"))
    if kind == "change":
        return Changed(token, _names(message, "tables"), flag(message, "complete"), _rows(message, "rows"))
    if kind in ("relocating", "migrating") and message.get("fraction") is not None:
        return Progress(token, kind, _number(message, "fraction"), text(message, "doing"))
    if kind == "relocating":
        return Relocating(token, _holders(message, "waiting_for"))
    if kind == "relocated":
        return Relocated(token, _path(message, "from"), _path(message, "to"))
    if kind == "migrated":
        former = text(message, "from_model") if message.get("from_model") is not None else None
        return Migrated(token, former, text(message, "to_model"))
    if kind == "abandoned":
        return Abandoned(token, text(message, "outcome"), text(message, "message"))
    if kind == "hazard":
        code, file = text(message, "code"), _path(message, "path")
        words = text(message, "message"), text(message, "hint")
        return Hazard(token, code, _holder(message), file, *words, flag(message, "warning"))
    if kind == "hazard_over":
        return HazardOver(token, text(message, "code"), _holder(message))
    if kind == "reset":
        return Reset(token, text(message, "reason"))
    return None


def check_greeting(message: Message) -> bool:
    """Returns True for a greeting. Raises NotUnderstood for one of another version of the protocol."""
    if message.get("type") != "hello":
        return False
    if message.get("proto") != PROTOCOL_VERSION:
        raise NotUnderstood(f"it uses protocol version {message.get('proto')}")
    return True


# --- Requests -------------------------------------------------------------------------------------------------------


def _list(value: Optional[Iterable[str]], option: str) -> Optional[list[str]]:
    # One text isn't a list of names: its letters would be taken for them.
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{option} takes a list of names: [{value!r}]")
    if value is None:
        return None
    names = list(value)
    for name in names:
        if option == "operations" and name not in OPERATIONS:
            raise InvalidOption(
                "bad_option", f"there is no operation {name!r}", f"operations takes {', '.join(OPERATIONS)}"
            )
    return names


OPERATIONS = ("insert", "update", "delete")
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

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Selection:
        """Returns the selection among a function's arguments. Raises TypeError for a text instead of a list, and
        InvalidOption.
        """
        given: Message = {each.name: arguments[each.name] for each in fields(cls) if each.name in arguments}
        given.update((name, _list(given[name], name)) for name in NAME_LISTS)
        return cls(**given)

    def lists(self) -> dict[str, list[str]]:
        """Returns the lists of names that are given."""
        values = {name: getattr(self, name) for name in NAME_LISTS}
        return {name: value for name, value in values.items() if value is not None}

    def members(self) -> Message:
        """Returns the members of a request."""
        flags = {each.name: (bool(getattr(self, each.name)), each.default) for each in fields(self)[len(NAME_LISTS) :]}
        # What is the agent's default is left out.
        return {**self.lists(), **{name: value for name, (value, default) in flags.items() if value != default}}
