"""Makes, writes and reads stores with Python's sqlite3 module."""

import os
import sqlite3
import time

SIDES = ("", "-wal", "-shm", "-journal")


def connect(path, timeout=20):
    """Connects to a path of any bytes: SQLite gets it percent-encoded."""
    data = os.fsencode(path)
    safe = b"".join(bytes([c]) if chr(c).isalnum() and c < 128 or c in b"/._" else b"%%%02x" % c for c in data)
    return sqlite3.connect("file:" + safe.decode("ascii") + "?mode=rwc", uri=True, timeout=timeout, isolation_level=None)


def make(path, mode="wal", rows=0, owner=None, note="made"):
    """Makes a closed store with a table of marks."""
    connection = connect(path)
    connection.execute(f"PRAGMA journal_mode={mode}")
    connection.execute("CREATE TABLE IF NOT EXISTS mark (id INTEGER PRIMARY KEY, text TEXT)")
    connection.executemany("INSERT INTO mark (text) VALUES (?)", [(f"{note} {n}",) for n in range(rows)])
    connection.close()
    if owner is not None:
        for side in SIDES:
            if os.path.lexists(path + side):
                os.chown(path + side, owner, owner)


def commit(path, text, mode=None, ready=lambda: None):
    """Commits a marked row; returns the moments before and after. Calls `ready` just before."""
    connection = connect(path)
    try:
        if mode is not None:
            connection.execute(f"PRAGMA journal_mode={mode}")
        connection.execute("CREATE TABLE IF NOT EXISTS mark (id INTEGER PRIMARY KEY, text TEXT)")
        ready()
        before = time.monotonic()
        connection.execute("INSERT INTO mark (text) VALUES (?)", (text,))
        return before, time.monotonic()
    finally:
        connection.close()


def count(path):
    """Returns the rows in the table of marks, or None if there is no such store."""
    if not os.path.isfile(path):
        return None
    connection = connect(path)
    try:
        return connection.execute("SELECT count(*) FROM mark").fetchone()[0]
    except sqlite3.Error:
        return None
    finally:
        connection.close()


def has(path, text):
    if not os.path.isfile(path):
        return False
    connection = connect(path)
    try:
        return connection.execute("SELECT 1 FROM mark WHERE text = ?", (text,)).fetchone() is not None
    except sqlite3.Error:
        return False
    finally:
        connection.close()


def remove(path):
    path = os.fsdecode(path)
    for side in SIDES:
        if os.path.lexists(path + side):
            os.unlink(path + side)
