"""Runs rounds that need more than statements: tokens and what may become of them, and several writers at once."""

import os
import random as randoms
import shutil
import signal
import sqlite3
import time

from oracle import Oracle, Recorded, key_of_json
from twins import Problem, connect, schema

SCHEMA = [
    "CREATE TABLE t(id INTEGER PRIMARY KEY, a, u UNIQUE)",
    "CREATE TABLE w(k TEXT COLLATE NOCASE, l, v, PRIMARY KEY(k, l)) WITHOUT ROWID",
    "CREATE TABLE n(a, b UNIQUE ON CONFLICT REPLACE)",
    "CREATE TABLE c(id INTEGER PRIMARY KEY, t REFERENCES t(id) ON DELETE CASCADE ON UPDATE CASCADE, x)",
]


def some_write(r):
    i, v = r.randint(1, 12), r.randint(1, 12)
    return r.choice([
        f"INSERT OR REPLACE INTO t(id, a, u) VALUES ({i}, {v}, {v})", f"INSERT OR REPLACE INTO t(a, u) VALUES ({i}, {v})",
        f"UPDATE OR REPLACE t SET u={v} WHERE id={i}", f"UPDATE OR IGNORE t SET id={v} WHERE id={i}", f"DELETE FROM t WHERE id={i}",
        f"INSERT OR IGNORE INTO t(id, a, u) VALUES ({i}, 'i', {v})", f"INSERT INTO t(id, a, u) VALUES ({i}, 1, {v}) ON CONFLICT DO UPDATE SET a=a+1",
        f"REPLACE INTO w VALUES ('{'aAbB'[i % 4]}', {v % 4}, {i})", f"UPDATE OR REPLACE w SET k='{'aAbB'[v % 4]}' WHERE l={i % 4}",
        f"DELETE FROM w WHERE l={i % 4}", f"INSERT INTO n VALUES ({i}, {v})", f"UPDATE n SET b={v} WHERE a={i}", f"DELETE FROM n WHERE a={i}",
        f"INSERT OR REPLACE INTO c(t, x) SELECT id, {v} FROM t LIMIT 2", f"UPDATE c SET x={v}", f"DELETE FROM c WHERE x={v}",
    ])


def write(connection, r, count):
    for _ in range(count):
        try:
            connection.execute(some_write(r))
        except sqlite3.IntegrityError:
            pass


def snapshot(connection):
    """Returns each table's rows by key, by the table's name."""
    names = [bytes(row[0]).decode() for row in connection.execute(
        "SELECT name FROM main.sqlite_schema WHERE type='table' AND name IN ('t','w','n','c')")]
    tables = {}
    for name in names:
        table = Recorded(connection, -1, name)
        tables[name] = (table, table.rows(connection))
    return tables


def compare(before, now, lines, what):
    """Compares the reported rows with the difference of two snapshots, one change of a row at a time."""
    gaps = {line.get("table") for line in lines if line["type"] == "reset" and line.get("reason") == "history_gap"}
    for name, (table, after) in now.items():
        if name in gaps:
            continue
        earlier, was = before.get(name, (None, {}))
        comparable = earlier is not None and earlier.columns == table.columns
        ops = {}
        for line in lines:
            if line["type"] == "row" and line["table"] == name:
                ops.setdefault(key_of_json(line["key"]), []).append((line["op"], line.get("columns")))
        for key in set(was) | set(after) | set(ops):
            found = Oracle.judge_row(None, table, key, was.get(key), after.get(key), ops.get(key, []), False)
            if found is None and comparable and not ops.get(key) and was.get(key) != after.get(key):
                found = ("missed update", "nothing told")
            if found:
                raise Problem(found[0], -1, f"{what}: table {name} key {key}: {found[1]}")


def ask(program, store, token, paged, r):
    """Returns all lines after a token, in one answer or by pages."""
    lines = []
    while True:
        code, got, errors = program.changes(store, token, r.randint(1, 5) if paged else 1000000)
        if code != 0 or not got:
            raise Problem("changes fails", -1, f"exit {code}: {got} {errors}"[:300])
        lines += got[:-1]
        token = got[-1].get("token")
        if not got[-1].get("more"):
            return lines, token


def tokens(program, directory, r):
    """Follows tokens across purges, another history, a restored backup, VACUUM and schema changes."""
    store, backup = os.path.join(directory, "tokens.sqlite"), os.path.join(directory, "backup.sqlite")
    for path in (store, backup):
        for tail in ("", "-wal", "-shm", "-journal"):
            if os.path.exists(path + tail):
                os.unlink(path + tail)
    c = connect(store)
    c.execute(f"PRAGMA journal_mode={r.choice(['WAL', 'DELETE'])}")
    for sql in SCHEMA:
        c.execute(sql)
    if program.enable(store)[0] != 0:
        return Problem("enable fails", -1, "tokens")
    kept, log, saved = [], [], None
    try:
        for _ in range(r.randint(8, 16)):
            action = r.choice(["write"] * 5 + ["purge", "again", "backup", "restore", "vacuum", "schema", "reenable", "journal", "author", "purge"])
            log.append(action)
            if action == "write":
                c.execute("BEGIN")
                write(c, r, r.randint(1, 12))
                c.execute(r.choice(["COMMIT"] * 4 + ["ROLLBACK"]))
            elif action == "author":
                name = r.choice(["me", "it's", "日本", ""])
                code, got, _ = program.changes(store, None, 1000000)
                first = max([l["number"] for l in got if "number" in l] or [0])
                c.execute("BEGIN IMMEDIATE")
                c.execute("UPDATE GS_AUTHOR SET name=?", (name,))
                write(c, r, 6)
                c.execute("UPDATE GS_AUTHOR SET name=NULL")
                c.execute("COMMIT")
                for line in program.changes(store, None, 1000000)[1]:
                    if line["type"] == "row" and line["number"] > first and line.get("author") != name:
                        raise Problem("wrong author", -1, f"{line} instead of {name!r}")
            elif action == "purge":
                code, got, errors = program.purge(store, "--keep", str(r.choice([0, 1, 2, 5, 20])))
                if code != 0:
                    raise Problem("purge fails", -1, f"{got} {errors}"[:300])
            elif action == "again":
                program.disable(store)
                if [row for row in schema(c) if "GS_" in row[1]]:
                    raise Problem("disable leaves a trace", -1, str(log))
                write(c, r, r.randint(0, 5))
                program.enable(store)
            elif action == "backup":
                copy = sqlite3.connect(backup)
                with copy:
                    c.backup(copy)
                copy.close()
                saved = True
            elif action == "restore" and saved:
                c.close()
                for tail in ("-wal", "-shm", "-journal"):
                    if os.path.exists(store + tail):
                        os.unlink(store + tail)
                shutil.copyfile(backup, store)
                c = connect(store)
                if r.random() < 0.8:
                    write(c, r, r.randint(1, 30))
            elif action == "vacuum":
                c.execute("VACUUM")
                if r.random() < 0.7:
                    program.enable(store)
            elif action == "schema":
                try:
                    c.execute(r.choice([
                        f"ALTER TABLE t ADD COLUMN x{len(log)}", "CREATE INDEX IF NOT EXISTS i1 ON t(a)", "DROP INDEX IF EXISTS i1",
                        "CREATE UNIQUE INDEX IF NOT EXISTS i2 ON c(x, t)", "DROP INDEX IF EXISTS i2"]))
                except sqlite3.Error:
                    pass
                program.enable(store)
            elif action == "reenable":
                program.enable(store)
            elif action == "journal":
                c.execute(f"PRAGMA journal_mode={r.choice(['WAL', 'DELETE', 'TRUNCATE', 'PERSIST'])}")
            check(program, store, c, kept, log, r)
    except Problem as problem:
        problem.detail = f"{problem.detail} [{' '.join(log)}]"
        return problem
    finally:
        c.close()
    return None


def check(program, store, c, kept, log, r):
    """Asks with some old tokens, and takes a new token."""
    now = snapshot(c)
    for token, before, place in r.sample(kept, min(len(kept), 2)):
        lines, _ = ask(program, store, token, r.random() < 0.3, r)
        resets = [l["reason"] for l in lines if l["type"] == "reset" and l["reason"] != "history_gap"]
        if resets:
            between = set(log[place:])
            due = {"history_trimmed": {"purge"}, "epoch": {"again", "restore"}}
            if resets[0] not in due:
                raise Problem("unexpected reset", -1, f"{resets}")
            if not due[resets[0]] & between and not (resets[0] == "history_trimmed" and "restore" in between):
                raise Problem(f"needless reset {resets[0]}", -1, f"token of step {place}")
            if len(lines) > 1:
                raise Problem("rows beside a reset", -1, str(lines)[:300])
            continue
        # Without a reset, a restored or renumbered store must still be reported exactly.
        unsure = {"vacuum", "again"} & set(log[place:])
        comparable = {k: v for k, v in now.items() if not (k == "n" and unsure)}
        compare(before, comparable, lines, f"token of step {place}, now step {len(log)}")
    code, lines, errors = program.run("changes", store, "--json", "--now")
    if code != 0:
        raise Problem("changes fails", -1, f"--now: {errors}")
    kept.append((lines[-1]["token"], now, len(log)))


def writers(program, directory, r):
    """Runs processes that write at the same time, and kills some of them in a transaction."""
    store = os.path.join(directory, "writers.sqlite")
    for tail in ("", "-wal", "-shm", "-journal"):
        if os.path.exists(store + tail):
            os.unlink(store + tail)
    c = connect(store)
    c.execute(f"PRAGMA journal_mode={r.choice(['WAL', 'WAL', 'DELETE'])}")
    for sql in SCHEMA:
        c.execute(sql)
    write(c, r, 20)
    c.close()
    program.enable(store)
    c = connect(store)
    before = snapshot(c)
    token = program.run("changes", store, "--json", "--now")[1][-1]["token"]
    seeds = [r.random() for _ in range(3)]
    kills = [r.random() < 0.6 for _ in seeds]
    c.close()
    children = [start_writer(store, seed) for seed in seeds]
    end = time.monotonic() + 0.6
    enabling = r.random() < 0.3
    while time.monotonic() < end:
        code, lines, errors = program.changes(store, token)
        if code not in (0, 75):
            stop(children, [True] * 3)
            return Problem("changes fails beside writers", -1, f"exit {code} {lines[-1:]} {errors}"[:300])
        if enabling and r.random() < 0.3:
            program.enable(store)
    stop(children, kills)
    c = connect(store)
    try:
        compare(before, snapshot(c), ask(program, store, token, False, r)[0], "writers")
        bad = c.execute("PRAGMA integrity_check").fetchone()[0]
        if bytes(bad) != b"ok":
            return Problem("integrity differs", -1, str(bad))
    except Problem as problem:
        return problem
    finally:
        c.close()
    return None


def start_writer(store, seed):
    pid = os.fork()
    if pid:
        return pid
    try:
        r = randoms.Random(seed)
        c = sqlite3.connect(store, isolation_level=None, timeout=30)
        c.execute(f"PRAGMA recursive_triggers={r.choice(['ON', 'OFF'])}")
        c.execute(f"PRAGMA foreign_keys={r.choice(['ON', 'OFF'])}")
        c.execute("PRAGMA synchronous=OFF")
        running = [True]
        signal.signal(signal.SIGTERM, lambda *_: running.clear())
        while running:
            c.execute("BEGIN IMMEDIATE")
            write(c, r, r.randint(1, 30))
            c.execute(r.choice(["COMMIT"] * 5 + ["ROLLBACK"]))
    finally:
        os._exit(0)


def stop(children, kills):
    for pid, kill in zip(children, kills):
        os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
    for pid in children:
        os.waitpid(pid, 0)


ALL = {"tokens": tokens, "writers": writers}


def pick(random):
    return random.choice(["twins"] * 6 + sorted(ALL))
