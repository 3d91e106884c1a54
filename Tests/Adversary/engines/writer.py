"""A process that writes a store with one of several engines.

The tester starts it with a pipe at each end. A line on standard input is a command in JSON, a line on standard output the
answer: {"ok": true, ...} or {"error": text}. A commit counts only once its answer was written, so a killed writer owes
nothing that the tester doesn't know of. Each command is one method of `Writer`.

Engines: sqlite (Python's module), apsw (a newer SQLite, which can choose a VFS), cipher (SQLCipher, with or without a key),
turso (a rewrite of SQLite in Rust). An engine that can't be imported answers with an error when the tester asks for it.
"""
import json
import os
import sys
import time


def load(engine):
    """The engine's module; fails with ImportError where it isn't installed."""
    if engine == "sqlite":
        import sqlite3 as module
    elif engine == "apsw":
        import apsw as module
    elif engine == "cipher":
        from sqlcipher3 import dbapi2 as module
    elif engine == "turso":
        import turso as module
    else:
        raise ImportError("no engine " + engine)
    return module


class Writer:
    def __init__(self):
        self.connection = None
        self.engine = None

    def has(self, engines):
        """Which of these engines can be used here, and their SQLite's version."""
        found = {}
        for engine in engines:
            try:
                module = load(engine)
            except ImportError:
                continue
            found[engine] = module.sqlite_lib_version() if engine == "apsw" else str(module.sqlite_version)
        return {"engines": found}

    def open(self, engine, path, pragmas=(), key=None, vfs=None, read_only=False, timeout=5):
        module = load(engine)
        self.engine = engine
        if engine == "apsw":
            flags = module.SQLITE_OPEN_READONLY if read_only else module.SQLITE_OPEN_READWRITE | module.SQLITE_OPEN_CREATE
            self.connection = module.Connection(path, flags=flags, vfs=vfs)
            self.connection.set_busy_timeout(timeout * 1000)
        elif engine == "turso":
            self.connection = module.connect(path, isolation_level=None)
        else:
            mode = "?mode=ro" if read_only else ""
            quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
            self.connection = module.connect("file:" + quoted + mode, uri=True, timeout=timeout, isolation_level=None)
        if key:
            self.execute("PRAGMA key = '%s'" % key)
        return {"pragmas": [self.execute(pragma) for pragma in pragmas]}

    def execute(self, sql, values=()):
        cursor = self.connection.cursor()
        cursor.execute(sql, tuple(values))
        try:
            rows = cursor.fetchall()
        except Exception as error:  # each engine has its own way to say "this statement has no rows"
            if "sqlite3" in str(type(error)).lower():
                raise
            rows = []
        return [[value.hex() if isinstance(value, bytes) else value for value in row] for row in rows or []]

    def run(self, sql):
        """Runs statements one by one; returns the rows of the last one."""
        rows = []
        for statement in sql:
            rows = self.execute(statement)
        return {"rows": rows}

    def insert(self, tags, size=100, kind="INSERT"):
        """One transaction with a row for each tag."""
        self.execute("BEGIN IMMEDIATE")
        for tag in tags:
            self.execute(kind + " INTO note (tag, body) VALUES (?, ?)", (tag, os.urandom(size)))
        self.execute("COMMIT")
        return {}

    def burst(self, tags, size=50):
        """A transaction for each tag, one at once after another."""
        for tag in tags:
            self.execute("INSERT INTO note (tag, body) VALUES (?, ?)", (tag, os.urandom(size)))
        return {}

    def storm(self, prefix, pause=0.0, size=200):
        """Commits for ever, with a line for each; the tester kills it."""
        number = 0
        while True:
            tag = "%s-%d" % (prefix, number)
            self.execute("INSERT INTO note (tag, body) VALUES (?, ?)", (tag, os.urandom(size)))
            answer({"ok": True, "tag": tag})
            number += 1
            if pause:
                time.sleep(pause)

    def spill(self, rows=3000, size=1000):
        """A transaction that is too large for the cache, and stays open."""
        self.execute("PRAGMA cache_size = 10")
        self.execute("BEGIN IMMEDIATE")
        for number in range(rows):
            self.execute("INSERT INTO note (tag, body) VALUES (?, ?)", ("never-%d" % number, os.urandom(size)))
        return {}

    def blob(self):
        """Writes into a BLOB in place: no statement, no trigger."""
        key = self.execute("SELECT max(rowid) FROM note WHERE length(body) > 20")[0][0]
        if key is None:
            return {"skipped": True}
        if self.engine == "apsw":
            with self.connection.blob_open("main", "note", "body", key, True) as blob:
                blob.write(os.urandom(10))
        else:
            with self.connection.blobopen("note", "body", key) as blob:
                blob[0:10] = os.urandom(10)
        return {}

    def backup(self, source):
        """SQLite's backup API: another database over this one."""
        module = load(self.engine)
        if self.engine == "apsw":
            other = module.Connection(source)
            with self.connection.backup("main", other, "main") as backup:
                while not backup.done:
                    backup.step(7)
        else:
            other = module.connect(source)
            other.backup(self.connection, pages=7)
        other.close()
        return {}

    def keep_wal(self):
        """Tells SQLite to keep the log, and not to checkpoint, when this connection is closed (apsw only)."""
        module = load("apsw")
        self.connection.config(module.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return {}

    def close(self):
        self.connection.close()
        self.connection = None
        return {}


def answer(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main():
    writer = Writer()
    for line in sys.stdin:
        command = json.loads(line)
        method = getattr(writer, command.pop("do"))
        try:
            answer(dict({"ok": True}, **method(**command)))
        except Exception as error:
            answer({"error": "%s: %s" % (type(error).__name__, error)})


if __name__ == "__main__":
    main()
