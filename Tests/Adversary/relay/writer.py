"""A writer of the home, in a process of its own: writer.py DIRECTORY SEED GROUPSTORE WORDS…

Each commit is made under one lock, and the state after it is added to states.jsonl.
"""

import fcntl
import json
import os
import random
import sqlite3
import subprocess
import sys
import time

from digests import state
from stores import Statements


class Writer:
    def __init__(self, directory, seed, groupstore, words):
        self.directory, self.groupstore, self.words = directory, groupstore, words
        self.chance = random.Random(seed)
        self.store = os.path.join(directory, "home", "home.sqlite")
        self.lock = open(os.path.join(directory, "lock"), "a")
        self.log = open(os.path.join(directory, "states.jsonl"), "a")
        self.inode = self.connection = None
        self.pause = 0.2 if "slow" in words else 0.001 if "fast" in words else 0.02

    def open(self):
        inode = os.stat(self.store).st_ino
        if inode != self.inode or self.chance.random() < 0.02:
            if self.connection:
                self.connection.close()
            self.connection = sqlite3.connect(f"file:{self.store}?mode=rw", uri=True, isolation_level=None, timeout=20)
            self.connection.text_factory = bytes
            self.connection.execute(f"PRAGMA foreign_keys={self.chance.randint(0, 1)}")
            self.connection.execute(f"PRAGMA recursive_triggers={self.chance.randint(0, 1)}")
            self.inode = inode
            self.statements = Statements(self.chance, self.connection, self.words)

    def note(self):
        self.log.write(json.dumps(state(self.connection)) + "\n")
        self.log.flush()

    def execute(self, sql):
        try:
            self.connection.execute(sql).fetchall()
            return True
        except (sqlite3.Error, sqlite3.Warning, OverflowError):
            return False

    def step(self, sql):
        """Executes a statement of a transaction that is still there.

        SQLite rolls all of it back if a table with AUTOINCREMENT has given its last number (SQLITE_FULL). Each later
        statement would be a commit of its own then, whose state nobody notes.
        """
        return self.connection.in_transaction and self.execute(sql)

    def transaction(self):
        chance = self.chance
        if not self.execute("BEGIN IMMEDIATE"):
            return
        for _ in range(chance.choice([1, 1, 2, 3, 8])):
            if chance.random() < 0.05:
                self.step("SAVEPOINT s")
                self.step(self.statements.next())
                self.step("ROLLBACK TO s")
                self.step("RELEASE s")
            self.step(self.statements.next())
        self.step("INSERT INTO parent VALUES (random()%9, 1)")
        self.step("INSERT INTO child(p) SELECT id FROM parent ORDER BY random() LIMIT 1")
        self.step("DELETE FROM parent WHERE id IN (SELECT id FROM parent ORDER BY random() LIMIT 1)")
        if chance.random() < 0.9:
            self.step("UPDATE tick SET n=n+1")
        if chance.random() < 0.06:
            self.step(f"PRAGMA user_version={chance.randrange(1 << 31)}")
        if chance.random() < 0.02:
            self.step("UPDATE sqlite_sequence SET seq=seq+7")
        if chance.random() < 0.02 and "big" in self.words:
            self.step("INSERT INTO ticks(at) VALUES (randomblob(1500000))")
            self.step("DELETE FROM ticks WHERE id IN (SELECT id FROM ticks WHERE length(at)>9 ORDER BY id LIMIT (SELECT max(0, count(*)-1) FROM ticks WHERE length(at)>9))")
        if chance.random() < 0.1 or not self.step("COMMIT"):
            self.step("ROLLBACK")

    def change_schema(self):
        self.execute("BEGIN IMMEDIATE")
        for sql in self.statements.schema_change():
            self.execute(sql)
        self.execute("COMMIT")
        self.note()
        if self.chance.random() < 0.3:
            time.sleep(0.3)
        self.enable()

    def enable(self):
        enabled = subprocess.run([self.groupstore, "history", "enable", self.store, "--json"], stdin=subprocess.DEVNULL, capture_output=True)
        if enabled.returncode:
            print("history enable:", enabled.returncode, enabled.stdout, enabled.stderr, flush=True)

    def run(self):
        # Also ends with the tester, should that be killed.
        stop, parent = os.path.join(self.directory, "stop"), os.getppid()
        while not os.path.exists(stop) and os.getppid() == parent:
            fcntl.flock(self.lock, fcntl.LOCK_EX)
            try:
                self.open()
                draw = self.chance.random()
                if draw < (0.04 if "often" in self.words else 0.006) and "schema" in self.words:
                    self.change_schema()
                elif draw < 0.012 and "vacuum" in self.words:
                    self.execute("VACUUM")
                    self.enable()  # it may have renumbered the rows of a table without a key
                elif draw < 0.03:
                    self.execute(f"PRAGMA user_version={self.chance.randrange(9)}")
                elif draw < 0.04:
                    self.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                else:
                    self.transaction()
                self.note()
            except (FileNotFoundError, sqlite3.Error) as error:
                print(error, flush=True)
                self.inode = None
            finally:
                fcntl.flock(self.lock, fcntl.LOCK_UN)
            time.sleep(self.chance.random() * self.pause)
            if self.chance.random() < 0.02:
                time.sleep(0.4)


if __name__ == "__main__":
    Writer(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]).run()
