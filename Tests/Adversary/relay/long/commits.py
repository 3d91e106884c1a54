"""A writer of the home, in a process of its own: commits.py DIRECTORY HOME INDEX SEED

Each commit is one to four changes: updates, deletes, REPLACE with conflicts, cascades, app triggers, rolled back savepoints.
"""

import contextlib
import os
import random
import sqlite3
import sys
import time

from control import ALLOWED, COMMITS, STOP, Control
from oracle import Commit, Log, connect

VALUES = [None, "", b"", b"\x00\xff", "a\x00b", 9223372036854775807, -9223372036854775808, 9007199254740993, -0.0, 2.0, 2, 1e300, float("inf"), 5e-324,
          0.1, "e\u0301", "\u00e9", "\n\x7f\"\\", "\U0001f642", "Abc", "abc", "ABC", "12", 1e15, "\ufffd", "\ufeffbom", 3, "it's"]


class Changes:
    """Random changes of the home's rows."""

    def __init__(self, chance):
        self.chance = chance
        self.kinds = [self.replace_note] * 3 + [self.move_note, self.rename_note, self.delete_note, self.put_pair, self.put_pair, self.change_case,
                                                self.delete_pair, self.put_owner, self.delete_owner, self.put_item, self.put_item, self.change_item,
                                                self.put_plain, self.change_plain, self.archive, self.archive, self.extra]

    def value(self):
        draw = self.chance.random()
        if draw < 0.5:
            return self.chance.choice(VALUES)
        return self.chance.randbytes(self.chance.randrange(200)) if draw < 0.7 else self.chance.randrange(-9999, 9999)

    def next(self, commit):
        self.chance.choice(self.kinds)(commit)

    def note(self):
        return self.chance.randint(1, 250), f"title {self.chance.randrange(350)}"

    def change_note(self, commit, sql, values, number, title):
        conflict = [("Note", " WHERE id = ? OR title = ?", (number, title)), ("Trail",)]
        commit.change([(sql, values)], conflict)

    def replace_note(self, commit):
        number, title = self.note()
        self.change_note(commit, "REPLACE INTO Note (id, title, body) VALUES (?, ?, ?)", (number, title, self.value()), number, title)

    def rename_note(self, commit):
        number, title = self.note()
        self.change_note(commit, "UPDATE OR REPLACE Note SET title = ?, body = ? WHERE id = ?", (title, self.value(), number), number, title)

    def move_note(self, commit):
        (number, _), (to, _) = self.note(), self.note()
        commit.change([("UPDATE OR REPLACE Note SET id = ? WHERE id = ?", (to, number))], [("Note", " WHERE id IN (?, ?)", (number, to)), ("Trail",)])

    def delete_note(self, commit):
        number, _ = self.note()
        commit.change([("DELETE FROM Note WHERE id = ?", (number,))], [("Note", " WHERE id = ?", (number,)), ("Trail",)])

    def pair(self):
        name = self.chance.choice(["x", "Y", "\u00e9", "key"]) + str(self.chance.randrange(25))
        return self.chance.choice([name, name.upper()]), self.chance.choice([1, 2, 2.5, "b", b"b", None])

    def change_pair(self, commit, sql, values, name):
        commit.change([(sql, values)], [("Pair", " WHERE a = ?", (name,))])

    def put_pair(self, commit):
        name, other = self.pair()
        self.change_pair(commit, "INSERT OR REPLACE INTO Pair (a, b, v) VALUES (?, coalesce(?, 0), ?)", (name, other, self.value()), name)

    def change_case(self, commit):
        name, _ = self.pair()
        self.change_pair(commit, "UPDATE OR REPLACE Pair SET a = upper(a), v = ? WHERE a = ?", (self.value(), name), name)

    def delete_pair(self, commit):
        name, _ = self.pair()
        self.change_pair(commit, "DELETE FROM Pair WHERE a = ?", (name,), name)

    def put_owner(self, commit):
        number = self.chance.randint(1, 60)
        commit.change([("INSERT INTO Owner (id, name) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name", (number, self.value()))],
                      [("Owner", " WHERE id = ?", (number,))])

    def delete_owner(self, commit):
        number = self.chance.randint(1, 60)
        commit.change([("DELETE FROM Owner WHERE id = ?", (number,))], [("Owner", " WHERE id = ?", (number,)), ("Item", " WHERE owner = ?", (number,))])

    def put_item(self, commit):
        number = self.chance.randint(1, 60)
        values = (self.chance.choice([1, 2.5, -0.0, None, 1e300]), number)
        commit.change([("INSERT INTO Item (owner, amount) SELECT id, ? FROM Owner WHERE id = ?", values)], [("Item", " WHERE owner = ?", (number,))])

    def change_item(self, commit):
        number = self.chance.randint(1, 60)
        some = ("Item", " WHERE owner = ?", (number,))
        if self.chance.random() < 0.4:
            commit.change([("DELETE FROM Item WHERE owner = ?", (number,))], [some])
        else:
            commit.change([("UPDATE Item SET amount = amount + 1 WHERE owner = ?", (number,))], [some])

    def put_plain(self, commit):
        (count, _) = commit.digests["Plain"]
        if count > 120:
            commit.change([("DELETE FROM Plain WHERE rowid IN (SELECT rowid FROM Plain ORDER BY random() LIMIT 60)", ())], [("Plain",)])
        else:
            (last,) = commit.connection.execute("SELECT coalesce(max(rowid), 0) FROM Plain").fetchone()
            commit.change([("INSERT INTO Plain (x, y) VALUES (?, ?)", (self.value(), self.value()))], [("Plain", " WHERE rowid > ?", (last,))])

    def change_plain(self, commit):
        number = self.chance.randint(1, 120)
        commit.change([("UPDATE Plain SET y = ? WHERE rowid = ?", (self.value(), number))], [("Plain", " WHERE rowid = ?", (number,))])

    def archive(self, commit):
        number = self.chance.randint(1, 10_000)
        commit.change([("REPLACE INTO Archive (id, body) VALUES (?, ?)", (number, self.chance.randbytes(self.chance.randrange(120))))],
                      [("Archive", " WHERE id = ?", (number,))])

    def extra(self, commit):
        if "Extra" in commit.digests:
            number = self.chance.randint(1, 50)
            commit.change([("REPLACE INTO Extra VALUES (?, ?)", (f"e{number}", self.value()))], [("Extra", " WHERE k = ?", (f"e{number}",))])


class Writer:
    def __init__(self, directory, home, index, seed):
        self.control, self.log, self.home, self.slot = Control(directory), Log(directory), home, COMMITS + int(index)
        self.chance = random.Random(f"{seed}/{index}")
        self.changes = Changes(self.chance)
        self.inode = self.connection = None

    def open(self):
        inode = os.stat(self.home).st_ino
        if inode != self.inode:
            if self.connection:
                self.connection.close()
            self.connection, self.inode = connect(self.home), inode
            for setting in ("foreign_keys = 1", "synchronous = OFF", f"recursive_triggers = {self.chance.randint(0, 1)}"):
                self.connection.execute("PRAGMA " + setting)

    def commit(self):
        commit = Commit(self.connection, self.log)
        for _ in range(self.chance.choice([1, 1, 1, 2, 2, 4])):
            if self.chance.random() < 0.03:
                kept = dict(commit.digests)
                self.connection.execute("SAVEPOINT s")
                self.changes.next(commit)
                self.connection.execute("ROLLBACK TO s")
                self.connection.execute("RELEASE s")
                commit.digests = kept
            self.changes.next(commit)
        if self.chance.random() < 0.02:
            self.connection.execute("ROLLBACK")
            return
        commit.finish()
        self.control[self.slot] += 1

    def run(self):
        control, parent = self.control, os.getppid()
        while not control[STOP] and os.getppid() == parent:
            if control.commits() >= control[ALLOWED]:
                time.sleep(0.005)
                continue
            try:
                # Now and then they do contend for the store's own lock.
                turn = control.in_turn() if self.chance.random() < 0.95 else contextlib.nullcontext()
                with control.shared(), turn:
                    self.open()
                    self.commit()
            except sqlite3.OperationalError as error:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                if "locked" not in str(error) and "schema" not in str(error):
                    raise
            time.sleep(self.chance.random() * 0.001)


if __name__ == "__main__":
    Writer(*sys.argv[1:5]).run()
