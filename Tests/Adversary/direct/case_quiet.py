"""Whatever writes nothing must print nothing."""

import sqlite3
import time

from store import MODES, connect, insert, make


def run(round):
    r = round.chance
    mode = r.choice(["wal", "wal"] + MODES[:4])
    path = round.path("s.db")
    make(path, mode)
    held = connect(path) if r.random() < 0.5 else None
    if held:
        held.execute("SELECT count(*) FROM mark").fetchone()
        if r.random() < 0.7:
            insert(held)
    watch = round.watch(path)
    if not watch.ready():
        return
    watch.settle(0.5)
    for _ in range(r.randrange(4, 10)):
        what = r.choice(["read", "snapshot", "rollback", "checkpoint", "begin", "integrity", "bytes", "savepoint"])
        round.title = f"{mode} {'held ' if held else ''}{what}"
        seen = len(watch.lines)
        connection = held if held and r.random() < 0.5 else connect(path)
        own = connection is not held
        round.step(f"{what} {'own' if own else 'held'}")
        try:
            act(r, connection, what, path)
        except sqlite3.OperationalError as error:
            round.step(f"failed: {error}")
        if own:
            connection.close()
            round.step("closed")
        time.sleep(1.2)
        round.figures["quiet acts"] += 1
        lines = [line.text for line in watch.lines[seen:]]
        if lines:
            round.problem("noise", f"{what} by {'an own' if own else 'the held'} connection in {mode}: {lines}")
            return
    done = insert(held) if held else insert(connect(path))
    watch.covers(done.before, done.after, path)
    if held:
        held.close()


def act(r, connection, what, path):
    if what == "read":
        connection.execute("SELECT * FROM mark").fetchall()
    elif what == "snapshot":
        connection.execute("BEGIN")
        connection.execute("SELECT * FROM other").fetchall()
        time.sleep(0.3)
        connection.execute("COMMIT")
    elif what in ("rollback", "savepoint"):
        connection.execute("BEGIN IMMEDIATE" if what == "rollback" else "SAVEPOINT s")
        connection.execute("INSERT INTO mark (text) VALUES ('never')")
        time.sleep(r.choice([0, 0.4]))
        connection.execute("ROLLBACK")
    elif what == "checkpoint":
        connection.execute(f"PRAGMA wal_checkpoint({r.choice(['PASSIVE', 'FULL', 'RESTART', 'TRUNCATE'])})").fetchall()
    elif what == "begin":
        connection.execute(f"BEGIN {r.choice(['IMMEDIATE', 'EXCLUSIVE'])}")
        connection.execute("COMMIT")
    elif what == "integrity":
        connection.execute("PRAGMA integrity_check").fetchall()
    else:
        with open(path, "rb") as file:
            file.read()
