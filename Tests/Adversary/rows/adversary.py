"""Random transactions on random schemas, beside a program that reports row differences from outside.

After each commit the program is asked for its differences. Three things must hold:
 1. replay: the program's records, applied to the records known before, give SQL's content of every table;
 2. truth: each "before" is the record known before, and each table whose definition is the same
    has exactly the differences that SQL's content before and after the commit has, no more, no fewer;
 3. boundaries: as many transactions as commits, unless the program says that it merged some ("net") or lost some ("gap").

A program that reads states while nothing writes is asked by `poll` alone; `hold` precedes a commit in rollback mode.
"""
import argparse
import json
import marshal
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque

from records import Table
from snapshot import difference, flat, quote, schema, snapshot

SCHEMA = Table("sqlite_schema_x", "CREATE TABLE s(type TEXT, name TEXT, tbl_name TEXT, rootpage INT, sql TEXT)")


class Program:
    def __init__(self, path, db, options):
        self.p = subprocess.Popen([path, db, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.p.stdout.readline() == "R\n"

    def ask(self, command):
        """[(kind, [(old, new, [(op, rowid, before, after)])])]; old and new: (name, root) or None"""
        self.p.stdin.write(command + "\n")
        self.p.stdin.flush()
        out = []
        while True:
            line = self.p.stdout.readline()
            if not line:
                raise RuntimeError("program ended: " + self.p.stderr.read())
            f = line.split()
            if f[0] in ("OK", "NO"):
                return out
            if f[0] == "BADMAP":
                out.append(("badmap", []))
            elif f[0] == "X":
                out.append((f[1], []))
            elif f[0] == "T":
                side = lambda a: None if a[0] == "-" else (a[2], int(a[0]))
                out[-1][1].append((side(f[1:4]), side(f[4:7]), []))
            elif f[0] != "E":
                b = lambda x: None if x == "." else b"" if x == "-" else bytes.fromhex(x)
                out[-1][1][-1][2].append((f[0], int(f[1]), b(f[2]), b(f[3])))

    def end(self):
        try:
            self.p.stdin.write("quit\n")
            self.p.stdin.close()
        except BrokenPipeError:
            pass
        err = self.p.stderr.read()
        self.p.wait()
        return err


class Wrong(Exception):
    pass


class Checker:
    def __init__(self, db, encoding):
        self.encoding = encoding
        self.cache = {}
        self.raw = {}
        self.decoded = {}
        self.state(db)

    def table(self, name, sql):
        key = (name, sql)
        if key not in self.cache:
            self.cache[key] = Table(name, sql)
        return self.cache[key]

    def state(self, db):
        self.tables = {n: self.table(n, s) for n, (s, _) in schema(db).items()}
        self.content = snapshot(db, self.tables)
        return self.tables, self.content

    def reload(self, db):
        """After a gap: the records can't be known; rows are compared again as they are reported."""
        self.state(db)
        self.raw = {n: None for n in self.tables}
        self.decoded = {}

    def name(self, side):
        return None if side is None else bytes.fromhex(side[0]).decode(self.encoding) if side[1] != 1 else "sqlite_schema"

    def check(self, db, transactions, merged):
        before_tables, before = self.tables, self.content
        raw = dict(self.raw)
        touched = {}
        for _, tables in transactions:
            taken = {}
            for old, new, _ in tables:            # names may be exchanged in one transaction
                o, n = self.name(old), self.name(new)
                if o is not None and o in raw and o != n:
                    taken[o] = raw.pop(o)
            for old, new, rows in tables:
                o, n = self.name(old), self.name(new)
                t = taken[o] if o in taken else raw.get(o) if o is not None else {}
                if n == "sqlite_schema" or o == "sqlite_schema":
                    touched.setdefault("sqlite_schema", []).append(rows)
                    continue
                touched.setdefault(n, []).append(rows)
                if t is not None:
                    t = dict(t)
                    for op, r, b, a in rows:
                        if op in "DU":
                            if t.pop(r, None) != b:
                                raise Wrong(f"{o} {r}: before isn't what was known")
                        if op in "IU":
                            if r in t:
                                raise Wrong(f"{n} {r}: inserted twice")
                            t[r] = a
                        if op == "d":
                            if b not in t:
                                raise Wrong(f"{o}: deleted record unknown")
                            t.pop(b)
                        if op == "i":
                            if a in t:
                                raise Wrong(f"{n}: inserted record twice")
                            t[a] = a
                if n is not None:
                    raw[n] = t
        tables, after = self.state(db)
        self.raw = {n: raw.get(n, {}) for n in tables}
        exchanged = {self.name(s) for _, ts in transactions for o, n, _ in ts if o and n and self.name(o) != self.name(n) or not o or not n for s in (o, n) if s}
        self.decoded = {n: d for n, d in self.decoded.items() if n in before_tables and n not in exchanged}
        for n, t in tables.items():
            k = self.raw[n]
            if k is None:
                continue
            was = self.decoded.get(n)
            if not os.environ.get("FULL") and was and was[0] is t:                        # only what changed is decoded
                got = was[1]
                for rs in touched.get(n, []):
                    for op, r, b, a in rs:
                        if b is not None:
                            got.pop(flat(t.row(r, b, self.encoding)) if t.without_rowid else r, None)
                    for op, r, b, a in rs:
                        if a is not None:
                            row = flat(t.row(r, a, self.encoding))
                            got[row if t.without_rowid else r] = row
            else:
                got = {}
                for r, p in k.items():
                    row = flat(t.row(r, p, self.encoding))
                    got[row if t.without_rowid else r] = row
            self.decoded[n] = (t, got)
            if got != after[n]:
                d = difference(after[n], got)
                raise Wrong(f"replay of {n}: {len(d)} rows differ, e.g. {str(next(iter(d.items())))[:600]} sql {t.sql}")
        if merged > 1:
            return
        for n in list(tables) + ["sqlite_schema"]:
            t = SCHEMA if n == "sqlite_schema" else tables[n]
            if n != "sqlite_schema" and (n not in before_tables or before_tables[n].sql != t.sql):
                continue
            want = difference(before[n], after[n])
            if t.without_rowid:
                want = (Counter(v[0] for v in want.values() if v[0]), Counter(v[1] for v in want.values() if v[1]))
                rows = [x for rs in touched.get(n, []) for x in rs]
                row = lambda p: flat(t.row(0, p, self.encoding))
                got = (Counter(row(b) for op, _, b, _ in rows if op == "d"), Counter(row(a) for op, _, _, a in rows if op == "i"))
            else:
                got = {}
                row = lambda r, p: None if p is None else flat(t.row(r, p, self.encoding))
                for rs in touched.get(n, []):
                    for op, r, b, a in rs:
                        o = got[r][0] if r in got else row(r, b)
                        got[r] = (o, row(r, a))
            if got != want and t.without_rowid:
                same = got[0] & got[1]                     # another encoding of the same values
                STAT["same_values_other_record"] += sum(same.values())
                got = (got[0] - same, got[1] - same)
            if got != want:
                if not t.without_rowid:
                    extra = {k: v for k, v in got.items() if want.get(k) != v}
                    if all(v[0] == v[1] for k, v in extra.items() if k not in want) and all(got.get(k) == v for k, v in want.items()):
                        STAT["same_values_other_record"] += len(extra)   # another encoding of the same values
                        continue
                raise Wrong(f"difference of {n}: got {str(got)[:800]} want {str(want)[:800]} sql {t.sql}")


STAT = Counter()


class Storm:
    def __init__(self, rnd, path, mode):
        self.r, self.path, self.mode = rnd, path, mode
        self.names = 0
        self.extra = 0
        self.page_size = rnd.choice([512, 512, 1024, 1024, 2048, 4096, 4096, 8192, 32768, 65536])
        self.encoding = rnd.choice(["UTF-8"] * 3 + ["UTF-16le", "UTF-16be"])
        self.vacuum = rnd.choice([0, 0, 1, 2])
        self.connect(True)

    def connect(self, first=False):
        self.db = sqlite3.connect(self.path, isolation_level=None)
        self.db.text_factory = lambda b: b.decode("utf-8", "surrogateescape")
        self.log = deque(maxlen=400)
        if os.environ.get("TRACE"):
            self.db.set_trace_callback(lambda x: self.log.append(x) if not x.startswith(("SELECT", "PRAGMA table")) else None)
        e = self.db.execute
        if first:
            e(f"PRAGMA page_size={self.page_size}")
            e(f"PRAGMA encoding='{self.encoding}'")
            e(f"PRAGMA auto_vacuum={self.vacuum}")
        e(f"PRAGMA journal_mode={self.mode}")
        e(f"PRAGMA synchronous={self.r.choice(['off', 'off', 'off', 'normal'])}")
        e(f"PRAGMA secure_delete={self.r.choice(['off', 'off', 'on', 'fast'])}")
        e(f"PRAGMA cache_size={self.r.choice([5, 20, 2000])}")
        e(f"PRAGMA wal_autocheckpoint={self.r.choice([1000, 1000, 20, 0])}")
        e(f"PRAGMA foreign_keys=0")
        if first:
            e("CREATE TABLE start(a)")

    def value(self, kind=None):
        r = self.r
        k = kind or r.choice(["int", "int", "text", "text", "blob", "real", "null", "long", "whole"])
        if k == "int":
            return r.choice([0, 1, r.randrange(-130, 130), r.randrange(-2**31, 2**31), r.randrange(-2**63, 2**63)])
        if k == "real":
            return r.choice([r.random() * 1e6, 1e300, -2.5, float("inf")])
        if k == "whole":
            return float(r.randrange(-1000, 1000))
        if k == "null":
            return None
        n = r.choice([0, 3, 20, 100]) if k != "long" else r.choice([r.randrange(self.page_size * 3), r.randrange(20000), self.page_size, 100000 if r.random() < .1 else 3000])
        if k == "blob" or k == "long" and r.random() < .5:
            return r.randbytes(n)
        return "".join(r.choice("abcdef äßx€𝄞 0123") for _ in range(n)) if n < 500 else ("%d" % r.randrange(10**9) * (n // 9 + 1))[:n]

    def create(self):
        r = self.r
        self.names += 1
        n = r.choice([f"t{self.names}", f"t{self.names}", f'T "{self.names}', f"tä{self.names}"])
        q = quote(n)
        kind = r.choice(["ipk", "ipk", "rowid", "rowid", "wr", "wr", "wr1", "strict", "gen", "auto", "unique", "desc", "fts", "real"])
        sql = {
            "ipk": f"CREATE TABLE {q}(id INTEGER PRIMARY KEY, a, b TEXT, c BLOB, r REAL)",
            "rowid": f"CREATE TABLE {q}(a, b TEXT, c BLOB, r REAL)",
            "wr": f"CREATE TABLE {q}(v, k2 INT, k1 TEXT COLLATE NOCASE, r REAL, c, PRIMARY KEY(k1, k2)) WITHOUT ROWID",
            "wr1": f"CREATE TABLE {q}(a, id INTEGER PRIMARY KEY, b) WITHOUT ROWID",
            "strict": f"CREATE TABLE {q}(id INTEGER PRIMARY KEY, a ANY, b TEXT, c BLOB, r REAL) STRICT",
            "gen": f"CREATE TABLE {q}(id INTEGER PRIMARY KEY, a, g AS (typeof(a)), b TEXT, s REAL AS (length(b)) STORED, c)",
            "auto": f"CREATE TABLE {q}(id INTEGER PRIMARY KEY AUTOINCREMENT, a, b DEFAULT 'x')",
            "unique": f"CREATE TABLE {q}(a UNIQUE, b TEXT, c, UNIQUE(b, c))",
            "desc": f"CREATE TABLE {q}(id INTEGER PRIMARY KEY DESC, a, b)",
            "fts": f"CREATE VIRTUAL TABLE {q} USING fts5(a, b)",
            "real": f"CREATE TABLE {q}(id INTEGER PRIMARY KEY, x DOUBLE, y FLOAT, z NUMERIC, w DECIMAL(5,2))",
        }[kind]
        self.db.execute(sql)
        if r.random() < .3 and kind != "fts":
            c = self.columns(n)[-1]
            self.db.execute(f"CREATE INDEX {quote('i' + n)} ON {q}({quote(c)})")

    def columns(self, t):
        return [c[1] for c in self.db.execute(f"PRAGMA table_xinfo({quote(t)})") if c[6] == 0]

    def list(self):
        return [(n, t, w) for _, n, t, _, w, _ in self.db.execute("PRAGMA table_list") if not n.startswith("sqlite_") and t in ("table", "virtual") and _ is not None]

    def rows(self, t, k):
        r = self.r
        cols = self.columns(t)
        q = ", ".join(map(quote, cols))
        conflict = r.choice(["OR IGNORE", "OR REPLACE", "OR REPLACE"])
        big = r.random() < .1
        for _ in range(k):
            v = []
            for c in cols:
                if c == "id":
                    v.append(None if r.random() < .5 else r.choice([r.randrange(1, 500), r.randrange(1, 10**6)]))
                elif c in ("k1",):
                    v.append(self.value("text"))
                elif c == "k2":
                    v.append(r.randrange(50))
                else:
                    v.append(self.value("long" if big and r.random() < .3 else r.choice(["int", "text", "real", "whole", "blob", "null"])))
            try:
                self.db.execute(f"INSERT {conflict} INTO {quote(t)}({q}) VALUES({', '.join('?' * len(v))})", v)
            except sqlite3.Error as e:
                STAT["refused"] += 1

    def statement(self):
        r, e = self.r, self.db.execute
        tables = self.list()
        if len(tables) < 3 or (len(tables) < 9 and r.random() < .05):
            return self.create()
        t, kind, wr = r.choice(tables)
        q = quote(t)
        op = r.random()
        key = "rowid" if not wr else ("k1" if "k1" in self.columns(t) else self.columns(t)[0])
        some = f"(SELECT {key} FROM {q} ORDER BY random() LIMIT {r.choice([1, 1, 3, 20])})"
        c = quote(r.choice(self.columns(t)))
        count = e(f"SELECT count(*) FROM {q}").fetchone()[0]
        if op < .40:
            self.rows(t, r.choice([1, 1, 2, 5, 30, 200 if count < 1500 else 1]))
        elif op < .55:
            e(f"UPDATE OR IGNORE {q} SET {c}=? WHERE {key} IN {some}", (self.value(),))
        elif op < .62:
            e(f"UPDATE OR REPLACE {q} SET {c}=randomblob(length({c})) WHERE {key} IN {some} AND typeof({c})='blob'")
        elif op < .66 and kind == "table" and not wr and hasattr(self.db, "blobopen"):      # in place, without a statement
            x = e(f"SELECT rowid, length({c}) FROM {q} WHERE typeof({c})='blob' AND length({c})>0 ORDER BY length({c}) DESC LIMIT 1").fetchone()
            if x and self.columns(t) and not (c == '"id"'):
                with self.db.blobopen(t, c.strip('"').replace('""', '"'), x[0]) as b:
                    b.seek(r.randrange(x[1]))
                    b.write(r.randbytes(1))
        elif op < .74:
            e(f"DELETE FROM {q} WHERE {key} IN {some}")
        elif op < .78 and not wr:
            e(f"DELETE FROM {q} WHERE rowid > (SELECT rowid FROM {q} ORDER BY random() LIMIT 1) AND rowid < (SELECT max(rowid) FROM {q})")
        elif op < .80:
            e(f"DELETE FROM {q}")
        elif op < .83 and not wr and kind == "table":
            e(f"UPDATE OR REPLACE {q} SET rowid=rowid+{r.choice([1, -1, 1000])} WHERE rowid IN {some}")
        elif op < .84:
            e(f"DROP TABLE {q}")
        elif op < .86 and kind == "table":
            self.names += 1
            d = r.choice(["", "DEFAULT 5", "DEFAULT 'xÄ'", "REAL DEFAULT 3", "INT DEFAULT '7'", "TEXT DEFAULT 8", "NOT NULL DEFAULT x'00ff'", "DEFAULT -1.5", "DEFAULT TRUE", "AS (1+1)"])
            if "STRICT" in (e("SELECT sql FROM sqlite_schema WHERE name=?", (t,)).fetchone()[0] or ""):
                d = "ANY " + d.replace("REAL", "").replace("INT ", "").replace("TEXT", "")
            e(f"ALTER TABLE {q} ADD COLUMN n{self.names} {d}")
        elif op < .87 and kind == "table":
            self.names += 1
            e(f"ALTER TABLE {q} RENAME TO r{self.names}")
        elif op < .88 and kind == "table":
            self.names += 1
            x = [x for x in self.columns(t) if x not in ("id", "k1", "k2")]
            if x:
                e(f"ALTER TABLE {q} RENAME COLUMN {quote(r.choice(x))} TO m{self.names}")
        elif op < .89 and kind == "table":
            x = [x for x in self.columns(t) if x[0] in "nm"]
            if x:
                e(f"ALTER TABLE {q} DROP COLUMN {quote(r.choice(x))}")
        elif op < .90 and kind == "table":                 # recreated within the transaction
            sql = e("SELECT sql FROM sqlite_schema WHERE name=? AND type='table'", (t,)).fetchone()
            if sql and sql[0]:
                cs = ", ".join(map(quote, self.columns(t)))
                e(f"CREATE TEMP TABLE keep AS SELECT {cs} FROM {q} ORDER BY random()")
                e(f"DROP TABLE {q}")
                e(sql[0])
                e(f"INSERT OR REPLACE INTO {q}({cs}) SELECT {cs} FROM keep")
                e("DROP TABLE temp.keep")
        elif op < .91:
            e(f"PRAGMA incremental_vacuum({r.choice([1, 5, 1000])})").fetchall()
        elif op < .92 and kind == "table":
            self.names += 1
            e(f"CREATE INDEX x{self.names} ON {q}({c})")
        elif op < .93:
            x = e("SELECT name FROM sqlite_schema WHERE type='index' AND sql IS NOT NULL ORDER BY random() LIMIT 1").fetchone()
            if x:
                e(f"DROP INDEX {quote(x[0])}")
        elif op < .94:
            e(f"UPDATE {q} SET {c}={c}")
        elif op < .95:
            e("ANALYZE")
        elif op < .96 and len(tables) > 1:                 # names exchanged
            o = r.choice([x for x in tables if x[0] != t])
            if kind == "table" == o[1]:
                e(f"ALTER TABLE {q} RENAME TO swap_swap")
                e(f"ALTER TABLE {quote(o[0])} RENAME TO {q}")
                e(f"ALTER TABLE swap_swap RENAME TO {quote(o[0])}")
        else:
            self.rows(t, 1)

    def transaction(self, before_commit):
        """True if it committed."""
        r, e = self.r, self.db.execute
        if r.random() < .02:
            try:
                e("VACUUM")
                STAT["vacuum"] += 1
                return True
            except sqlite3.Error:
                return False
        if r.random() < .01:
            e(f"PRAGMA auto_vacuum={r.choice([0, 1, 2])}")     # may commit a transaction of its own
            self.extra += 1
        e("BEGIN IMMEDIATE")
        for _ in range(r.choice([1, 1, 1, 2, 3, 8])):
            save = r.random() < .1
            try:
                if save:
                    e("SAVEPOINT s")
                self.statement()
                if save and r.random() < .5:
                    e("ROLLBACK TO s")
                if save:
                    e("RELEASE s")
            except (sqlite3.Error, sqlite3.Warning, ValueError) as x:
                STAT["errors"] += 1
                if not self.db.in_transaction:
                    return False
        before_commit()
        if r.random() < .05:
            e("ROLLBACK")
            return False
        e("COMMIT")
        return True

    def between(self):
        r = self.r
        x = r.random()
        if self.mode == "wal" and x < .05:
            self.db.execute(f"PRAGMA wal_checkpoint({r.choice(['PASSIVE', 'FULL', 'RESTART', 'TRUNCATE'])})").fetchall()
        elif x < .07:
            self.db.close()
            self.connect()
        elif x < .09:
            self.db.execute(f"PRAGMA cache_size={r.choice([5, 20, 2000])}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="DifferenceActor")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--commits", type=int, default=10**9)
    parser.add_argument("--mode", default="wal", choices=["wal", "delete", "persist", "truncate", "memory", "off"])
    parser.add_argument("--keep", help="copy the files of a store with a problem here")
    parser.add_argument("--trace", type=int, help="print so many of a problem's last statements")
    arguments = parser.parse_args()
    program, seed, mode, options = arguments.program, arguments.seed, arguments.mode, ["--check"]
    end = time.time() + arguments.seconds
    os.environ.update({k: str(v) for k, v in (("TRACE", arguments.trace), ("KEEP", arguments.keep)) if v})
    bad = 0
    kinds = Counter()
    while time.time() < end and STAT["commits"] < arguments.commits:
        rnd = random.Random(seed)
        d = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        path = os.path.join(d, "s.db")
        s = Storm(rnd, path, mode)
        p = Program(program, path, options)
        c = Checker(s.db, {"UTF-8": "utf-8", "UTF-16le": "utf-16-le", "UTF-16be": "utf-16-be"}[s.encoding])
        c.raw = {n: {} for n in c.tables}
        STAT["stores"] += 1
        try:
            for _ in range(250):
                if time.time() > end or STAT["commits"] >= arguments.commits:
                    break
                before_commit = (lambda: p.ask("hold")) if mode != "wal" else (lambda: None)
                commits = s.extra = 0
                for _ in range(1 if mode != "wal" or rnd.random() < .8 else rnd.randrange(2, 5)):
                    commits += s.transaction(before_commit)
                changes = p.ask("poll")
                for k, ts in changes:
                    kinds[k] += 1
                    s.log.append(f"   > {k} {[(c.name(o), o and o[1], c.name(n), n and n[1], dict(Counter(r[0] for r in rs))) for o, n, rs in ts]}")
                if any(k == "badmap" for k, _ in changes):
                    raise Wrong("the page map isn't what the pages say")
                if any(k in ("gap", "lost") for k, _ in changes):
                    c.reload(s.db)
                    STAT["gap"] += 1
                else:
                    if any(k == "net" for k, _ in changes):
                        STAT["merged"] += 1
                    elif len(changes) > commits + s.extra:
                        raise Wrong(f"{len(changes)} transactions for {commits} commits")
                    c.check(s.db, changes, commits + s.extra)
                STAT["commits"] += commits
                STAT["transactions_reported"] += len(changes)
                STAT["rows_reported"] += sum(len(r) for _, ts in changes for _, _, r in ts)
                s.between()
                if rnd.random() < .3 or mode != "wal":
                    changes = p.ask("poll")
                    if changes and any(ts for _, ts in changes):
                        raise Wrong("a change without a commit")
        except Wrong as w:
            bad += 1
            if os.environ.get("TRACE"):
                for x in list(s.log)[-int(os.environ["TRACE"]):]:
                    print("   ", x[:150].replace("\n", " "))
            if os.environ.get("KEEP"):
                shutil.copytree(d, os.environ["KEEP"], dirs_exist_ok=True)
            print(f"WRONG seed {seed} page {s.page_size} {s.encoding} vacuum {s.vacuum}: {w}", flush=True)
            if bad > 5:
                break
        except RuntimeError as w:
            bad += 1
            print(f"ENDED seed {seed} page {s.page_size}: {w}", flush=True)
        finally:
            err = p.end()
            if bad and err:
                print(err[-1500:])
            s.db.close()
            shutil.rmtree(d)
        seed += 1
    print(json.dumps({"mode": mode, "sqlite": sqlite3.sqlite_version, "wrong": bad, **STAT, "kinds": kinds}))
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
