"""The home's tables, and what a state of them is: for each table the number of its rows and the sum of their digests.

Each commit writes that into its own row of `State`, with the commit's number, and adds a record to a log outside of the
store. So whoever sees a state can say whether the home had it, without the home: the rows must be those that `State` says,
and `State` must be what the log has under that number. `line` is how often the home was restored from a backup.
"""

import hashlib
import json
import marshal
import os
import sqlite3
import struct
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from digests import quoted, schema_rows

# A large table costs too much to be read at each state: now and then.
LARGE = "Archive"
SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE State (id INTEGER PRIMARY KEY, line, number, digests);
CREATE TABLE Note (id INTEGER PRIMARY KEY, title TEXT UNIQUE, body);
CREATE TABLE Pair (a TEXT COLLATE NOCASE, b, v, PRIMARY KEY (a, b DESC)) WITHOUT ROWID;
CREATE TABLE Owner (id INTEGER PRIMARY KEY, name);
CREATE TABLE Item (id INTEGER PRIMARY KEY AUTOINCREMENT, owner REFERENCES Owner (id) ON DELETE CASCADE, amount REAL);
CREATE INDEX ItemOwner ON Item (owner);
CREATE TABLE Plain (x, y);
CREATE TABLE Trail (id INTEGER PRIMARY KEY, what);
CREATE TABLE Archive (id INTEGER PRIMARY KEY, body);
CREATE TRIGGER NoteTrail AFTER DELETE ON Note BEGIN REPLACE INTO Trail VALUES (old.id % 40, old.title); END;
INSERT INTO State VALUES (1, 0, 0, '{}');
"""
MASK = (1 << 64) - 1


def connect(path, writable=True):
    """Opens a store. Text that isn't UTF-8 stays what it is, and differs from a blob."""
    connection = sqlite3.connect(f"file:{path}?mode={'rw' if writable else 'ro'}", uri=True, isolation_level=None, timeout=30)
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    return connection


def digest_of(data):
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def total(connection, table, where="", values=()):
    """Returns the number of rows, and the sum of their digests. INTEGER and REAL, TEXT and BLOB differ."""
    rows = connection.execute(f"SELECT * FROM {quoted(table)}{where}", values).fetchall()
    return len(rows), sum(digest_of(marshal.dumps(row, 2)) for row in rows) & MASK


def schema_digest(connection):
    factory, connection.text_factory = connection.text_factory, bytes
    try:
        return digest_of(repr(schema_rows(connection)).encode("utf-8", "surrogateescape"))
    finally:
        connection.text_factory = factory


def tables(connection):
    """Returns the names of the app's tables other than `State`."""
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return [name for (name,) in found if name != "State" and not name.startswith(("sqlite_", "GS_"))]


def actual(connection, large=True):
    """Returns what `State.digests` should say, read from all rows."""
    found = {name: list(total(connection, name)) for name in tables(connection) if large or name != LARGE}
    found["schema"] = schema_digest(connection)
    return found


def state(connection):
    """Returns a store's line, number and digests."""
    line, number, text = connection.execute("SELECT line, number, digests FROM State").fetchone()
    return line, number, text


class Log:
    """What each commit of the home said: one record for each number, one file for each line."""

    RECORD = struct.Struct("<QQ")

    def __init__(self, directory):
        self.directory, self.files = directory, {}

    def file(self, line):
        if line not in self.files:
            self.files[line] = os.open(os.path.join(self.directory, f"line{line}.log"), os.O_RDWR | os.O_CREAT, 0o600)
        return self.files[line]

    def write(self, line, number, text):
        """Notes a commit that is about to be made, by whoever holds the store's write lock."""
        os.pwrite(self.file(line), self.RECORD.pack(number, digest_of(text.encode())), number * self.RECORD.size)

    def has(self, line, number, text):
        found = os.pread(self.file(line), self.RECORD.size, number * self.RECORD.size)
        return found == self.RECORD.pack(number, digest_of(text.encode()))


class Commit:
    """One transaction of the home, which keeps `State` true."""

    def __init__(self, connection, log):
        self.connection, self.log = connection, log
        connection.execute("BEGIN IMMEDIATE")
        self.line, self.number, text = state(connection)
        self.digests = json.loads(text)

    def change(self, statements, affected):
        """Executes statements. `affected` has the tables, conditions and their values of all rows that may change."""
        before = [total(self.connection, *each) for each in affected]
        for sql, values in statements:
            self.connection.execute(sql, values)
        for (table, *_), (count, digest), (new_count, new_digest) in zip(affected, before, [total(self.connection, *each) for each in affected]):
            found = self.digests[table]
            self.digests[table] = [found[0] - count + new_count, (found[1] - digest + new_digest) & MASK]

    def change_schema(self, statements):
        for sql in statements:
            self.connection.execute(sql)
        large = self.digests.get(LARGE)
        self.digests = actual(self.connection, large is None)
        if large:
            self.digests[LARGE] = large

    def finish(self):
        text = json.dumps(self.digests, separators=(",", ":"))
        self.connection.execute("UPDATE State SET number = ?, digests = ?", (self.number + 1, text))
        self.log.write(self.line, self.number + 1, text)
        self.connection.execute("COMMIT")
