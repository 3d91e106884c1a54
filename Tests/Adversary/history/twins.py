"""Runs each statement on a store with a history and on its twin without: the outcomes must match."""

import json
import os
import shutil
import sqlite3

from oracle import Oracle, Text, exact, key_of_json, show

# What any trigger changes in SQLite itself, where the statement fails anyway.
MINOR = {"error differs", "last_insert_rowid() differs after an error", "contents differ after an error that SQLite does not undo"}

GS_TABLES = {"GS_HISTORY", "GS_TABLE", "GS_CHANGE", "GS_AUTHOR", "GS_REPLACED", "GS_SUBSCRIBER"}


class Problem(Exception):
    """A broken promise: its class, the step, and the observation."""

    def __init__(self, kind, step, detail):
        super().__init__(f"{kind}: {detail}")
        self.kind, self.step, self.detail = kind, step, detail


class Skip(Exception):
    """A round without a result: its setup is not legal, or groupstore refused the store with a message."""


def connect(path):
    connection = sqlite3.connect(path, isolation_level=None, timeout=20, cached_statements=64)
    connection.text_factory = Text
    connection.execute("PRAGMA synchronous=OFF")
    return connection


def outcome(connection, step):
    """Runs one statement; returns its rows or its error, and SQLite's counts afterwards."""
    try:
        if step.startswith("!many "):
            sql, rows = step[6:].rsplit(" ;; ", 1)
            connection.executemany(sql, json.loads(rows))
            result = ("ok", [])
        else:
            rows = [tuple(map(exact, row)) for row in connection.execute(step).fetchall()]
            # Its order of tables depends on changes to other tables.
            result = ("ok", sorted(rows, key=repr) if "foreign_key_check" in step else rows)
    except sqlite3.Error as error:
        result = ("error", type(error).__name__, getattr(error, "sqlite_errorname", ""), str(error))
    except (sqlite3.Warning, OverflowError, UnicodeError) as error:
        result = ("error", type(error).__name__, "", "")
    counts = connection.execute("SELECT changes(), last_insert_rowid()").fetchone()
    return result, counts, connection.in_transaction


def schema(connection, ours=False):
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM main.sqlite_schema ORDER BY type, name").fetchall()
    out = []
    for row in rows:
        kind, name, table = (bytes(v).decode("utf-8", "replace") for v in row[:3])
        if ours and (table in GS_TABLES or (kind == "trigger" and name.startswith("GS_") and name[3:4].isdigit())):
            continue
        out.append((kind, name, table, row[3]))
    return out


def contents(connection):
    out = {}
    names = [r[0] for r in connection.execute("SELECT name FROM main.sqlite_schema WHERE type='table' ORDER BY name")]
    for raw in names:
        name = bytes(raw).decode("utf-8", "replace")
        if name in GS_TABLES or name.startswith("sqlite_stat"):
            continue
        quoted = '"' + name.replace('"', '""') + '"'
        try:
            rows = connection.execute(f"SELECT * FROM main.{quoted}").fetchall()
        except sqlite3.Error as error:
            rows = [(str(error),)]
        rows = [tuple(map(exact, r)) for r in rows]
        if name == "sqlite_sequence":
            rows = [r for r in rows if r[0][1] not in {n.encode() for n in GS_TABLES}]
        out[name] = sorted(rows)
    return out


class Twins:
    def __init__(self, program, directory):
        self.program = program
        self.plain, self.kept = os.path.join(directory, "plain.sqlite"), os.path.join(directory, "kept.sqlite")
        for path in (self.plain, self.kept):
            for tail in ("", "-wal", "-shm", "-journal"):
                if os.path.exists(path + tail):
                    os.unlink(path + tail)
        self.a = self.b = None
        self.step = -1
        self.has_legacy_names = False

    def prepare(self, setup):
        """Makes the store, copies it, and enables the history of the copy."""
        made = connect(self.plain)
        for sql in setup:
            try:
                made.execute(sql)
            except sqlite3.Error:
                pass
        if made.in_transaction:
            made.execute("ROLLBACK")
        made.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        made.close()
        shutil.copyfile(self.plain, self.kept)
        self.enable()
        self.open()
        self.oracle = self.new_oracle()

    def new_oracle(self):
        return Oracle(self.b)

    def open(self):
        self.a, self.b = connect(self.plain), connect(self.kept)

    def close(self):
        for connection in (self.a, self.b):
            if connection:
                connection.close()
        self.a = self.b = None

    def enable(self):
        code, lines, errors = self.program.enable(self.kept)
        if code == 0:
            return lines
        raise Problem("enable fails", self.step, f"exit {code}: {lines} {errors}"[:400])

    def leave_transaction(self):
        outcomes = []
        for connection in (self.a, self.b):
            if connection.in_transaction:
                try:
                    connection.execute("COMMIT")
                    outcomes.append("committed")
                except sqlite3.Error:
                    connection.execute("ROLLBACK")
                    outcomes.append("rolled back")
        if len(set(outcomes)) > 1:
            raise Problem("outcome differs", self.step, f"COMMIT: {outcomes}")
        self.oracle.record_state(self.step)

    def run(self, step):
        """Runs one step on both. Steps that begin with `!` are the tester's own."""
        self.step += 1
        if step == "!reconnect":
            self.leave_transaction()
            self.close()
            self.open()
            self.oracle.connection = self.b
            self.oracle.version = None
            return
        if step == "!enable":
            self.leave_transaction()
            self.read_only_off()
            self.flush()
            self.enable()
            former, self.oracle = self.oracle, self.new_oracle()
            self.judge_gaps(former, self.oracle)
            return
        for line in step.split("\n"):
            self.has_legacy_names = self.has_legacy_names or "legacy_alter_table=ON" in line
            a, b = outcome(self.a, line), outcome(self.b, line)
            if line == "VACUUM" and a[0] == b[0]:
                self.forget_last_row()
            elif a != b and "FOREIGN KEY" in str(b[0]) and (
                    line == "COMMIT" or self.a.execute("PRAGMA foreign_key_check").fetchall()):
                raise Skip("SQLite counts what breaks a foreign key of a table to itself otherwise where the table has triggers")
            elif a != b and self.has_legacy_names and "no such table: main." in str(b[0]):
                raise Skip("SQLite renames a table and leaves triggers with its old name")
            elif a != b and a[0][0] == "ok" and line.startswith("ALTER") and self.shadowing():
                raise Skip("SQLite looks at a TEMP table of the same name when it checks a table's triggers, whoever made them")
            elif a != b:
                raise Problem(classify(a, b), self.step, f"{line[:300]}  without: {show(a)}  with: {show(b)}")
            if a[0][0] == "error" and contents(self.a) != contents(self.b):
                whole = a[0][2].startswith("SQLITE_CONSTRAINT") and "cannot store" not in a[0][3]
                kind = "an error" if whole else "an error that SQLite does not undo"
                raise Problem(f"contents differ after {kind}", self.step, f"{line[:300]} {a[0]} "
                              + first_difference(contents(self.a), contents(self.b)))
        try:
            self.oracle.record_state(self.step, vacuumed=step == "VACUUM", may_fail="OR FAIL" in step)
        except sqlite3.DatabaseError as error:
            # Renaming a column can make SQLite write an index into the schema that it can't read again.
            if outcome(self.a, "SELECT count(*) FROM sqlite_schema")[0][0] == "error":
                raise Skip(f"SQLite can't read its own schema, without history either: {error}") from error
            raise

    def shadowing(self):
        """Returns TEMP tables that share a name with a table that has triggers."""
        return self.b.execute(
            """SELECT t.name FROM temp.sqlite_schema AS t JOIN main.sqlite_schema AS m ON m.type='trigger'
            AND m.tbl_name=t.name COLLATE NOCASE WHERE t.type='table'""").fetchall()

    def judge_gaps(self, former, new):
        """Checks gaps: a dropped or rebuilt table, and a new table with rows, must each be named as a gap."""
        first, last = former.marks[0], new.marks[-1]
        followed = {table.name for table in former.tables.values()}
        gaps = {bytes(name).decode("utf-8", "replace") for (name,) in self.b.execute(
            "SELECT t.name FROM main.GS_CHANGE c JOIN main.GS_TABLE t ON t.id=c.table_id WHERE c.operation=3")}
        for number, table in first.tables.items():
            if number not in former.tables and first.contents[number] and table.name not in gaps:
                raise Problem("no gap for a lost table", self.step, f"{table.name!r}; gaps: {sorted(gaps)}")
        for number, table in last.tables.items():
            if table.name not in followed and last.contents[number] and table.name not in gaps:
                raise Problem("no gap for a new table", self.step, f"{table.name!r}; gaps: {sorted(gaps)}")

    def forget_last_row(self):
        """Overwrites last_insert_rowid(), which VACUUM leaves as the number of the schema's rows."""
        for connection in (self.a, self.b):
            read_only = connection.execute("PRAGMA query_only").fetchone()[0]
            connection.execute("PRAGMA query_only=OFF")
            connection.execute("CREATE TEMP TABLE IF NOT EXISTS vacuumed(n)")
            connection.execute("INSERT INTO temp.vacuumed VALUES (1)")
            connection.execute(f"PRAGMA query_only={read_only}")

    def read_only_off(self):
        for connection in (self.a, self.b):
            connection.execute("PRAGMA query_only=OFF")

    def flush(self):
        """Asks the program for all changes, and judges them."""
        code, lines, errors = self.program.changes(self.kept)
        if code != 0:
            reason = lines[-1].get("error", {}).get("code", "") if lines else "no answer"
            raise Problem(f"changes fails: {reason}", self.step, f"exit {code}: {lines[-1:]} {errors}"[:300])
        ids = dict(self.b.execute("SELECT number, table_id FROM main.GS_CHANGE WHERE operation<4"))
        told = {}
        for line in lines:
            if line["type"] == "row":
                columns = line.get("columns")
                told[line["number"]] = (ids.get(line["number"]), line["op"], key_of_json(line["key"]), columns)
        for line in lines[:-1]:
            if line["type"] == "reset" and line.get("reason") not in ("history_gap",):
                raise Problem("unexpected reset", self.step, json.dumps(line))
        kept = {n for (n,) in self.b.execute("SELECT number FROM main.GS_CHANGE WHERE operation<3")}
        if kept - set(told):
            raise Problem("changes leaves rows out", self.step, f"{sorted(kept - set(told))[:5]} of GS_CHANGE are not printed")
        problems = self.oracle.judge(told)
        if any(kind.startswith("missed") for kind, *_ in problems) and lines[-1].get("outdated"):
            named = self.gaps_after_enabling()
            problems = [p for p in problems if not (p[0].startswith("missed") and p[3] in named)]
        if problems:
            raise Problem(*problems[0][:3])

    def gaps_after_enabling(self):
        """Checks gaps: the history must name what it missed since the schema changed, once it follows the change."""
        self.enable()
        return {n for (n,) in self.b.execute("SELECT table_id FROM main.GS_CHANGE WHERE operation=3")} | {
            old for (old,) in self.b.execute(
                "SELECT o.id FROM main.GS_TABLE o JOIN main.GS_TABLE n ON n.name=o.name JOIN main.GS_CHANGE c ON c.table_id=n.id WHERE c.operation=3")}

    def finish(self):
        """Compares everything that is left, and removes the history."""
        self.step += 1
        self.leave_transaction()
        self.read_only_off()
        self.flush()
        if contents(self.a) != contents(self.b):
            raise Problem("contents differ", self.step, first_difference(contents(self.a), contents(self.b)))
        if schema(self.a) != schema(self.b, ours=True):
            raise Problem("schema differs", self.step, difference(schema(self.a), schema(self.b, ours=True)))
        checks = [[tuple(map(exact, r)) for r in c.execute("PRAGMA integrity_check")] for c in (self.a, self.b)]
        if checks[0] != checks[1]:
            raise Problem("integrity differs", self.step, f"without: {show(checks[0])} with: {show(checks[1])}")
        before = contents(self.a), schema(self.a)
        self.close()
        code, lines, errors = self.program.disable(self.kept)
        if code != 0:
            raise Problem("disable fails", self.step, f"exit {code}: {lines} {errors}"[:300])
        self.open()
        if schema(self.b) != before[1]:
            raise Problem("disable leaves a trace", self.step, difference(before[1], schema(self.b)))
        if contents(self.b) != before[0]:
            raise Problem("disable changes contents", self.step, first_difference(before[0], contents(self.b)))


class ControlTwins(Twins):
    """Twins with counting triggers on one in place of a history: shows what SQLite does with any trigger at all."""

    class NoOracle:
        connection = version = None

        def record_state(self, *_, **__):
            pass

    def new_oracle(self):
        return self.NoOracle()

    def enable(self):
        made = connect(self.kept)
        made.execute("CREATE TABLE IF NOT EXISTS GS_CHANGE(n INTEGER PRIMARY KEY)")
        names = made.execute("SELECT name FROM main.sqlite_schema WHERE type='table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'").fetchall()
        for number, (raw,) in enumerate(names):
            name = bytes(raw).decode("utf-8", "replace")
            for kind, when in enumerate(["BEFORE INSERT", "BEFORE UPDATE", "AFTER INSERT", "AFTER UPDATE", "AFTER DELETE"]):
                if name not in GS_TABLES:
                    quoted = '"' + name.replace('"', '""') + '"'
                    made.execute(f"CREATE TRIGGER IF NOT EXISTS GS_{number}_{kind} {when} ON {quoted} "
                                 "BEGIN INSERT INTO GS_CHANGE(n) VALUES (NULL); END")
        made.close()

    def flush(self):
        pass

    def shadowing(self):
        """Returns TEMP tables that share a name with a table that has triggers."""
        return self.b.execute(
            """SELECT t.name FROM temp.sqlite_schema AS t JOIN main.sqlite_schema AS m ON m.type='trigger'
            AND m.tbl_name=t.name COLLATE NOCASE WHERE t.type='table'""").fetchall()

    def judge_gaps(self, former, new):
        pass


def classify(a, b):
    """Returns a short name for how two outcomes differ."""
    if a[0] != b[0]:
        if b[0][0] == "error" and a[0][0] == "ok":
            return "statement fails: " + generic(b[0][3])
        if a[0][0] == "error" and b[0][0] == "ok":
            return "statement succeeds"
        return "error differs" if a[0][0] == "error" else "rows differ"
    failed = " after an error" if a[0][0] == "error" else ""
    if a[2] != b[2]:
        return "transaction state differs" + failed
    return ("changes() differs" if a[1][0] != b[1][0] else "last_insert_rowid() differs") + failed


def generic(message):
    """Returns an error's words without names."""
    return " ".join(w for w in message.split() if w.isalpha())[:60]


def difference(a, b):
    return f"only without: {show([x for x in a if x not in b])}, only with: {show([x for x in b if x not in a])}"


def first_difference(a, b):
    for name in sorted(set(a) | set(b)):
        if a.get(name) != b.get(name):
            return f"{name!r}: {difference(a.get(name) or [], b.get(name) or [])}"
    return ""
