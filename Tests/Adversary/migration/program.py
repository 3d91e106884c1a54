"""Runs the program under test in a round's own directory, and records the commands so that they can be run again."""

import hashlib
import json
import os
import plistlib
import shlex
import shutil
import sqlite3
import subprocess


class Answer:
    """The result of one run of the program: `--json` prints one object a line, the last of which is the summary."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err
        self.lines = []
        for line in out.splitlines():
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                pass
        self.summary = next((x for x in reversed(self.lines) if isinstance(x, dict) and x.get("type") == "summary"), {})
        self.error = (self.summary.get("error") or {}).get("message", "") or err.strip()
        self.core_data = (self.summary.get("error") or {}).get("code", "")

    @property
    def notes(self):
        return [x["text"] for x in self.lines if x.get("type") == "note" and "text" in x]


class Round:
    """One round: a directory, its problems, and the commands that it ran."""

    def __init__(self, program, directory, rng, number):
        self.program, self.directory, self.rng, self.number = program, directory, rng, number
        self.problems, self.commands, self.described = [], [], ""

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def problem(self, kind, text):
        self.problems.append((kind, str(text)))

    def run(self, *arguments, json_lines=True):
        arguments = [str(a) for a in arguments] + (["--json"] if json_lines else [])
        self.commands.append(
            "groupstore "
            + " ".join(
                shlex.quote(os.path.relpath(a, self.directory)) if a.startswith(self.directory) else shlex.quote(a)
                for a in arguments
            )
        )
        try:
            run = subprocess.run([self.program, *arguments], capture_output=True, timeout=60, cwd=self.directory)
        except subprocess.TimeoutExpired:
            self.problem("hang", self.commands[-1])
            return Answer(-999, "", "")
        answer = Answer(run.returncode, run.stdout.decode(errors="replace"), run.stderr.decode(errors="replace"))
        # Relocation.md allows only these exit codes; a signal is a crash.
        if run.returncode not in (0, 64, 65, 69, 73, 74, 75, 77, 78, 130):
            self.problem("crash", f"exit {run.returncode}: {self.commands[-1]}: {answer.err[-300:]}")
        return answer

    # Models on the disk

    def write_model(self, name, model):
        """Writes a single version: NAME.xcdatamodel."""
        path = self.path(name + ".xcdatamodel")
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "contents"), "w", encoding="utf-8") as file:
            file.write(model.xml())
        return path

    def write_bundle(self, name, versions, current=None):
        """Writes a bundle of versions {name: model or raw bytes}; the last is current unless `current` names another."""
        path = self.path(name + ".xcdatamodeld")
        for version, model in versions.items():
            os.makedirs(os.path.join(path, version + ".xcdatamodel"), exist_ok=True)
            data = model if isinstance(model, bytes) else model.xml().encode()
            with open(os.path.join(path, version + ".xcdatamodel", "contents"), "wb") as file:
                file.write(data)
        with open(os.path.join(path, ".xccurrentversion"), "wb") as file:
            plistlib.dump({"_XCCurrentVersionName": (current or list(versions)[-1]) + ".xcdatamodel"}, file)
        return path

    def keep(self, place):
        """Keeps the round's files and a script that repeats its commands."""
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.directory, place, symlinks=True)
        with open(os.path.join(place, "commands.txt"), "w", encoding="utf-8") as file:
            file.write(
                self.described
                + "\n"
                + "\n".join(self.commands)
                + "\n\n"
                + "\n".join(f"{k}: {t}" for k, t in self.problems)
                + "\n"
            )


def snapshot(directory, ignoring=()):
    """Returns every file below the directory with the hash of its bytes, and every directory."""
    found = {}
    for place, directories, files in os.walk(directory):
        directories[:] = [d for d in directories if os.path.join(place, d) not in ignoring]
        for name in directories:
            found[os.path.relpath(os.path.join(place, name), directory)] = "directory"
        for name in files:
            path = os.path.join(place, name)
            if path in ignoring:
                continue
            with open(path, "rb") as file:
                found[os.path.relpath(path, directory)] = hashlib.sha256(file.read()).hexdigest()
    return found


def difference(before, after):
    return sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))


def connect(path, mode="ro"):
    """Returns a connection that distinguishes text from blobs and survives text that isn't UTF-8."""
    connection = sqlite3.connect(
        f"file:{path.replace('?', '%3f').replace('#', '%23')}?mode={mode}", uri=True, isolation_level=None
    )
    connection.text_factory = lambda data: ("text", data)
    return connection


def plain(value):
    """Returns a name from the schema, read through `connect`."""
    return value[1].decode() if isinstance(value, tuple) else value


def tables(connection):
    """Returns {table: {column: declared type}} of everything that isn't virtual."""
    found = {}
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")
    for name in [plain(r[0]) for r in rows.fetchall()]:
        quoted = '"' + name.replace('"', '""') + '"'
        info = connection.execute(f"PRAGMA table_info({quoted})").fetchall()
        found[name] = {plain(r[1]): plain(r[2]) for r in info}
    return found


def dump(path, leaving_out=("Z_METADATA", "Z_MODELCACHE")):
    """Returns the store's content without the order of rows and columns; and its indexes, triggers and views."""
    connection, out = connect(path), {}
    try:
        for table, columns in tables(connection).items():
            if table in leaving_out or table.startswith("sqlite_"):
                continue
            names = sorted(columns)
            rows = connection.execute(
                "SELECT {} FROM {}".format(
                    *[",".join('"' + c.replace('"', '""') + '"' for c in x) for x in (names, [table])]
                )
            )
            out[table] = (tuple(names), sorted(map(repr, rows.fetchall())))
        out["schema"] = sorted(
            repr(r) for r in connection.execute("SELECT type, name, tbl_name FROM sqlite_master WHERE type <> 'table'")
        )
    finally:
        connection.close()
    return out
