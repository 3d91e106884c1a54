"""A copy that is kept up to date while another thread writes: each of its states must be one that the store had."""

import os
import random
import sqlite3
import threading
import time

from replica import Replica, contents

SCHEMA = """
PRAGMA journal_mode=WAL;
CREATE TABLE t (id INTEGER PRIMARY KEY, a UNIQUE, b);
CREATE TABLE w (k TEXT COLLATE NOCASE PRIMARY KEY, v UNIQUE) WITHOUT ROWID;
"""


def statement(chance):
    """Returns a statement that moves, swaps, replaces or removes rows."""
    one, two, key = chance.randint(1, 12), chance.randint(1, 12), chance.choice("aAbBcCdD")
    return chance.choice([
        f"REPLACE INTO t VALUES ({one}, {two}, {chance.random()})", f"UPDATE OR REPLACE t SET a=a+1 WHERE id>{one}",
        f"UPDATE OR REPLACE t SET id={two} WHERE id={one}", f"DELETE FROM t WHERE id={one}",
        f"UPDATE t SET a=-a WHERE id IN ({one}, {two})", f"REPLACE INTO w VALUES ('{key}', {one})",
        f"UPDATE OR REPLACE w SET k=upper(k) WHERE v<{one}", f"UPDATE OR REPLACE w SET v=v+1 WHERE k>'{key}'",
        f"DELETE FROM w WHERE k='{key}'", f"INSERT OR IGNORE INTO t(a) VALUES ({one})",
    ])


class Writer(threading.Thread):
    """Commits transactions, and notes the state after each."""

    def __init__(self, store, seed, seconds):
        super().__init__()
        self.store, self.chance, self.end = store, random.Random(seed), time.monotonic() + seconds
        self.states, self.error = [], None

    def run(self):
        try:
            connection = sqlite3.connect(self.store, isolation_level=None, timeout=30)
            self.states.append(state(connection))
            while time.monotonic() < self.end:
                connection.execute("BEGIN IMMEDIATE")
                for _ in range(self.chance.randint(1, 6)):
                    try:
                        connection.execute(statement(self.chance))
                    except sqlite3.IntegrityError:
                        pass
                connection.execute(self.chance.choice(["COMMIT"] * 5 + ["ROLLBACK"]))
                self.states.append(state(connection))
            connection.close()
        except Exception as error:
            self.error = error


def state(connection):
    return hash((tuple(connection.execute("SELECT * FROM t ORDER BY id")), tuple(connection.execute("SELECT * FROM w ORDER BY k"))))


def play(program, directory, seed, seconds=4):
    """Plays a round. Returns a problem in words or None, and the number of states that the copy had."""
    chance = random.Random(f"live/{seed}")
    store = os.path.join(directory, "store.sqlite")
    connection = sqlite3.connect(store, isolation_level=None)
    connection.executescript(SCHEMA)
    program.run("history", "enable", store, *(["--before"] if chance.random() < 0.5 else []))
    token = program.run("changes", store, "--values", "--json", "--now")[1][-1]["token"]
    copy = Replica.of(store, os.path.join(directory, "copy.sqlite"), token, None)
    writer = Writer(store, seed, seconds)
    writer.start()
    found = []
    while True:
        is_last = not writer.is_alive()
        pages, token, limit = [], copy.token, chance.choice([None, 2, 5])
        while True:
            words = ["--since", token] + (["--limit", str(limit)] if limit else [])
            code, lines, errors = program.run("changes", store, "--values", "--json", *words)
            if code != 0 or lines[-1]["outcome"] != "changes":
                writer.join()
                return f"{code} {errors} {lines[-1:]}", len(found)
            pages.append(lines)
            token = lines[-1]["token"]
            # A fast writer is never caught up with in small pages.
            limit = limit if len(pages) < 4 else None
            if not lines[-1]["more"]:
                break
        copy.apply(pages)
        reader = sqlite3.connect(copy.path)
        found.append(state(reader))
        reader.close()
        if is_last:
            break
    writer.join()
    if writer.error:
        return f"the writer: {writer.error!r}", len(found)
    position = 0
    for number, each in enumerate(found):
        try:
            position = writer.states.index(each, position)
        except ValueError:
            return f"state {number} of {len(found)} isn't one that the store had after that before", len(found)
    if contents(store, set()) != contents(copy.path, set()):
        return "the last state differs", len(found)
    connection.close()
    return None, len(found)
