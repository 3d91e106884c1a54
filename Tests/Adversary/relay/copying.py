"""A copy that batches are applied to, in the steps of Documentation/Relay.md."""

import base64
import hashlib
import json
import sqlite3

import digests
from digests import quoted
from wire import number_of


class Unfit(Exception):
    """The batch doesn't fit the copy, or isn't what the document says."""


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
        raise Unfit(f"unknown value {value}")
    if isinstance(value, bool) or isinstance(value, int) and abs(value) >= 1 << 53:
        raise Unfit(f"a value that isn't in the document: {value}")
    return "?", value


class Copy:
    def __init__(self, path, token):
        self.path, self.position = path, token
        self.state = None  # that of the home's schema, in the first batch or the snapshot
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.text_factory = bytes
        for (name,) in self.connection.execute("SELECT name FROM sqlite_schema WHERE type='trigger' AND name GLOB 'GS_[0-9]*'").fetchall():
            self.connection.execute(f"DROP TRIGGER {quoted(digests.text(name))}")
        # sqlite3 can't switch the app's own triggers off: they are put back after each batch.
        self.triggers = self.connection.execute("SELECT name, sql FROM sqlite_schema WHERE type='trigger'").fetchall()
        self.connection.execute("PRAGMA foreign_keys=OFF")
        self.connection.execute("PRAGMA ignore_check_constraints=ON")

    def schema(self):
        parts = []
        for kind, name, table, sql in sorted(digests.schema_rows(self.connection), key=lambda row: (row[0].encode(), row[1].encode())):
            parts += [kind.encode(), name.encode(), table.encode(), sql or b""]
        return hashlib.sha256(b"".join(part + b"\0" for part in parts)).hexdigest()

    def run(self, sql, values):
        """Runs SQL with a ? for each of the values of the JSON."""
        made = [parameter(value) for value in values]
        self.connection.execute(sql.format(*[each for each, _ in made]), [value for _, value in made])

    def apply(self, headers, body):
        lines = body.decode().split("\n")
        if lines[-1] != "":
            raise Unfit("the last line has no end")
        lines = [json.loads(line) for line in lines[:-1]]
        batch, end = lines[0], lines[-1]
        if list(batch) != ["type", "format", "from", "upto", "schema", "encoding", "version", "trimmed", "user_version", "application_id"]:
            raise Unfit(f"members of {batch}")
        if (batch["from"], batch["upto"], batch["schema"]) != (headers["Gs-From"], headers["Gs-Upto"], headers["Gs-Schema"]):
            raise Unfit(f"{batch} and {headers}")
        self.state = self.state or batch["schema"]
        if batch["schema"] != self.state or batch["schema"].split(".")[0] != self.schema():
            raise Unfit(f"the schema {batch['schema']} instead of {self.state}, {self.schema()}")
        where = body.rindex(b"\n", 0, len(body) - 1) + 1
        rows, changes = sum(line["type"] == "row" for line in lines), sum(len(line["rows"]) for line in lines if line["type"] == "history")
        if end != {"type": "end", "rows": rows, "changes": changes, "sha256": hashlib.sha256(body[:where]).hexdigest()}:
            raise Unfit(f"{end}: {rows} rows, {changes} changes")
        upto, position = number_of(batch["upto"]), number_of(self.position)
        if upto < position or upto == position and batch["from"] != self.position:
            return
        if batch["from"] != self.position:
            nonces = {row[0]: row[5] for line in lines if line["type"] == "history" for row in line["rows"]}
            nonce = int(self.position.split(".")[3], 16)
            if position not in nonces or parameter(nonces[position])[1] % (1 << 64) != nonce:
                raise Unfit(f"a gap between {self.position} and {batch['from']}")
        self.connection.execute("BEGIN")
        try:
            for name, _ in self.triggers:
                self.connection.execute(f"DROP TRIGGER {quoted(digests.text(name))}")
            self._write(lines, position)
            for _, sql in self.triggers:
                self.connection.execute(digests.text(sql))
            for name in ("user_version", "application_id"):
                self.connection.execute(f"PRAGMA {name}={batch[name]}")
            self.run("UPDATE GS_HISTORY SET trimmed={}, trimmed_nonce={}", batch["trimmed"])
            self.run("DELETE FROM GS_CHANGE WHERE number<={}", batch["trimmed"][:1])
            self.connection.execute("COMMIT")
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.position = batch["upto"]

    def _write(self, lines, position):
        table, written = None, False
        for line in lines[1:-1]:
            kind = line["type"]
            if kind == "history":
                for row in line["rows"]:
                    if row[0] > position:
                        self.run("INSERT INTO GS_CHANGE(number, table_id, operation, key, columns, nonce, time, author) VALUES ({}, {}, {}, {}, {}, {}, {}, {})", row)
            elif kind == "history_tables":
                for row in line["rows"]:
                    self.run("INSERT OR REPLACE INTO GS_TABLE(id, name, key_columns, columns, installed) VALUES ({}, {}, {}, {}, {})", row)
            elif kind == "table":
                table = line
            elif kind == "row" and line.get("op") == "delete":
                if written:
                    raise Unfit(f"{line} after a row that was written")
                self._delete(table, line["key"])
            elif kind == "row":
                written = True
                self._replace(table, line)
            elif kind == "sequence":
                self.connection.execute("DELETE FROM sqlite_sequence")
                for row in line["rows"]:
                    self.run("INSERT INTO sqlite_sequence(name, seq) VALUES ({}, {})", row)
            else:
                raise Unfit(f"unknown line {line}")

    def _delete(self, table, key):
        names = [table["rowid"]] if "rowid" in table else [quoted(name) for name in table["key"]]
        keys = key if isinstance(key, list) else [key]
        words, values = [], []
        for name, value in zip(names, keys, strict=True):
            name = name.replace("{", "{{").replace("}", "}}")
            words.append(f"{name} = {{}} AND {name} = {{}} COLLATE BINARY")
            values += [value, value]
        self.run(f"DELETE FROM {quoted(table['table'])} WHERE {' AND '.join(words)}", values)

    def _replace(self, table, line):
        names, values = [quoted(name) for name in table["columns"]], list(line["values"])
        if "rowid" in table:
            if table["key"]:
                at = table["columns"].index(table["key"][0])
                values[at] = line["key"][0] if isinstance(line["key"], list) else line["key"]
            else:
                names.insert(0, table["rowid"])
                values.insert(0, line["key"])
        self.run(f"INSERT OR REPLACE INTO {quoted(table['table'])} ({', '.join(names)}) VALUES ({', '.join('{}' for _ in names)})", values)
