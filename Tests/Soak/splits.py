"""Random splits of a store between programs, and `groupstore rescue`: every acknowledged row is in the result, or in the
plan's list of rows in conflict.

    python3 Tests/Soak/splits.py PROGRAM --rounds 500 --seed 7 --parallel 2 [--only 12] [--keep]

Two to four programs have the store open, in WAL and in rollback mode. Its log, its database, or all its files are removed or
replaced under them while they write; programs, rescues and `rescue --copy-only` are killed. Each program acknowledges a row
once its transaction is committed. What a killed program had committed after its last copy is lost, as documented, and isn't
expected. A transaction that is open must not show.
"""

import argparse
import collections
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile


def hold(path, mode, requests, answers):
    """A program that has the store open: it answers a line for each request."""
    store = sqlite3.connect(path, isolation_level=None, timeout=0.3)
    store.execute(f"PRAGMA journal_mode = {mode}").fetchall()
    store.execute("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, v TEXT)")
    store.execute("CREATE TABLE IF NOT EXISTS k (k TEXT PRIMARY KEY, v TEXT) WITHOUT ROWID")
    store.execute("SELECT count(*) FROM t").fetchall()
    print('"ready"', file=answers, flush=True)
    for line in requests:
        verb, *words = json.loads(line)
        try:
            if verb == "insert":
                store.execute("BEGIN IMMEDIATE")
                for key, value in words[0]:
                    store.execute("INSERT INTO t VALUES (?, ?)", (key, value))
                    store.execute("INSERT INTO k VALUES (?, ?)", (f"k{key}", value))
                store.execute("COMMIT")
                answer = "done"
            elif verb == "update":
                store.execute("BEGIN IMMEDIATE")
                old = store.execute("SELECT v FROM t WHERE id = ?", (words[0],)).fetchone()
                store.execute("INSERT INTO t VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET v = excluded.v", words)
                store.execute("COMMIT")
                answer = ["old", old and old[0]]
            elif verb == "begin":
                store.execute("BEGIN IMMEDIATE")
                store.execute("PRAGMA cache_size = 1")
                store.executemany("INSERT INTO t VALUES (?, ?)", [(key, "uncommitted" * 300) for key in words[0]])
                answer = "done"
            elif verb == "checkpoint":
                store.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                answer = "done"
            else:
                store.close()
                answer = "closed"
        except sqlite3.Error as error:
            if store.in_transaction and verb != "begin":
                store.execute("ROLLBACK")
            answer = ["error", str(error)]
        print(json.dumps(answer), file=answers, flush=True)


class Program:
    """A program with the store open. `rows` and `values` are what it was told is committed."""

    def __init__(self, path, mode, number):
        self.number, self.rows, self.values, self.saved = number, {}, {}, None
        self.has_transaction = False
        requests, answers = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            # Without other programs' pipes: each must see the end of its own.
            low, high = sorted((requests[0], answers[1]))
            for first, last in ((3, low), (low + 1, high), (high + 1, 1024)):
                os.closerange(first, last)
            try:
                hold(path, mode, os.fdopen(requests[0]), os.fdopen(answers[1], "w"))
            finally:
                os._exit(0)
        os.close(requests[0])
        os.close(answers[1])
        self.requests, self.answers = os.fdopen(requests[1], "w"), os.fdopen(answers[0])
        self.is_open = self.answers.readline() == '"ready"\n'
        if not self.is_open:
            self.end()

    def ask(self, *words):
        print(json.dumps(words), file=self.requests, flush=True)
        return json.loads(self.answers.readline())

    def end(self):
        self.requests.close()
        self.answers.close()
        os.waitpid(self.pid, 0)
        self.is_open = False

    def insert(self, keys):
        rows = [(key, f"p{self.number}-{key}-" + "x" * random.choice((1, 50, 3000))) for key in keys]
        answer = self.ask("insert", rows)
        if answer == "done":
            self.rows.update(rows)
        return answer

    def close(self):
        if self.is_open:
            self.ask("close")
            self.end()

    def kill(self):
        if self.is_open:
            os.kill(self.pid, signal.SIGKILL)
            self.end()


class Round:
    def __init__(self, options, number):
        self.random = random.Random(f"{options.seed} {number}")
        random.seed(f"{options.seed} {number} sizes")
        self.groupstore, self.number, self.counts = options.program, number, collections.Counter()
        self.place = tempfile.mkdtemp(prefix=f"split-{number}-", dir=options.directory)
        self.path = os.path.join(self.place, "s.db")
        self.mode = self.random.choice(("WAL", "WAL", "WAL", "DELETE", "PERSIST", "TRUNCATE"))
        self.programs, self.next, self.story, self.output = [], 1000, [self.mode], ""
        self.overwritten, self.problems = set(), []
        # Two programs that checkpoint their own logs into one database damage it.
        self.shares_database = False

    def tell(self, *words):
        self.story.append(" ".join(map(str, words)))

    def keys(self):
        count = self.random.randint(1, 25)
        self.next += count
        return range(self.next - count, self.next)

    def start(self):
        program = Program(self.path, self.mode, len(self.programs))
        self.tell("start", program.number, "" if program.is_open else "(failed)")
        self.programs.append(program)
        if program.is_open:
            self.write(program)

    def write(self, program):
        for _ in range(self.random.randint(0, 4)):
            if not program.is_open:
                return
            if self.random.random() < 0.15:
                key = self.random.randint(1, 20)
                value = f"u{program.number}-{key}-{self.next}"
                self.next += 1
                answer = program.ask("update", key, value)
                if answer[0] == "old":
                    program.values[key] = value
                    self.overwritten.add(answer[1])
            elif self.random.random() < 0.1 and not self.shares_database:
                program.ask("checkpoint")
            else:
                answer = program.insert(self.keys())
                if answer != "done":
                    self.tell("program", program.number, answer)
                    self.counts["writes refused"] += 1

    def split(self):
        """Takes files away from under the programs, in a way by which SQLite doesn't mix two histories itself."""
        sides = ["-wal", "-shm", "-journal"]
        kind = self.random.choice(("log", "log", "all", "replace") if self.mode == "WAL" else ("all", "replace"))
        self.tell("split", kind)
        self.counts["split " + kind] += 1
        self.shares_database |= kind == "log"
        if kind == "replace":
            copy = os.path.join(self.place, "copy")
            source = sqlite3.connect(self.path)
            target = sqlite3.connect(copy)
            source.backup(target)
            target.close()
            source.close()
            os.rename(copy, self.path)
        for side in sides + ([""] if kind == "all" else []):
            if os.path.exists(self.path + side):
                os.unlink(self.path + side)

    def run_groupstore(self, *words, kill=None):
        process = subprocess.Popen(
            [self.groupstore, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            output, _ = process.communicate(timeout=kill or 900)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            output, _ = process.communicate()
            self.counts["rescues killed"] += 1
            if not kill:
                self.problems.append(f"{words} was not done in 900 s")
        self.output += f"$ groupstore {' '.join(words)}\n{output}[{process.returncode}]\n"
        return process.returncode, output

    def branches(self, output):
        """The programs that a dry run calls branches."""
        return [p for p in self.programs if p.is_open and re.search(rf"\(pid {p.pid}\)[^:\n]*: orphaned", output)]

    def rescue(self):
        if self.random.random() < 0.35:
            before = {p.number: (dict(p.rows), dict(p.values)) for p in self.programs}
            code, output = self.run_groupstore("rescue", self.path, "--copy-only")
            self.tell("copy-only", code)
            if code == 0:
                for program in self.branches(output):
                    program.saved = before[program.number]
                    if self.random.random() < 0.5:
                        self.tell("kill branch", program.number)
                        self.counts["branches killed after a copy"] += 1
                        program.kill()
                        program.rows, program.values = program.saved
        preference = []
        for attempt in range(12):
            kill = self.random.uniform(0.02, 0.6) if attempt < 2 and self.random.random() < 0.25 else None
            code, output = self.run_groupstore("rescue", self.path, "--deadline", "0s", *preference, kill=kill)
            self.tell("rescue", code)
            if code == -9:
                continue
            if code == 75:
                error = output.strip().split("\n")[-1]
                named = [p for p in self.programs if p.is_open and f"close the store in" in error
                         and f"(pid {p.pid})" in error.split("close the store in")[-1]]
                named = named or [p for p in self.programs if p.is_open and f"(pid {p.pid})" in error.split(";")[0]]
                # What is at the name is taken as it was before an open transaction only if the disk proves that.
                if "the store at its name" in error:
                    named = named or [p for p in self.programs if p.is_open and p.has_transaction]
                if not named:
                    self.problems.append("75 without a program's name")
                    return code
                for program in named:
                    self.tell("close", program.number)
                    program.close()
                continue
            if code == 65 and "--prefer" in output and not preference:
                self.counts["conflicts"] += 1
                preference = ["--prefer", self.random.choice(("store", "branch"))]
                continue
            return code
        return code

    def run(self):
        self.start()
        for _ in range(self.random.randint(1, 3)):
            if self.random.random() < 0.3 and len(self.programs) < 4:
                self.start()
            self.split()
            for program in self.programs:
                if self.random.random() < 0.6:
                    self.write(program)
            if len(self.programs) < 4 and self.random.random() < 0.85:
                self.start()
            for program in self.programs:
                if self.random.random() < 0.4:
                    self.write(program)
        if self.random.random() < 0.2:
            program = self.random.choice(self.programs)
            if program.is_open:
                program.has_transaction = program.ask("begin", list(self.keys())) == "done"
                self.tell("open transaction", program.number)
        if self.random.random() < 0.2:
            program = self.programs[-1]
            code, output = self.run_groupstore("rescue", self.path, "--dry-run")
            # A plan with conflicts doesn't list the branches.
            if code == 0 and program not in self.branches(output):
                self.tell("kill", program.number)
                program.kill()
        code = self.rescue()
        self.counts[f"exit code {code}"] += 1
        if code == 0 and self.random.random() < 0.3:
            for program in self.programs:
                if self.random.random() < 0.5:
                    self.write(program)
            code = self.rescue()
            self.counts["rescued again"] += 1
        self.check(code)

    def check(self, code):
        acknowledged = {key: value for p in self.programs for key, value in p.rows.items()}
        self.counts["rows acknowledged"] += len(acknowledged)
        if code != 0:
            self.problems.append(f"exit code {code}")
            return
        if not os.path.exists(self.path):
            if acknowledged:
                self.problems.append("no store")
            return
        store = sqlite3.connect(self.path)
        rows = dict(store.execute("SELECT id, v FROM t"))
        texts = dict(store.execute("SELECT k, v FROM k"))
        finding = store.execute("PRAGMA integrity_check").fetchone()[0]
        store.close()
        if finding != "ok":
            self.problems.append(finding)
        lost = [key for key, value in acknowledged.items() if rows.get(key) != value or texts.get(f"k{key}") != value]
        if lost:
            self.problems.append(f"{len(lost)} rows are lost: {lost[:5]}")
        if any(value.startswith("uncommitted") for value in rows.values()):
            self.problems.append("an open transaction shows")
        known = {value for p in self.programs for value in p.values.values()} | self.overwritten
        strange = [k for k, v in rows.items() if v != acknowledged.get(k) and v not in known]
        strange = [k for k in strange if k >= 1000 and not any(k in (p.saved or ({}, {}))[0] for p in self.programs)]
        # What a killed program had committed after its copy may be there, too: another copy may have it.
        for key in strange:
            if not rows[key].startswith("p"):
                self.problems.append(f"row {key} is from nowhere")
        for program in self.programs:
            for key, value in program.values.items():
                self.counts["values acknowledged"] += 1
                isListed = re.search(rf"\bid {key}\b", self.output)
                if rows.get(key) != value and value not in self.overwritten and not isListed:
                    self.problems.append(f"row {key} has lost the value {value}, and no plan names it")

    def end(self):
        for program in self.programs:
            program.kill()


def play(task):
    options, number = task
    current = Round(options, number)
    try:
        current.run()
    except Exception as error:
        current.problems.append(repr(error))
    finally:
        current.end()
    report = None
    if current.problems:
        report = f"round {number}: {'; '.join(current.problems)}\n  {' | '.join(current.story)}\n{current.output}"
    if report and options.keep:
        report += f"kept {current.place}\n"
    else:
        shutil.rmtree(current.place)
    return current.counts, report


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--only", type=int)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--directory")
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    os.environ["GROUPSTORE_SOCKET"] = "/nonexistent/socket"
    numbers = range(options.rounds) if options.only is None else [options.only]
    counts, failed, played = collections.Counter(), 0, 0
    with multiprocessing.Pool(options.parallel) as pool:
        for found, report in pool.imap_unordered(play, [(options, number) for number in numbers]):
            counts.update(found)
            played += 1
            if report:
                failed += 1
                print(report, flush=True)
            if played % 50 == 0:
                print(f"{played} rounds, {failed} with a deviation", flush=True)
    print(f"{played} rounds, {failed} with a deviation: "
          + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
