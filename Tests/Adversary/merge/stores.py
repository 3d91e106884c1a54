"""Writes and reads SQLite stores, with no help of the program under test."""

import hashlib
import os
import shutil
import sqlite3
import tempfile

from words import Text, exact, quoted

SIDES = ("", "-wal", "-journal")  # of the database's files, what holds content


def connected(path):
    connection = sqlite3.connect(path, isolation_level=None, timeout=20)
    connection.text_factory = Text
    return connection


def names(connection, sql, *arguments):
    return [row[0].decode() for row in connection.execute(sql, arguments)]


def tables(connection):
    """Returns the names of all tables but SQLite's own and those that belong to a virtual table."""
    rows = connection.execute(
        "SELECT name, type FROM pragma_table_list WHERE schema = 'main' AND type != 'view'"
    ).fetchall()
    return [name.decode() for name, type in rows if type != b"shadow" and not name.startswith(b"sqlite_")]


def columns(connection, table):
    """Returns the names of all columns, generated ones included."""
    rows = connection.execute(f"PRAGMA table_xinfo({quoted(table)})").fetchall()
    return [row[1].decode() for row in rows if row[6] != 1]


def content(path):
    """Returns everything that SQL shows of a store: schema, settings and rows. Reads a private copy."""
    with tempfile.TemporaryDirectory() as directory:
        connection = connected(copied(path, os.path.join(directory, "copy")))
        try:
            return {**shown(connection), "support": support(path)}
        finally:
            connection.close()


def shown(connection):
    schema = sorted(
        tuple(exact(v) for v in row)
        for row in connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema")
    )
    settings = tuple(
        exact(connection.execute("PRAGMA " + name).fetchone()[0])
        for name in ("user_version", "application_id", "encoding")
    )
    rows = {
        table: sorted(tuple(exact(v) for v in row) for row in everything(connection, table))
        for table in tables(connection)
    }
    if "sqlite_sequence" in names(connection, "SELECT name FROM sqlite_schema"):
        rows["sqlite_sequence"] = sorted(
            tuple(exact(v) for v in row) for row in connection.execute("SELECT name, seq FROM sqlite_sequence")
        )
    return {"schema": schema, "settings": settings, "rows": rows}


def everything(connection, table):
    listed = ", ".join(quoted(c) for c in columns(connection, table))
    free = [c for c in ("rowid", "oid", "_rowid_") if c not in [n.lower() for n in columns(connection, table)]]
    try:
        return connection.execute(f"SELECT {free[0]}, {listed} FROM {quoted(table)}").fetchall()
    except (sqlite3.OperationalError, IndexError):  # without a rowid, or with one that can't be reached
        return connection.execute(f"SELECT {listed} FROM {quoted(table)}").fetchall()


def copied(path, to):
    """Copies a store's files, whoever has it open; returns `to`."""
    for name in SIDES:
        if os.path.exists(path + name):
            shutil.copyfile(path + name, to + name)
        elif os.path.exists(to + name):
            os.remove(to + name)
    return to


def support_folder(path):
    directory, name = os.path.split(path)
    return os.path.join(directory, "." + os.path.splitext(name)[0] + "_SUPPORT")


def support(path):
    """Returns the files of the support folder by their path in it, with their hash."""
    folder, files = support_folder(path), {}
    for directory, _, members in os.walk(folder):
        for member in members:
            with open(os.path.join(directory, member), "rb") as file:
                files[os.path.relpath(os.path.join(directory, member), folder)] = hashlib.sha256(
                    file.read()
                ).hexdigest()
    return files


def tree(directory):
    """Returns each file below a directory with its bytes' hash, without wal-indexes, which hold no content."""
    found = {}
    for folder, folders, members in os.walk(directory):
        for name in folders:
            found[os.path.relpath(os.path.join(folder, name), directory)] = "directory"
        for member in members:
            if not member.endswith("-shm"):
                with open(os.path.join(folder, member), "rb") as file:
                    found[os.path.relpath(os.path.join(folder, member), directory)] = hashlib.sha256(
                        file.read()
                    ).hexdigest()
    return found


def finish(connection, chance):
    """Closes a new store in one of the states that programs leave: rollback, WAL, WAL with a log that isn't emptied."""
    state = chance.choice(["delete", "delete", "wal", "log", "log"])
    if state == "delete":
        connection.close()
        return state
    connection.execute("PRAGMA journal_mode = WAL")
    if state == "wal":
        connection.close()
        return state
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection  # the caller goes on writing, and then leaves it by `leave`


def leave(connection, path):
    """Closes a store as a crash would: its log stays."""
    copied(path, path + ".left")
    connection.close()
    for name in SIDES + ("-shm",):
        if os.path.exists(path + name):
            os.remove(path + name)
        if os.path.exists(path + ".left" + name):
            os.rename(path + ".left" + name, path + name)
