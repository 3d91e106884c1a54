#!/usr/bin/env python3
"""An adversary for change batches: random schemas and statements, and copies that are kept up to date by batches alone.

    python3 adversary.py GROUPSTORE [--seconds S] [--rounds N] [--seed N] [--only SEED] [--keep DIR]

Attacks the promise that a batch after a token, applied to a copy of the store at that token, leads to the store as it
was at a commit: whole or in pages, repeated, from any earlier token, through changes of the schema, VACUUM, REPLACE,
changed keys, savepoints and rollbacks. A reset is right only where something happened that batches can't carry.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "history"))

import live  # noqa: E402
from program import Program  # noqa: E402
from replica import OWN, Replica, connected, contents, difference, quoted  # noqa: E402
from schemas import SchemaWriter, draw_features  # noqa: E402
from statements import StatementWriter  # noqa: E402

# Documents name these as unrecorded in part, or they need a writer with functions of its own.
LEFT_OUT = {"raise", "before_trigger_writes", "temp_triggers", "later_triggers", "attach"}

ODD_VALUES = [
    "CAST(X'ff41' AS TEXT)", "CAST(X'eda080' AS TEXT)", "CAST(X'00d8' AS TEXT)", "char(65533)", "char(0)||'x'", "9223372036854775807",
    "-9223372036854775808", "9007199254740993", "9007199254740992", "-9007199254740992", "-9007199254740991", "-0.0", "2.0", "1e300",
    "9e999", "-9e999", "5e-324", "0.1", "1.0/3", "123456789012345678.0", "''", "X''", "X'00ff'", "NULL", "'e'||char(769)", "char(233)",
    "char(10)||char(127)||'\"\\'", "hex(randomblob(20000))", "randomblob(50000)", "char(128512)",
]
ODD_TABLES = [
    'CREATE TABLE "\u00e9" (id INTEGER PRIMARY KEY, "e\u0301", "\u00e9", x)', 'CREATE TABLE "e\u0301" (id INTEGER PRIMARY KEY, "\u00e9", x)',
    'CREATE TABLE "\u8868" ("\u9375" TEXT PRIMARY KEY, x, y AS (x||1)) WITHOUT ROWID', "CREATE TABLE r (k REAL PRIMARY KEY, x) WITHOUT ROWID",
    "CREATE TABLE k (a, b COLLATE NOCASE, x, PRIMARY KEY (a, b DESC)) WITHOUT ROWID", "CREATE TABLE b (k BLOB PRIMARY KEY, x) WITHOUT ROWID",
    "CREATE TABLE nokey (a, b UNIQUE)", "CREATE TABLE s (id INTEGER PRIMARY KEY, i INT, r REAL, t TEXT, b BLOB, x ANY) STRICT",
    "CREATE TABLE u (id INTEGER PRIMARY KEY, a UNIQUE, b, UNIQUE (b, a))",
    "CREATE TABLE g (id INTEGER PRIMARY KEY, a, b GENERATED ALWAYS AS (a+1) STORED, c AS (a||'x') UNIQUE)",
]


class Statements(StatementWriter):
    """Statements for the app's own tables."""

    def refresh(self):
        super().refresh()
        self.tables = [table for table in self.tables if table.name.upper() not in OWN]


class Problem(Exception):
    def __init__(self, kind, detail):
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


class Round:
    def __init__(self, program, directory, seed, statements):
        self.program, self.directory, self.length = program, directory, statements
        self.seed = seed
        self.random = random.Random(f"values/{seed}")
        self.store = os.path.join(directory, "store.sqlite")
        self.copies, self.made, self.counts, self.script = [], 0, Counter(), []
        self.before = seed % 2 == 0
        self.commits = []  # the number of the last change after each commit, in this life of the history

    def open(self):
        self.app = sqlite3.connect(self.store, isolation_level=None, timeout=0.2)
        self.app.text_factory = lambda b: b.decode("utf-8", "surrogateescape")

    def execute(self, sql, parameters=()):
        self.script.append(sql if not parameters else f"{sql} -- {parameters}")
        try:
            self.app.execute(sql, parameters).fetchall()
        except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeEncodeError):
            pass
        self.note_commit()

    def note_commit(self):
        """Notes the last change, after what may have been a commit."""
        if self.app.in_transaction:
            return
        try:
            (last,) = self.app.execute("SELECT coalesce(max(number), 0) FROM main.GS_CHANGE").fetchone()
        except sqlite3.Error:
            return
        if not self.commits or last > self.commits[-1]:
            self.commits.append(last)

    def check_transactions(self, lines):
        """Checks that each transaction that is said to be exact is one commit."""
        for line in lines:
            if line["type"] == "row" and line["transaction"]["exact"]:
                last = line["transaction"]["id"]
                if last not in self.commits:
                    raise Problem("transaction", f"{line} isn't of a commit: {self.commits[-9:]}")
                index = self.commits.index(last)
                if line["number"] > last or (index and line["number"] <= self.commits[index - 1]):
                    raise Problem("transaction", f"{line} is of another commit: {self.commits[-9:]}")
                self.counts["exact"] += 1

    def play(self):
        if self.seed % 6 == 5:
            self.app = sqlite3.connect(":memory:")
            problem, states = live.play(self.program, self.directory, self.seed)
            self.counts["live states"] += states
            if problem:
                raise Problem("live", problem)
            return
        features = draw_features(self.random, LEFT_OUT)
        writer = SchemaWriter(self.random, features)
        self.open()
        for sql in writer.statements():
            self.execute(sql)
        for sql in self.random.sample(ODD_TABLES, self.random.randint(0, 4)):
            self.execute(sql)
        self.enable()
        statements = Statements(self.random, features, self.app)
        for _ in range(self.length):
            statements.connection = self.app
            if self.random.random() < 0.15:
                self.odd(statements)
            else:
                self.run(statements.next())
            if self.random.random() < 0.08:
                self.check()
        self.check()
        self.check()

    def run(self, step):
        if step == "!reconnect":
            self.app.close()
            self.open()
        elif step == "!enable":
            if not self.app.in_transaction:
                self.enable()
        elif step.startswith("!many "):
            sql, _, rows = step[6:].partition(" ;; ")
            for row in json.loads(rows):
                self.execute(sql, row)
        else:
            for line in step.split("\n"):
                self.execute(line)

    def odd(self, statements):
        """Writes an odd value, moves or swaps keys, or empties a table."""
        statements.refresh()
        if not statements.tables:
            return
        table = self.random.choice(statements.tables)
        name, column = quoted(table.name), quoted(self.random.choice(table.columns))
        key = quoted(table.key[0]) if table.key else column
        self.execute(self.random.choice([
            f"UPDATE OR REPLACE {name} SET {column}={self.random.choice(ODD_VALUES)} WHERE {key} IN (SELECT {key} FROM {name} ORDER BY random() LIMIT 2)",
            f"INSERT OR REPLACE INTO {name}({column}) VALUES ({self.random.choice(ODD_VALUES)})",
            f"INSERT OR REPLACE INTO {name}({column}, {key}) VALUES ({self.random.choice(ODD_VALUES)}, {self.random.choice(ODD_VALUES)})",
            f"UPDATE OR REPLACE {name} SET {key}={key}+1", f"UPDATE OR IGNORE {name} SET {key}=-{key}",
            f"UPDATE {name} SET {key}=upper({key})", f"UPDATE {name} SET {key}=lower({key})", f"DELETE FROM {name}",
            f"UPDATE OR REPLACE {name} SET {key}={self.random.choice(ODD_VALUES)} WHERE {key} IN (SELECT {key} FROM {name} LIMIT 1)",
        ]))

    def enable(self):
        self.app.execute("PRAGMA query_only=OFF")
        code, lines, errors = self.program.run(
            "history", "enable", self.store, "--json", *(["--before"] if self.before else []))
        if code != 0:
            raise Skip(f"history enable: {errors}")
        self.note_commit()

    # Batches

    def changes(self, *arguments):
        code, lines, errors = self.program.run("changes", self.store, "--json", "--values", *arguments)
        outcome = lines[-1]["outcome"] if lines else "none"
        if code != 0 and lines and lines[-1].get("error", {}).get("code") == "outdated_history":
            if self.app.in_transaction:
                return None
            self.counts["outdated"] += 1
            self.enable()
            return self.changes(*arguments)
        if code != 0 and lines and lines[-1].get("error", {}).get("code") == "busy":
            return None
        if code != 0:
            # SQLite may be unable to read its own schema.
            try:
                connected(self.store).execute("SELECT count(*) FROM sqlite_schema").fetchall()
            except sqlite3.Error:
                raise Skip(errors) from None
            raise Problem("error", f"{arguments}: {code} {errors}")
        self.check_transactions(lines)
        return outcome, lines

    def check(self):
        """Brings a copy of an earlier state up to date, in one of several ways, and compares it with the store."""
        if self.app.in_transaction and self.random.random() < 0.5:
            self.execute(self.random.choice(["COMMIT", "ROLLBACK"]))
        if self.app.in_transaction:
            return
        self.app.execute("PRAGMA query_only=OFF")
        now = self.changes("--now")
        if now is None:
            return
        header = now[1][0]
        self.check_digest(header["schema"])
        for copy in self.random.sample(self.copies, min(len(self.copies), 2)):
            self.update(copy, header)
        self.made += 1
        path = os.path.join(self.directory, f"copy{self.made}.sqlite")
        try:
            self.copies.append(Replica.of(self.store, path, now[1][-1]["token"], header["schema"]))
        except sqlite3.Error as error:
            raise Skip(f"SQLite can't copy it or drop its triggers: {error}") from error
        if len(self.copies) > 4:
            self.drop(self.random.choice(self.copies))

    def drop(self, copy):
        self.copies.remove(copy)
        copy.remove()

    def update(self, copy, header):
        before = copy.token
        pages = self.pages(copy)
        if pages is None:
            return
        if pages[-1][-1]["outcome"] == "reset":
            reason = pages[-1][0]["reason"]
            self.counts[reason] += 1
            if reason == "schema_changed" and copy.schema == header["schema"] and not self.schema_was_changed(before):
                raise Problem("needless reset", f"{reason} with the same schema")
            self.drop(copy)
            return
        if copy.schema != header["schema"]:
            raise Problem("missing reset", "the schema has changed")
        found, known, possible = copy.differs_before(pages[0])
        if found:
            raise Problem("a wrong value before", found)
        if known and not self.before:
            raise Problem("values before", "though they aren't recorded")
        self.counts["before"] += known
        self.counts["before possible"] += possible if self.before else 0
        start = copy.token
        rows = sum(line["type"] == "row" for page in pages for line in page)
        copy.apply(pages)
        if self.random.random() < 0.2:
            copy.apply(pages)
        if self.random.random() < 0.2:
            # Rows from further back do no harm.
            older = self.changes("--since", start)
            if older and older[0] == "changes":
                copy.apply([older[1]])
        left_out = set(pages[0][0]["unrecorded"])
        found = difference(contents(self.store, left_out), contents(copy.path, left_out))
        if found:
            raise Problem("a wrong copy", f"after {len(pages)} pages with {rows} rows since {before}: {found}")
        self.counts["updated"] += 1
        self.counts["rows"] += rows

    def pages(self, copy):
        limit = self.random.choice([None, None, 1, 2, 3, 7])
        token, pages = copy.token, []
        while True:
            words = ["--since", token, "--schema", copy.schema] + (["--limit", str(limit)] if limit else [])
            answer = self.changes(*words)
            if answer is None:
                return None
            outcome, lines = answer
            pages.append(lines)
            if outcome == "reset" or not lines[-1]["more"]:
                return pages
            token = lines[-1]["token"]

    def schema_was_changed(self, token):
        """Returns whether the history's triggers were made again since: the schema was changed, perhaps and back."""
        number = int(token.split(".")[2])
        (count,) = self.app.execute(
            "SELECT count(*) FROM main.GS_CHANGE c JOIN main.GS_TABLE t ON t.id=c.table_id WHERE c.number>? AND t.installed=0",
            [number]).fetchone()
        return count > 0

    def check_digest(self, schema):
        """Computes the state of the schema as its document says."""
        connection = connected(self.store)
        ((version,),) = connection.execute("PRAGMA schema_version")
        objects = [[bytes(part or b"") for part in row]
                   for row in connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema")]
        connection.close()
        own = {name.encode() for name in OWN}

        def is_trigger(name):
            parts = name.split(b"_")
            return len(parts) == 3 and parts[0] == b"GS" and parts[1].isdigit()

        kept = sorted((o for o in objects if not (
            o[1].lower().startswith(b"sqlite_") or o[1].upper() in own or is_trigger(o[1]))), key=lambda o: o[:2])
        digest = hashlib.sha256(b"".join(part + b"\0" for o in kept for part in o)).hexdigest()
        if f"{digest}.{version}" != schema:
            raise Problem("digest", f"{schema} instead of {digest}.{version}")


class Skip(Exception):
    pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groupstore")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=1 << 60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", type=int, help="play the round of this seed alone")
    parser.add_argument("--statements", type=int, default=120)
    parser.add_argument("--keep", metavar="DIR")
    options = parser.parse_args()
    program, totals, problems = Program(options.groupstore), Counter(), Counter()
    rounds, end = 0, time.monotonic() + options.seconds
    base = tempfile.mkdtemp(prefix="values-adversary-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    try:
        while rounds < options.rounds and time.monotonic() < end:
            seed = options.seed + rounds if options.only is None else options.only
            rounds += 1
            directory = os.path.join(base, str(seed))
            os.mkdir(directory)
            round = Round(program, directory, seed, options.statements)
            try:
                round.play()
            except sqlite3.DatabaseError as error:
                # With trusted_schema off, SQLite before 3.41 can't read schemas with JSON functions.
                if "unsafe use of" not in str(error):
                    raise
                totals["skipped"] += 1
            except Skip as skipped:
                totals["skipped"] += 1
                if options.only is not None:
                    print(f"skipped: {skipped}")
            except Problem as problem:
                problems[problem.kind] += 1
                print(f"seed {seed} {str(problem)[:900]}", flush=True)
            except Exception:
                problems["exception"] += 1
                print(f"seed {seed} exception {traceback.format_exc()[-1500:]}", flush=True)
            totals.update(round.counts)
            if options.keep:
                os.makedirs(options.keep, exist_ok=True)
                with open(os.path.join(options.keep, f"{seed}.sql"), "w", encoding="utf-8", errors="surrogateescape") as out:
                    out.write(";\n".join(round.script))
                shutil.copytree(directory, os.path.join(options.keep, str(seed)), dirs_exist_ok=True)
            round.app.close()
            shutil.rmtree(directory)
            if options.only is not None:
                break
    finally:
        shutil.rmtree(base, ignore_errors=True)
    found = ", ".join(f"{n} {k}" for k, n in sorted(totals.items()))
    words = ", ".join(f"{n} {k}" for k, n in sorted(problems.items())) or "no problem"
    print(f"adversary: {rounds} rounds from seed {options.seed} ({found}): {words}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
