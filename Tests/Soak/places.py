"""What an agent does about each state of a legacy place while nothing changes there: nothing.

usage: places.py GROUPSTORE [--seconds 30] [--sample N] [--seed N] [--parallel 16] [--only TEXT]

Each case is a database's name in some state, with and without side files, beside a group container in some state. Its own
agent serves it, with a subscriber and a presenter connected. After the first outcome settles, it counts for so many
seconds the events that the two receive, the lines of the log and the processor's time, and the reported state
must equal the first one. Then another store takes the place, and the agent must see it: a blind agent would
also be idle. Exits with 1 if a case has a problem.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

# Limits while a case settles: an announcement, its end, a change of the group's store, and each once more.
MOST_EVENTS_AT_FIRST, MOST_LINES_AT_FIRST = 8, 12
# The agent silently retries a failure that time may mend after 1 s, 2 s, 4 s and so on.
MOST_TICKS = 15
SETTLING = 4


def store(path, rows, word="row"):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)")
    connection.executemany("INSERT INTO note (text) VALUES (?)", [(f"{word} {n}",) for n in range(rows)])
    connection.close()


def write(path, data=b""):
    with open(path, "wb") as file:
        file.write(data)


def corrupt(path):
    store(path, 900)
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) - 4096)


def copy_of_group(path, group):
    if os.path.isfile(group):
        shutil.copy(group, path)
    else:
        store(path, 5)


def linked(path, target, make=lambda target: None):
    make(target)
    os.symlink(target, path)


def hard_link(path, target):
    if os.path.isfile(target):
        os.link(target, path)
    else:
        store(path, 5)
        os.link(path, path + ".second")


# Contents of the legacy store's name: the state's name, and a function that makes it from the two stores' paths.
DATABASES = {
    "nothing": lambda path, group: None,
    "zero bytes": lambda path, group: write(path),
    "a store": lambda path, group: store(path, 9),
    "a schema": lambda path, group: store(path, 0),
    "the same rows": copy_of_group,
    "text": lambda path, group: write(path, b"Dear diary,"),
    "XML": lambda path, group: write(path, b'<?xml version="1.0"?>\n<database></database>\n'),
    "a binary property list": lambda path, group: write(path, b"bplist00" + b"x" * 4096),
    "encrypted": lambda path, group: write(path, os.urandom(8192)),
    "too short": lambda path, group: corrupt(path),
    "a directory": lambda path, group: os.mkdir(path),
    "a FIFO": lambda path, group: os.mkfifo(path),
    "a link to nothing": lambda path, group: linked(path, path + ".nowhere"),
    "a link to itself": lambda path, group: linked(path, path),
    "a link to the group's": lambda path, group: linked(path, group),
    "a link to another of the group's": lambda path, group: linked(
        path, os.path.join(os.path.dirname(group), "Other.sqlite"), lambda target: store(target, 3)),
    "a link to zero bytes": lambda path, group: linked(path, path + ".zero", write),
    "a hard link": hard_link,
}
HOT_JOURNAL = bytes.fromhex("d9d505f920a163d7") + bytes(504)
# Contents beside it: name suffixes with their content; None for a support folder with a file in it.
SIDES = {
    "alone": {},
    "an empty -wal": {"-wal": b""},
    "a -wal": {"-wal": b"x" * 100},
    "a -shm": {"-shm": b"x" * 100},
    "an empty -journal": {"-journal": b""},
    "a -journal": {"-journal": HOT_JOURNAL},
    "a support folder": {"": None},
}
GROUPS = {
    "absent": lambda path: None,
    "there": lambda path: store(path, 5, "group"),
    "empty": lambda path: store(path, 0),
    "zero bytes": write,
}


class Connection:
    """A client that counts what it receives, and lets go of what it is asked for."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        end = time.monotonic() + 20
        while self.socket.connect_ex(path) != 0:
            if time.monotonic() > end:
                raise RuntimeError("the agent does not serve")
            time.sleep(0.02)
        self.rest, self.count, self.types = b"", 0, {}
        self.line()

    def line(self):
        while b"\n" not in self.rest:
            data = self.socket.recv(65536)
            if not data:
                raise EOFError("the agent ended the connection")
            self.rest += data
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def send(self, **members):
        self.socket.sendall(json.dumps(members).encode() + b"\n")

    def ask(self, **members):
        self.send(id=1, **members)
        rows = []
        while True:
            line = self.line()
            if line.get("id") == 1 and "ok" in line:
                return rows, line
            if line.get("id") == 1:
                rows.append(line)
            else:
                self.note(line)

    def note(self, event):
        self.count += 1
        kind = ":".join(str(event[key]) for key in ("type", "outcome", "reason") if key in event)
        self.types[kind] = self.types.get(kind, 0) + 1
        if event.get("type") == "relinquish":
            self.send(op="relinquished", claim=event["claim"])

    def listen(self, seconds):
        end = time.monotonic() + seconds
        with contextlib.suppress(EOFError, ConnectionError):
            while (left := end - time.monotonic()) > 0:
                if b"\n" in self.rest or select.select([self.socket], [], [], left)[0]:
                    self.note(self.line())


class Case:
    def __init__(self, groupstore, names, seconds):
        self.groupstore, self.names, self.seconds = groupstore, names, seconds
        self.problems = []

    def __str__(self):
        database, side, group = self.names
        return f"{database}, {side}; group {group}"

    def run(self):
        with tempfile.TemporaryDirectory(prefix="places-") as here:
            try:
                self.run_in(here)
            except Exception as error:  # Any error is this case's.
                self.problems.append(f"{type(error).__name__}: {error}")

    def run_in(self, here):
        database, side, group = self.names
        legacy, container = os.path.join(here, "legacy"), os.path.join(here, "group")
        os.mkdir(legacy)
        os.mkdir(container)
        self.path, self.group = (os.path.join(directory, "Notes.sqlite") for directory in (legacy, container))
        GROUPS[group](self.group)
        self.log, self.socket = os.path.join(here, "log"), os.path.join(here, "agent.sock")
        with self.agent(container):
            subscriber, presenter, asker = (Connection(self.socket) for _ in range(3))
            subscriber.ask(op="subscribe", store="group.places/Notes.sqlite")
            presenter.ask(op="present", store="group.places/Notes.sqlite")
            for end, content in SIDES[side].items():
                if content is None:
                    folder = os.path.join(legacy, ".Notes_SUPPORT")
                    os.mkdir(folder)
                    write(os.path.join(folder, "1"), b"external")
                else:
                    write(self.path + end, content)
            DATABASES[database](self.path, self.group)
            self.settle(subscriber, presenter, asker)
            events, lines = subscriber.count + presenter.count, self.lines()
            if events > MOST_EVENTS_AT_FIRST:
                self.problems.append(f"{events} events at first: {subscriber.types} {presenter.types}")
            if lines > MOST_LINES_AT_FIRST:
                self.problems.append(f"{lines} lines of the log at first")
            first, ticks = self.state(asker), self.ticks()
            self.listen(self.seconds, subscriber, presenter)
            self.expect("events", subscriber.count + presenter.count - events, 0)
            self.expect("lines of the log", self.lines() - lines, 0)
            self.expect("ticks of the processor", self.ticks() - ticks, MOST_TICKS)
            if self.state(asker) != first:
                self.problems.append(f"{first} became {self.state(asker)}")
            letting_go = threading.Thread(target=presenter.listen, args=(90,), daemon=True)
            letting_go.start()
            self.put_another(legacy, asker)

    def settle(self, subscriber, presenter, asker):
        """Waits until the state has been stable for some seconds, and isn't transient."""
        end, state, since = time.monotonic() + 90, None, time.monotonic()
        while time.monotonic() < min(since + SETTLING, end):
            self.listen(0.5, subscriber, presenter)
            now = self.state(asker)
            if now != state or now is None or now[0] in ("arriving", "relocating"):
                state, since = now, time.monotonic()

    def put_another(self, legacy, asker):
        """Checks that the agent sees a replacement store."""
        for name in os.listdir(legacy):
            path = os.path.join(legacy, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
        has_rows = False
        if os.path.isfile(self.group) and os.path.getsize(self.group):
            with contextlib.closing(sqlite3.connect(self.group)) as connection:
                has_rows = connection.execute("SELECT count(*) FROM note").fetchone()[0] > 0
        other = os.path.join(legacy, "other")
        store(other, 12, "another")
        os.rename(other, self.path)
        wanted = "conflict" if has_rows else "relocated"
        end = time.monotonic() + 60
        while (state := self.state(asker)) is None or state[0] != wanted:
            if time.monotonic() > end:
                self.problems.append(f"another store in its place is {state}, and not {wanted}")
                return
            time.sleep(0.1)

    @contextlib.contextmanager
    def agent(self, container):
        command = [self.groupstore, "agent", "--group", f"group.places={container}", "--legacy", self.path]
        environment = dict(os.environ, GROUPSTORE_SOCKET=self.socket, XDG_CONFIG_HOME="/nonexistent")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGTERM)
            try:
                if self.process.wait(30) != 0:
                    self.problems.append(f"the agent ended with {self.process.returncode}")
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                self.problems.append("the agent doesn't end")

    @staticmethod
    def listen(seconds, *connections):
        threads = [threading.Thread(target=connection.listen, args=(seconds,)) for connection in connections]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def expect(self, what, found, most):
        if found > most:
            self.problems.append(f"{found} {what} while nothing changed")

    def lines(self):
        with open(self.log, "rb") as log:
            return log.read().count(b"\n")

    def ticks(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))

    @staticmethod
    def state(asker):
        rows, _ = asker.ask(op="status")
        return next(((row["state"], row.get("detail")) for row in rows if row["type"] == "legacy"), None)


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("groupstore")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=16)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    cases = [Case(options.groupstore, names, options.seconds) for names in itertools.product(DATABASES, SIDES, GROUPS)]
    cases = [case for case in cases if options.only in str(case)]
    if options.sample is not None and options.sample < len(cases):
        cases = random.Random(options.seed).sample(cases, options.sample)
    waiting, lock = list(reversed(cases)), threading.Lock()

    def work():
        while True:
            with lock:
                if not waiting:
                    return
                case = waiting.pop()
            case.run()
            for problem in case.problems:
                print(f"PROBLEM {case}: {problem}", flush=True)

    threads = [threading.Thread(target=work) for _ in range(options.parallel)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    problems = sum(len(case.problems) for case in cases)
    print(f"soak: places: {len(cases)} states, {problems} problems (seed {options.seed})")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
