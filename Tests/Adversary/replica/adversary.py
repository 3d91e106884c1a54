#!/usr/bin/env python3
"""An adversary for replicas: random schemas and statements, and a stream that loses, repeats, cuts, mixes and flips.

    python3 adversary.py GROUPSTORE ACTOR [--seconds S] [--rounds N] [--seed N] [--only SEED] [--keep DIR] [--utf16]

Attacks the promises of Documentation/Relay.md: every state that a replica shows is one that the home had at a commit,
in order; a batch is applied whole or not at all; a write by another program stops it; nothing asks for a snapshot
without a reason. The replica's whole content is compared by SQL with the home's at the token that it says it is at.
"""

import argparse
import importlib.util
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [os.path.join(HERE, "..", "history"), os.path.join(HERE, "..", "values")]

from actor import Actor, Gone, run  # noqa: E402
from program import Program  # noqa: E402
import statements  # noqa: E402
from schemas import SchemaWriter, draw_features  # noqa: E402
from state import difference, integrity, position, quoted, read  # noqa: E402

specification = importlib.util.spec_from_file_location("values", os.path.join(HERE, "..", "values", "adversary.py"))
values = importlib.util.module_from_spec(specification)
specification.loader.exec_module(values)

NASTY_TABLES = [
    'CREATE TABLE "order" (id INTEGER PRIMARY KEY AUTOINCREMENT, "group", "select" UNIQUE)',
    'CREATE TABLE "orders" (id INTEGER PRIMARY KEY AUTOINCREMENT, x)', 'CREATE TABLE "order " (a, b)',
    'CREATE TABLE "a""b\'c`d[e]" ("x""y" PRIMARY KEY, "\'" UNIQUE)', 'CREATE TABLE "\U0001f600" ("\U0001f601" INTEGER PRIMARY KEY, x)',
    'CREATE TABLE "\u0645\u0644\u0627\u062d\u0638\u0629" ("\u0627" TEXT PRIMARY KEY, "\u05d0") WITHOUT ROWID',
    'CREATE TABLE "t\\n\\u0000" ("c\\", x)', 'CREATE TABLE "GS_CHANGED" (number INTEGER PRIMARY KEY, nonce)',
    "CREATE TABLE r2 (a REAL, b REAL, c TEXT COLLATE NOCASE, x, PRIMARY KEY (a, b, c)) WITHOUT ROWID",
    "CREATE TABLE d (id INTEGER PRIMARY KEY DESC, x)", "CREATE TABLE n (a INTEGER NOT NULL ON CONFLICT REPLACE DEFAULT 7, b)",
]
# A table, and statements that write to it; an index of another table is kept up by triggers.
VIRTUAL_TABLES = [
    (["CREATE VIRTUAL TABLE \"own search\" USING fts5(a, b)"],
     ["INSERT INTO \"own search\" VALUES ('a b', {v})", "DELETE FROM \"own search\" WHERE rowid % 2", "UPDATE \"own search\" SET a='c' WHERE b IS NOT {v}"]),
    (["CREATE VIRTUAL TABLE search4 USING fts4(a, b, tokenize=porter)"],
     ["INSERT INTO search4 VALUES ('a', {v})", "DELETE FROM search4 WHERE docid % 2", "UPDATE search4 SET b={v}"]),
    (["CREATE VIRTUAL TABLE places USING rtree(id, x0, x1, +what)"],
     ["INSERT OR REPLACE INTO places VALUES (abs(random()) % 20, random() / 1e19, 1, {v})", "DELETE FROM places WHERE id % 3 = 0"]),
    (["CREATE TABLE note (id INTEGER PRIMARY KEY, x)", "CREATE VIRTUAL TABLE \"search'x\" USING fts5(x, content='note', content_rowid='id')",
      "CREATE TRIGGER note_i AFTER INSERT ON note BEGIN INSERT INTO \"search'x\"(rowid, x) VALUES (new.id, new.x); END"],
     ["INSERT INTO note (x) VALUES ('a' || {v})", "INSERT INTO note (x) VALUES ('b c')"]),
]
# Half surrogate pairs alone, at an end, before another unit, in the wrong order; what may look like them in UTF-8; an
# odd number of bytes; NUL; and BLOBs whose bytes are text. Bytes of both orders: some are malformed in one only.
UTF16_VALUES = [f"CAST(X'{digits}' AS TEXT)" for digits in (
    "00d8", "d800", "00dc", "dc00", "00d84100", "d8000041", "00dc4100", "dc000041", "4100d8", "0041d800", "00d800d8", "d800d800", "00d800dc",
    "d800dc00", "00dc00d8", "dc00d800", "00d84100dc00", "00d80000", "d8000000", "41000000", "00410000", "fffe", "feff", "fdff", "fffd", "ffff",
    "fffe4100", "410062", "41", "41004200", "00410042")] + [
    "char(65601)", "char(65536)", "char(128512)", "char(65533)", "char(65535)||'x'", "char(65279)||'a'", "'a'||char(0)||char(65601)", "'ab'", "'AB'",
    "X'41004200'", "X'00410042'", "X'4142'", "X'00d84100'", "X'ff41'", "X'e9'", "X''", "X'0000'"]
UTF16_TABLES = [
    "CREATE TABLE uk (t TEXT PRIMARY KEY, v) WITHOUT ROWID", "CREATE TABLE un (t TEXT COLLATE NOCASE PRIMARY KEY, v) WITHOUT ROWID",
    "CREATE TABLE u2 (a, b, v UNIQUE, PRIMARY KEY (a, b)) WITHOUT ROWID", "CREATE TABLE uu (id INTEGER PRIMARY KEY, t TEXT UNIQUE, v)",
    "CREATE TABLE us (id INTEGER PRIMARY KEY, b, g AS (lower(b)) STORED)", "CREATE TABLE uv (id INTEGER PRIMARY KEY, b, g AS (lower(b)))",
    "CREATE TABLE ux (id INTEGER PRIMARY KEY, b, c)", "CREATE INDEX ux1 ON ux (lower(b))", "CREATE INDEX ux2 ON ux (c) WHERE b LIKE 'ab%'",
    "CREATE INDEX ux3 ON ux (CAST(b AS TEXT), c||b)", "CREATE INDEX uv1 ON uv (g)", "CREATE TABLE uq (id INTEGER PRIMARY KEY, b)",
    "CREATE UNIQUE INDEX uq1 ON uq (lower(b))",
]
# The schema has the same text before and after.
SAME_SCHEMA = [
    "CREATE TABLE twin1 (k INTEGER PRIMARY KEY, v, w)", "CREATE TABLE twin2 (k INTEGER PRIMARY KEY, v, w)",
]
FEATURES_LEFT_OUT = values.LEFT_OUT | {"virtual"}
RESETS = {"gap", "otherHistory", "schemaChanged"}


class Statements(values.Statements):
    """Statements for tables whose rows the history records."""

    def refresh(self):
        super().refresh()
        ordinary = {statements.text(row[0]) for row in self.connection.execute(
            "SELECT name FROM pragma_table_list WHERE schema='main' AND type='table'")}
        self.tables = [table for table in self.tables if table.name in ordinary and table.name != "note"]


class Problem(Exception):
    def __init__(self, kind, detail):
        super().__init__(f"{kind}: {detail}")
        self.kind = kind


class Skip(Exception):
    pass


class Round:
    def __init__(self, options, directory, seed):
        self.options, self.directory, self.seed = options, directory, seed
        self.program, self.actor = Program(options.groupstore), os.path.abspath(options.actor)
        self.random = random.Random(f"replica/{seed}")
        self.home, self.replica = os.path.join(directory, "home.sqlite"), os.path.join(directory, "replica.sqlite")
        self.counts, self.script, self.states, self.stream = Counter(), [], {}, []
        self.writers, self.source, self.follower = [], None, None
        self.published = None  # the token that the stream ends with
        self.excuse = True  # True if a snapshot may be needed
        self.snapshots, self.virtual = 0, []

    # The home

    def open(self):
        writer = sqlite3.connect(self.home, isolation_level=None, timeout=0)
        writer.text_factory = lambda b: b.decode("utf-8", "surrogateescape")
        return writer

    def execute(self, writer, sql, parameters=()):
        self.script.append(sql if not parameters else f"{sql} -- {parameters}")
        try:
            writer.execute(sql, parameters).fetchall()
        except (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeEncodeError):
            pass

    def settle(self):
        """Ends all transactions."""
        for writer in self.writers:
            if writer.in_transaction:
                self.execute(writer, self.random.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
            if writer.in_transaction:
                self.execute(writer, "ROLLBACK")

    def enable(self):
        self.settle()
        for writer in self.writers:
            writer.execute("PRAGMA query_only=OFF")
        words = ["--before"] if self.before else []
        code, lines, errors = self.program.run("history", "enable", self.home, "--json", *words)
        if code != 0:
            raise Skip(f"history enable: {errors}")
        self.excuse = True

    def write(self, statements):
        index = self.random.randrange(len(self.writers))
        writer = statements.connection = self.writers[index]
        choice = self.random.random()
        if choice < 0.02:
            self.execute(writer, f"PRAGMA user_version={self.random.randint(-9, 9)}")
        elif choice < 0.03:
            self.execute(writer, f"UPDATE sqlite_sequence SET seq=seq+{self.random.randint(1, 9)}")
        elif choice < 0.045:
            self.settle()
            self.program.purge(self.home, "--count", str(self.random.randint(1, 30)))
        elif choice < 0.12 and self.virtual:
            self.execute(writer, self.random.choice(self.virtual).format(v=self.random.choice(values.ODD_VALUES)))
        elif choice < 0.135:
            self.keep_text(writer)
        elif choice < 0.21:
            self.odd(writer, statements)
        else:
            step = statements.next()
            if step == "!reconnect":
                writer.close()
                self.writers[index] = statements.connection = self.open()
            elif step == "!enable":
                self.enable()
            elif step.startswith("!many "):
                sql, _, rows = step[6:].partition(" ;; ")
                for row in values.json.loads(rows):
                    self.execute(writer, sql, row)
            else:
                for line in step.split("\n"):
                    self.execute(writer, line)

    def keep_text(self, writer):
        """Changes the schema, and leaves its text as it was."""
        name, other = self.random.sample(["twin1", "twin2"], 2)
        for sql in self.random.choice([
            ["BEGIN", f"ALTER TABLE {name} DROP COLUMN w", f"ALTER TABLE {name} ADD COLUMN w", "COMMIT"],
            [f"ALTER TABLE {name} DROP COLUMN w", f"ALTER TABLE {name} ADD COLUMN w"],
            ["BEGIN", f"ALTER TABLE {name} RENAME TO twin", f"ALTER TABLE {other} RENAME TO {name}", f"ALTER TABLE twin RENAME TO {other}", "COMMIT"],
            ["BEGIN", "CREATE INDEX passing ON twin1 (v)", "DROP INDEX passing", "COMMIT"],
            ["VACUUM"],
        ]):
            self.execute(writer, sql)
        if writer.in_transaction and self.random.random() < 0.8:
            self.execute(writer, "ROLLBACK")

    def odd(self, writer, statements):
        if self.options.utf16 and self.random.random() < 0.7:
            return self.odd_text(writer)
        statements.refresh()
        if not statements.tables:
            return
        table = self.random.choice(statements.tables)
        name, column = quoted(table.name), quoted(self.random.choice(table.columns))
        key = quoted(table.key[0]) if table.key else column
        value, other = self.random.choice(values.ODD_VALUES), self.random.choice(values.ODD_VALUES)
        self.execute(writer, self.random.choice([
            f"UPDATE OR REPLACE {name} SET {column}={value} WHERE {key} IN (SELECT {key} FROM {name} ORDER BY random() LIMIT 2)",
            f"INSERT OR REPLACE INTO {name}({column}) VALUES ({value})",
            f"INSERT OR REPLACE INTO {name}({column}, {key}) VALUES ({value}, {other})",
            f"UPDATE OR REPLACE {name} SET {key}={key}+1", f"UPDATE OR IGNORE {name} SET {key}=-{key}",
            f"UPDATE {name} SET {key}=upper({key})", f"UPDATE {name} SET {key}=lower({key})", f"DELETE FROM {name}",
        ]))

    def odd_text(self, writer):
        """Writes texts that UTF-8 can't say, and BLOBs that are read as text, as literals and as parameters."""
        kind = self.random.choice(["uk", "un", "u2", "uu", "us", "uv", "ux", "uq"])
        value, other, third = (self.random.choice(UTF16_VALUES) for _ in range(3))
        number, blob = self.random.randint(1, 9), bytes.fromhex(self.random.choice(["41004200", "00410042", "4142", "00d8", "ff41"]))
        key, column = {"uk": ("t", "v"), "un": ("t", "v"), "u2": ("a", "b"), "uu": ("t", "v")}.get(kind, ("id", "b"))
        sql = self.random.choice([
            f"INSERT OR REPLACE INTO {kind} ({key}, {column}) VALUES ({value if key != 'id' else number}, {other})",
            f"INSERT OR IGNORE INTO {kind} ({key}, {column}) VALUES ({value if key != 'id' else number}, {other})",
            f"UPDATE OR REPLACE {kind} SET {key}={value if key != 'id' else number} WHERE {key} IN (SELECT {key} FROM {kind} ORDER BY random() LIMIT 1)",
            f"UPDATE OR REPLACE {kind} SET {column}={other} WHERE {key} IN (SELECT {key} FROM {kind} ORDER BY random() LIMIT 2)",
            f"UPDATE OR IGNORE {kind} SET {column}={column}||{third}", f"DELETE FROM {kind} WHERE {column} IS {other}",
            f"DELETE FROM {kind} WHERE {key} IN (SELECT {key} FROM {kind} ORDER BY random() LIMIT 1)",
        ])
        # An index on an expression of a parameter is damaged at home: SQLite reads it in another encoding than the row.
        if kind in ("us", "uk", "u2", "uu") and self.random.random() < 0.3:
            return self.execute(writer, f"INSERT OR REPLACE INTO {kind} ({key}, {column}) VALUES (?, ?)", (number if key == "id" else blob, blob))
        self.execute(writer, sql)

    # The relay

    def publish(self):
        """Adds a batch to the stream, as a relay does, and notes the home's state."""
        if any(writer.in_transaction for writer in self.writers) and self.random.random() < 0.7:
            self.settle()
        for _ in range(3):
            start, last = self.published, self.published
            if self.random.random() < 0.15 and self.stream:
                start = self.random.choice(self.stream).source
            size = self.random.choice([1, 50, 1000, 768 << 10, 768 << 10, 768 << 10])
            parts, words = self.source.batch(start, size if size > 1 else self.random.randint(20, 400))
            if words[0] == "batch":
                state = read(self.home)
                self.states.setdefault(words[1], [])
                if state not in self.states[words[1]]:
                    self.states[words[1]].append(state)
                for part in parts:
                    self.stream.append(part)
                self.published = words[1]
                self.counts["batches"] += 1
                return
            if words[0] == "nothing":
                return
            if words[:2] == ["error", "outdated_history"]:
                self.counts["outdated"] += 1
                self.enable()
                continue
            if words[0] == "discontinuity":
                self.counts[words[1]] += 1
                self.excuse = True
                answer = self.source.ask("oldest")
                if answer[0] != "token":
                    raise Problem("no oldest token", f"{answer}")
                self.published = answer[1]
                if start == last and self.published == last:
                    raise Problem("an oldest token that isn't valid", f"{words} {last}")
                continue
            if words[:2] == ["error", "not_replicable"]:
                raise Skip(" ".join(words))
            if words[:2] == ["error", "in_use"]:
                return
            raise Problem("publish", f"{start}: {words}")

    def snapshot(self):
        """Makes a snapshot, and returns what the follower's commands take."""
        self.settle()
        self.snapshots += 1
        path = os.path.join(self.directory, f"snapshot{self.snapshots}")
        words = run(self.actor, "snapshot", self.home, path)
        if words[:2] == ["error", "outdated_history"]:
            self.enable()
            words = run(self.actor, "snapshot", self.home, path)
        if words[:2] == ["error", "not_replicable"]:
            raise Skip(" ".join(words))
        if words[0] != "snapshot":
            raise Problem("snapshot", f"{words}")
        state = read(self.home)
        self.states.setdefault(words[3], [])
        if state not in self.states[words[3]]:
            self.states[words[3]].append(state)
        self.counts["snapshots"] += 1
        return [path, *words[1:]], words[3]

    # The follower

    def place(self, command):
        """Places a snapshot as the replica, or into it."""
        if self.follower:
            self.follower.close()
            self.follower = None
        words, token = self.snapshot()
        answer = run(self.actor, command, self.replica, "stream", *words)
        if answer[-1] != token:
            raise Problem(command, f"{answer}")
        os.unlink(words[0])
        self.excuse, self.schema = False, words[-1]
        if not self.published or int(token.split(".")[2]) > int(self.published.split(".")[2]):
            self.published = token
        self.verify()
        self.follow()

    def follow(self):
        self.follower = Actor(self.actor, "follow", self.replica, "stream")
        words = self.follower.line()
        if words[0] != "position":
            raise Problem("a follower that doesn't start", f"{words}")

    def verify(self, former=None):
        """Compares the replica with the home's states at its token."""
        token = position(self.replica)
        state = read(self.replica)
        damage = integrity(self.replica)
        if damage and not integrity(self.home):
            raise Problem("a damaged replica", f"at {token}: {damage}")
        if token not in self.states:
            raise Problem("a token that the home never had", token)
        found = [difference(home, state) for home in self.states[token]]
        if all(found):
            raise Problem("a state that the home never had", f"at {token}: {found[-1]}")
        if former and former[0].split(".")[1] == token.split(".")[1] and int(token.split(".")[2]) < int(former[0].split(".")[2]):
            raise Problem("a position that goes back", f"{former[0]} {token}")
        self.counts["states"] += 1
        return token, state

    def deliver(self):
        """Brings what is in the stream to the follower, with or without faults."""
        self.publish()
        faulty = self.random.random() < 0.5
        former = self.verify()
        messages, isFaulty = self.choose(former[0], faulty)
        killed = self.random.random() < 0.2 and messages
        try:
            if killed:
                delay = self.random.random() ** 3 * 0.05
                thread = threading.Timer(delay, self.follower.process.kill)
                thread.start()
            answers = [self.follower.apply(message) for message in messages]
            if killed:
                thread.join()
                raise Gone()
        except Gone as gone:
            if not killed:
                raise Problem("a follower that ended", f"{gone}") from None
            thread.join()
            self.counts["kills"] += 1
            self.follower.close()
            former = self.verify(former)
            self.follow()
            messages, isFaulty = self.choose(position(self.replica), False)
            answers = [self.follower.apply(message) for message in messages]
        self.counts.update(answer[0] for answer in answers)
        self.judge(messages, answers, isFaulty, former)

    def choose(self, token, faulty):
        """Returns the messages from a follower's position on, and whether they were tampered with."""
        number = int(token.split(".")[2])
        starts = [index for index, part in enumerate(self.stream) if part.number == 1]
        beyond = [index for index in starts if int(self.stream[index].upto.split(".")[2]) >= number]
        start = (beyond + starts[-1:] + [0])[0]
        messages = self.stream[start:]
        if not faulty or not messages:
            return messages, False
        kind = self.random.choice(["drop", "repeat", "cut", "flip", "flip", "mix", "older", "header"])
        self.counts[kind] += 1
        index = self.random.randrange(len(messages))
        messages = list(messages)
        part = messages[index]
        if kind == "drop":
            del messages[index]
        elif kind == "repeat":
            messages.insert(self.random.randint(index, len(messages)), part)
        elif kind == "older":
            messages = self.stream[self.random.randrange(len(self.stream)):]
        elif kind == "cut":
            messages[index] = part.copy(body=part.body[:self.random.randrange(len(part.body))])
        elif kind == "flip":
            at = self.random.randrange(len(part.body))
            flipped = part.body[at] ^ 1 << self.random.randrange(8)
            messages[index] = part.copy(body=part.body[:at] + bytes([flipped]) + part.body[at + 1:])
        elif kind == "mix":
            self.random.shuffle(messages)
        else:
            other = self.random.choice(self.stream)
            field = self.random.choice(["source", "upto", "schema", "last", "number"])
            messages[index] = part.copy(**{field: getattr(other, field)})
        return messages, True

    def judge(self, messages, answers, isFaulty, former):
        for message, answer in zip(messages, answers):
            isExcused = isFaulty or answer[0] in ("applied", "partial", "skipped")
            if answer[0] in RESETS and (self.excuse or message.schema != self.schema or self.has_null_keys()):
                return self.place("replace")
            if answer[0] == "error" and answer[1] == "malformed_batch" and isFaulty:
                continue
            if answer[0] == "error" or not isExcused:
                raise Problem("an answer without a reason", f"{answer} to {message.number} from {message.source} upto "
                              f"{message.upto} at {former[0]}")
        now = self.verify(former)
        if not isFaulty and self.stream and int(now[0].split(".")[2]) < int(self.stream[-1].upto.split(".")[2]):
            raise Problem("a replica that stays behind", f"{now[0]} instead of {self.stream[-1].upto}: {answers}")
        if not isFaulty and all(answer[0] == "skipped" for answer in answers) and now[1] != former[1]:
            raise Problem("a change though nothing was applied", f"{difference(former[1], now[1])}")

    def has_null_keys(self):
        """Returns whether SQLite has let a NULL into a key of the home, which it doesn't accept again."""
        connection = sqlite3.connect(self.home)
        found = connection.execute("PRAGMA quick_check(1)").fetchall()
        connection.close()
        return found != [("ok",)]

    def intrude(self):
        """Writes to the replica as another program, which has to stop it."""
        connection = sqlite3.connect(self.replica, isolation_level=None, timeout=10)
        connection.text_factory = bytes
        before = position(self.replica), connection.execute("SELECT max(number) FROM GS_CHANGE").fetchone()
        tables = [row[0].decode() for row in connection.execute(
            "SELECT DISTINCT tbl_name FROM sqlite_schema WHERE type='trigger' AND name GLOB 'GS_[0-9]*_I'")]
        for name in tables:
            try:
                connection.execute(self.random.choice([f"INSERT OR REPLACE INTO {quoted(name)} DEFAULT VALUES", f"DELETE FROM {quoted(name)}"]))
            except sqlite3.Error:
                pass
        wrote = connection.execute("SELECT max(number) FROM GS_CHANGE").fetchone() != before[1]
        connection.close()
        if not wrote:
            return
        content = read(self.replica)
        self.publish()
        answers = [self.follower.apply(message) for message in self.choose(before[0], False)[0]]
        for answer in answers:
            if answer[:2] != ["error", "diverged"] and answer[0] != "skipped":
                raise Problem("a divergence that nobody sees", f"{answer}")
        if read(self.replica) != content:
            raise Problem("a divergence that is written over", f"{difference(content, read(self.replica))}")
        self.follower.close()
        self.follower = None
        for end in ("", "-wal", "-shm"):
            if os.path.exists(self.replica + end):
                os.unlink(self.replica + end)
        self.counts["intrusions"] += 1
        self.place("create")

    def play(self):
        self.before = self.random.random() < 0.3
        features = draw_features(self.random, FEATURES_LEFT_OUT)
        self.writers = [self.open()]
        if self.options.utf16:
            features.discard("utf16")
            self.execute(self.writers[0], f"PRAGMA encoding='{self.random.choice(['UTF-16le', 'UTF-16be'])}'")
        for sql in SchemaWriter(self.random, features).statements() + SAME_SCHEMA + (UTF16_TABLES if self.options.utf16 else []):
            self.execute(self.writers[0], sql)
        for sql in self.random.sample(values.ODD_TABLES, self.random.randint(0, 3)) + self.random.sample(NASTY_TABLES, self.random.randint(0, 5)):
            self.execute(self.writers[0], sql)
        if self.random.random() < 0.3:
            made, self.virtual = self.random.choice(VIRTUAL_TABLES)
            for sql in made:
                self.execute(self.writers[0], sql)
        if self.random.random() < 0.7:
            self.execute(self.writers[0], "PRAGMA journal_mode=WAL")
            self.writers += [self.open() for _ in range(self.random.randint(0, 2))]
        self.enable()
        self.source = Actor(self.actor, "source", self.home)
        self.place("create")
        drawn = Statements(self.random, features, self.writers[0])
        for _ in range(self.options.statements):
            self.write(drawn)
            choice = self.random.random()
            if choice < 0.12:
                self.deliver()
            elif choice < 0.17:
                self.publish()
            elif choice < 0.18:
                self.intrude()
            elif choice < 0.185:
                self.place("replace")
        self.settle()
        self.deliver()
        self.deliver()

    def close(self):
        for actor in (self.source, self.follower):
            if actor:
                actor.kill()
        for writer in self.writers:
            writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groupstore")
    parser.add_argument("actor")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=1 << 60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", type=int, help="play the round of this seed alone")
    parser.add_argument("--statements", type=int, default=150)
    parser.add_argument("--utf16", action="store_true", help="stores in UTF-16 only, with texts that UTF-8 can't say")
    parser.add_argument("--keep", metavar="DIR", help="keep the statements and files of rounds with problems there")
    options = parser.parse_args()
    totals, problems, rounds, end = Counter(), Counter(), 0, time.monotonic() + options.seconds
    base = tempfile.mkdtemp(prefix="replica-adversary-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    try:
        while rounds < options.rounds and time.monotonic() < end:
            seed = options.seed + rounds if options.only is None else options.only
            rounds += 1
            directory = os.path.join(base, str(seed))
            os.mkdir(directory)
            round, found = Round(options, directory, seed), None
            try:
                round.play()
            except sqlite3.DatabaseError as error:
                # SQLite can't read its own schema any more, or not with trusted_schema off.
                totals["skipped"] += 1
                if options.only is not None:
                    print(f"skipped: {error} {traceback.format_exc()[-800:]}")
            except Skip as skipped:
                totals["skipped"] += 1
                if options.only is not None:
                    print(f"skipped: {skipped}")
            except Problem as problem:
                found = problem.kind, str(problem)
            except Exception:
                found = "exception", traceback.format_exc()[-1500:]
            if found:
                problems[found[0]] += 1
                print(f"seed {seed} {found[1][:1200]}", flush=True)
            totals.update(round.counts)
            round.close()
            if options.keep and (found or options.only is not None):
                os.makedirs(options.keep, exist_ok=True)
                with open(os.path.join(options.keep, f"{seed}.sql"), "w", encoding="utf-8", errors="surrogateescape") as out:
                    out.write(";\n".join(round.script))
                shutil.copytree(directory, os.path.join(options.keep, str(seed)), dirs_exist_ok=True)
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
