"""A program writes to one of the stores while they are merged: no row whose commit it was told of is lost."""

import os
import subprocess
import sys
import time

import stores
from oracle import GROUP, LEGACY
from program import demand

WRITER = """
import os, random, sqlite3, sys, time
path, keep, wait, until = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), time.monotonic() + float(sys.argv[4])
number = 0
while time.monotonic() < until:
    try:
        connection = sqlite3.connect("file:" + path + "?mode=rw", uri=True, isolation_level=None, timeout=0.3)
        closing = time.monotonic() + random.random() * keep
        while True:
            number += 1
            connection.execute("INSERT INTO a(k, v) VALUES(?, 1)", (sys.argv[5] + str(number),))
            print(sys.argv[5] + str(number), flush=True)
            time.sleep(random.random() * wait)
            if time.monotonic() > min(closing, until):
                break
    except sqlite3.Error as error:
        print("-", error, file=sys.stderr)
        time.sleep(0.02)
    finally:
        try:
            connection.close()
        except (NameError, sqlite3.Error):
            pass
    time.sleep(random.random() * wait)
"""


def run(stage, chance):
    wal = chance.random() < 0.6
    for path, rows in ((stage.group_store, ["x", "y"]), (stage.legacy_store, ["y", "z"])):
        connection = stores.connected(path)
        connection.execute(f"PRAGMA journal_mode = {'WAL' if wal else 'DELETE'}")
        connection.execute("CREATE TABLE a(id INTEGER PRIMARY KEY, k TEXT UNIQUE, v)")
        connection.executemany("INSERT INTO a(k, v) VALUES(?, 1)", [(r,) for r in rows])
        connection.close()
    more = ("--merge-key", "a=k", "--deadline", chance.choice(["1", "4"]))
    sides = chance.choice([(LEGACY,), (LEGACY,), (GROUP,), (GROUP, LEGACY)])
    keep, wait, span = chance.choice([0, 0.2, 30]), chance.choice([0.005, 0.1]), chance.choice([2, 5])
    writers = []
    for side in sides:
        path = stage.legacy_store if side == LEGACY else stage.group_store
        arguments = [sys.executable, "-c", WRITER, path, str(keep), str(wait), str(span), side]
        writers.append(subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
    begun = time.monotonic()
    while True:
        time.sleep(chance.random() * 0.3)
        outcome = stage.run(*more)
        demand(outcome.code in (0, 73, 75), f"beside a writer: {outcome}")
        if time.monotonic() - begun > span:
            break
    told = ["x", "y", "z"]
    for writer in writers:
        told += writer.communicate(timeout=60)[0].decode().split()
    if os.path.isfile(stage.legacy_store):
        outcome = stage.run(*more)
        demand(outcome.code == 0, f"after the writers have ended: {outcome}")
        demand(not os.path.lexists(stage.legacy_store), f"the legacy store stays: {outcome}")
    connection = stores.connected(stage.group_store)
    there = [row[0].decode() for row in connection.execute("SELECT k FROM a")]
    connection.close()
    lost = [k for k in told if k not in set(there)]
    demand(not lost, f"{len(lost)} of {len(told)} rows that were told are lost ({sides}, WAL {wal}): {lost[:10]}")
