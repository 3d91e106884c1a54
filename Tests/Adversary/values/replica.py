"""A copy of a store that is kept up to date from the JSON of change batches alone (Documentation/WireProtocol.md)."""

import base64
import os
import sqlite3


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def connected(path):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.text_factory = bytes
    return connection


def parameter(value):
    """Returns SQL and a parameter for a value of the JSON."""
    if isinstance(value, dict):
        ((kind, content),) = value.items()
        if kind == "integer":
            return "?", int(content)
        if kind == "real":
            return "?", float(content)
        if kind == "base64":
            return "?", base64.b64decode(content, validate=True)
        if kind == "text_b64":
            return "CAST(? AS TEXT)", base64.b64decode(content, validate=True)
        raise ValueError(f"unknown value {value}")
    if isinstance(value, bool) or not isinstance(value, (type(None), int, float, str)):
        raise ValueError(f"unknown value {value}")
    if isinstance(value, int) and abs(value) >= 1 << 53:
        raise ValueError(f"a number that some parsers round: {value}")
    if isinstance(value, float) and value == int(value):
        raise ValueError(f"a number that some parsers take for an integer: {value}")
    # Python has no other way to bind a text with a NUL and any character.
    return "?", value


class Replica:
    """A copy of a store at a token."""

    def __init__(self, path, token, schema):
        self.path, self.token, self.schema = path, token, schema

    @classmethod
    def of(cls, store, path, token, schema):
        """Copies a store, without the triggers."""
        source, target = connected(store), connected(path)
        source.backup(target)
        source.close()
        target.execute("PRAGMA journal_mode=DELETE")
        for (name,) in target.execute("SELECT name FROM sqlite_schema WHERE type='trigger'").fetchall():
            target.execute(f"DROP TRIGGER {quoted(name.decode())}")
        target.close()
        return cls(path, token, schema)

    def remove(self):
        os.unlink(self.path)

    def apply(self, pages):
        """Applies pages, the last of which has no `more`, in one transaction."""
        connection = connected(self.path)
        connection.execute("PRAGMA ignore_check_constraints=ON")
        connection.execute("BEGIN")
        for lines in pages:
            self._apply_page(connection, lines)
        connection.execute("COMMIT")
        connection.close()
        self.token = pages[-1][-1]["token"]

    def differs_before(self, lines):
        """Compares what rows are said to have held before with this copy, which is of the time before.

        Returns the first difference in words, and the numbers of rows that had and might have had such values.
        """
        connection = connected(self.path)
        tables = {(line["table"], line.get("entity")): line for line in lines if line["type"] == "table"}
        (found, possible) = (0, 0)
        for row in lines:
            if row["type"] != "row" or row["op"] == "insert":
                continue
            possible += 1
            if "before" not in row:
                continue
            found += 1
            table = tables[row["table"], row.get("entity")]
            names = [table["rowid"]] if "rowid" in table else [quoted(name) for name in table["key"]]
            key = row["key"] if isinstance(row["key"], list) else [row["key"]]
            conditions = " AND ".join(f"r.{n} = {parameter(v)[0]} COLLATE BINARY" for n, v in zip(names, key))
            columns = ", ".join(f"typeof(r.{quoted(c)}), r.{quoted(c)}" for c in table["columns"])
            was = connection.execute(
                f"SELECT {columns} FROM {quoted(row['table'])} AS r WHERE {conditions}", [parameter(v)[1] for v in key]
            ).fetchone()
            if was is None:
                # Created and deleted since, or its key was spelled in another way.
                continue
            for column, kind, value, said in zip(table["columns"], was[::2], was[1::2], row["before"]):
                ((other, said),) = connection.execute(f"SELECT typeof(v), v FROM (SELECT {parameter(said)[0]} AS v)", [parameter(said)[1]])
                # SQLite's `quote` rounds, and knows no negative zero.
                same = kind == other and (value == said or kind == b"real" and abs(value - said) <= 1e-14 * abs(value))
                if not same:
                    return f"{row['table']}.{column} of {key} was {value!r}, not {said!r}", found, possible
        connection.close()
        return None, found, possible

    def _apply_page(self, connection, lines):
        tables, rows = {}, []
        for line in lines:
            if line["type"] == "table":
                tables[line["table"], line.get("entity")] = line
            elif line["type"] == "row":
                rows.append((tables[line["table"], line.get("entity")], line))
        for table, row in rows:
            if "values" not in row:
                self._delete(connection, table, row)
        for table, row in rows:
            if "values" in row:
                self._write(connection, table, row)

    def _delete(self, connection, table, row):
        assert row["op"] == "delete", row
        names = [table["rowid"]] if "rowid" in table else [quoted(name) for name in table["key"]]
        key = row["key"] if isinstance(row["key"], list) else [row["key"]]
        assert len(key) == len(names), row
        conditions, parameters = [], []
        for name, value in zip(names, key):
            sql, value = parameter(value)
            conditions.append(f"{name} = {sql} AND {name} = {sql} COLLATE BINARY")
            parameters += [value, value]
        connection.execute(f"DELETE FROM {quoted(table['table'])} WHERE {' AND '.join(conditions)}", parameters)

    def _write(self, connection, table, row):
        assert row["op"] in ("insert", "update"), row
        names = [quoted(name) for name in table["columns"]]
        assert len(row["values"]) == len(names), row
        values = [parameter(value) for value in row["values"]]
        if "rowid" in table and not table["key"]:
            names.insert(0, table["rowid"])
            values.insert(0, parameter(row["key"]))
        connection.execute(
            f"INSERT OR REPLACE INTO {quoted(table['table'])} ({', '.join(names)}) "
            f"VALUES ({', '.join(sql for sql, _ in values)})",
            [value for _, value in values],
        )


def contents(path, left_out):
    """Returns each recorded table's rows: each value with its type, the floats with their bits."""
    connection = connected(path)
    found = {}
    for name, kind in connection.execute(
        "SELECT s.name, l.wr FROM sqlite_schema s JOIN pragma_table_list l ON l.schema='main' AND l.name=s.name "
        "WHERE s.type='table' AND l.type='table' AND s.name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    ).fetchall():
        name = name.decode()
        if name.upper() in OWN or name in left_out:
            continue
        columns = [row[1].decode() for row in connection.execute(f"PRAGMA table_xinfo({quoted(name)})") if row[6] != 1]
        lower = {c.lower() for c in columns}
        rowid = next((c for c in ("rowid", "_rowid_", "oid") if c not in lower), None) if not kind else None
        wanted = ([rowid] if rowid else []) + [f"r.{quoted(c)}" for c in columns]
        rows = connection.execute(f"SELECT {', '.join(wanted)} FROM {quoted(name)} AS r NOT INDEXED").fetchall()
        types = connection.execute(
            f"SELECT {', '.join(f'typeof({w})' for w in wanted)} FROM {quoted(name)} AS r NOT INDEXED").fetchall()
        found[name] = sorted(
            tuple((t, repr(v)) for t, v in zip(kinds, row)) for kinds, row in zip(types, rows))
    connection.close()
    return found


OWN = {"GS_HISTORY", "GS_TABLE", "GS_CHANGE", "GS_AUTHOR", "GS_REPLACED", "GS_SUBSCRIBER", "GS_BEFORE"}


def difference(one, other):
    """Returns what differs first, in words; None if nothing does."""
    if one.keys() != other.keys():
        return f"tables {sorted(one.keys() ^ other.keys())}"
    for name in one:
        if one[name] != other[name]:
            missing = [row for row in one[name] if row not in other[name]][:2]
            extra = [row for row in other[name] if row not in one[name]][:2]
            return f"table {name!r}: only in the store {missing}, only in the copy {extra}"
    return None
