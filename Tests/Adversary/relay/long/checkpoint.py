"""Compares home and replica, whole, while nobody writes."""

import os
import sqlite3
import time

import digests
import oracle
from hosts import Failure
from places import position
from stories import wait


def history(path):
    connection = digests.opened(path)
    connection.execute("BEGIN")
    (trimmed,) = connection.execute("SELECT trimmed FROM GS_HISTORY").fetchone()
    rows = dict((row[0], row) for row in connection.execute("SELECT number, table_id, operation, key, columns, nonce, time, author FROM GS_CHANGE"))
    tables = connection.execute("SELECT id, name, key_columns, columns, installed FROM GS_TABLE ORDER BY id").fetchall()
    identifier = connection.execute("SELECT identifier, version FROM GS_HISTORY").fetchall()
    connection.close()
    return trimmed, rows, tables, identifier


def compare(trouble, patience=240):
    """Ends all harm and all writing for a moment, waits until the replica has caught up, and compares everything."""
    hosts = trouble.hosts
    trouble.end()
    with hosts.control.alone():
        hosts.enable()  # perhaps a change of the schema was the last thing that happened
        connection = sqlite3.connect(hosts.home, isolation_level=None, timeout=30)
        version = hosts.chance.randrange(1 << 31)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.close()
        started = time.monotonic()
        wait(trouble, "the replica catches up", lambda: caught_up(hosts), patience)
        hosts.count("seconds of catching up", int(time.monotonic() - started))
        found = digests.difference(digests.read(hosts.home), digests.read(hosts.replica))
        if found:
            raise Failure(f"the replica has caught up, but {found}")
        (trimmed, mine, *rest), (other_trimmed, others, *other_rest) = history(hosts.home), history(hosts.replica)
        if rest != other_rest:
            raise Failure(f"the histories differ: {rest}, the replica {other_rest}")
        start = max(trimmed, other_trimmed)
        wrong = [(mine.get(n), others.get(n)) for n in sorted(mine.keys() | others.keys()) if n > start and mine.get(n) != others.get(n)]
        if wrong:
            raise Failure(f"{len(wrong)} rows of the histories differ, such as {wrong[0]}")
        for path in (hosts.home, hosts.replica):
            connection = oracle.connect(path, writable=False)
            text = oracle.state(connection)[2]
            if oracle.json.loads(text) != oracle.actual(connection):
                raise SystemExit(f"long: {path} isn't what its own state says, which is this test's own fault")
            check = connection.execute("PRAGMA integrity_check(3)").fetchall()
            connection.close()
            if check != [("ok",)]:
                raise Failure(f"{path}: {check}")
        hosts.groupstore("history", "purge", hosts.home, "--keep", "5000", "--force")  # so that snapshots stay small
    hosts.count("complete comparisons")


def caught_up(hosts):
    if not os.path.exists(hosts.replica) or position(hosts.home) != position(hosts.replica):
        return False
    numbers = []
    for path in (hosts.home, hosts.replica):
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
        numbers.append(connection.execute("PRAGMA user_version").fetchone())
        connection.close()
    return numbers[0] == numbers[1]
