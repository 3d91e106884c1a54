#!/usr/bin/env python3
"""Measures how fast a replica catches up, without a network: batches written and applied, and snapshots.

    python3 replica.py GROUPSTORE ACTOR APPLY [--changes N] [--snapshot MB] [--runs N] [--require-rate R] [--require-ratio R]

Rows a second a core are changes by the processor time of both sides, the one that writes a batch and the one that
applies it. The baseline is `apply.c`, which applies the same changes from a local file with SQLite's C API.
"""

import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

from dump import dump


def measured(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL):
    """Runs a program. Returns its elapsed time, its processor time, and its peak memory in MB."""
    start = time.monotonic()
    process = subprocess.Popen(words, stdin=stdin, stdout=stdout)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{words} ended with {status}")
    return time.monotonic() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def connected(path):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def prepared(options, directory):
    """Makes a home, a snapshot of it, and then the changes. Returns the snapshot's words."""
    home = os.path.join(directory, "home.sqlite")
    store = connected(home)
    store.execute("PRAGMA journal_mode = WAL")
    store.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT, score REAL, count INTEGER)")
    half = options.changes // 2
    store.execute(
        "WITH n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<?) INSERT INTO note SELECT i, "
        "'the title of note number ' || i, i / 7.0, i * 13 FROM n", [half])
    subprocess.run([options.groupstore, "history", "enable", home, "--quiet"], check=True)
    words = subprocess.run(
        [options.actor, "snapshot", home, os.path.join(directory, "snapshot")], check=True, capture_output=True, text=True
    ).stdout.split()
    tenth = options.changes // 10
    store.execute("BEGIN")
    store.execute("UPDATE note SET title = title || ', changed', score = score + 1 WHERE id <= ?", [half - tenth])
    store.execute("DELETE FROM note WHERE id > ?", [half - tenth])
    store.execute(
        "WITH n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<?) INSERT INTO note SELECT i + ?, "
        "'a new note with the number ' || i, i / 3.0, i FROM n", [options.changes - half, 2 * half])
    store.execute("COMMIT")
    dump(store, os.path.join(directory, "changes.tsv"))
    store.close()
    return home, words


def catch_up(options, directory, home, words):
    parts, commands = os.path.join(directory, "parts"), os.path.join(directory, "commands")
    with open(commands, "w", encoding="ascii") as out:
        out.write(f"batch {words[3]} {768 << 10}\n")
    size, digest, token, schema = words[1:]
    results = []
    for _ in range(options.runs):
        replica = os.path.join(directory, "replica.sqlite")
        for end in ("", "-wal", "-shm"):
            if os.path.exists(replica + end):
                os.unlink(replica + end)
        subprocess.run(
            [options.actor, "create", replica, "s", os.path.join(directory, "snapshot"), size, digest, token, schema],
            check=True, stdout=subprocess.DEVNULL)
        plain = os.path.join(directory, "plain.sqlite")
        shutil.copy(replica, plain)
        with open(commands, "rb") as source, open(parts, "wb") as target:
            encode = measured([options.actor, "source", home], source, target)
        with open(parts, "rb") as source:
            apply = measured([options.actor, "follow", replica, "s"], source)
        base = measured([options.apply, plain, os.path.join(directory, "changes.tsv")])
        same = [connected(path).execute("SELECT count(*), sum(score), sum(count), total(length(title)) FROM note").fetchall()
                for path in (home, replica, plain)]
        if same[0] != same[1] or same[0] != same[2]:
            sys.exit(f"the copies differ: {same}")
        os.unlink(plain)
        results.append((encode, apply, base))
    encode, apply, base = (min((result[index] for result in results), key=lambda each: each[1]) for index in range(3))
    rate = options.changes / (encode[1] + apply[1])
    ratio = base[0] / max(encode[0], apply[0])
    print(f"\n{options.changes:,} changes, {os.path.getsize(parts) >> 20} MB of parts\n")
    print("| | elapsed | processor | peak memory |\n| --- | ---: | ---: | ---: |")
    for name, each in (("write the batch", encode), ("apply it", apply), ("`apply.c` from a local file", base)):
        print(f"| {name} | {each[0]:.2f} s | {each[1]:.2f} s | {each[2]:.0f} MB |")
    print(f"\n{rate:,.0f} rows a second a core; {ratio:.2f} of the speed of `apply.c`, both sides at work at once; "
          f"{base[0] / (encode[0] + apply[0]):.2f} one after the other")
    return rate, ratio


def snapshot(options, directory):
    home, target = os.path.join(directory, "large.sqlite"), os.path.join(directory, "copy")
    store = connected(home)
    store.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, content BLOB)")
    store.execute(
        "WITH n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<?) INSERT INTO item SELECT i, randomblob(3900) FROM n",
        [options.snapshot * 250])
    store.close()
    subprocess.run([options.groupstore, "history", "enable", home, "--quiet"], check=True)
    size = os.path.getsize(home)
    made = measured([options.actor, "snapshot", home, target])
    os.unlink(target)
    copied = measured(["sh", "-c", 'cp "$1" "$2" && sync "$2"', "sh", home, target])
    print(f"\nA snapshot of {size >> 20} MB: {made[0]:.2f} s ({size / made[0] / 1e6:,.0f} MB/s), {made[2]:.0f} MB of memory; "
          f"`cp` and `sync`: {copied[0]:.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("groupstore", "actor", "apply"):
        parser.add_argument(name)
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--snapshot", type=int, default=1000, metavar="MB", help="0 for none")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--require-rate", type=float, default=0, help="fail below so many rows a second a core")
    parser.add_argument("--require-ratio", type=float, default=0, help="fail below this part of the baseline's speed")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="replica-benchmark-")
    try:
        home, words = prepared(options, directory)
        rate, ratio = catch_up(options, directory, home, words)
        if options.snapshot:
            snapshot(options, directory)
    finally:
        shutil.rmtree(directory)
    return 1 if rate < options.require_rate or ratio < options.require_ratio else 0


if __name__ == "__main__":
    sys.exit(main())
