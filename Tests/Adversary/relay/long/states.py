"""Reads a replica again and again: states.py DIRECTORY REPLICA. Ends with 1 and a line at the first wrong state.

Each state must be one that the home had at a commit, and none may be older than one before it in the same file.
"""

import json
import os
import sqlite3
import sys
import time

from control import FULL, SEEN_NUMBER, STATES, STOP, UNWATCH, UNWATCHED, Control
from oracle import LARGE, Log, actual, connect, state


class Watcher:
    def __init__(self, directory, replica):
        self.control, self.log, self.replica = Control(directory), Log(directory), replica
        self.connection, self.inode, self.version = None, None, None
        self.last, self.reads, self.full = (0, 0), 0, 0

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = self.version = None

    def open(self):
        inode = os.stat(self.replica).st_ino
        if inode != self.inode:  # a replica that was moved away: the one in its place begins with its own first snapshot
            self.close()
            self.inode, self.last = inode, (0, 0)
        if self.connection is None:
            self.connection = connect(self.replica, writable=False)

    def look(self):
        """Checks the state that the replica shows, if it may be another one than before."""
        self.open()
        version = self.connection.execute("PRAGMA data_version").fetchone()
        if version == self.version:
            return False
        large = time.monotonic() > self.full
        self.connection.execute("BEGIN")
        try:
            line, number, text = state(self.connection)
            found = actual(self.connection, large)
        finally:
            self.connection.execute("ROLLBACK")
        # Whatever is committed meanwhile has another one.
        self.version = version
        said = json.loads(text)
        if large:
            self.full = time.monotonic() + 1
            self.control[FULL] += 1
        else:
            said.pop(LARGE, None)
        if said != found:
            wrong = {name: (said.get(name), found.get(name)) for name in said.keys() | found.keys() if said.get(name) != found.get(name)}
            self.fail(f"commit {line}/{number} isn't what the replica shows; said and found: {wrong}")
        if not self.log.has(line, number, text):
            self.fail(f"the home had no commit {line}/{number} that said {text}")
        if (line, number) < self.last:
            self.fail(f"commit {line}/{number} came after {self.last}")
        self.control[STATES] += (line, number) != self.last
        self.last = (line, number)
        self.control[SEEN_NUMBER] = number
        return True

    def fail(self, text):
        print(text, flush=True)
        sys.exit(1)

    def run(self):
        control, parent = self.control, os.getppid()
        while not control[STOP] and os.getppid() == parent:
            if control[UNWATCH]:
                self.close()
                control[UNWATCHED] = 1
                while control[UNWATCH] and os.getppid() == parent:
                    time.sleep(0.005)
                control[UNWATCHED] = 0
                continue
            try:
                self.reads += self.look()
                if self.reads % 100 == 99:  # now with a new connection, now with one that was open
                    self.close()
            except FileNotFoundError:
                self.close()
            except sqlite3.OperationalError as error:
                self.close()
                if not any(word in str(error) for word in ("unable to open", "locked", "busy")):
                    self.fail(f"the replica can't be read: {error}")
            time.sleep(0.01)


if __name__ == "__main__":
    Watcher(*sys.argv[1:3]).run()
