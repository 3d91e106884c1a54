"""Copies over stores in rollback mode that have as many commits as the store, beside stores that are busy.

usage: copies.py GROUPSTORE [--direct] [--seconds 60] [--seed N] [--stores 6] [--busy 8]

Nothing in such a file's header tells that it was replaced: its change counter is the same. Right before, a program rolls a
transaction back, so that the watcher looks at the store about when it is overwritten. A subscriber reads the store at each
event. In the end it must have read what is there. Exits with 1 if it hasn't.
"""

import argparse
import hashlib
import multiprocessing
import os
import random
import sqlite3
import struct
import tempfile
import threading
import time

import feeds

MODES = ["DELETE", "PERSIST", "TRUNCATE"]
PATIENCE = 10  # seconds
SIZE = 4 << 20


def connect(path, mode=None):
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    if mode:
        connection.execute(f"PRAGMA journal_mode = {mode}").fetchall()
    return connection


def make(path, mode):
    connection = connect(path, mode)
    connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, text)")
    for _ in range(SIZE // 200_000):
        connection.execute("INSERT INTO note (text) VALUES (randomblob(200000))")
    connection.close()


def content(path):
    with open(path, "rb") as file:
        return file.read()


def counter(path):
    with open(path, "rb") as file:
        return struct.unpack(">I", file.read(28)[24:])[0]


class Reader(threading.Thread):
    """Reads the store's digest at each event."""

    def __init__(self, subscription, path):
        super().__init__(daemon=True)
        self.subscription, self.path, self.seen = subscription, path, None
        self.start()

    def run(self):
        while True:
            line = self.subscription.line(3600)
            if line and line.get("type") in ("change", "reset"):
                self.seen = hashlib.sha256(content(self.path)).digest()


def overwrite(path, data, dice):
    """Writes over the file as `cp` does, or in one piece."""
    if dice.random() < 0.5:
        with open(path, "wb", buffering=0) as file:
            for start in range(0, len(data), 1 << 17):
                file.write(data[start:start + (1 << 17)])
    else:
        with open(path, "r+b", buffering=0) as file:
            file.write(data)


def keep_busy(feed, number, stop):
    path = os.path.join(feed.directory, f"Busy{number}.sqlite")
    make(path, "DELETE")
    Reader(feed.subscribe(os.path.basename(path)), path)
    connection = connect(path, "DELETE")
    while time.monotonic() < stop:
        connection.execute("UPDATE note SET text = randomblob(1000) WHERE id = 3")
        time.sleep(0.002)


def copy_over(feed, number, options, stop, copies, problems):
    dice = random.Random(f"{options.seed}-{number}")
    mode = MODES[number % len(MODES)]
    path = os.path.join(feed.directory, f"Notes{number}.sqlite")
    other = os.path.join(os.path.dirname(feed.directory), f"Other{number}.sqlite")
    make(path, mode)
    with open(other, "wb") as file:
        file.write(content(path))
    reader = Reader(feed.subscribe(os.path.basename(path)), path)
    while time.monotonic() < stop:
        with copies.get_lock():
            copies.value += 1
        connection = connect(path, mode)
        for _ in range(dice.choice([1, 2])):
            connection.execute("UPDATE note SET text = ? WHERE id = 1", [f"here {copies.value} {dice.random()}"])
        connection.close()
        connection = connect(other, mode)
        while counter(other) < counter(path):
            connection.execute("UPDATE note SET text = ? WHERE id = 1", [f"there {copies.value} {dice.random()}"])
        connection.close()
        assert counter(path) == counter(other)
        time.sleep(dice.choice([0, 0.02, 0.3]))
        data = content(other)
        connection = connect(path)
        connection.execute("BEGIN")
        connection.execute("UPDATE note SET text = 'no' WHERE id = 2")
        connection.execute("ROLLBACK")
        connection.close()
        time.sleep(dice.choice([0, 0.001, 0.003, 0.006, 0.01, 0.02]))
        overwrite(path, data, dice)
        expected = hashlib.sha256(data).digest()
        deadline = time.monotonic() + PATIENCE
        while reader.seen != expected and time.monotonic() < deadline:
            time.sleep(0.005)
        if reader.seen != expected:
            with problems.get_lock():
                problems.value += 1
            print(f"seed {options.seed}, store {number}, {mode}: a copy was not told", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("groupstore")
    parser.add_argument("--direct", action="store_true", help="watch the stores without an agent")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", default=str(random.randrange(10**9)))
    parser.add_argument("--stores", type=int, default=6)
    parser.add_argument("--busy", type=int, default=8)
    options = parser.parse_args()
    print(f"copies: seed {options.seed}", flush=True)
    copies, problems = multiprocessing.Value("i", 0), multiprocessing.Value("i", 0)
    with tempfile.TemporaryDirectory(prefix="groupstore-soak-", dir=os.environ.get("GROUPSTORE_SOAK_PLACE")) as place:
        directory = os.path.join(place, "group")
        os.mkdir(directory)
        feed = (feeds.DirectFeed if options.direct else feeds.AgentFeed)(
            options.groupstore, directory, os.path.join(place, "socket"))
        stop = time.monotonic() + options.seconds
        workers = [
            multiprocessing.Process(target=keep_busy, args=(feed, number, stop)) for number in range(options.busy)]
        workers += [
            multiprocessing.Process(target=copy_over, args=(feed, number, options, stop, copies, problems))
            for number in range(options.stores)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        failed = [worker.exitcode for worker in workers if worker.exitcode]
        feed.end()
    print(f"{copies.value} copies, {problems.value} not told")
    if problems.value or failed or not copies.value:
        raise SystemExit("copies: failed")


if __name__ == "__main__":
    main()
