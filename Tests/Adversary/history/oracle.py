"""Works out what a history must say: the difference of the tables' contents between two places in it."""

import base64
import json
import re
import sqlite3

from words import identifier


class Text(bytes):
    """A TEXT value's bytes, which differ from a BLOB with the same bytes."""
    __slots__ = ()


def exact(value):
    """Returns a value with its type, so that 1, 1.0, '1' and X'31' differ."""
    if isinstance(value, Text):
        return ("text", bytes(value))
    if isinstance(value, bytes):
        return ("blob", value)
    return (type(value).__name__, repr(value))


def exact_key(value):
    """Returns a value in a key: SQLite takes 0.0 and -0.0 for one key."""
    return exact(value + 0.0 if isinstance(value, float) else value)


def key_of_json(key):
    """Returns a key of the program's output in the form that `exact` gives."""
    if isinstance(key, list):
        return tuple(key_of_json(k)[0] for k in key)
    if isinstance(key, dict) and "base64" in key:
        return (("blob", base64.b64decode(key["base64"])),)
    if isinstance(key, dict) and "real" in key:
        return (exact_key(float(key["real"])),)
    if isinstance(key, str):
        return (("text", key.encode("utf-8", "surrogateescape")),)
    return (exact_key(key),)


class Recorded:
    """A table with the history's triggers: how to read it, and the key of its reported rows."""

    def __init__(self, connection, number, name):
        self.number, self.name = number, name
        info = connection.execute(f"PRAGMA main.table_xinfo({identifier(name)})").fetchall()
        decode = lambda v: bytes(v).decode("utf-8", "replace")
        self.columns = [decode(r[1]) for r in info if r[6] != 1]
        self.generated = {decode(r[1]) for r in info if r[6] in (2, 3)}
        sql = connection.execute("SELECT sql FROM main.sqlite_schema WHERE type='table' AND name=?", (name,)).fetchone()
        self.sql = bytes(sql[0]) if sql else b""
        bare = connection.execute("SELECT wr FROM pragma_table_list WHERE schema='main' AND name=?", (name,)).fetchone()
        self.bare = bool(bare and bare[0])
        key = [decode(r[1]) for r in sorted(info, key=lambda r: r[5]) if r[5]]
        self.alias = next((n for n in ("rowid", "_rowid_", "oid") if n not in [c.lower() for c in self.columns]), None)
        installed = connection.execute("SELECT columns FROM main.GS_TABLE WHERE id=?", (number,)).fetchone()
        self.installed = json.loads(bytes(installed[0])) if installed else []
        self.renumbered = not self.bare and not self.keeps_its_rowids(connection, name)
        self.key = key

    def keeps_its_rowids(self, connection, name):
        """Returns whether the table has an INTEGER PRIMARY KEY, which VACUUM leaves alone: SQLite makes no index for it."""
        indexed = connection.execute("SELECT count(*) FROM pragma_index_list(?, 'main') WHERE origin='pk'", (name,)).fetchone()[0]
        has = connection.execute("SELECT count(*) FROM pragma_table_xinfo(?, 'main') WHERE pk>0", (name,)).fetchone()[0]
        return bool(has) and not indexed

    def rows(self, connection):
        listed = ", ".join(map(identifier, self.columns))
        if self.bare:
            keys = ", ".join(map(identifier, self.key))
            width = len(self.key)
        elif self.alias:
            keys, width = self.alias, 1
        else:
            return None
        found = {}
        try:
            read = connection.execute(f"SELECT {keys}, {listed} FROM main.{identifier(self.name)} NOT INDEXED").fetchall()
        except sqlite3.Error:
            return None  # such as a loop of generated columns, which SQLite finds only on reading
        for row in read:
            found[tuple(map(exact_key, row[:width]))] = tuple(map(exact, row[width:]))
        return found


class Mark:
    """The tables' contents after one step, and the number of the last change then."""

    def __init__(self, step, number, tables, contents):
        self.step, self.number, self.tables, self.contents = step, number, tables, contents


class Oracle:
    """Follows one store step by step, and judges at the end what the program reports of it."""

    def __init__(self, connection):
        self.connection = connection
        self.version = None
        self.marks = []
        self.gaps_due = {}
        self.record_state(-1)

    def last_number(self):
        return self.connection.execute(
            "SELECT max(coalesce((SELECT max(number) FROM main.GS_CHANGE), 0), trimmed) FROM main.GS_HISTORY").fetchone()[0]

    def describe(self):
        version = self.connection.execute("PRAGMA main.schema_version").fetchone()[0]
        if version == self.version:
            return
        self.version = version
        self.tables = {}
        recording = self.connection.execute(
            "SELECT name, tbl_name FROM main.sqlite_schema WHERE type='trigger' AND name GLOB 'GS_*_I'").fetchall()
        for trigger, table in recording:
            found = re.fullmatch(rb"GS_(\d+)_I", bytes(trigger))
            if found:
                name = bytes(table).decode("utf-8")
                self.tables[int(found[1])] = Recorded(self.connection, int(found[1]), name)

    def record_state(self, step, vacuumed=False, may_fail=False):
        """Records the state after a step. Discards rolled-back states first."""
        self.describe()
        number = self.last_number()
        contents = {n: t.rows(self.connection) for n, t in self.tables.items()}
        while self.marks and self.marks[-1].number > number:
            self.marks.pop()
        new = Mark(step, number, dict(self.tables), contents)
        new.vacuumed, new.may_fail = vacuumed, may_fail or self.ignores()
        new.overtaken = self.overtaken()
        self.marks.append(new)

    def overtaken(self):
        """Returns the tables whose order of changes isn't reported; one statement's last change states what holds.

        Guarantees names the causes: triggers that run before the history's (TEMP triggers, and triggers made after `history
        enable`), foreign keys with actions on their own table, and unique indexes made since.
        """
        late = self.connection.execute(
            """SELECT tbl_name FROM temp.sqlite_schema WHERE type='trigger' UNION
            SELECT tbl_name FROM main.sqlite_schema AS s WHERE type='trigger' AND name NOT GLOB 'GS_*' AND rowid > (
            SELECT min(rowid) FROM main.sqlite_schema AS g WHERE g.type='trigger' AND g.name GLOB 'GS_*'
            AND g.tbl_name = s.tbl_name COLLATE NOCASE) UNION
            SELECT tbl_name FROM main.sqlite_schema AS s WHERE type='index' AND sql LIKE '%UNIQUE%' AND rowid > (
            SELECT min(rowid) FROM main.sqlite_schema AS g WHERE g.type='trigger' AND g.name GLOB 'GS_*'
            AND g.tbl_name = s.tbl_name COLLATE NOCASE) UNION
            SELECT s.name FROM main.sqlite_schema AS s, pragma_foreign_key_list(s.name) AS f WHERE s.type='table'
            AND f."table" = s.name COLLATE NOCASE AND (on_delete <> 'NO ACTION' OR on_update <> 'NO ACTION')
            """).fetchall()
        return {bytes(name).decode("utf-8", "replace").lower() for (name,) in late}

    def ignores(self):
        """Returns whether a trigger may end the row's other triggers, including the history's."""
        found = self.connection.execute(
            """SELECT 1 FROM (SELECT sql FROM temp.sqlite_schema UNION ALL SELECT sql FROM main.sqlite_schema
            WHERE name NOT GLOB 'GS_*') WHERE sql LIKE '%RAISE(IGNORE)%'""").fetchone()
        return found is not None

    def judge(self, told):
        """Compares each two neighbouring marks with the changes reported between them: number -> (table id, op, key,
        columns)."""
        problems = []
        numbers = sorted(told)
        at = 0
        for before, after in zip(self.marks, self.marks[1:]):
            while at < len(numbers) and numbers[at] <= before.number:
                at += 1
            here = []
            while at < len(numbers) and numbers[at] <= after.number:
                here.append(told[numbers[at]])
                at += 1
            problems += self.compare(before, after, here)
        return problems

    def compare(self, before, after, told):
        problems = []
        for number, table in after.tables.items():
            was = before.tables.get(number)
            ops = {}
            for t, op, key, columns in told:
                if t == number:
                    ops.setdefault(key, []).append((op, columns))
            if was is None:
                continue
            b, a = before.contents[number], after.contents[number]
            if b is None or a is None:
                continue
            if after.vacuumed and table.renumbered:
                continue
            same = was.sql == table.sql and was.columns == table.columns
            for key in set(b) | set(a) | set(ops):
                is_late = table.name.lower() in before.overtaken | after.overtaken
                if is_late and after.may_fail:
                    continue  # a row whose trigger failed stays, and the history's triggers don't run
                problem = self.judge_row(table, key, b.get(key), a.get(key), ops.get(key, []), same, is_late)
                if problem:
                    problems.append((problem[0], after.step, f"{table.name!r} key {show(key)}: {problem[1]}", number))
        return problems

    def judge_row(self, table, key, b, a, ops, same, is_late=False):
        """Judges one row. With `is_late`, the order of changes is unknown; the last change states what holds."""
        names = [op for op, _ in ops]
        if not ops:
            if (b is None) != (a is None) or (same and b != a):
                kind = "insert" if b is None else "delete" if a is None else "update"
                return f"missed {kind}", f"nothing told; before {show(b)}, after {show(a)}"
            return None
        if "gap" in names:
            return None
        here = b is not None
        for op in names:
            if (op == "insert") == here and not is_late:
                return f"told {op} of a row that was {'there' if here else 'absent'}", f"told {names}; before {show(b)}, after {show(a)}"
            here = op != "delete"
        if here != (a is not None):
            return ("invented delete" if a is not None else "missed delete"), f"told {names}; before {show(b)}, after {show(a)}"
        if same and b is not None and a is not None and all(op == "update" and c is not None for op, c in ops):
            assigned = {c for _, cs in ops for c in cs}
            known = [c for c in table.columns if c in table.installed or c not in table.generated]
            added = known[:len(table.installed)] == table.installed
            for column, x, y in zip(table.columns, b, a):
                if x != y and added and column not in table.generated and column not in assigned:
                    kind = "missed column" if column in table.installed else "missed added column"
                    return kind, f"{column!r} changed from {show(x)} to {show(y)}, told {sorted(assigned)}"
        return None


def show(value):
    text = str(value)
    return text if len(text) < 160 else text[:157] + "…"
