"""A process that commits random transactions and says when. Ends at the end of its input, or after its commits."""

import base64
import json
import os
import random
import sqlite3
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from store import MODES, TABLES, connect  # noqa: E402

settings = json.loads(sys.argv[1])
r = random.Random(settings["seed"])


def say(**what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def transaction(connection, number):
    """Runs one transaction; half of the odd kinds are rolled back or do something to the whole store."""
    kind = r.choices(["insert", "update", "big", "rollback", "version", "checkpoint", "vacuum", "mode", "delete"],
                     [40, 20, settings.get("big", 2), 5, 3, settings.get("checkpoint", 4), settings.get("vacuum", 1),
                      settings.get("mode", 0), settings.get("delete", 4)])[0]  # fmt: skip
    if kind == "checkpoint":
        connection.execute(f"PRAGMA wal_checkpoint({r.choice(['PASSIVE', 'FULL', 'RESTART', 'TRUNCATE'])})").fetchall()
        return
    if kind == "vacuum":
        connection.execute("VACUUM")
        return
    if kind == "mode":
        connection.execute(f"PRAGMA journal_mode={r.choice(MODES)}").fetchall()
        return
    tables = r.sample(TABLES, r.choice([1, 1, 2, 3]))
    connection.execute(r.choice(["BEGIN", "BEGIN IMMEDIATE", "BEGIN IMMEDIATE"]))
    # Each transaction leaves a mark of its own, so that one whose writer was killed can be found.
    mark = f"{os.getpid()} {number}"
    connection.execute("INSERT INTO mark (text) VALUES (?)", (mark,))
    for table in tables:
        if kind == "update":
            connection.execute(f"UPDATE {table} SET text = ? WHERE id = ?", (f"upd {number}", r.randrange(1, 6)))
        elif kind == "big":
            connection.executemany(f"INSERT INTO {table} (text) VALUES (?)", [("x" * r.randrange(3000),) for _ in range(200)])
        elif kind == "version":
            connection.execute(f"PRAGMA user_version={r.randrange(1 << 30)}")
        elif kind == "delete":
            connection.execute(f"DELETE FROM {table} WHERE id > 200")
        else:
            connection.execute(f"INSERT INTO {table} (text) VALUES (?)", (f"{kind} {number}",))
    before = time.monotonic()
    if kind == "rollback":
        connection.execute("ROLLBACK")
        return
    say(before=before, mark=mark)
    connection.execute("COMMIT")
    say(before=before, after=time.monotonic(), tables=[] if kind == "version" else ["mark", *tables], what=f"{kind} {mark}")


def open_store():
    connection = connect(base64.b64decode(settings["path"]), settings.get("timeout", 30))
    for pragma in settings.get("pragmas", []):
        connection.execute(pragma).fetchall()
    return connection


connection = open_store()
say(ready=True)
if settings.get("wait"):
    sys.stdin.readline()
for number in range(settings.get("count", 1 << 30)):
    try:
        if connection is None:
            connection = open_store()
        transaction(connection, number)
    except sqlite3.Error as error:
        say(error=str(error))
        try:
            connection.execute("ROLLBACK")
        except (sqlite3.Error, AttributeError):
            pass
    if connection is not None and r.random() < settings.get("reopen", 0.0):
        connection.close()
        connection = None
    time.sleep(r.choice([0, 0, 0.001, 0.01, r.random()]) * settings.get("pause", 0.2))
say(done=True)
if settings.get("hold"):
    sys.stdin.readline()  # with the store open, until the input ends
if connection is not None:
    connection.close()
