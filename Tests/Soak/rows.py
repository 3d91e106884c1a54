"""Compares a store's history with its writers' reports: every row, in order, and no other."""

import collections
import json
import sqlite3
import subprocess

LIMIT = 50_000  # rows that one reader prints
BUSY = 75


class Rows:
    """Reads on from a token, which must stay good whatever becomes of agents and wherever the store is."""

    def __init__(self, program, authors):
        self.program, self.authors = program, authors
        self.token = None
        self.compared = self.reads = self.number = 0
        self.positions = collections.Counter()
        # The rows that each table must have now.
        self.content = collections.defaultdict(set)

    def compare(self, store, logs):
        """Returns what is wrong with the history since the last time, in a sentence; None if nothing is.

        Nobody writes now.
        """
        # Two programs write notes; the notes' numbers are their order of commit.
        first = self.positions["note"]
        logs["note"][first:] = sorted(logs["note"][first:], key=lambda step: step[1])
        more = True
        while more:
            done = self.read(store)
            if done.returncode != 0:
                return f"{done.stdout[-500:]}{done.stderr}"
            *rows, summary = map(json.loads, done.stdout.splitlines())
            self.reads += 1
            for row in rows:
                problem = self.compare_row(row, logs)
                if problem:
                    return problem
            if summary.get("outcome") != "changes" or summary.get("outdated"):
                return f"after {self.token}: {summary}"
            self.token, more = summary["token"], summary["more"]
        behind = {table: log[self.positions[table] :] for table, log in logs.items()}
        missing = {table: rest[:5] for table, rest in behind.items() if rest}
        return f"it ends at {self.compared}, and there were committed {missing}" if missing else None

    def read(self, store):
        """Reads, and retries while it is busy: subscribers that come and go remove the log."""
        words = [self.program, "changes", store, "--json", "--limit", str(LIMIT)]
        words += ["--since", self.token] if self.token else []
        for _ in range(20):
            done = subprocess.run(words, capture_output=True, text=True)
            if done.returncode != BUSY:
                break
        return done

    def compare_row(self, row, logs):
        table = row.get("table")
        position = self.positions[table]
        if table not in logs or position >= len(logs[table]):
            return f"nobody did {row}"
        operation, key = logs[table][position]
        # An update's column has its own number, before the update's.
        number = self.number + (2 if operation == "update" else 1)
        wanted = {"type": "row", "number": number, "table": table, "op": operation, "key": key}
        if operation == "update":
            wanted["columns"] = ["text"]
        if table in self.authors:
            wanted["author"] = self.authors[table]
        found = {member: value for member, value in row.items() if member != "time"}
        if found != wanted:
            return f"it has {found}, and the writer did {wanted}"
        self.positions[table] += 1
        self.compared += 1
        self.number = number
        if operation == "insert":
            self.content[table].add(key)
        elif operation == "delete":
            self.content[table].remove(key)
        return None

    def compare_content(self, store):
        """Checks that the writers' reports are true: their operations leave the present rows."""
        opened = sqlite3.connect(f"file:{store}?mode=rw", uri=True, isolation_level=None)
        try:
            for table, rows in self.content.items():
                found = {key for (key,) in opened.execute(f"SELECT rowid FROM {table}")}
                if found != rows:
                    return f"{table} has {sorted(found ^ rows)[:5]} and the writers say otherwise"
        finally:
            opened.close()
        return None
