#!/usr/bin/env python3
"""A client of the groupstore agent in one file that needs only Python's standard library (3.9 or later). Copy it.

Blocking:

    for event in groupstore.Changes("group.com.example.notes/Notes.sqlite"):
        if isinstance(event, (groupstore.Changed, groupstore.Reset, groupstore.Relocated)):
            read_the_store_again()

With asyncio:

    async for event in groupstore.AsyncChanges("group.com.example.notes/Notes.sqlite", tables=["ZNOTE"]): ...

Only other writers' changes, with the rows if they are few, of a store that keeps a history (`groupstore history enable`):

    for event in groupstore.Changes("group.com.example.notes/Notes.sqlite", except_authors=["me"], rows=True): ...

Without `since`, the first event is a Reset (reason "subscribed"): a program that reads the store after it misses nothing.
Both classes stay subscribed across restarts of the agent. They reopen a lost connection, first at once, later every two
seconds, and continue after the last event that was returned. Changes in between arrive as one change or as a Reset; after
a Reset, everything you know is stale. To continue in another process, save an event's token once you have handled the
event, and pass it as `since`: each change is then delivered at least once.

Run as a program, it prints one JSON object per event: groupstore.py [--async] [--since TOKEN] [--tables A,B] STORE.
See --help for more options.
"""

import asyncio
import base64
import json
import os
import random
import socket
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import List, Optional, Union

MAX_LINE_LENGTH = 32768
CONNECT_TIMEOUT = 5.0


# --- Events -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Holder:
    """A process that has a store open. `pid` is 0 if it isn't known."""

    pid: int
    program: str
    elsewhere: bool = False  # in another PID namespace than the agent


@dataclass(frozen=True)
class Changed:
    """A transaction was committed, and is visible to a reader from now on.

    `tables`: the changed tables, or None if they aren't known. `complete`: no other table was changed.
    `rows`: all changed rows that the subscription selects. None if they weren't requested, aren't known or are too many.
    """

    token: str
    tables: Optional[List[str]]
    complete: bool
    rows: Optional[List[dict]] = None


@dataclass(frozen=True)
class Relocating:
    """A legacy store is about to become this one. The state lasts until Relocated, Abandoned, Reset or Disconnected."""

    token: str
    waiting_for: List[Holder]


@dataclass(frozen=True)
class Relocated:
    """The store was relocated: open it at `to`."""

    token: str
    origin: str
    to: str


@dataclass(frozen=True)
class Migrated:
    """The store has another model version now: read everything again, if this program knows that version."""

    token: str
    from_model: Optional[str]  # None if the former version is unknown
    to_model: str


@dataclass(frozen=True)
class Abandoned:
    """The relocation announced by Relocating ended and moved nothing."""

    token: str
    outcome: str
    message: str


@dataclass(frozen=True)
class Reset:
    """Everything you know is stale: read it again."""

    token: str
    reason: str


@dataclass(frozen=True)
class Disconnected:
    """There is no agent. The client keeps trying to connect; no later change is missed without a Reset.

    The state lasts until Connected or Reset.
    """


@dataclass(frozen=True)
class Connected:
    """The agent is back. Whatever happened meanwhile comes next, as a Changed or as a Reset."""

    token: str


Event = Union[Changed, Relocating, Relocated, Migrated, Abandoned, Reset, Disconnected, Connected]


class Refused(Exception):
    """The agent replied with an error; repeating the request won't help."""

    def __init__(self, error):
        self.code = error.get("code", "unknown")
        self.hint = error.get("hint")
        self.holders = _holders(error.get("holders"))
        message = error.get("message", "")
        super().__init__(f"{message} ({self.hint})" if self.hint else message)


class NoAgent(Exception):
    """No agent answers at the socket, or the program that answers isn't an agent."""


def _holders(values):
    return [Holder(each.get("pid", 0), each.get("program", "?"), each.get("elsewhere", False)) for each in values or []]


def _path(message, key):
    """Returns a path. One that isn't UTF-8 is sent in base64, and is returned as os.fsdecode writes it."""
    if key + "_b64" in message:
        return os.fsdecode(base64.b64decode(message[key + "_b64"]))
    return message.get(key, "")


def _event(message) -> Optional[Event]:
    """Returns an event, or None for a message of a later agent that this client doesn't know."""
    kind, token = message.get("type"), message.get("token")
    if token is None:
        return None
    if kind == "change":
        return Changed(token, message.get("tables"), message.get("complete", False), message.get("rows"))
    if kind == "relocating":
        return Relocating(token, _holders(message.get("waiting_for")))
    if kind == "relocated":
        return Relocated(token, _path(message, "from"), _path(message, "to"))
    if kind == "migrated":
        return Migrated(token, message.get("from_model"), message.get("to_model", ""))
    if kind == "abandoned":
        return Abandoned(token, message.get("outcome", ""), message.get("message", ""))
    if kind == "reset":
        return Reset(token, message.get("reason", ""))
    return None


# --- Shared by both forms: no input, no output ---------------------------------------------------------------------


def socket_path() -> str:
    """Returns the agent's socket. Raises NoAgent if the environment doesn't name it."""
    explicit = os.environ.get("GROUPSTORE_SOCKET")
    if explicit:
        return explicit
    directory = os.environ.get("XDG_RUNTIME_DIR")
    if not directory:
        raise NoAgent("neither GROUPSTORE_SOCKET nor XDG_RUNTIME_DIR is set")
    return os.path.join(directory, "groupstore", "agent.sock")


def _line(message) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class _NotUnderstood(ConnectionError):
    """The peer doesn't speak this protocol."""

    def __init__(self):
        super().__init__("the program that answers isn't an agent")


def _parse(line: bytes):
    if not line.endswith(b"\n"):
        raise ConnectionError("the agent ended the connection")
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise _NotUnderstood from None
    if not isinstance(message, dict):
        raise _NotUnderstood
    return message


def _understood(parse, message):
    """Returns the result of `parse`. Any error while parsing means that the message is malformed."""
    try:
        return parse(message)
    except (AttributeError, LookupError, TypeError, ValueError):
        raise _NotUnderstood from None


def _refusal(message):
    return Refused(message.get("error", {}))


class _Subscription:
    """The request, and the interpretation of replies."""

    FILTERS = ("tables", "entities", "operations", "authors", "except_authors")
    FLAGS = ("rows", "durable")
    NEGATED_FLAGS = ("detail",)

    def __init__(self, store, since, tables, path, options):
        unknown = set(options).difference(self.FILTERS, self.FLAGS, self.NEGATED_FLAGS)
        if unknown:
            raise TypeError(f"unknown: {', '.join(sorted(unknown))}")
        self.store = os.fsencode(store)
        self.token = since
        self.options = {**options, "tables": tables}
        self.path = path or socket_path()
        self.has_reported_loss = False
        self.failures = 0

    def request(self) -> bytes:
        message = {"id": 1, "op": "subscribe", "bookmarks": True}
        try:
            message["store"] = self.store.decode("utf-8")
        except UnicodeDecodeError:
            message["store_b64"] = base64.b64encode(self.store).decode("ascii")
        if self.token is not None:
            message["since"] = self.token
        for name in self.FILTERS:
            if self.options.get(name) is not None:
                message[name] = list(self.options[name])
        for name in self.FLAGS:
            if self.options.get(name):
                message[name] = True
        for name in self.NEGATED_FLAGS:
            if not self.options.get(name, True):
                message[name] = False
        return _line(message)

    def receive(self, message) -> Optional[Event]:
        """Returns the event to deliver, if any. Raises Refused."""
        if message.get("ok") is False:
            raise _understood(_refusal, message)
        if not isinstance(message.get("token", ""), (str, type(None))):
            raise _NotUnderstood
        if message.get("ok") is True:
            had_reported_loss = self.has_reported_loss
            self.has_reported_loss, self.failures = False, 0
            if self.token is not None:
                return Connected(self.token) if had_reported_loss else None
            self.token = message.get("token", "")
            return Reset(self.token, "subscribed")
        event = _understood(_event, message)
        # A bookmark isn't an event, but it advances the token.
        if message.get("token") is not None:
            self.token = message["token"]
        return event

    def lost(self) -> Optional[Disconnected]:
        if self.has_reported_loss:
            return None
        self.has_reported_loss = True
        return Disconnected()

    def pause(self) -> float:
        """Returns the seconds until the next attempt, randomized so that an agent's clients don't reconnect all at once."""
        maximum = min(2.0, 0.05 * 2 ** min(self.failures, 10))
        self.failures += 1
        return random.uniform(maximum / 2, maximum)


# --- Blocking ----------------------------------------------------------------------------------------------------


class Changes:
    """A store's events, one after another. Iteration ends only with `close`, which any thread may call.

    `store`: GROUP_ID/NAME. `since`: a token after which to begin; without it, the first event is a Reset.
    `tables`: leaves out changes that are known to affect only other tables. `detail=False`: the agent doesn't determine
    which tables changed, and publishes sooner. If the store keeps a history, `entities`, `operations` (insert, update,
    delete), `authors` and `except_authors` leave out changes by their rows, `rows=True` adds the rows, and `durable=True`
    requests tokens that are valid with any agent. Raises Refused if the agent refuses the subscription.
    """

    def __init__(self, store, since=None, tables=None, path=None, **options):
        self._subscription = _Subscription(store, since, tables, path, options)
        self._socket = None
        self._unread = None
        self._is_closed = False
        self._closing = threading.Event()

    @property
    def token(self) -> Optional[str]:
        """The token of the last event that was returned, or a later one if the following events are left out."""
        return self._subscription.token

    def __iter__(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __next__(self) -> Event:
        event = self.next()
        if event is None:
            raise StopIteration
        return event

    def next(self, timeout: Optional[float] = None) -> Optional[Event]:
        """Returns the next event, or None if none came within `timeout` seconds, or after `close`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._is_closed:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            try:
                if self._unread is None:
                    self._connect(left)
                    left = None if deadline is None else max(0.001, deadline - time.monotonic())
                event = self._receive(left)
            except socket.timeout:
                if self._unread is None:
                    self._drop()  # before the whole request was sent
                return None
            except (OSError, ValueError):
                if self._is_closed:
                    break
                event = self._lost(deadline)
            except Refused:
                self.close()
                raise
            if event is not None:
                return event
        # Closed while it was connecting.
        self._drop()
        return None

    def close(self):
        self._is_closed = True
        self._closing.set()
        self._drop()

    def _connect(self, left):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket = connection
        # With a timeout, connect doesn't block: if the agent accepts nobody it is retried, and close() ends that.
        connection.settimeout(CONNECT_TIMEOUT if left is None else min(left, CONNECT_TIMEOUT))
        connection.connect(self._subscription.path)
        connection.sendall(self._subscription.request())
        self._unread = bytearray()

    def _receive(self, left):
        # Another thread may close at any time.
        connection, unread = self._socket, self._unread
        if connection is None or unread is None or self._is_closed:
            raise ConnectionError("closed")
        # A line may arrive in parts across several timeouts, so the parts are kept.
        end = unread.find(b"\n")
        if end < 0:
            if len(unread) >= MAX_LINE_LENGTH:
                raise ConnectionError("the agent sent a line without an end")
            connection.settimeout(left)
            more = connection.recv(65536)
            if not more:
                raise ConnectionError("the agent ended the connection")
            unread += more
            return None
        line = bytes(unread[: end + 1])
        del unread[: end + 1]
        return self._subscription.receive(_parse(line))

    def _lost(self, deadline):
        self._drop()
        event = self._subscription.lost()
        if event is None and not self._is_closed:
            pause = self._subscription.pause()
            if deadline is not None:
                pause = min(pause, max(0, deadline - time.monotonic()))
            self._closing.wait(pause)
        return event

    def _drop(self):
        connection, self._socket, self._unread = self._socket, None, None
        if connection is not None:
            try:
                # Wakes a thread that waits on the connection.
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()


def ask(operation, timeout=30.0, path=None, **members):
    """Sends one request. Returns the reply, and the rows before it, as dictionaries. Raises Refused, NoAgent.

    reply, rows = groupstore.ask("status")
    """
    path = path or socket_path()
    deadline = None if timeout is None else time.monotonic() + timeout
    unread, rows = bytearray(), []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:

        def receive():
            # One timeout applies to the whole reply, however slowly its parts arrive.
            if deadline is not None:
                connection.settimeout(max(0.001, deadline - time.monotonic()))
            more = connection.recv(65536)
            if not more:
                raise ConnectionError("the agent ended the connection")
            if deadline is not None and time.monotonic() > deadline:
                raise socket.timeout("timed out")
            return more

        try:
            connection.settimeout(timeout)
            connection.connect(path)
            connection.sendall(_line({"id": 1, "op": operation, **members}))
            while True:
                end = unread.find(b"\n")
                if end < 0 and len(unread) >= MAX_LINE_LENGTH:
                    raise ConnectionError("the agent sent a line without an end")
                if end < 0:
                    unread += receive()
                    continue
                message = _parse(bytes(unread[: end + 1]))
                del unread[: end + 1]
                if message.get("ok") is False:
                    raise _understood(_refusal, message)
                if message.get("ok") is True:
                    return message, rows
                if message.get("id") == 1:
                    rows.append(message)
        except _NotUnderstood as error:
            raise NoAgent(f"at {path}: {error}") from error
        except OSError as error:
            raise NoAgent(f"no agent at {path}: {error}") from error


# --- With asyncio --------------------------------------------------------------------------------------------------


class AsyncChanges:
    """Like `Changes`, for `async for`. `aclose`, or leaving an `async with`, ends it.

    Cancelling an `__anext__`, for example by a timeout, ends nothing: the next one continues.
    """

    def __init__(self, store, since=None, tables=None, path=None, **options):
        self._reader = None
        self._writer = None
        self._subscription = _Subscription(store, since, tables, path, options)
        self._is_closed = False

    @property
    def token(self) -> Optional[str]:
        """The token of the last event that was returned, or a later one if the following events are left out."""
        return self._subscription.token

    def __aiter__(self):
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.aclose()

    async def __anext__(self) -> Event:
        try:
            while not self._is_closed:
                event = await self._step()
                if event is not None:
                    return event
        except Refused:
            await self.aclose()
            raise
        raise StopAsyncIteration

    def __del__(self):
        self._drop()

    async def aclose(self):
        self._is_closed = True
        self._drop()

    async def _step(self):
        try:
            if self._reader is None:
                self._reader, self._writer = await asyncio.wait_for(
                    asyncio.open_unix_connection(self._subscription.path, limit=2 * MAX_LINE_LENGTH), CONNECT_TIMEOUT
                )
                if self._is_closed:
                    self._drop()
                    return None
                self._writer.write(self._subscription.request())
            return self._subscription.receive(_parse(await self._reader.readline()))
        except (OSError, ValueError, asyncio.TimeoutError):
            self._drop()
            if self._is_closed:
                return None
            event = self._subscription.lost()
            if event is None:
                await asyncio.sleep(self._subscription.pause())
            return event

    def _drop(self):
        writer, self._reader, self._writer = self._writer, None, None
        if writer is not None:
            try:
                writer.close()
            except RuntimeError:
                pass  # the event loop is closed, and the connection with it


# --- As a program --------------------------------------------------------------------------------------------------


def _print_event(event):
    print(json.dumps({"event": type(event).__name__, **asdict(event)}), flush=True)


async def _print_events(changes):
    async for event in changes:
        _print_event(event)


def main():
    import argparse

    parser = argparse.ArgumentParser(description="Prints a JSON object for each event of a shared store.")
    parser.add_argument("store", metavar="GROUP_ID/NAME")
    parser.add_argument("--since", metavar="TOKEN")
    for name in _Subscription.FILTERS:
        parser.add_argument("--" + name.replace("_", "-"), metavar="A,B")
    for name in _Subscription.FLAGS:
        parser.add_argument("--" + name, action="store_true")
    for name in _Subscription.NEGATED_FLAGS:
        parser.add_argument("--no-" + name, action="store_false", dest=name)
    parser.add_argument("--async", action="store_true", dest="is_async", help="use asyncio")
    arguments = parser.parse_args()
    options = {name: getattr(arguments, name) for name in _Subscription.FLAGS + _Subscription.NEGATED_FLAGS}
    for name in _Subscription.FILTERS:
        names = getattr(arguments, name)
        options[name] = names.split(",") if names else None
    try:
        if arguments.is_async:
            asyncio.run(_print_events(AsyncChanges(arguments.store, arguments.since, **options)))
        else:
            for event in Changes(arguments.store, arguments.since, **options):
                _print_event(event)
    except (Refused, NoAgent) as error:
        sys.exit(f"groupstore.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
