#!/usr/bin/env python3
"""A client of the groupstore agent in one file, with Python's standard library alone (3.9 or later). Copy it.

Blocking:

    for event in groupstore.Changes("group.com.example.notes/Notes.sqlite"):
        if isinstance(event, (groupstore.Changed, groupstore.Reset, groupstore.Relocated)):
            read_the_store_again()

With asyncio:

    async for event in groupstore.AsyncChanges("group.com.example.notes/Notes.sqlite", tables=["ZNOTE"]): ...

Of a store that keeps a history (`groupstore history enable`) only what others wrote, with the rows where they are few:

    for event in groupstore.Changes("group.com.example.notes/Notes.sqlite", except_authors=["me"], rows=True): ...

Without `since` the first event is a Reset (reason "subscribed"): whoever reads the store from then on misses nothing.
Both stay subscribed whatever becomes of the agent: a connection that ends is made anew, at first at once, later every
two seconds, and goes on from the last event that was handed out. What happened meanwhile is told as one change, or as a
Reset: then what you know is stale. To go on in another process, keep an event's token once you have done what it asks
for, and give it as `since`: each change is told at least once.

Run as a program, it prints one JSON object an event: groupstore.py [--async] [--since TOKEN] [--tables A,B] STORE,
and what else --help shows.
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

LONGEST_LINE = 32768
CONNECT_TIME = 5.0


# --- What a subscriber is told ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Holder:
    """A process that has a store open. `pid` is 0 where it isn't known."""

    pid: int
    program: str
    elsewhere: bool = False  # in another PID namespace than the agent


@dataclass(frozen=True)
class Changed:
    """Something was committed, and whoever reads the store now finds it. `complete`: no other table was written.

    `rows`: all rows that changed and are wanted; None where that wasn't asked for, or isn't known, or they are many.
    """

    token: str
    tables: Optional[List[str]]
    complete: bool
    rows: Optional[List[dict]] = None


@dataclass(frozen=True)
class Relocating:
    """A legacy store is about to become this one. Lasts until Relocated, Abandoned, Reset or Disconnected."""

    token: str
    waiting_for: List[Holder]


@dataclass(frozen=True)
class Relocated:
    """The store is at `to` now: open it there."""

    token: str
    origin: str
    to: str


@dataclass(frozen=True)
class Migrated:
    """The store is of another version of its model: read everything anew, if this program knows that version."""

    token: str
    from_model: Optional[str]  # None where it was of no known version
    to_model: str


@dataclass(frozen=True)
class Abandoned:
    """What Relocating announced is over, and moved nothing."""

    token: str
    outcome: str
    message: str


@dataclass(frozen=True)
class Reset:
    """What you know is stale: read everything anew."""

    token: str
    reason: str


@dataclass(frozen=True)
class Disconnected:
    """There is no agent. It is looked for; nothing that happens meanwhile is missed without a Reset.

    Lasts until Connected or Reset.
    """


@dataclass(frozen=True)
class Connected:
    """What Disconnected told of is over: what happened meanwhile comes next, as a Changed or as a Reset."""

    token: str


Event = Union[Changed, Relocating, Relocated, Migrated, Abandoned, Reset, Disconnected, Connected]


class Refused(Exception):
    """The agent answered with an error: asking again won't help."""

    def __init__(self, error):
        self.code = error.get("code", "unknown")
        self.hint = error.get("hint")
        self.holders = _holders(error.get("holders"))
        message = error.get("message", "")
        super().__init__(f"{message} ({self.hint})" if self.hint else message)


class NoAgent(Exception):
    """No agent answers there, or what answers is none."""


def _holders(values):
    return [Holder(each.get("pid", 0), each.get("program", "?"), each.get("elsewhere", False)) for each in values or []]


def _path(message, key):
    """A path that isn't UTF-8 travels in base64, and comes out as os.fsdecode writes it."""
    if key + "_b64" in message:
        return os.fsdecode(base64.b64decode(message[key + "_b64"]))
    return message.get(key, "")


def _event(message) -> Optional[Event]:
    """None for what a later agent may send and this client doesn't know."""
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


# --- What both forms share: no input, no output --------------------------------------------------------------------


def socket_path() -> str:
    """Where the agent listens. Raises NoAgent when the environment doesn't say."""
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
    """What was said is not this protocol."""

    def __init__(self):
        super().__init__("what answers is no agent")


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


def _understood(take, message):
    """What `take` makes of it. It looks for what an agent says, and finds anything else by stumbling over it."""
    try:
        return take(message)
    except (AttributeError, LookupError, TypeError, ValueError):
        raise _NotUnderstood from None


def _refusal(message):
    return Refused(message.get("error", {}))


class _Subscription:
    """What is to be asked, and what answers mean."""

    FILTERS = ("tables", "entities", "operations", "authors", "except_authors")
    WISHES = ("rows", "durable")
    REFUSALS = ("detail",)

    def __init__(self, store, since, tables, path, wishes):
        unknown = set(wishes).difference(self.FILTERS, self.WISHES, self.REFUSALS)
        if unknown:
            raise TypeError(f"unknown: {', '.join(sorted(unknown))}")
        self.store = os.fsencode(store)
        self.token = since
        self.wishes = {**wishes, "tables": tables}
        self.path = path or socket_path()
        self.is_told = False  # that there is no agent
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
            if self.wishes.get(name) is not None:
                message[name] = list(self.wishes[name])
        for name in self.WISHES:
            if self.wishes.get(name):
                message[name] = True
        for name in self.REFUSALS:
            if not self.wishes.get(name, True):
                message[name] = False
        return _line(message)

    def take(self, message) -> Optional[Event]:
        """The event to hand out, if any. Raises Refused."""
        if message.get("ok") is False:
            raise _understood(_refusal, message)
        if not isinstance(message.get("token", ""), (str, type(None))):
            raise _NotUnderstood
        if message.get("ok") is True:
            was_told = self.is_told
            self.is_told, self.failures = False, 0
            if self.token is not None:
                return Connected(self.token) if was_told else None
            self.token = message.get("token", "")
            return Reset(self.token, "subscribed")
        event = _understood(_event, message)
        # A bookmark is no event, and moves the token all the same.
        if message.get("token") is not None:
            self.token = message["token"]
        return event

    def lost(self) -> Optional[Disconnected]:
        if self.is_told:
            return None
        self.is_told = True
        return Disconnected()

    def pause(self) -> float:
        """Seconds until the next try: many clients of one agent don't come back in the same instant."""
        longest = min(2.0, 0.05 * 2 ** min(self.failures, 10))
        self.failures += 1
        return random.uniform(longest / 2, longest)


# --- Blocking ----------------------------------------------------------------------------------------------------


class Changes:
    """A store's events, one after the other; iterating ends only with `close`, which any thread may call.

    `store`: GROUP_ID/NAME. `since`: a token, to be told first of what happened after it; without one the first event is a
    Reset. `tables`: leave out changes that are known to be of other tables. `detail=False`: which tables change need not be
    found out, and a change is told sooner. Where the store keeps a history, `entities`,
    `operations` (insert, update, delete), `authors` and `except_authors` leave out changes by their rows, `rows=True` asks
    for these, and `durable=True` for tokens that are good with any agent. Raises Refused when the agent refuses.
    """

    def __init__(self, store, since=None, tables=None, path=None, **wishes):
        self._subscription = _Subscription(store, since, tables, path, wishes)
        self._socket = None
        self._unread = None
        self._is_closed = False
        self._closing = threading.Event()

    @property
    def token(self) -> Optional[str]:
        """Of the last event that was handed out, or further where what followed is left out."""
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
        """The next event; None when none came in that many seconds, or after `close`."""
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
                    self._drop()  # before all of the request was sent
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
        # Closed while it was being connected.
        self._drop()
        return None

    def close(self):
        self._is_closed = True
        self._closing.set()
        self._drop()

    def _connect(self, left):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket = connection
        # With a time-out it never waits: an agent that takes nobody is tried again, and close() ends that.
        connection.settimeout(CONNECT_TIME if left is None else min(left, CONNECT_TIME))
        connection.connect(self._subscription.path)
        connection.sendall(self._subscription.request())
        self._unread = bytearray()

    def _receive(self, left):
        # Another thread may close at any time.
        connection, unread = self._socket, self._unread
        if connection is None or unread is None or self._is_closed:
            raise ConnectionError("closed")
        # A line in two parts may take two time-outs: what came of it is kept.
        end = unread.find(b"\n")
        if end < 0:
            if len(unread) >= LONGEST_LINE:
                raise ConnectionError("the agent sent a line without an end")
            connection.settimeout(left)
            more = connection.recv(65536)
            if not more:
                raise ConnectionError("the agent ended the connection")
            unread += more
            return None
        line = bytes(unread[: end + 1])
        del unread[: end + 1]
        return self._subscription.take(_parse(line))

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
                # Whoever waits in another thread hears of the end.
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()


def ask(operation, timeout=30.0, path=None, **members):
    """Asks once: the reply, and the rows before it, as dictionaries. Raises Refused, NoAgent.

    reply, rows = groupstore.ask("status")
    """
    path = path or socket_path()
    deadline = None if timeout is None else time.monotonic() + timeout
    unread, rows = bytearray(), []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:

        def receive():
            # All of it has one time-out, however slowly its parts come.
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
                if end < 0 and len(unread) >= LONGEST_LINE:
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
    """As `Changes`, for `async for`. `aclose`, or leaving an `async with`, ends it.

    An `__anext__` that is cancelled, as by a time-out, ends nothing: the next one goes on.
    """

    def __init__(self, store, since=None, tables=None, path=None, **wishes):
        self._reader = None
        self._writer = None
        self._subscription = _Subscription(store, since, tables, path, wishes)
        self._is_closed = False

    @property
    def token(self) -> Optional[str]:
        """Of the last event that was handed out, or further where what followed is left out."""
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
                    asyncio.open_unix_connection(self._subscription.path, limit=2 * LONGEST_LINE), CONNECT_TIME
                )
                if self._is_closed:
                    self._drop()
                    return None
                self._writer.write(self._subscription.request())
            return self._subscription.take(_parse(await self._reader.readline()))
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
                pass  # the event loop has gone, and the connection with it


# --- As a program --------------------------------------------------------------------------------------------------


def _say(event):
    print(json.dumps({"event": type(event).__name__, **asdict(event)}), flush=True)


async def _say_all(changes):
    async for event in changes:
        _say(event)


def main():
    import argparse

    parser = argparse.ArgumentParser(description="Prints a JSON object for each event of a shared store.")
    parser.add_argument("store", metavar="GROUP_ID/NAME")
    parser.add_argument("--since", metavar="TOKEN")
    for name in _Subscription.FILTERS:
        parser.add_argument("--" + name.replace("_", "-"), metavar="A,B")
    for name in _Subscription.WISHES:
        parser.add_argument("--" + name, action="store_true")
    for name in _Subscription.REFUSALS:
        parser.add_argument("--no-" + name, action="store_false", dest=name)
    parser.add_argument("--async", action="store_true", dest="is_async", help="use asyncio")
    words = parser.parse_args()
    wishes = {name: getattr(words, name) for name in _Subscription.WISHES + _Subscription.REFUSALS}
    for name in _Subscription.FILTERS:
        names = getattr(words, name)
        wishes[name] = names.split(",") if names else None
    try:
        if words.is_async:
            asyncio.run(_say_all(AsyncChanges(words.store, words.since, **wishes)))
        else:
            for event in Changes(words.store, words.since, **wishes):
                _say(event)
    except (Refused, NoAgent) as error:
        sys.exit(f"groupstore.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
