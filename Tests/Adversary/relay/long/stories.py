"""Harm that takes more than one step. Each begins when all other harm has ended, except for changes of the home's schema."""

import os
import shutil
import sqlite3
import time

import digests
import oracle
from hosts import Failure
from places import position


def wait(trouble, what, condition, seconds, patient=False):
    """Waits until a condition is true, while the run goes on. Returns whether it is; fails unless it is `patient`."""
    end = time.monotonic() + seconds
    while not condition():
        trouble.hosts.check()
        trouble.look()
        if time.monotonic() > end:
            if patient:
                return False
            raise Failure(f"{what}: not within {seconds} s; the publisher: {trouble.hosts.publisher.last_words()}; "
                          f"the follower: {trouble.hosts.follower.last_words()}")
        time.sleep(0.05)
    return True


def change_schema(trouble):
    """Changes the schema, and enables the history again a moment later."""
    hosts, chance = trouble.hosts, trouble.chance
    connection = oracle.connect(hosts.home, writable=False)
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    table = chance.choice(["Note", "Pair", "Owner", "Plain"])
    added = [row[1] for row in connection.execute(f"PRAGMA table_info({table})") if row[1].startswith("more")]
    connection.close()
    index, view, extra = f"{table}_index", f"{table}_view", "Extra"
    column = {"Note": "body", "Pair": "v", "Owner": "name", "Plain": "y"}[table]
    choices = [
        [f"ALTER TABLE {table} DROP COLUMN {added[0]}"] if added else [f"ALTER TABLE {table} ADD COLUMN more{chance.randrange(9)} DEFAULT 'd'"],
        [f"ALTER TABLE {table} RENAME COLUMN {added[0]} TO more{10 + chance.randrange(9)}"] if added else [f"ALTER TABLE {table} ADD COLUMN more DEFAULT 1.5"],
        [f"DROP INDEX {index}"] if index in names else [f"CREATE INDEX {index} ON {table} ({column})"],
        [f"DROP VIEW {view}"] if view in names else [f"CREATE VIEW {view} AS SELECT {column} FROM {table}"],
        ["DROP TABLE Extra"] if extra in names else ["CREATE TABLE Extra (k TEXT PRIMARY KEY, v) WITHOUT ROWID", "INSERT INTO Extra SELECT 'e' || id, name FROM Owner"],
    ]
    hosts.commit(chance.choice(choices))
    time.sleep(chance.choice([0, 0, 0.2]))
    hosts.enable()
    return True


def vacuum(trouble):
    connection = oracle.connect(trouble.hosts.home)
    try:
        connection.execute("VACUUM")
        if trouble.chance.random() < 0.5:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
        return False
    finally:
        connection.close()
    trouble.hosts.enable()  # it may have renumbered the rows of a table without a key
    return True


def reach(trouble, seconds=180):
    """Waits until the replica has what the home has now, although writers go on."""
    want = int(position(trouble.hosts.home).split(".")[0])
    wait(trouble, f"the replica reaches {want}", lambda: os.path.exists(trouble.hosts.replica) and int(position(trouble.hosts.replica).split(".")[0]) >= want, seconds)


def retention(trouble):
    """Keeps the follower away until the stream no longer has what it lacks."""
    hosts = trouble.hosts
    trouble.end()
    # A broker may keep everything from then on that a bit of a stored message was flipped.
    for node in hosts.brokers.nodes:
        node.stop()
        node.put_back(None)
    hosts.brokers.start()
    reach(trouble)
    stream = "GS_" + hosts.stream
    last = (hosts.brokers.info(stream) or {}).get("state", {}).get("last_seq", 0)
    resets = len([line for line in hosts.follower.lines() if line["type"] == "reset"])
    hosts.follower.kill()
    limit, hosts.limit = hosts.limit, hosts.control.commits() + 500_000
    gone = wait(trouble, "the stream drops old messages", lambda: (hosts.brokers.info(stream) or {}).get("state", {}).get("first_seq", 0) > last + 1, 60, patient=True)
    hosts.limit = limit
    hosts.follower.start()
    if gone:
        wait(trouble, "the follower takes a snapshot after the retention has run out", lambda: any(line["type"] == "reset" for line in hosts.follower.lines()), 120)
    return gone


def purged(trouble):
    """Purges the home's history while the follower, and perhaps the publisher, is away."""
    hosts = trouble.hosts
    trouble.end()
    hosts.follower.kill()
    both = trouble.chance.random() < 0.5
    if both:
        hosts.publisher.kill()
    before = hosts.control.commits()
    hosts.limit = max(hosts.limit, before + 200)
    wait(trouble, "the writers go on", lambda: hosts.control.commits() > before + 20, 30)
    hosts.groupstore("history", "purge", hosts.home, "--keep", "1", "--force")
    if both:
        hosts.publisher.start()
    hosts.follower.start()
    return True


def back_up(home, backup, online):
    """Makes a backup while nobody writes: with SQLite's backup, or as a copy of the file."""
    source = sqlite3.connect(home, isolation_level=None, timeout=30)
    if online:
        target = sqlite3.connect(backup)
        source.backup(target)
        target.close()
    else:
        source.execute("BEGIN IMMEDIATE")
        for suffix in ("", "-wal"):
            if os.path.exists(home + suffix):
                shutil.copy(home + suffix, backup + suffix)
        source.execute("ROLLBACK")
        target = sqlite3.connect(backup)
        target.execute("PRAGMA journal_mode = DELETE").fetchall()
        target.close()
    source.close()


def restored(trouble):
    """Puts a backup of the home in its place, although the followers have what came after it."""
    hosts = trouble.hosts
    trouble.end()
    trouble.free("second")
    backup = hosts.home + ".backup"
    online = trouble.chance.random() < 0.5
    with hosts.control.alone():
        back_up(hosts.home, backup, online)
    before = hosts.control.commits()
    hosts.limit = max(hosts.limit, before + 500)
    wait(trouble, "the writers go on", lambda: hosts.control.commits() > before + 100, 60)
    reach(trouble)
    away = trouble.chance.random() < 0.4
    if away:
        hosts.publisher.kill()
    for node in hosts.brokers.nodes:
        node.forget_copies()  # they lead to what this home never had
    with hosts.control.alone():
        for suffix in ("-wal", "-shm"):
            if os.path.exists(hosts.home + suffix):
                os.unlink(hosts.home + suffix)
        os.replace(backup, hosts.home)
        connection = oracle.connect(hosts.home)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        commit = oracle.Commit(connection, hosts.log)
        commit.line += 1
        connection.execute("UPDATE State SET line = line + 1")
        commit.finish()
        connection.close()
        if online:
            hosts.enable()  # SQLite's backup changes the schema's number
    if away:
        hosts.publisher.start()
    before = hosts.counts.get("take-overs", 0)
    wait(trouble, "the restored home is superseded", lambda: hosts.counts.get("take-overs", 0) > before, 90)
    reach(trouble)
    return True


WRITES = ["INSERT INTO Owner (id, name) VALUES (-1, 'by hand')", "UPDATE Note SET body = 'by hand'", "DELETE FROM Item", "CREATE TABLE ByHand (x)",
          "INSERT INTO Owner (id) VALUES (-1); DELETE FROM Owner WHERE id = -1", "REPLACE INTO Archive VALUES (1, 'by hand')"]


def handwritten(trouble):
    """Writes to the replica: it must stop as diverged and leave everything, and a new replica begins in its place."""
    hosts = trouble.hosts
    trouble.end()
    reach(trouble)
    hosts.unwatch()
    running = trouble.chance.random() < 0.6
    if not running:
        hosts.follower.stop()
    write = trouble.chance.choice(WRITES)
    connection = sqlite3.connect(hosts.replica, timeout=30)
    connection.executescript(f"BEGIN IMMEDIATE; {write}; COMMIT")
    connection.close()
    before = digests.read(hosts.replica)
    hosts.follower.start()
    hosts.follower.killed = True  # its end is expected
    wait(trouble, f"a replica with {write!r} is diverged", lambda: not hosts.follower.alive, 90)
    code = hosts.follower.process.returncode
    if code != 73 or not any(line["type"] == "diverged" for line in hosts.follower.lines()):
        raise Failure(f"after {write!r} the follower ends with {code}: {hosts.follower.last_words()}")
    found = digests.difference(before, digests.read(hosts.replica))
    if found:
        raise Failure(f"after {write!r} the diverged replica was changed: {found}")
    for name in os.listdir(hosts.group):
        if name.startswith("Notes.sqlite"):
            os.unlink(os.path.join(hosts.group, name))
    hosts.follower.start()
    hosts.watch()
    reach(trouble)
    return True
