"""The two feeds that the soaks test: an agent's, and that of programs that watch the store directly."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time

GROUP = "group.example.soak"
PATIENCE = 60  # seconds, on a busy machine


class Lines:
    """Reads lines of JSON from a descriptor, with a time limit."""

    def __init__(self, descriptor):
        self.descriptor, self.buffer = descriptor, b""

    def line(self, timeout):
        """Returns the next line; None if none comes in time. Raises EOFError at the end."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.descriptor], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                return None
            more = os.read(self.descriptor, 65536)
            if not more:
                raise EOFError("the feed ended")
            self.buffer += more
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)


class Subscription(Lines):
    """A connection to an agent that reads one store's events."""

    def __init__(self, path, name):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        super().__init__(self.socket.fileno())
        request = {"id": 1, "op": "subscribe", "store": f"{GROUP}/{name}"}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        while True:
            line = self.line(PATIENCE)
            if line is None:
                raise SystemExit("soak: the agent does not answer")
            if line.get("id") == 1:
                if not line["ok"]:
                    raise SystemExit(f"soak: refused: {line}")
                return

    def close(self):
        self.socket.close()


class Watch(Lines):
    """A program that watches one store directly."""

    def __init__(self, program, path, environment):
        words = [program, "watch", "--direct", "--json", "--", path]
        self.process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        super().__init__(self.process.stdout.fileno())
        line = self.line(PATIENCE)
        if line is None or line["type"] != "watching":
            raise SystemExit(f"soak: the watcher does not begin: {line}")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class AgentFeed:
    """An agent that serves one group."""

    growth = 2048  # KiB that its own memory may grow by

    def __init__(self, program, directory, socket_path, legacy=()):
        self.program, self.directory, self.socket = program, directory, socket_path
        self.environment = dict(os.environ, GROUPSTORE_SOCKET=socket_path)
        self.words = ["agent", "--group", f"{GROUP}={directory}"]
        self.words += [word for path in legacy for word in ("--legacy", path)]
        self.start()

    def start(self):
        self.process = subprocess.Popen([self.program, *self.words], env=self.environment, stderr=subprocess.PIPE, text=True)
        # The first line of its log says that it serves.
        said = self.process.stderr.readline()
        if not os.path.exists(self.socket):
            raise SystemExit(f"soak: no socket\n{said}{self.process.communicate(timeout=20)[1]}")
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def subscribe(self, name):
        return Subscription(self.socket, name)

    def forget(self, subscriber):
        pass

    def pids(self):
        """Returns the processes that watch the store."""
        return [self.process.pid]

    def wait_for(self, count):
        pass

    def kill(self):
        """Kills each process that watches the store, and starts it again."""
        self.process.kill()
        self.process.wait()
        self.start()

    def end(self):
        self.process.terminate()
        self.process.wait(PATIENCE)


class DirectFeed:
    """Programs that watch stores directly: each subscriber has one of its own, which it restarts if it ends."""

    # A watcher that has just begun has 2 MiB. Once it has fallen behind and read much of a log at once, its allocator keeps
    # about 10; from then on it is flat, also over a million commits.
    growth = 12288

    def __init__(self, program, directory, socket_path):
        self.program, self.directory, self.socket = program, directory, socket_path
        # No agent listens there.
        self.environment = dict(os.environ, GROUPSTORE_SOCKET=socket_path)
        self.watchers = {}

    def subscribe(self, name):
        return Watch(self.program, os.path.join(self.directory, name), self.environment)

    def learn(self, subscriber, pid):
        """Notes which process watches for a subscriber."""
        self.watchers[subscriber] = pid

    def forget(self, subscriber):
        """The subscriber was killed; its watcher may go on for a moment, but is not the next one's."""
        self.watchers.pop(subscriber, None)

    def pids(self):
        return [pid for pid in self.watchers.values() if is_running(pid)]

    def wait_for(self, count):
        """Waits until so many watch; after a kill, the subscribers start theirs again."""
        deadline = time.monotonic() + PATIENCE
        while len(self.pids()) < count:
            if time.monotonic() > deadline:
                raise SystemExit(f"soak: {len(self.pids())} programs watch, not {count}")
            time.sleep(0.05)

    def kill(self):
        killed = self.pids()
        for pid in killed:
            send(pid, signal.SIGKILL)
        # Until the kernel gives it a processor again, a killed process looks like a running one.
        deadline = time.monotonic() + PATIENCE
        while any(is_running(pid) for pid in killed):
            if time.monotonic() > deadline:
                raise SystemExit(f"soak: killed, and still running: {killed}")
            time.sleep(0.01)

    def end(self):
        pass


def is_running(pid):
    """Returns whether a process exists and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] not in (b"Z", b"X")
    except OSError:
        return False


def send(pid, number):
    """Sends a signal to a process that may have ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def resources(pid):
    """Returns the KiB of a process's own memory, and how many descriptors it has."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        memory = int(re.search(r"Anonymous:\s+(\d+)", file.read())[1])
    return memory, len(os.listdir(f"/proc/{pid}/fd"))
