"""Everything that SQL shows of a store, so that two can be compared."""

import sqlite3

# They belong to one copy alone, or hold a statement's own notes.
ALONE = {"GS_REPLICA", "GS_SUBSCRIBER", "GS_REPLACED", "GS_AUTHOR", "GS_HISTORY"}


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def read(path):
    """Returns each table's rows with their numbers, values and types, and what else there is."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=10)
    connection.text_factory = bytes
    connection.execute("BEGIN")
    found = {}

    def rows(name, sql):
        found[name] = [tuple(repr(value) for value in row) for row in connection.execute(sql)]

    schema = connection.execute("SELECT type, name, tbl_name, sql, rootpage FROM sqlite_schema").fetchall()
    found["the schema"] = sorted(
        repr(row[:4]) for row in schema if not row[1].startswith(b"sqlite_stat") and row[1].upper() not in {name.encode() for name in ALONE}
        and row[2].upper() not in {name.encode() for name in ALONE})
    kinds = dict(connection.execute("SELECT name, type FROM pragma_table_list WHERE schema='main'"))
    for name, kind in kinds.items():
        if kind == b"virtual":
            rows("virtual " + name.decode(), f"SELECT rowid, * FROM {quoted(name.decode())} ORDER BY rowid")
            if "search" in name.decode():
                rows("matches " + name.decode(), f"SELECT rowid FROM {quoted(name.decode())} WHERE {quoted(name.decode())} MATCH 'a OR b OR c' ORDER BY rowid")
    names = [row[1].decode() for row in schema if row[0] == b"table" and row[4] and not row[1].lower().startswith(b"sqlite_stat")]
    for name in names:
        if name.upper() in ALONE or kinds.get(name.encode()) == b"shadow":
            continue
        information = connection.execute("SELECT name, hidden FROM pragma_table_xinfo(?)", [name]).fetchall()
        columns = [row[0].decode() for row in information if row[1] != 1]
        lower = {column.lower() for column in columns}
        ((kind,),) = connection.execute("SELECT wr FROM pragma_table_list WHERE schema='main' AND name=?", [name]).fetchall()
        rowid = next((each for each in ("rowid", "_rowid_", "oid") if each not in lower), None) if not kind else None
        wanted = ([rowid] if rowid else []) + [f"r.{quoted(column)}" for column in columns]
        # Half a surrogate pair isn't the same in UTF-8. REALs as they are: SQLite rounds their text.
        both = ", ".join(f"typeof({each}), CASE typeof({each}) WHEN 'text' THEN CAST({each} AS BLOB) ELSE {each} END" for each in wanted)
        rows("table " + name, f"SELECT {both} FROM {quoted(name)} AS r NOT INDEXED")
        if name != "sqlite_sequence":
            found["table " + name].sort()
    rows("the history", "SELECT identifier, version, trimmed, trimmed_nonce FROM GS_HISTORY")
    for pragma in ("user_version", "application_id", "encoding"):
        rows(pragma, f"PRAGMA {pragma}")
    connection.close()
    return found


def integrity(path):
    """Returns what SQLite finds damaged; None if nothing is."""
    connection = sqlite3.connect(path, timeout=10)
    connection.text_factory = bytes
    connection.execute("PRAGMA ignore_check_constraints=ON")
    found = [row[0] for row in connection.execute("PRAGMA integrity_check(20)")]
    connection.close()
    # SQLite itself lets some values in that its check then finds.
    return [row for row in found if row != b"ok" and b" value in " not in row] or None


def difference(one, other):
    """Returns what differs first, in words; None if nothing does."""
    if one.keys() != other.keys():
        return f"only one has {sorted(one.keys() ^ other.keys())}"
    for name in one:
        if one[name] != other[name]:
            missing = [row for row in one[name] if row not in other[name]][:2]
            extra = [row for row in other[name] if row not in one[name]][:2]
            return f"{name}: only the home {missing}, only the replica {extra}"
    return None


def position(path):
    """Returns the token that a replica says it is at."""
    connection = sqlite3.connect(path, timeout=10)
    ((token,),) = connection.execute("SELECT token FROM GS_REPLICA").fetchall()
    connection.close()
    return token
