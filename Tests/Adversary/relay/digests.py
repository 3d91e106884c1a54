"""A store's state in one digest: every table, with rowids and types, the schema, and the numbers of the database."""

import hashlib
import re
import sqlite3

OWN = {"GS_HISTORY", "GS_TABLE", "GS_CHANGE", "GS_AUTHOR", "GS_REPLACED", "GS_SUBSCRIBER", "GS_BEFORE", "GS_REPLICA"}
TRIGGER = re.compile(r"GS_[0-9]+_[^_]+$")


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def text(data):
    return data.decode("utf-8", "surrogateescape") if isinstance(data, bytes) else data


def opened(path, readonly=True, timeout=10):
    connection = sqlite3.connect(f"file:{path}?mode={'ro' if readonly else 'rw'}", uri=True, isolation_level=None, timeout=timeout)
    connection.text_factory = bytes
    return connection


def schema_rows(connection):
    rows = []
    for kind, name, table, sql in connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"):
        kind, name, table = text(kind), text(name), text(table)
        own = name.upper() in OWN or table.upper() in OWN or kind == "trigger" and TRIGGER.match(name)
        if not own and not name.lower().startswith("sqlite_"):
            rows.append((kind, name, table, sql))
    return sorted(rows, key=repr)


def tables(connection):
    """Yields each of the app's tables: its name and the expressions that read its rows."""
    kinds = {text(name): (text(kind), without) for _, name, kind, _, without, _ in connection.execute("PRAGMA main.table_list")}
    for kind, name, _, _ in schema_rows(connection):
        if kind != "table":
            continue
        columns = [text(row[1]) for row in connection.execute(f"PRAGMA table_xinfo({quoted(name)})") if row[6] != 1]
        lower = {column.lower() for column in columns}
        rowid = next((each for each in ("rowid", "_rowid_", "oid") if each not in lower), None)
        wanted = [f"r.{quoted(column)}" for column in columns]
        if rowid and kinds[name] == ("table", 0):
            wanted.insert(0, f"r.{rowid}")
        yield name, wanted


def rows_of(connection, name, wanted):
    # Texts that differ in UTF-16 may be alike in UTF-8.
    words = ", ".join(f"typeof({each}), CASE typeof({each}) WHEN 'text' THEN CAST({each} AS BLOB) ELSE {each} END" for each in wanted)
    return sorted(repr(row) for row in connection.execute(f"SELECT {words} FROM {quoted(name)} AS r NOT INDEXED"))


def sequence(connection):
    """Returns AUTOINCREMENT's counters. VACUUM removes their table if no table needs it; that is as good as an empty one."""
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name='sqlite_sequence'").fetchone():
        return []
    return sorted(repr(row) for row in connection.execute("SELECT name, typeof(seq), seq FROM sqlite_sequence"))


def contents(connection):
    """Returns the whole state, part by part; to be called within a transaction."""
    found = {"schema": [repr(row) for row in schema_rows(connection)], "sequence": sequence(connection)}
    for name in ("user_version", "application_id", "encoding"):
        found[name] = repr(connection.execute(f"PRAGMA {name}").fetchone())
    for name, wanted in tables(connection):
        found["table " + name] = rows_of(connection, name, wanted)
    return found


def last_change(connection):
    """Returns the number and the nonce of the last change, in one text."""
    try:
        row = connection.execute(
            "SELECT number, nonce FROM GS_CHANGE WHERE operation IN (0,1,2,3) ORDER BY number DESC LIMIT 1").fetchone()
    except sqlite3.OperationalError:
        return ""
    return f"{row[0]}.{row[1]}" if row else "0.0"


def state(connection):
    """Returns the state that a reader sees now: its digest, the digests of its parts, and its last change."""
    connection.execute("BEGIN")
    try:
        found = contents(connection)
        last = last_change(connection)
    finally:
        connection.execute("ROLLBACK")
    parts = {name: hashlib.sha256(repr(value).encode("utf-8", "surrogateescape")).hexdigest()[:12] for name, value in found.items()}
    return {"digest": hashlib.sha256(repr(sorted(parts.items())).encode("utf-8", "surrogateescape")).hexdigest()[:24], "last": last, "parts": parts}


def read(path):
    """Returns the contents of a store, in one transaction."""
    connection = opened(path)
    connection.execute("BEGIN")
    try:
        return contents(connection)
    finally:
        connection.close()


def difference(one, other):
    """Returns what differs first, in words; None if nothing does."""
    for name in sorted(one.keys() | other.keys()):
        mine, others = one.get(name), other.get(name)
        if mine != others:
            if isinstance(mine, list) and isinstance(others, list):
                left = [row for row in mine if row not in others][:2]
                right = [row for row in others if row not in mine][:2]
                return f"{name!r}: only at home {str(left)[:300]}, only in the replica {str(right)[:300]}"
            return f"{name!r}: at home {str(mine)[:200]}, in the replica {str(others)[:200]}"
    return None
