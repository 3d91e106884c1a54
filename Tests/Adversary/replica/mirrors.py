#!/usr/bin/env python3
"""Random schemas and statements at a home that keeps no history, and its mirror and replica, compared at each step.

    python3 mirrors.py ACTOR [--seconds S] [--rounds N] [--seed N] [--steps N] [--keep DIR]

All journal modes, page sizes and encodings; VACUUM, ANALYZE, changes of the schema, checkpoints, other journal modes, and
kills of the publisher. SQL shows whether the mirror and the replica have the home's rows. A replica needs a snapshot only
after a change of the schema, or in a UTF-16 store.
"""

import argparse
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter

sys.path += [os.path.dirname(os.path.abspath(__file__))]

import adversary  # noqa: E402
from actor import Actor, Gone  # noqa: E402

TABLES = [
    "CREATE TABLE p (a, b)", "CREATE TABLE i (id INTEGER PRIMARY KEY AUTOINCREMENT, a UNIQUE, b REAL)",
    "CREATE TABLE w (k TEXT COLLATE NOCASE, n REAL, v, PRIMARY KEY (k, n)) WITHOUT ROWID",
    "CREATE TABLE fk (id INTEGER PRIMARY KEY, r REFERENCES i (id) ON DELETE CASCADE)",
    "CREATE TRIGGER ti AFTER INSERT ON i BEGIN INSERT INTO p VALUES (new.id, new.a); END",
]
OWN = {"GS_HISTORY", "GS_REPLICA", "GS_SUBSCRIBER", "GS_REPLACED", "GS_CHANGE", "GS_TABLE", "GS_AUTHOR"}


class Problem(Exception):
    pass


def name(text):
    return '"' + text.replace('"', '""') + '"'


def content(path, shadow):
    """All that SQL shows of a store, with its shadow tables if `shadow` is true."""
    database = sqlite3.connect(path)
    database.text_factory = bytes
    found = {}
    kinds = [b"table", b"virtual"] + ([b"shadow"] if shadow else [])
    tables = database.execute("SELECT name, wr, type FROM pragma_table_list WHERE schema = 'main' ORDER BY 1").fetchall()
    for table, keyed, kind in tables:
        text = table.decode()
        if kind not in kinds or text in OWN or text == "sqlite_schema" or text.startswith("sqlite_stat"):
            continue
        columns = [row[1].decode().lower() for row in database.execute(f"PRAGMA table_xinfo ({name(text)})")]
        rowid = "" if keyed else next((n + ", " for n in ("rowid", "_rowid_", "oid") if n not in columns), "")
        rows = database.execute(f"SELECT {rowid}* FROM {name(text)}").fetchall()
        found[text] = sorted(repr([v.hex() if isinstance(v, float) else v for v in row]) for row in rows)
    for pragma in ("user_version", "application_id", "encoding"):
        found["PRAGMA " + pragma] = database.execute(f"PRAGMA {pragma}").fetchone()
    found["integrity"] = database.execute("PRAGMA integrity_check").fetchall()
    database.close()
    return found


class Round:
    def __init__(self, actor, directory, seed, steps):
        self.actor, self.directory, self.steps = actor, directory, steps
        self.random = random.Random(f"mirrors/{seed}")
        self.home, self.replica = os.path.join(directory, "home.sqlite"), os.path.join(directory, "replica.sqlite")
        self.counts, self.log, self.made, self.virtual = Counter(), [], 0, []
        self.source = self.follower = self.position = None
        self.excuse = False

    def execute(self, sql):
        self.log.append(sql)
        try:
            self.writer.execute(sql).fetchall()
        except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeEncodeError):
            return False
        return True

    def prepare(self):
        draw = self.random
        self.writer = sqlite3.connect(self.home, isolation_level=None)
        self.writer.text_factory = lambda b: b.decode("utf-8", "surrogateescape")
        self.encoding = draw.choice(["UTF-8", "UTF-8", "UTF-16le", "UTF-16be"])
        self.page_size = draw.choice([512, 1024, 4096, 4096, 65536])
        for pragma in (f"page_size = {self.page_size}", f"encoding = '{self.encoding}'",
                       f"auto_vacuum = {draw.choice([0, 0, 1, 2])}", f"secure_delete = {draw.choice([0, 1])}",
                       f"journal_mode = {draw.choice(['WAL', 'WAL', 'DELETE', 'TRUNCATE', 'PERSIST', 'MEMORY'])}"):
            self.execute("PRAGMA " + pragma)
        wide = self.encoding != "UTF-8"
        for statement in draw.sample(adversary.NASTY_TABLES, draw.randint(1, 5)) + (adversary.UTF16_TABLES if wide else []):
            self.execute(statement)
        for statement in TABLES:
            self.execute(statement)
        self.execute("PRAGMA foreign_keys = ON")
        if draw.random() < 0.5:
            for creation, writes in draw.sample(adversary.VIRTUAL_TABLES, 2):
                for statement in creation:
                    self.execute(statement)
                self.virtual += writes
        self.values = [
            "1", "2.5", "-0.0", "'a'", "'A'", "x'00ff'", "NULL", "9223372036854775807", "'\u00e9\U0001f600'",
            f"zeroblob({draw.choice([10, 3000, 20000])})", "random()", "0.1", "1e300", "'1'", "hex(randomblob(200))",
            "CAST(x'ff41' AS TEXT)", "'b' || char(0) || 'c'"] + (adversary.UTF16_VALUES if wide else [])
        self.tables = [row[0] for row in self.writer.execute(
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite%'")]
        for _ in range(20):
            self.execute(self.statement())
        self.source = Actor(self.actor, "source", self.home, os.path.join(self.directory, "mirror"))

    def statement(self):
        draw = self.random
        if self.virtual and draw.random() < 0.2:
            return draw.choice(self.virtual).format(v=draw.choice(self.values))
        table = draw.choice(self.tables)
        columns = [row[1] for row in self.writer.execute(f"PRAGMA table_info ({name(table)})")]
        if not columns:
            return "SELECT 1"
        kind, column, other = draw.random(), name(draw.choice(columns)), name(draw.choice(columns))
        if kind < 0.5:
            used = [c for c in columns if draw.random() < 0.9] or columns
            row = lambda: "(" + ", ".join(draw.choice(self.values + [str(draw.randint(-5, 30))] * 6) for _ in used) + ")"  # noqa: E731
            rows = ", ".join(row() for _ in range(draw.choice([1, 1, 1, 5])))
            return (f"INSERT OR {draw.choice(['REPLACE', 'IGNORE', 'ABORT'])} INTO {name(table)} "
                    f"({', '.join(map(name, used))}) VALUES {rows}")
        condition = f"{column} {draw.choice(['>', '<', '=', 'IS NOT'])} {draw.choice(self.values + ['5', '7'])}"
        if kind < 0.8:
            value = draw.choice(self.values + [str(draw.randint(0, 20)), other + " + 1"])
            return f"UPDATE OR {draw.choice(['REPLACE', 'IGNORE'])} {name(table)} SET {other} = {value} WHERE {condition}"
        return f"DELETE FROM {name(table)} WHERE {condition}"

    def act(self, step):
        draw, kind = self.random, self.random.random()
        if kind < 0.06:
            self.execute("VACUUM")
        elif kind < 0.10:
            statement = draw.choice([
                f"ALTER TABLE p ADD COLUMN x{step} DEFAULT 'd'", f"CREATE INDEX ix{step} ON p (a)", f"CREATE TABLE n{step} (a, b)"])
            if self.execute(statement):
                self.excuse = True
            if statement.startswith("CREATE TABLE"):
                self.tables.append(f"n{step}")
        elif kind < 0.16:
            self.execute(draw.choice([
                "ANALYZE", "REINDEX", "PRAGMA incremental_vacuum", f"PRAGMA user_version = {draw.randint(0, 9)}",
                "UPDATE sqlite_sequence SET seq = seq + 5", "PRAGMA wal_checkpoint(TRUNCATE)"]))
        elif kind < 0.18:
            self.execute(f"PRAGMA journal_mode = {draw.choice(['WAL', 'DELETE', 'PERSIST', 'TRUNCATE'])}")
        elif kind < 0.21:
            self.source.kill()
            self.counts["kills"] += 1
            for _ in range(draw.randint(0, 4)):
                self.execute(self.statement())
            self.source = Actor(self.actor, "source", self.home, os.path.join(self.directory, "mirror"))
        else:
            if draw.random() < 0.5:
                self.execute("BEGIN")
            for _ in range(draw.choice([1, 1, 2, 6, 20])):
                self.execute(self.statement())
            if self.writer.in_transaction:
                self.execute(draw.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))
            if self.writer.in_transaction:
                self.execute("ROLLBACK")

    def snapshot(self, command):
        """Has the replica take a snapshot."""
        self.made += 1
        self.counts["snapshots"] += 1
        path = os.path.join(self.directory, f"snapshot{self.made}")
        words = self.source.ask(f"snapshot {path}")
        if words[0] != "snapshot":
            raise Problem(f"no snapshot: {' '.join(words)}")
        if self.follower:
            self.follower.close()
        done = subprocess.run([self.actor, command, self.replica, "test", path, *words[1:]], capture_output=True, text=True)
        os.remove(path)
        if done.returncode:
            raise Problem(f"{command}: {done.stdout}{done.stderr}")
        self.follower = Actor(self.actor, "follow", self.replica, "test")
        self.position = self.follower.line()[1]

    def update(self):
        """Has the replica apply one batch, or take a snapshot if it can't."""
        for _ in range(4):
            outcome = None
            self.source.send(f"batch {self.position} {self.random.choice([1 << 20, 200])}\n".encode())
            while (answer := self.source.line())[0] == "part":
                body = self.source.process.stdout.read(int(answer[6]))
                self.follower.send((" ".join(answer) + "\n").encode() + body)
                outcome = self.follower.line()
            if answer[0] == "nothing" or answer[0] == "batch" and outcome[0] in ("applied", "skipped"):
                if outcome and outcome[0] == "applied":
                    self.position = outcome[1]
                    self.counts["batches"] += 1
                return
            if answer[0] == "error":
                raise Problem(" ".join(answer))
            if self.encoding == "UTF-8" and not self.excuse:
                raise Problem(f"a snapshot for no reason: {answer} {outcome}")
            self.excuse = False
            self.snapshot("replace")
        raise Problem(f"no batch leads on: {answer} {outcome}")

    def compare(self):
        mirror = os.path.join(self.directory, "mirror", "0", "mirror.sqlite")
        for path, shadow in ((mirror, True), (self.replica, False)):
            wanted, found = content(self.home, shadow), content(path, shadow)
            if wanted["integrity"] != [(b"ok",)]:
                found["integrity"] = wanted["integrity"]
            for key in sorted(set(wanted) | set(found)):
                if wanted.get(key) != found.get(key):
                    raise Problem(f"{path}, {key}:\n  {str(wanted.get(key))[:400]}\n  {str(found.get(key))[:400]}")

    def run(self):
        self.prepare()
        try:
            self.source.ask("current")
        except Gone as refusal:
            if "not_replicable" not in str(refusal):
                raise
            self.counts["refused"] += 1
            return
        self.snapshot("create")
        self.compare()
        for step in range(self.steps):
            self.act(step)
            if self.random.random() < 0.3:
                continue
            self.update()
            self.compare()
            self.counts["steps"] += 1

    def close(self):
        for actor in (self.source, self.follower):
            if actor:
                actor.kill()
        self.writer.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("actor")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--keep", help="where the stores of a failed round stay")
    options = parser.parse_args()
    actor, began, total, failed, seed = os.path.abspath(options.actor), time.time(), Counter(), 0, options.seed
    while (options.rounds is None or seed < options.seed + options.rounds) and (
            options.seconds is None or time.time() - began < options.seconds):
        directory = tempfile.mkdtemp(prefix="mirrors")
        round = Round(actor, directory, seed, options.steps)
        try:
            round.run()
        except (Problem, Gone) as problem:
            failed += 1
            print(f"round {seed}: {problem}\nafter: {round.log[-5:]}")
            if options.keep:
                with open(os.path.join(directory, "log.sql"), "w", encoding="utf-8", errors="surrogateescape") as file:
                    file.write(";\n".join(round.log))
                shutil.copytree(directory, os.path.join(options.keep, f"round{seed}"), dirs_exist_ok=True)
        finally:
            round.close()
            shutil.rmtree(directory)
        total.update(round.counts)
        seed += 1
    print(f"{seed - options.seed} rounds, {failed} failed: {dict(total)}")
    sys.exit(1 if failed or not total["steps"] else 0)


main()
