"""Implements the client's side of the socket from the wire protocol's document alone."""

import array
import base64
import json
import os
import select
import socket
import time


class Closed(Exception):
    """Raised when the agent has ended the connection."""


def store_member(store):
    """Returns a store's member in a request: bytes that aren't UTF-8 travel in base64."""
    if isinstance(store, bytes):
        try:
            return {"store": store.decode("utf-8")}
        except UnicodeDecodeError:
            return {"store_b64": base64.b64encode(store).decode()}
    return {"store": store}


class Client:
    """A connection. It keeps events with their arrival times; replies go to the requester."""

    def __init__(self, path, connected=None):
        self.socket = connected or socket.socket(socket.AF_UNIX)
        if connected is None:
            self.socket.settimeout(30)
            self.socket.connect(path)
        self.socket.setblocking(False)
        self.buffer, self.events, self.replies, self.raw = b"", [], [], []
        self.number, self.closed, self.faults = 0, False, []

    def close(self):
        self.socket.close()
        self.closed = True

    def fileno(self):
        return self.socket.fileno()

    # Reading

    def read(self, seconds):
        """Reads for at most that time; returns False if nothing came or the connection has ended."""
        if self.closed:
            return False
        ready = select.select([self.socket], [], [], max(0, seconds))[0] if self.socket.fileno() < 1024 else self._poll(seconds)
        if not ready:
            return False
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return False
        self.buffer += data
        *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            self._take(line)
        return True

    def _poll(self, seconds):
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return poll.poll(max(0, seconds) * 1000)

    def _take(self, line):
        now = time.monotonic()
        self.raw.append(line)
        if len(line) >= 32768:
            self.faults.append(f"a line of {len(line) + 1} bytes: {line[:80]!r}")
        try:
            message = json.loads(line)
        except ValueError:
            self.faults.append(f"a line that is no JSON: {line[:200]!r}")
            return
        if not isinstance(message, dict):
            self.faults.append(f"a line that is no object: {line[:200]!r}")
        elif "ok" in message:
            self.replies.append(message)
        elif message.get("type") == "hello":
            self.hello = message
        else:
            self.events.append((now, message))

    def drain(self):
        while self.read(0):
            pass

    # Asking

    def send(self, data, seconds=30, descriptors=()):
        """Sends bytes, and reads meanwhile."""
        end, view = time.monotonic() + seconds, memoryview(data)
        while view and not self.closed:
            if time.monotonic() > end:
                raise TimeoutError("the agent reads nothing")
            poll = select.poll()
            poll.register(self.socket, select.POLLIN | select.POLLOUT)
            for _, what in poll.poll(1000):
                if what & select.POLLIN:
                    self.read(0)
                if what & select.POLLOUT and view:
                    try:
                        if descriptors:
                            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
                            sent = self.socket.sendmsg([view], rights)
                            descriptors = ()
                        else:
                            sent = self.socket.send(view)
                        view = view[sent:]
                    except BlockingIOError:
                        pass
                    except OSError:
                        self.drain()
                        self.closed = True
                elif what & (select.POLLHUP | select.POLLERR) and not what & select.POLLIN:
                    self.closed = True

    def post(self, message, descriptors=()):
        """Sends a request and returns its id."""
        self.number += 1
        message = {"id": self.number, **message}
        self.send(json.dumps(message).encode() + b"\n", descriptors=descriptors)
        return message["id"]

    def reply(self, id, seconds=30):
        """Returns the reply to `id`, or None if none came in that time."""
        end = time.monotonic() + seconds
        while True:
            for reply in self.replies:
                if reply.get("id") == id:
                    self.replies.remove(reply)
                    return reply
            if self.closed:
                raise Closed()
            left = end - time.monotonic()
            if left <= 0:
                return None
            self.read(left)

    def ask(self, message, seconds=30, descriptors=()):
        return self.reply(self.post(message, descriptors), seconds)

    def rows(self, message, seconds=30):
        """Returns the reply and the rows with its id."""
        id = self.post(message)
        reply = self.reply(id, seconds)
        rows = [m for _, m in self.events if m.get("id") == id]
        self.events = [(t, m) for t, m in self.events if m.get("id") != id]
        return reply, rows

    def status(self, store=None, seconds=30):
        """Returns the rows of `status`; for a store, its row or None."""
        reply, rows = self.rows({"op": "status"}, seconds)
        if store is None:
            return reply, rows
        for row in rows:
            if row.get("type") == "store" and row_store(row) == os.fsencode(store):
                return row
        return None

    # Events

    def since(self, moment, store=None):
        """Returns the events that arrived at or after a moment."""
        self.drain()
        return [m for t, m in self.events if t >= moment and (store is None or row_store(m) == os.fsencode(store))]

    def wait_event(self, accept, moment, seconds):
        """Waits for an accepted event after the moment; returns its delay, or None."""
        end = time.monotonic() + seconds
        seen = 0
        while True:
            for t, message in self.events[seen:]:
                if t >= moment and accept(message):
                    return t - moment
            seen = len(self.events)
            if self.closed:
                raise Closed()
            left = end - time.monotonic()
            if left <= 0:
                return None
            self.read(left)


def row_store(row):
    if "store_b64" in row:
        return base64.b64decode(row["store_b64"])
    return row.get("store", "").encode("utf-8", "surrogateescape")


def requires_reread(message):
    """Returns whether the event makes a subscriber read the store again."""
    return message.get("type") in ("change", "reset", "relocated", "migrated")
