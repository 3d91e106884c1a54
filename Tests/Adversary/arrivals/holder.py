"""A program that uses a store: the tester's other process. Commands and answers are lines of JSON, as in `Holder` below.

Run as a program it obeys; imported, it has the class that starts it (as another user, if asked to).
"""
import json
import mmap
import os
import select
import sqlite3
import subprocess
import sys
import time


class Program:
    def __init__(self):
        self.connection = self.descriptor = self.mapping = None

    def open(self, path, create=False, exclusive=False):
        self.connection = sqlite3.connect(path, timeout=5, isolation_level=None)
        if exclusive:
            self.connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        if create:
            self.connection.execute("PRAGMA journal_mode=" + create)
            self.connection.execute("CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, tag TEXT, body BLOB)")
        self.connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()

    def insert(self, tags, size=100):
        self.connection.execute("BEGIN IMMEDIATE")
        for tag in tags:
            self.connection.execute("INSERT INTO note (tag, body) VALUES (?, randomblob(?))", (tag, size))
        self.connection.execute("COMMIT")

    def unfinished(self, rows=2000):
        """A transaction that has reached the disk, and isn't committed."""
        self.connection.execute("PRAGMA cache_size=5")
        self.connection.execute("BEGIN IMMEDIATE")
        for number in range(rows):
            self.connection.execute("INSERT INTO note (tag, body) VALUES ('never', randomblob(500))")

    def hold(self, path, how):
        """Keeps the file open without SQLite: a descriptor, or only a mapping."""
        descriptor = os.open(path, os.O_RDWR)
        if how == "mapping":
            self.mapping = mmap.mmap(descriptor, 0)
            os.close(descriptor)
        else:
            self.descriptor = descriptor

    def close(self):
        if self.connection:
            self.connection.close()
        if self.mapping:
            self.mapping.close()
        if self.descriptor is not None:
            os.close(self.descriptor)
        self.connection = self.mapping = self.descriptor = None


class Holder:
    """The tester's side. `call` answers True, or False if the command failed or the program is gone."""

    def __init__(self, user=None):
        # The program becomes that user itself: a Python may be where the user can't reach it.
        arguments = [sys.executable, os.path.abspath(__file__)] + ([str(n) for n in user] if user else [])
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.rest = b""

    def call(self, do, **arguments):
        try:
            self.process.stdin.write(json.dumps(dict(arguments, do=do)).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            return False
        end = time.monotonic() + 90
        while b"\n" not in self.rest:
            if not select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]:
                return False
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                return False
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return line == b"true"

    def end(self, kill=False):
        if self.process.poll() is None:
            if not kill:
                self.call("close")
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass  # what was written to a program that is gone


def main():
    if len(sys.argv) == 3:
        os.setgroups([])
        os.setgid(int(sys.argv[2]))
        os.setuid(int(sys.argv[1]))
    program = Program()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            getattr(program, command.pop("do"))(**command)
            print("true", flush=True)
        except Exception as error:
            print(json.dumps(str(error)), flush=True)


if __name__ == "__main__":
    main()
