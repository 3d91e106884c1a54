"""A million changes that wait at home, until they are in the replica: publisher, broker and follower at work at once, and
the follower alone; beside `apply.c`, which applies the same changes from a local file."""

import os
import shutil
import subprocess
import sys
import time

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "replica"))

from dump import dump
from hosts import Hosts, connected, same

SUMS = "SELECT count(*), sum(score), sum(count), total(length(title)) FROM note"


def fill(hosts, changes):
    """Makes a home with half as many rows as changes."""
    return hosts.make_home([
        ("CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT, score REAL, count INTEGER)",),
        ("WITH n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<?) INSERT INTO note SELECT i, "
         "'the title of note number ' || i, i / 7.0, i * 13 FROM n", changes // 2)])


def change(store, changes, commits=100):
    """Inserts, updates and deletes rows, in that many transactions."""
    half = changes // 2
    for number in range(commits):
        low, high = number * half // commits, (number + 1) * half // commits
        store.execute("BEGIN")
        store.execute(
            "UPDATE note SET title = title || ', changed', score = score + 1 WHERE id > ? AND id <= ? AND id % 10 <> 0",
            [low, high])
        store.execute("DELETE FROM note WHERE id > ? AND id <= ? AND id % 10 = 0", [low, high])
        store.execute(
            "WITH n(i) AS (SELECT ? + 1 UNION ALL SELECT i+1 FROM n WHERE i<?) INSERT INTO note SELECT i + ?, "
            "'a new note with the number ' || i, i / 3.0, i FROM n", [low, high, 2 * half])
        store.execute("COMMIT")


def caught_up(program, token):
    return program.event("caught_up", lambda event: event["upto"] == token)[0]


def run(options, directory):
    hosts = Hosts(options, directory)
    store = fill(hosts, options.changes)
    hosts.start_broker()
    publisher = hosts.publish()
    names = [f"f{number}" for number in range(2 * options.runs)]
    for name in names:
        follower = hosts.follow(name)
        follower.event("caught_up")
        follower.stop()
    publisher.stop()
    plain = os.path.join(directory, "plain.sqlite")
    base = hosts.replica(names[0]) + ".base"
    shutil.copy(hosts.replica(names[0]), base)
    change(store, options.changes)
    dump(store, os.path.join(directory, "changes.tsv"))
    count, number, nonce, history = store.execute(
        "SELECT (SELECT count(*) FROM GS_CHANGE WHERE operation < 4), number, nonce, identifier FROM GS_CHANGE, GS_HISTORY "
        "ORDER BY number DESC LIMIT 1").fetchone()
    token = f"h1.{history}.{number}.{nonce & 0xFFFFFFFFFFFFFFFF:x}"
    subprocess.run(["sync"], check=True)
    rows = []
    for turn in range(options.runs):
        shutil.copy(base, plain)
        start = time.monotonic()
        subprocess.run([os.path.join(options.programs, "apply"), plain, os.path.join(directory, "changes.tsv")], check=True)
        local = time.monotonic() - start
        # All at once: for this turn the stream is empty.
        if turn:
            hosts.renew_broker()
        start = time.monotonic()
        publisher, follower = hosts.publish(), hosts.follow(names[2 * turn])
        everything = caught_up(follower, token) - start
        processor = publisher.processor_time + follower.processor_time
        follower.stop()
        # And what the stream has already.
        start = time.monotonic()
        follower = hosts.follow(names[2 * turn + 1])
        alone = caught_up(follower, token) - start
        one = follower.processor_time
        follower.stop()
        publisher.stop()
        same([hosts.home, hosts.replica(names[2 * turn]), hosts.replica(names[2 * turn + 1]), plain], SUMS)
        rows.append((local, everything, processor, alone, one))
    hosts.close()
    local, everything, processor, alone, one = (min(row[index] for row in rows) for index in range(5))
    print(f"\n{count:,} changes\n")
    print("| | elapsed | speed, `apply.c` = 1 | processor | rows a second a core |\n| --- | --: | --: | --: | --: |")
    print(f"| `apply.c` from a local file | {local:.2f} s | 1 | | |")
    print(f"| publisher, broker and follower at once | {everything:.2f} s | {local / everything:.2f} | {processor:.2f} s | "
          f"{count / processor:,.0f} |")
    print(f"| a follower of what the stream has | {alone:.2f} s | {local / alone:.2f} | {one:.2f} s | {count / one:,.0f} |")
    return local / everything >= 0.5 and count / processor >= 50_000
