"""Measures rows from pages: what they cost the watcher and the writer, and how many commits are told apart.

usage: rows.py PROGRAMS GROUPSTORE [--part PART] [--rounds N] [--megabytes N] [--directory DIR] [--require]

Prints a Markdown table for each part. --require fails when a bound is not kept.
"""

import argparse
import contextlib
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time

failures = []


def make(path, mode="WAL", megabytes=0):
    store = sqlite3.connect(path, isolation_level=None)
    store.execute(f"PRAGMA journal_mode = {mode}")
    store.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)")
    store.execute("BEGIN")
    store.executemany("INSERT INTO note (text) VALUES (?)", ((f"{n:08}" * 125,) for n in range(megabytes * 1000)))
    store.execute("COMMIT")
    return store


class Watch:
    """A `watch --direct`, whose lines a thread reads."""

    def __init__(self, groupstore, store, *words):
        self.state = store + "-state"
        self.changes, self.rows, self.exact, self.last = 0, 0, set(), None
        self.process = subprocess.Popen(
            [groupstore, "watch", "--direct", "--json", *words, store], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "XDG_STATE_HOME": self.state})
        if b'"watching"' not in self.process.stdout.readline():
            sys.exit("rows: the store isn't watched")
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        for line in self.process.stdout:
            if b'"type":"change"' in line:
                self.changes += 1
            elif b'"type":"row"' in line:
                self.rows += 1
                event = json.loads(line)
                self.last = event["values"]
                if event["transaction"].get("exact"):
                    self.exact.add(event["transaction"]["id"])

    def processor(self):
        """The nanoseconds that its threads have run; the kernel's count is exact."""
        total = 0
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            with open(f"/proc/{self.process.pid}/task/{thread}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        return total

    def settle(self, done):
        deadline = time.monotonic() + 60
        while not done() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.1)

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.thread.join()
        shutil.rmtree(self.state, ignore_errors=True)


@contextlib.contextmanager
def watch(*arguments):
    watch = Watch(*arguments)
    try:
        yield watch
    finally:
        watch.close()


def check(name, value, most=None, least=None):
    if most is not None and value > most or least is not None and value < least:
        failures.append(f"{name}: {value:.3g}")


def paced(store, commits, microseconds):
    """Commits single rows, and returns when all are committed."""
    for number in range(commits):
        began = time.monotonic_ns()
        store.execute("INSERT INTO note (text) VALUES ('a note of some thirty characters')")
        while time.monotonic_ns() < began + microseconds * 1000:
            time.sleep(max(0, began + microseconds * 1000 - time.monotonic_ns()) / 1e9)


def processor(options):
    """The watcher's processor time for a commit of one row, and for a row of a transaction of 1,000."""
    commits, batches, size = 1000, 100, 1000
    results = {(): ([], []), ("--values",): ([], [])}
    for _ in range(options.rounds):
        for words, (single, batch) in results.items():
            with tempfile.TemporaryDirectory(dir=options.directory) as place:
                path = os.path.join(place, "store.sqlite")
                store = make(path)
                store.execute("PRAGMA synchronous = NORMAL")
                with watch(options.groupstore, path, *words) as subject:
                    began = subject.processor()
                    paced(store, commits, 3000)
                    subject.settle(lambda: subject.changes >= commits)
                    single.append((subject.processor() - began) / commits / 1000)
                    began, rows = subject.processor(), subject.rows
                    for _ in range(batches):
                        store.execute("BEGIN")
                        store.executemany(
                            "INSERT INTO note (text) VALUES (?)", (("a note of some thirty characters",) for _ in range(size)))
                        store.execute("COMMIT")
                        time.sleep(0.01)
                    if words:
                        subject.settle(lambda: subject.rows >= rows + batches * size)
                    else:
                        subject.settle(lambda: subject.changes >= commits + batches)
                    batch.append((subject.processor() - began) / batches / size / 1000)
                store.close()
    tables, rows = results[()], results[("--values",)]
    ratio = statistics.median(b / a for a, b in zip(tables[0], rows[0]))
    print("| processor of the watcher, µs | tables only | with rows | ratio | wanted |")
    print("| --- | --: | --: | --: | --: |")
    print(f"| a commit of one row, one every 3 ms | {statistics.median(tables[0]):.1f} | {statistics.median(rows[0]):.1f} "
          f"| {ratio:.2f} | 1.5 |")
    print(f"| a row in a transaction of 1,000 | {statistics.median(tables[1]):.2f} | {statistics.median(rows[1]):.2f} "
          f"| {statistics.median(rows[1]) / statistics.median(tables[1]):.2f} | 3 µs |")
    check("processor of a commit", ratio, most=1.5)
    check("processor of a row, µs", statistics.median(rows[1]), most=3)


def apart(options):
    """The share of commits whose rows are told as those of one transaction. All rows are told in any case."""
    cases = [
        ("WAL, one every 3 ms", options.directory, "WAL", 5, 3000, 1.0), ("WAL, tight", options.directory, "WAL", 5, 0, 0.99),
        ("WAL, 40,000 a second, tmpfs", "/dev/shm", "WAL", 5, 25, 0.8),
        ("WAL, tight, tmpfs", "/dev/shm", "WAL", 5, 0, None),
        ("DELETE, one every 3 ms, 5 MB", options.directory, "DELETE", 5, 3000, 0.99),
        ("DELETE, one every 3 ms, 200 MB", options.directory, "DELETE", 200, 3000, 0.95),
    ]
    print("| commits told apart | commits | commits a second | share | wanted |")
    print("| --- | --: | --: | --: | --: |")
    for name, directory, mode, megabytes, pace, wanted in cases:
        with tempfile.TemporaryDirectory(dir=directory) as place:
            path = os.path.join(place, "store.sqlite")
            store = make(path, mode, megabytes)
            store.execute("PRAGMA synchronous = NORMAL")
            commits = 2000 if pace > 1000 else 20_000
            with watch(options.groupstore, path, "--values") as subject:
                began = time.monotonic()
                if pace > 1000:
                    paced(store, commits, pace)
                else:
                    subprocess.run([os.path.join(options.programs, "tight"), path, str(commits), str(pace)], check=True,
                                   stdout=subprocess.DEVNULL)
                rate = commits / (time.monotonic() - began)
                subject.settle(lambda: subject.rows >= commits)
                if subject.rows != commits:
                    sys.exit(f"rows: {name}: {subject.rows} rows of {commits} were told")
                share = len(subject.exact) / commits
            store.close()
            print(f"| {name} | {commits} | {rate:.0f} | {share:.3f} | {wanted or ''} |", flush=True)
            check(name, share, least=wanted)
    # Shells that open, write one row, and close, back to back.
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        path = os.path.join(place, "store.sqlite")
        make(path).close()
        commits = 300
        with watch(options.groupstore, path, "--values") as subject:
            began = time.monotonic()
            for _ in range(commits):
                subprocess.run(["sqlite3", path, "INSERT INTO note (text) VALUES ('a note')"], check=True)
            rate = commits / (time.monotonic() - began)
            subject.settle(lambda: subject.rows >= commits)
            share = len(subject.exact) / commits
            if subject.rows != commits:
                sys.exit(f"rows: shells: {subject.rows} rows of {commits} were told")
        print(f"| WAL, a `sqlite3` for each, back to back | {commits} | {rate:.0f} | {share:.3f} | 0.95 |", flush=True)
        check("shells", share, least=0.95)


def enable(options):
    """The time until a store is watched with rows for the first time, which copies it, beside `cp`."""
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        path = os.path.join(place, "store.sqlite")
        make(path, "WAL", options.megabytes).close()
        copies, enables = [], []
        for _ in range(options.rounds):
            began = time.monotonic()
            subprocess.run(["cp", "--reflink=auto", path, path + ".copy"], check=True)
            subprocess.run(["sync", path + ".copy"], check=True)
            copies.append(time.monotonic() - began)
            os.remove(path + ".copy")
            state = os.path.join(place, "state")
            began = time.monotonic()
            subprocess.run([options.groupstore, "rows", "enable", "--quiet", path], check=True,
                           env={**os.environ, "XDG_STATE_HOME": state})
            enables.append(time.monotonic() - began)
            shutil.rmtree(state)
        ratio = statistics.median(b / a for a, b in zip(copies, enables))
        print(f"| {options.megabytes} MB | seconds | `cp` + `sync` = 1 | wanted |")
        print("| --- | --: | --: | --: |")
        print(f"| `cp` + `sync` | {statistics.median(copies):.2f} | 1 | |")
        print(f"| `rows enable` | {statistics.median(enables):.2f} | {ratio:.2f} | 1.5 |")
        check("enable", ratio, most=1.5)


def writer(options):
    """The share of its speed that a writer keeps which commits single rows as fast as it can. It has a core of its own;
    what is beside it, and this program, which reads each line, share the others."""
    core, *others = sorted(os.sched_getaffinity(0))
    if others:
        os.sched_setaffinity(0, others)
    ways = ["alone", "watched with rows", "with triggers", "beside a `data_version` poll that reads all"]
    commits, times = 20_000, {way: [] for way in ways}
    poller = """
import sqlite3, sys, time
store, last, rows = sqlite3.connect(sys.argv[1]), None, None
while True:
    version = store.execute("PRAGMA data_version").fetchone()
    if version != last:
        last, now = version, dict(store.execute("SELECT id, text FROM note"))
        changed, rows = now if rows is None else now.items() ^ rows.items(), now
    time.sleep(0.001)
"""
    for _ in range(options.rounds):
        for way in ways:
            with tempfile.TemporaryDirectory(dir=options.directory) as place, contextlib.ExitStack() as stack:
                path = os.path.join(place, "store.sqlite")
                # It keeps the store open, so that no last close is measured.
                stack.callback(make(path, "WAL", 1).close)
                if way == ways[1]:
                    stack.enter_context(watch(options.groupstore, path, "--values"))
                if way == ways[2]:
                    subprocess.run([options.groupstore, "history", "enable", "--quiet", path], check=True)
                if way == ways[3]:
                    process = subprocess.Popen([sys.executable, "-c", poller, path])
                    stack.callback(process.wait)
                    stack.callback(process.kill)
                    time.sleep(0.3)
                times[way].append(int(subprocess.check_output(
                    [os.path.join(options.programs, "tight"), path, str(commits)],
                    preexec_fn=lambda: os.sched_setaffinity(0, [core]))))
    print("| a writer that commits single rows without a pause | µs a commit | speed, alone = 1 | wanted |")
    print("| --- | --: | --: | --: |")
    for way in ways:
        share = statistics.median(a / b for a, b in zip(times[ways[0]], times[way]))
        wanted = 0.95 if way == ways[1] else ""
        print(f"| {way} | {statistics.median(times[way]) / commits / 1000:.1f} | {share:.2f} | {wanted} |", flush=True)
        if wanted:
            check("writer", share, least=wanted)


PARTS = {"processor": processor, "apart": apart, "enable": enable, "writer": writer}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("groupstore")
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=1000, help="the size of the store of the part `enable`")
    parser.add_argument("--directory", help="where the stores are made")
    parser.add_argument("--require", action="store_true", help="fail when a bound is not kept")
    options = parser.parse_args()
    for part in options.part or PARTS:
        PARTS[part](options)
        print()
    if failures:
        print("rows: not kept: " + "; ".join(failures), file=sys.stderr)
        if options.require:
            sys.exit(1)


main()
