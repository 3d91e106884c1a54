"""Writers at full speed beside `groupstore watch --direct --json --values` on a store that keeps no history.

What the program prints is replayed over the rows known at the start. Each `before` must be the row that is known, each
step's number must follow the last one, and at the end the rows must be SQL's. No run of the watcher tells a step that isn't
after its token file's, or after the last one that it has told. The watcher is killed and started again with its token file;
the store is checkpointed, vacuumed, switched to other journal modes and copied over. With --flips, bits of the watcher's
own files are flipped: then only the order of steps and resets is checked, and that the watcher goes on.

usage: live.py GROUPSTORE [--mode wal|delete|persist|truncate] [--writers N] [--seconds S] [--pause MS] [--kills]
               [--chaos] [--shots] [--flips] [--seed N] [--page-size N] [--pragma P] [--directory DIR] [--keep]
"""
import argparse
import base64
import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter

TABLES = {
    "note": ("CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT, body, modified REAL)", "id", "id, title, body, modified"),
    "word": ("CREATE TABLE word (text TEXT PRIMARY KEY, n INT, x) WITHOUT ROWID", "text", "text, n, x"),
    "plain": ("CREATE TABLE plain (a, b)", "rowid", "a, b"),
}


def shown(value):
    """A value as the program prints it."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and value.is_integer():
        return {"real": repr(value)}
    return value


def text(value):
    return json.dumps(value, sort_keys=True)


def content(path):
    db = sqlite3.connect(path, timeout=60)
    db.execute("BEGIN")
    rows = {
        (name, text(shown(row[0]))): text([shown(v) for v in row[1:]])
        for name, (_, key, columns) in TABLES.items()
        for row in db.execute(f"SELECT {key}, {columns} FROM {name}")
    }
    db.close()
    return rows


def write(db, rng):
    """One random transaction."""
    for _ in range(rng.choice((1, 1, 1, 2, 5, 40))):
        n, body = rng.randrange(400), rng.choice((None, 7, 2.0, "text", os.urandom(rng.choice((3, 200, 9000)))))
        db.execute(*rng.choice((
            ("INSERT OR REPLACE INTO note VALUES (?, ?, ?, ?)", (n, f"title {rng.random()}", body, n)),
            ("INSERT OR REPLACE INTO note VALUES (?, ?, ?, ?)", (n, f"title {rng.random()}", body, n)),
            ("UPDATE note SET body = ?, modified = modified + 0.5 WHERE id % 37 = ?", (body, n % 37)),
            ("DELETE FROM note WHERE id BETWEEN ? AND ?", (n, n + rng.choice((0, 0, 30)))),
            ("INSERT OR REPLACE INTO word VALUES (?, ?, ?)", (f"word {n}", n, body)),
            ("UPDATE word SET n = n + 1 WHERE text = ?", (f"word {n}",)),
            ("DELETE FROM word WHERE n % 50 = ?", (n % 50,)),
            ("INSERT INTO plain VALUES (?, ?)", (rng.random(), body)),
            ("DELETE FROM plain WHERE rowid IN (SELECT rowid FROM plain LIMIT ?)", (rng.choice((1, 20)),)),
        )))


def writer(path, mode, pause, shots, seed, stop, count):
    rng = random.Random(seed)
    db = None
    while not stop.is_set():
        try:
            if db is None:
                db = sqlite3.connect(path, timeout=60, isolation_level=None)
                if mode != "wal":
                    db.execute(f"PRAGMA journal_mode = {mode}")
                db.execute(f"PRAGMA cache_size = {rng.choice((5, 2000))}")
                db.execute("PRAGMA synchronous = OFF")
            db.execute("BEGIN IMMEDIATE")
            write(db, rng)
            if rng.random() < 0.1:
                db.execute("ROLLBACK")
            else:
                db.execute("COMMIT")
                count.value += 1
        except sqlite3.OperationalError:
            if db is not None and db.in_transaction:
                db.execute("ROLLBACK")
        if shots and db is not None:
            db.close()
            db = None
        if pause:
            time.sleep(rng.random() * 2 * pause / 1000)
    if db is not None:
        db.close()


def position(line):
    """The epoch and the step of a line's token."""
    _, epoch, step, *_ = line["token"].split("-")
    return epoch, int(step)


class Replay:
    """The rows that the program has told."""

    def __init__(self, rows, step, is_followed=True):
        self.rows, self.step, self.is_followed = rows, step, is_followed
        self.position = None
        self.kinds, self.problems, self.told = Counter(), [], 0
        self.pending = []

    def take(self, line):
        kind = line["type"]
        epoch, step = position(line) if "token" in line else (None, None)
        if kind == "watching":
            self.position = epoch, step
        elif kind in ("change", "reset") and "branch" not in line:
            if (epoch, kind) == (self.position[0], "change") and step <= self.position[1]:
                self.problems.append(f"a run tells step {step} after {self.position[1]}")
            elif epoch != self.position[0] and kind == "change":
                self.problems.append(f"a run tells step {step} of another copy without a reset")
            self.position = epoch, step
        if kind == "row":
            self.pending.append(line)
        elif kind == "change" and "branch" in line:
            self.kinds["branch"] += 1
        elif kind == "change" and not self.is_followed:
            self.kinds["change"] += 1
            self.pending = []
        elif kind == "change":
            if step <= self.step:
                self.kinds["repeated"] += 1
            else:
                if step != self.step + 1:
                    self.problems.append(f"step {step} after {self.step}")
                for row in self.pending:
                    self.apply(row, step)
                self.kinds["net" if any(r["transaction"].get("net") for r in self.pending) else "exact"] += 1
                self.step = step
            self.pending = []
        elif kind == "reset":
            self.kinds["reset " + line["reason"]] += 1
            self.pending = []

    def apply(self, row, step):
        self.told += 1
        if row["transaction"]["id"] != step:
            self.problems.append(f"a row of {row['transaction']} in step {step}")
        key = row["table"], text(row["key"])
        before = text(row["before"]) if "before" in row else None
        if self.rows.get(key) != before:
            self.problems.append(f"step {step} {row['op']} {key}: before {before and before[:80]}, known {str(self.rows.get(key))[:80]}")
        if row["op"] == "delete":
            self.rows.pop(key, None)
        else:
            self.rows[key] = text(row["values"])


class Watcher:
    def __init__(self, program, path, home):
        self.out = open(os.path.join(home, "out"), "ab")
        self.lines = open(os.path.join(home, "out"), "rb")
        self.command = [program, "watch", "--direct", path, "--json", "--values", "--token-file", os.path.join(home, "token")]
        self.environment = dict(os.environ, XDG_STATE_HOME=os.path.join(home, "state"))
        self.rest = b""
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.out, stderr=subprocess.PIPE, env=self.environment)

    def kill(self):
        """Returns the last lines. The one that it was writing is cut off."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        lines = self.read()
        os.ftruncate(self.out.fileno(), self.lines.tell() - len(self.rest))
        self.lines.seek(-len(self.rest), 1)
        self.rest = b""
        return lines

    def read(self):
        parts = (self.rest + self.lines.read()).split(b"\n")
        self.rest = parts.pop()
        return [json.loads(p) for p in parts if p.startswith(b"{") and p.endswith(b"}")]


def chaos(path, rng, mode):
    action = rng.choice(("checkpoint", "checkpoint", "vacuum", "mode", "read"))
    db = sqlite3.connect(path, timeout=20, isolation_level=None)
    try:
        if action == "checkpoint":
            db.execute(f"PRAGMA wal_checkpoint({rng.choice(('PASSIVE', 'FULL', 'RESTART', 'TRUNCATE'))})").fetchall()
        elif action == "vacuum":
            # The rowids of a table without an INTEGER PRIMARY KEY change.
            db.execute("VACUUM")
        elif action == "mode":
            other = rng.choice(("wal", "delete", mode))
            db.execute(f"PRAGMA journal_mode = {other}").fetchall()
        else:
            db.execute("SELECT count(*) FROM note").fetchall()
    except sqlite3.OperationalError:
        pass
    db.close()


def flip(home, rng):
    """Flips a bit of each copy, and sometimes of a log of rows."""
    for place, _, names in os.walk(os.path.join(home, "state")):
        for name in names:
            if name != "pages" and not (name.startswith("log-") and rng.random() < 0.3):
                continue
            try:
                with open(os.path.join(place, name), "r+b") as file:
                    size = os.fstat(file.fileno()).st_size
                    offset = rng.randrange(max(0, size - 200_000), max(1, size))
                    file.seek(offset)
                    byte = file.read(1)
                    file.seek(offset)
                    file.write(bytes(b ^ 1 for b in byte))
            except FileNotFoundError:
                pass


def copy_over(path, rng, home):
    """Copies an earlier state over the store, which nobody has open."""
    backup = os.path.join(home, "backup.db")
    if os.path.exists(backup) and rng.random() < 0.5:
        for end in ("-wal", "-shm", "-journal"):
            if os.path.exists(path + end):
                return
        with open(backup, "rb") as source, open(path, "r+b") as target:
            target.write(source.read())
            target.truncate()
    else:
        db = sqlite3.connect(path, timeout=20)
        with sqlite3.connect(backup) as target:
            db.backup(target)
        target.close()
        db.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--mode", default="wal")
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--pause", type=float, default=3)
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--chaos", action="store_true")
    parser.add_argument("--shots", action="store_true")
    parser.add_argument("--flips", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page-size", type=int, default=4096)
    parser.add_argument("--pragma", action="append", default=[], help="of the new store, such as encoding='UTF-16'")
    parser.add_argument("--directory")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    home = tempfile.mkdtemp(dir=options.directory)
    path = os.path.join(home, "s.db")
    db = sqlite3.connect(path, isolation_level=None)
    db.execute(f"PRAGMA page_size = {options.page_size}")
    for pragma in options.pragma:
        db.execute(f"PRAGMA {pragma}")
    db.execute(f"PRAGMA journal_mode = {options.mode}")
    for creation, _, _ in TABLES.values():
        db.execute(creation)
    rng = random.Random(options.seed)
    for _ in range(50):
        db.execute("BEGIN")
        write(db, rng)
        db.execute("COMMIT")
    db.close()
    watcher = Watcher(options.program, path, home)
    watcher.start()
    opening = []
    while not opening:
        opening = watcher.read()
        if watcher.process.poll() is not None:
            sys.exit(watcher.process.stderr.read().decode())
        time.sleep(0.01)
    replay = Replay(content(path), position(opening[0])[1], not options.flips)
    for line in opening:
        replay.take(line)
    stop, count = multiprocessing.Event(), [multiprocessing.Value("i") for _ in range(options.writers)]

    def begin():
        stop.clear()
        found = [
            multiprocessing.Process(
                target=writer, args=(path, options.mode, options.pause, options.shots, rng.random(), stop, count[i]))
            for i in range(options.writers)
        ]
        for process in found:
            process.start()
        return found

    def end(processes):
        stop.set()
        for process in processes:
            process.join()

    processes, kills, lag = begin(), 0, 0
    until = time.time() + options.seconds
    while time.time() < until:
        time.sleep(rng.random() * 0.4)
        for line in watcher.read():
            replay.take(line)
        if options.flips:
            flip(home, rng)
        if options.kills and rng.random() < 0.3:
            for line in watcher.kill():
                replay.take(line)
            replay.pending = []
            kills += 1
            time.sleep(rng.random() * 0.5)
            watcher.start()
        if options.chaos:
            if rng.random() < 0.5:
                chaos(path, rng, options.mode)
            if rng.random() < 0.15:
                end(processes)
                copy_over(path, rng, home)
                processes = begin()
    end(processes)
    wanted = content(path) if replay.is_followed else replay.rows
    ended = time.time()
    while replay.rows != wanted and time.time() < ended + 20:
        if watcher.process.poll() is not None:
            replay.problems.append("the watcher ended: " + watcher.process.stderr.read().decode())
            break
        time.sleep(0.02)
        for line in watcher.read():
            replay.take(line)
    if watcher.process.poll() is not None and not replay.problems:
        replay.problems.append("the watcher ended: " + watcher.process.stderr.read().decode())
    lag = time.time() - ended
    differing = sum(replay.rows.get(k) != wanted.get(k) for k in set(replay.rows) | set(wanted))
    watcher.process.terminate()
    watcher.process.wait()
    commits = sum(c.value for c in count)
    resets = sum(n for kind, n in replay.kinds.items() if kind.startswith("reset"))
    print(
        f"{options}: {commits} commits, {kills} kills, told {dict(replay.kinds)}, {replay.told} rows, "
        f"{len(replay.problems)} problems, {differing} rows differ at the end, {lag:.2f} s behind")
    for problem in replay.problems[:10]:
        print("  ", problem)
    if options.keep or replay.problems or differing:
        print("   kept", home)
    else:
        shutil.rmtree(home)
    sys.exit(1 if replay.problems or differing or resets and replay.is_followed else 0)


if __name__ == "__main__":
    main()
