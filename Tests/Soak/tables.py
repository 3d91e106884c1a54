"""Checks whether `tables` of a change is right: runs random transactions on stores of random schemas, and compares
each with the tables' content before and after it.

usage: tables.py GROUPSTORE [--direct] [--rollback] [--transactions N] [--seed S] [--per-store K]
                 [--require-complete SHARE]

The changes are an agent's, or with --direct those of `groupstore watch --direct`. With --rollback, the stores have
rollback journals of each kind instead of write-ahead logs.

It is an error if a change that claims to be complete omits a changed table. Prints a table of the events,
and how much of it was complete.
"""

import argparse
import collections
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time

from feeds import AgentFeed, DirectFeed

ROLLBACK_MODES = ["DELETE", "DELETE", "TRUNCATE", "PERSIST", "PERSIST"]
PAGE_SIZES = [512, 1024, 2048, 4096, 4096, 8192, 16384, 32768, 65536]


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


class Store:
    """One store, its writers, and what its tables hold."""

    def __init__(self, path, dice, modes=("WAL",)):
        self.path, self.dice, self.mode = path, dice, dice.choice(modes)
        self.number = 0
        self.page_size = dice.choice(PAGE_SIZES)
        self.auto_vacuum = dice.choice([0, 0, 1, 2])
        self.encoding = dice.choice(["UTF-8", "UTF-8", "UTF-16le", "UTF-16be"])
        first = sqlite3.connect(path, isolation_level=None)
        first.execute(f"PRAGMA page_size = {self.page_size}")
        first.execute(f"PRAGMA encoding = '{self.encoding}'")
        first.execute(f"PRAGMA auto_vacuum = {self.auto_vacuum}")
        first.execute(f"PRAGMA journal_mode = {self.mode}")
        first.execute("CREATE TABLE anchor (id INTEGER PRIMARY KEY, text)")
        first.close()
        self.open()
        for _ in range(dice.randint(2, 5)):
            self.create_table()
        self.content = self.read()

    def open(self):
        self.writers = [self.connect() for _ in range(2)]
        self.writer = self.writers[0]
        # Sees every commit of the others; its reads are the oracle.
        self.reader = self.connect()
        self.version = self.data_version()

    def connect(self):
        connection = sqlite3.connect(self.path, isolation_level=None, timeout=10)
        if self.mode != "WAL":
            connection.execute(f"PRAGMA journal_mode = {self.mode}")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"PRAGMA cache_size = {self.dice.choice([-2000, 10])}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {self.dice.choice([1000] * 9 + [20])}")
        connection.execute("PRAGMA recursive_triggers = ON")
        return connection

    def close(self):
        for connection in [*self.writers, self.reader]:
            connection.close()

    def data_version(self):
        return self.reader.execute("PRAGMA data_version").fetchone()[0]

    def salt(self):
        """Returns the log's salt; it changes when the log restarts."""
        try:
            with open(self.path + "-wal", "rb") as log:
                return log.read(32)[16:24]
        except FileNotFoundError:
            return b""

    # State

    def tables(self):
        """Returns our ordinary tables and their columns."""
        rows = self.writer.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall()
        virtual = [name for name, sql in rows if sql.startswith("CREATE VIRTUAL")]
        return [name for name, sql in rows
                if name not in virtual and not any(name.startswith(other + "_") for other in virtual)]

    def virtual_tables(self, module):
        return [row[0] for row in self.writer.execute(
            "SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE % USING ' || ? || '(%'", [module])]

    def columns(self, table):
        return [row[1] for row in self.writer.execute(f"PRAGMA table_info({quoted(table)})")]

    def read(self):
        """Returns a hash of each table's content, and of the schema."""
        result = {}
        self.reader.execute("BEGIN")
        schema = self.reader.execute("SELECT * FROM sqlite_schema").fetchall()
        result["sqlite_schema"] = hash(tuple(schema))
        for kind, name, _, root, sql in schema:
            if kind != "table":
                continue
            # Reads in the order of the table's own b-tree; without a rowid SQLite chooses any index by the statistics.
            source = quoted(name) + (" NOT INDEXED" if root else "")
            try:
                cursor = self.reader.execute(f"SELECT rowid, * FROM {source}")
                rows = cursor.fetchall()
            except sqlite3.OperationalError:
                cursor = self.reader.execute(f"SELECT * FROM {source}")
                rows = sorted(cursor.fetchall(), key=repr)
            names = tuple(column[0] for column in cursor.description)
            result[name] = hash((names, tuple(rows)))
        self.reader.execute("COMMIT")
        return result

    # Actions

    def name(self, prefix):
        self.number += 1
        spice = self.dice.choice(["", "", "", " x", "é", "'q", "_content", "Using", "long" * 20])
        return f"{prefix}{self.number}{spice}"

    def value(self):
        dice = self.dice
        kind = dice.random()
        if kind < 0.3:
            return dice.randint(-2**40, 2**40)
        if kind < 0.4:
            return None
        if kind < 0.85:
            return "w" * dice.randint(0, 60) + str(dice.randint(0, 99))
        if kind < 0.97:
            return dice.randbytes(dice.randint(0, 3000))
        return dice.randbytes(dice.randint(3000, 40000))

    def create_table(self):
        name, dice = self.name("t"), self.dice
        columns = ["a", "b", "c"][:dice.randint(1, 3)]
        kind = dice.randint(0, 5)
        body = ", ".join(columns)
        if kind == 0:
            sql = f"(id INTEGER PRIMARY KEY, {body})"
        elif kind == 1:
            sql = f"(id INTEGER PRIMARY KEY AUTOINCREMENT, {body})"
        elif kind == 2:
            sql = f"(k PRIMARY KEY, {body}) WITHOUT ROWID"
        elif kind == 3:
            sql = f"(k, l, {body}, PRIMARY KEY (l, k)) WITHOUT ROWID"
        elif kind == 4:
            sql = f"({body}, UNIQUE (a))"
        else:
            sql = f"({body})"
        self.writer.execute(f"CREATE TABLE {quoted(name)} {sql}")
        for _ in range(dice.randint(0, 2)):
            self.create_index(name)

    def create_index(self, table=None):
        table = table or self.dice.choice(self.tables())
        column = quoted(self.dice.choice(self.columns(table)))
        extra = self.dice.choice(["", "", f" WHERE {column} IS NOT NULL"])
        self.writer.execute(f"CREATE INDEX {quoted(self.name('i'))} ON {quoted(table)} ({column}){extra}")

    def insert(self, table=None, count=None):
        table = table or self.dice.choice(self.tables())
        columns = [column for column in self.columns(table) if column != "id"]
        count = count or self.dice.choice([1, 1, 1, 2, 5, 30])
        marks = ", ".join("?" * len(columns))
        names = ", ".join(map(quoted, columns))
        word = self.dice.choice(["INSERT OR IGNORE", "INSERT OR REPLACE"])
        rows = [[self.value() if column not in "kl" else self.dice.randint(0, 400) for column in columns]
                for _ in range(count)]
        self.writer.executemany(f"{word} INTO {quoted(table)} ({names}) VALUES ({marks})", rows)

    def some_rows(self, table):
        column = quoted(self.dice.choice(self.columns(table)))
        return f"{column} IN (SELECT {column} FROM {quoted(table)} ORDER BY random() LIMIT {self.dice.choice([1, 1, 3, 40])})"

    def update(self):
        table = self.dice.choice(self.tables())
        column = quoted(self.dice.choice([c for c in self.columns(table) if c not in ("id", "k", "l")] or ["a"]))
        self.writer.execute(
            f"UPDATE OR IGNORE {quoted(table)} SET {column} = ? WHERE {self.some_rows(table)}", [self.value()])

    def delete(self):
        table = self.dice.choice(self.tables())
        where = self.some_rows(table) if self.dice.random() < 0.9 else "1"
        self.writer.execute(f"DELETE FROM {quoted(table)} WHERE {where}")

    def trim(self):
        """Bounds the oracle's work."""
        for table in self.tables():
            if self.writer.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()[0] > 150:
                self.writer.execute(f"DELETE FROM {quoted(table)} WHERE {self.some_rows(table)}")

    def write_blob(self):
        """Changes a few bytes in the middle of a value, possibly only one overflow page."""
        for table in self.dice.sample(self.tables(), len(self.tables())):
            for column in self.columns(table):
                try:
                    row = self.writer.execute(
                        f"SELECT rowid, length({quoted(column)}) FROM {quoted(table)} WHERE typeof({quoted(column)}) = 'blob' "
                        f"ORDER BY length({quoted(column)}) DESC LIMIT 1").fetchone()
                    if row and row[1]:
                        with self.writer.blobopen(table, column, row[0]) as blob:
                            place = self.dice.randrange(row[1])
                            blob[place] = (blob[place] + 1) % 256
                        return
                except sqlite3.OperationalError:
                    continue

    def create_trigger(self):
        one, other = self.dice.choice(self.tables()), self.dice.choice(self.tables())
        event = self.dice.choice(["INSERT", "UPDATE", "DELETE"])
        self.writer.execute(
            f"CREATE TRIGGER {quoted(self.name('g'))} AFTER {event} ON {quoted(one)} "
            f"WHEN (SELECT count(*) FROM anchor) < 100 "
            f"BEGIN INSERT INTO anchor (text) VALUES ({self.dice.choice(['1', 'randomblob(2000)'])}); END")

    def drop_trigger(self):
        self.drop("trigger")

    def drop(self, kind):
        names = [row[0] for row in self.writer.execute(
            "SELECT name FROM sqlite_schema WHERE type = ? AND name NOT LIKE 'sqlite_%' AND name <> 'anchor'", [kind])]
        names = [name for name in names if kind != "table" or name in self.tables()]
        if names and (kind != "table" or len(names) > 2):
            self.writer.execute(f"DROP {kind} {quoted(self.dice.choice(names))}")

    def drop_table(self):
        self.drop("table")

    def drop_index(self):
        self.drop("index")

    def create_text_index(self):
        if len(self.virtual_tables("fts5")) >= 3:
            return self.drop_text_index()
        name = self.name("f")
        options = self.dice.choice(["", "", ", content=''", ", content=anchor, content_rowid=id"])
        self.writer.execute(f"CREATE VIRTUAL TABLE {quoted(name)} USING fts5(text{options})")
        if not options and self.dice.random() < 0.3:
            vocabulary = quoted(self.name("v"))
            self.writer.execute(
                "CREATE VIRTUAL TABLE " + vocabulary + " USING fts5vocab('" + name.replace("'", "''") + "', 'row')")

    def drop_text_index(self):
        names = self.virtual_tables("fts5vocab") + self.virtual_tables("fts5")
        if names:
            self.writer.execute(f"DROP TABLE {quoted(names[0])}")

    def write_text_index(self):
        for name in self.virtual_tables("fts5"):
            words = " ".join(self.dice.choices(["alpha", "beta", "gamma", "delta", str(self.dice.random())], k=20))
            self.writer.execute(f"INSERT INTO {quoted(name)} (text) VALUES (?)", [words])
            if self.dice.random() < 0.1:
                self.writer.execute(f"INSERT INTO {quoted(name)} ({quoted(name)}) VALUES ('optimize')")

    def create_box(self):
        if not self.virtual_tables("rtree"):
            self.writer.execute(f"CREATE VIRTUAL TABLE {quoted(self.name('r'))} USING rtree(id, x0, x1)")

    def write_box(self):
        for name in self.virtual_tables("rtree"):
            low = self.dice.random()
            self.writer.execute(f"INSERT INTO {quoted(name)} (x0, x1) VALUES (?, ?)", [low, low + 1])

    def set_version(self):
        self.writer.execute(f"PRAGMA user_version = {self.dice.randint(1, 10**6)}")

    def rollback_part(self):
        """Leaves pages in the log that nobody may count."""
        self.writer.execute("SAVEPOINT part")
        self.insert(count=60)
        self.create_table()
        self.writer.execute("ROLLBACK TO part")
        self.writer.execute("RELEASE part")

    def alter(self):
        table, dice = self.dice.choice(self.tables()), self.dice
        kind = dice.randint(0, 3)
        if kind == 0 and table != "anchor":
            self.writer.execute(f"ALTER TABLE {quoted(table)} RENAME TO {quoted(self.name('n'))}")
        elif kind == 1:
            self.writer.execute(f"ALTER TABLE {quoted(table)} ADD COLUMN {quoted(self.name('c'))} DEFAULT 7")
        elif kind == 2 and "b" in self.columns(table):
            self.writer.execute(f"ALTER TABLE {quoted(table)} RENAME COLUMN b TO {quoted(self.name('d'))}")
        elif "c" in self.columns(table):
            self.writer.execute(f"ALTER TABLE {quoted(table)} DROP COLUMN c")

    ORDINARY = [
        (30, insert), (15, update), (12, delete), (6, write_blob), (3, write_text_index), (2, write_box), (2, set_version),
        (3, rollback_part), (1, create_trigger), (1, drop_trigger), (2, create_table), (2, drop_table), (1, create_index),
        (1, drop_index), (1, create_text_index), (1, create_box),
    ]

    def ordinary(self):
        """Runs one transaction of a few statements; now and then rolls it back."""
        self.writer = self.dice.choice(self.writers)
        if self.writer.execute("SELECT count(*) FROM anchor").fetchone()[0] > 90:
            self.writer.execute("DELETE FROM anchor")
        self.writer.execute("BEGIN IMMEDIATE")
        weights, steps = zip(*self.ORDINARY)
        for step in self.dice.choices(steps, weights, k=self.dice.choice([1, 1, 1, 2, 4])):
            self.attempt(step)
        self.trim()
        self.writer.execute("ROLLBACK" if self.dice.random() < 0.03 else "COMMIT")
        return "ordinary"

    def attempt(self, step):
        """Tries a statement; one that the present schema does not allow changes nothing."""
        self.writer.execute("SAVEPOINT step")
        try:
            step(self)
        except sqlite3.Error:
            self.writer.execute("ROLLBACK TO step")
        self.writer.execute("RELEASE step")

    def altering(self):
        self.writer.execute("BEGIN IMMEDIATE")
        self.attempt(Store.alter)
        self.attempt(Store.insert)
        self.writer.execute("COMMIT")
        return "ALTER"

    def vacuum(self):
        self.writer.execute("VACUUM")
        return "VACUUM"

    def incremental_vacuum(self):
        self.writer.execute("PRAGMA incremental_vacuum(5)").fetchall()
        return "incremental vacuum"

    def checkpoint(self):
        kind = self.dice.choice(["PASSIVE", "FULL", "RESTART", "TRUNCATE"])
        self.dice.choice(self.writers).execute(f"PRAGMA wal_checkpoint({kind})")
        return self.ordinary()

    def analyze(self):
        self.writer.execute("ANALYZE")
        return "ANALYZE"

    def burst(self):
        """Makes several commits that may share one event."""
        for _ in range(self.dice.randint(2, 10)):
            self.ordinary()
        return "several"

    def reopen(self):
        """Closes the store as the last program; another one opens it."""
        self.close()
        self.open()
        self.ordinary()
        return "reopened"

    def one_shot(self):
        """Opens the store, commits once and closes it, while nobody else has it open."""
        self.close()
        subprocess.run(
            ["sqlite3", "-batch", "-bail", "-init", "/dev/null", self.path, "INSERT INTO anchor (text) VALUES ('once')"],
            check=True, stdin=subprocess.DEVNULL)
        self.open()
        return "one-shot program"

    def rollback_mode(self):
        """Switches the journal mode back and forth."""
        self.close()
        one = sqlite3.connect(self.path, isolation_level=None)
        one.execute(f"PRAGMA journal_mode = {'DELETE' if self.mode == 'WAL' else 'WAL'}")
        one.execute("INSERT INTO anchor (text) VALUES ('journal')")
        one.execute(f"PRAGMA journal_mode = {self.mode}")
        one.close()
        self.open()
        return "other mode"

    STEPS = [
        (900, ordinary), (15, altering), (4, vacuum), (10, incremental_vacuum), (40, checkpoint), (3, analyze),
        (15, burst), (6, reopen), (4, one_shot), (1, rollback_mode),
    ]

    def step(self):
        """Takes a random action; returns its name, whether it was committed, and which tables it changed."""
        weights, steps = zip(*self.STEPS)
        salt = self.salt()
        reader = self.reader
        kind = self.dice.choices(steps, weights)[0](self)
        version = self.data_version()
        committed = version != self.version or reader is not self.reader
        self.version = version
        if salt != self.salt() and kind == "ordinary":
            kind = "log began anew"
        before, self.content = self.content, self.read()
        names = before.keys() | self.content.keys()
        return kind, committed, {name for name in names if before.get(name) != self.content.get(name)}


class Tally:
    def __init__(self):
        self.all = collections.Counter()
        self.complete = collections.Counter()
        self.named = self.changed = 0
        self.errors = []

    def print(self):
        print("| what | changes | complete | |\n| --- | --: | --: | --: |")
        for kind, count in self.all.most_common():
            print(f"| {kind} | {count} | {self.complete[kind]} | {self.complete[kind] / count:.2%} |")
        print(f"\n{self.named} tables named in complete changes, {self.changed} of them changed; "
              f"{len(self.errors)} missing")


def check(subscriber, store, tally, where):
    kind, committed, changed = store.step()
    if not committed and not changed:
        return
    told, is_complete = set(), True
    # A program that reopened the store may have changed nothing. A busy machine may stall for seconds.
    patience = 60 if changed else 0.3
    while True:
        event = subscriber.line(patience)
        if event is None:
            break
        if event.get("type") not in ("change", "reset"):
            continue
        told |= set(event.get("tables", []))
        is_complete = is_complete and event.get("complete", False)
        # Several commits may need several changes; a late change may belong to the former transaction.
        if not is_complete or changed <= told:
            if not is_complete:
                patience = 0
                continue
            if not (kind == "several" or store.dice.random() < 0.01):
                break
            patience = 0.05
        else:
            patience = 60
    tally.all[kind] += 1
    if is_complete:
        tally.complete[kind] += 1
        tally.named += len(told)
        tally.changed += len(told & changed)
    if is_complete and not changed <= told:
        tally.errors.append(f"{where}: {kind}: changed {sorted(changed)}, told {sorted(told)}")
        print(tally.errors[-1], file=sys.stderr)


def run_store(number, options, feed, tally):
    seed = f"{options.seed}-{number}"
    name = f"Soak{number}.sqlite"
    path = os.path.join(feed.directory, name)
    store = Store(path, random.Random(seed), ROLLBACK_MODES if options.rollback else ["WAL"])
    subscriber = feed.subscribe(name)
    try:
        for count in range(options.per_store):
            if sum(tally.all.values()) >= options.transactions:
                break
            check(subscriber, store, tally, f"seed {seed}, step {count}, page size {store.page_size}, "
                                            f"auto_vacuum {store.auto_vacuum}, {store.encoding}, {store.mode}")
    finally:
        subscriber.close()
        store.close()
        for end in ["", "-wal", "-shm", "-journal"]:
            if os.path.exists(path + end):
                os.remove(path + end)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("groupstore")
    parser.add_argument("--direct", action="store_true", help="watch the stores without an agent")
    parser.add_argument("--rollback", action="store_true", help="use rollback journals of each kind")
    parser.add_argument("--transactions", type=int, default=100_000)
    parser.add_argument("--per-store", type=int, default=500)
    parser.add_argument("--seed", default=str(random.randrange(10**9)))
    parser.add_argument("--first-store", type=int, default=0)
    parser.add_argument("--require-complete", type=float, default=0.99,
                        help="share of the ordinary transactions whose changes are complete")
    options = parser.parse_args()
    print(f"tables: seed {options.seed}", file=sys.stderr)
    tally = Tally()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="groupstore-soak-", dir=os.environ.get("GROUPSTORE_SOAK_PLACE")) as place:
        directory = os.path.join(place, "group")
        os.mkdir(directory)
        feed = (DirectFeed if options.direct else AgentFeed)(options.groupstore, directory, os.path.join(place, "socket"))
        try:
            number = options.first_store
            while sum(tally.all.values()) < options.transactions:
                run_store(number, options, feed, tally)
                number += 1
        finally:
            feed.end()
    tally.print()
    print(f"{sum(tally.all.values())} transactions, seed {options.seed}, {time.monotonic() - began:.0f} s")
    share = tally.complete["ordinary"] / max(1, tally.all["ordinary"])
    if tally.errors or share < options.require_complete:
        raise SystemExit(f"tables: {len(tally.errors)} tables missing, {share:.2%} of ordinary changes complete")


if __name__ == "__main__":
    main()
