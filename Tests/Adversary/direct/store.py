"""Makes, writes and copies stores with Python's sqlite3 module; writers in processes of their own."""

import base64
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time

SIDES = ("", "-wal", "-shm", "-journal")
MODES = ["wal", "delete", "truncate", "persist", "memory", "off"]
TABLES = ["mark", "other", "third"]


def connect(path, timeout=30):
    """Connects to a path of any bytes: SQLite gets it percent-encoded."""
    safe = b"".join(bytes([c]) if chr(c).isalnum() and c < 128 or c in b"/._" else b"%%%02x" % c for c in os.fsencode(path))
    uri = "file:" + safe.decode("ascii") + "?mode=rwc"
    return sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)


def make(path, mode="wal", rows=5, page=None, vacuum=None):
    """Makes a closed store with three tables."""
    connection = connect(path)
    if page:
        connection.execute(f"PRAGMA page_size={page}")
    if vacuum:
        connection.execute(f"PRAGMA auto_vacuum={vacuum}")
    connection.execute(f"PRAGMA journal_mode={mode}")
    connection.execute("BEGIN")
    for table in TABLES:
        connection.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, text TEXT)")
        connection.executemany(f"INSERT INTO {table} (text) VALUES (?)", [(f"made {n}",) for n in range(rows)])
    connection.execute("COMMIT")
    connection.close()


class Commit:
    def __init__(self, before, after, tables, what):
        self.before, self.after, self.tables, self.what = before, after, set(tables), what


def commit(connection, statements, tables=(), what=""):
    """Runs the statements in one transaction; returns when it began to commit, and when it had."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in statements:
        connection.execute(*statement) if isinstance(statement, tuple) else connection.execute(statement)
    before = time.monotonic()
    connection.execute("COMMIT")
    return Commit(before, time.monotonic(), tables, what or str(statements)[:80])


def insert(connection, table="mark", text="new"):
    return commit(connection, [(f"INSERT INTO {table} (text) VALUES (?)", (text,))], [table], f"insert into {table}")


def once(path, table="mark", text="new", mode=None):
    """Opens, inserts a row, and closes."""
    connection = connect(path)
    try:
        if mode:
            connection.execute(f"PRAGMA journal_mode={mode}")
        return insert(connection, table, text)
    finally:
        connection.close()


def content(path):
    """Returns the rows of each table of TABLES; opens and closes the store."""
    connection = connect(path)
    try:
        return {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in TABLES}
    finally:
        connection.close()


def remove(path):
    for side in SIDES:
        if os.path.lexists(path + side):
            os.unlink(path + side)


def copy(source, target, sides=SIDES):
    """Copies like `cp -p`: over the target's own file if there is one, and with the source's times."""
    for side in sides:
        if os.path.exists(source + side):
            shutil.copy2(source + side, target + side)
        elif side and os.path.lexists(target + side):
            os.unlink(target + side)


class Writer:
    """A process that commits; see writer.py."""

    def __init__(self, round, path, **settings):
        self.round, self.commits, self.pending, self.failures = round, [], None, []
        self.done = threading.Event()
        settings |= {"path": base64.b64encode(os.fsencode(path)).decode(), "seed": round.chance.randrange(1 << 30)}
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "writer.py")
        self.process = subprocess.Popen([sys.executable, program, json.dumps(settings)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        round.writers.append(self)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        round.step(f"writer {settings}: {self.process.pid}")

    def read(self):
        for text in self.process.stdout:
            if not text.endswith(b"\n"):
                continue
            said = json.loads(text)
            if "before" in said and "after" not in said:
                self.pending = said
            elif "done" in said:
                self.done.set()
            elif "after" in said:
                self.commits.append(Commit(said["before"], said["after"], said["tables"], said["what"]))
                self.round.step(f"writer {self.process.pid}: {said['what']} from {said['before'] - self.round.begun:.3f}", said["after"])
                self.pending = None
            else:
                self.failures.append(said)
                self.round.step(f"writer {self.process.pid}: {said}")

    def go(self, command="go"):
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()

    def committed(self, seconds):
        """Waits until a writer has its store open and has committed once."""
        end = time.monotonic() + seconds
        while not self.commits and not self.done.is_set() and time.monotonic() < end:
            time.sleep(0.02)

    def idle(self, seconds):
        """Waits until a writer that holds its store open has made its commits."""
        if not self.done.wait(seconds):
            self.round.problem("no-end", f"writer {self.process.pid} is not done after {seconds} s")

    def wait(self, seconds=60):
        """Waits for its own end."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(5)

    def kill(self):
        """Ends it with SIGKILL; its unfinished commit may have been made: see `pending`."""
        self.process.kill()
        self.process.wait()
        self.reader.join(5)
        return self.pending

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join(5)
        self.process.stdin.close()
        self.process.stdout.close()
