"""Checks whether groupstore checkpoints a store that others may be writing: runs its programs under strace, beside a writer.

usage: checkpoints.py GROUPSTORE                     each command and the agent, on stores in write-ahead mode
       checkpoints.py GROUPSTORE --traces DIRECTORY  the traces that `--over` has left there
       checkpoints.py GROUPSTORE --over COMMAND...   a test program that runs $GROUPSTORE_PROGRAM; traces each of those runs
"""

import argparse
import collections
import contextlib
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

from traces import OPTIONS, Trace

ENVIRONMENT = dict(os.environ, GROUPSTORE_SOCKET="/nonexistent/agent.sock")
WRITER = """
import sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
store.execute("PRAGMA journal_mode = WAL")
# The log grows past what SQLite's automatic checkpoint waits for: whoever commits next would make one.
store.execute("PRAGMA wal_autocheckpoint = 0")
store.execute("CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, text TEXT)")
rows = 0
while True:
    store.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) "
                  "INSERT INTO note (text) SELECT hex(randomblob(200)) FROM n")
    rows += 1000
    print(rows, flush=True)
    if not sys.stdin.readline(): break
"""


class Writer:
    """Another program that has the store open and writes to it."""

    def __init__(self, store):
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, store], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.rows = int(self.process.stdout.readline())

    def write(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.rows = int(self.process.stdout.readline())

    def kill(self):
        self.process.kill()
        self.process.wait()


class Round:
    def __init__(self, groupstore, here):
        self.groupstore, self.here = groupstore, here
        self.problems, self.counts, self.runs = [], collections.Counter(), 0

    def run(self, *words, expected=(0,), stores=()):
        """Runs one command under strace."""
        self.runs += 1
        file = os.path.join(self.here, f"trace {self.runs}")
        done = subprocess.run(
            ["strace", *OPTIONS, "-o", file, self.groupstore, *words], capture_output=True, text=True, env=ENVIRONMENT,
            check=False, timeout=300)
        if done.returncode not in expected:
            self.problems.append(f"{' '.join(words)}: ended with {done.returncode}: {done.stdout}{done.stderr}")
        self.judge(file)
        for store in stores:
            for suffix in ("-wal", "-shm"):
                if os.path.exists(store + suffix):
                    self.problems.append(f"{' '.join(words)}: left a {suffix}")
        return done

    def judge(self, file):
        trace = Trace(file)
        self.problems += trace.problems
        self.counts += trace.counts


def check(groupstore, here):
    found = Round(groupstore, here)
    legacy, group = os.path.join(here, "legacy"), os.path.join(here, "group")
    os.makedirs(legacy)
    os.makedirs(group)
    beside_a_writer(found, os.path.join(legacy, "Busy.sqlite"), group)
    alone(found, os.path.join(legacy, "Still.sqlite"))
    crashed(found, os.path.join(legacy, "Crashed.sqlite"), group)
    with_an_agent(found, os.path.join(legacy, "Agent.sqlite"), group)
    return found


def beside_a_writer(found, store, group):
    writer = Writer(store)
    try:
        for words, expected in [
            (("inspect", store), (0,)), (("history", "enable", store), (0,)),
            (("history", "show", store), (0,)), (("changes", store, "--now"), (0,)),
            (("history", "purge", store, "--keep", "5"), (0,)), (("history", "enable", store), (0,)),
            (("relocate", store, group, "--deadline", "0.3"), (75,)), (("doctor", store), (0, 74, 77, 78)),
            (("history", "disable", store), (0,)), (("status", group), (0,)), (("recover", group), (0,)),
        ]:
            found.run(*words, expected=expected)
            for _ in range(10):
                writer.write()
    finally:
        writer.kill()
    rows = sqlite3.connect(store).execute("SELECT count(*) FROM note").fetchone()[0]
    if rows != writer.rows:
        found.problems.append(f"{rows} rows of {writer.rows}")


def alone(found, store):
    """Checks a store in write-ahead mode and at rest: a command leaves the one file that it found."""
    connection = sqlite3.connect(store, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)")
    connection.close()
    for words, expected in [
        (("inspect", store), (0,)), (("history", "enable", store), (0,)), (("history", "show", store), (0,)),
        (("changes", store, "--now"), (0,)), (("history", "purge", store, "--keep", "5"), (0,)),
        (("history", "disable", store), (0,)), (("history", "purge", store, "--keep", "5"), (65,)),
    ]:
        found.run(*words, expected=expected, stores=[store])


def crashed(found, store, group):
    writer = Writer(store)
    writer.write()
    writer.kill()
    found.run("relocate", store, group)
    moved = os.path.join(group, os.path.basename(store))
    # A reader without a transaction holds the log as well.
    holder = sqlite3.connect(moved, isolation_level=None)
    holder.execute("INSERT INTO note (text) VALUES ('one more')")
    found.run("relocate", "--undo", moved, group, "--deadline", "0.3", expected=(64, 65, 73, 75))
    holder.close()
    rows = sqlite3.connect(moved).execute("SELECT count(*) FROM note").fetchone()[0]
    if rows != writer.rows + 1:
        found.problems.append(f"{rows} rows of {writer.rows + 1}")


def with_an_agent(found, store, group):
    """The agent relocates the store once its writer has gone, and follows it beside another writer."""
    path, file = os.path.join(found.here, "agent.sock"), os.path.join(found.here, "trace of the agent")
    writer = Writer(store)
    agent = subprocess.Popen(
        ["strace", "-D", *OPTIONS, "-o", file, found.groupstore, "agent", "--group", f"group.example.notes={group}",
         "--legacy", store],
        env=dict(os.environ, GROUPSTORE_SOCKET=path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    moved = os.path.join(group, os.path.basename(store))
    try:
        with connection(agent, path) as lines:
            lines.write('{"id":1,"op":"subscribe","store":"group.example.notes/Agent.sqlite"}\n')
            await_line(lines, '"id":1')
            for _ in range(3):
                writer.write()
            writer.kill()
            await_line(lines, '"relocated"')
            second = Writer(moved)
            for _ in range(3):
                second.write()
                await_line(lines, '"change"')
            second.kill()
    finally:
        writer.kill()
        agent.terminate()
        # strace shares this descriptor and ends after the agent.
        agent.communicate(timeout=300)
        found.runs += 1
    found.judge(file)


def connection(agent, path):
    """Returns a stream to the agent's socket, once it accepts."""
    deadline = time.monotonic() + 300
    while True:
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(300)
        try:
            peer.connect(path)
            return peer.makefile("rw", buffering=1, encoding="utf-8")
        except OSError:
            if agent.poll() is not None or time.monotonic() > deadline:
                raise
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(0.005)


def await_line(lines, word):
    for line in lines:
        if word in line:
            return
    raise SystemExit(f"checkpoints: the agent has ended the connection before {word}")


def over(groupstore, command):
    """Runs tests with a program that traces itself: strace is its grandchild, so its process id, parent and exit status are
    unchanged."""
    place = tempfile.mkdtemp(prefix="groupstore-traces-")
    os.chmod(place, 0o1777)
    wrapper = os.path.join(place, "groupstore")
    with open(wrapper, "w", encoding="utf-8") as file:
        words = " ".join(f"'{word}'" for word in OPTIONS)
        file.write(f"#!/bin/sh\nexec strace -DDD {words} -o '{place}'/trace.$$ '{os.path.abspath(groupstore)}' \"$@\"\n")
    os.chmod(wrapper, 0o755)
    done = subprocess.run(command, env=dict(os.environ, GROUPSTORE_PROGRAM=wrapper), check=False)
    print(f"soak: checkpoints: the tests ended with {done.returncode}; traces are in {place}", flush=True)
    return place


def judged(place, found):
    for name in sorted(os.listdir(place)):
        if name.startswith("trace."):
            found.runs += 1
            found.judge(os.path.join(place, name))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("groupstore")
    parser.add_argument("--traces")
    parser.add_argument("--over", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    if arguments.over or arguments.traces:
        place = arguments.traces or over(arguments.groupstore, arguments.over)
        found = Round(arguments.groupstore, place)
        judged(place, found)
        if arguments.over and not found.problems:
            shutil.rmtree(place)
    else:
        with tempfile.TemporaryDirectory() as here:
            found = check(arguments.groupstore, here)
    for problem in found.problems[:40]:
        print(problem)
    figures = ", ".join(f"{count} {name}" for name, count in sorted(found.counts.items()))
    print(f"soak: checkpoints: {found.runs} runs, {figures}; {len(found.problems)} problems")
    sys.exit(1 if found.problems else 0)


if __name__ == "__main__":
    main()
