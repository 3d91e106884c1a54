"""Tests hostile content: stores and models with bytes changed, cut off or put together wrongly. Each run has an outcome of the
table, in bounded time and memory; a refusal changes nothing, and a moved store holds what it held.
"""

import os
import resource
import shutil
import sqlite3
import subprocess
import tempfile
import time

import mutations
import stores

SECONDS = 20
KILOBYTES = 200_000
STATUSES = (0, 65, 73, 74, 75)
ID = "1700000000-mutation"


class Limits:
    """A run's limits: a sanitizer raises both."""

    def __init__(self, is_sanitized):
        self.seconds = SECONDS * (4 if is_sanitized else 1)
        self.kilobytes = KILOBYTES * (5 if is_sanitized else 1)


def each_mutation(programs, progress, count, here, real_stores, only="", is_sanitized=False):
    """Runs `count` mutated stores and models, of every kind and of each real one; with `only`, the one of that number."""
    limits = Limits(is_sanitized)
    outcomes, slowest, largest = {}, 0, 0
    with tempfile.TemporaryDirectory(prefix="torture.", dir="/dev/shm") as templates:
        originals = _originals(templates, real_stores)
        models = _models(real_stores)
        other = os.path.join(templates, "other")
        os.mkdir(other)
        stores.make("other", other, support=False)
        for number in [int(only)] if only else range(count):
            if progress.is_over:
                break
            random = mutations.chances(progress.seed, number)
            with tempfile.TemporaryDirectory(prefix="torture.", dir=here) as root:
                run = Run(programs, random, root, limits, other)
                if models and random.random() < 0.05:
                    word = run.model(random.choice(models))
                else:
                    word = run.store(*random.choice(originals))
            progress.judge(f"mutation {number}, {word}", run.found)
            for status in run.statuses:
                outcomes[status] = outcomes.get(status, 0) + 1
            slowest, largest = max(slowest, run.slowest), max(largest, run.largest)
    print(
        f"torture: mutate: exit statuses {dict(sorted(outcomes.items(), key=str))}, at most {slowest:.1f} s and "
        f"{largest // 1024} MB", flush=True)


def _originals(templates, real_stores):
    found = []
    for kind in stores.KINDS:
        directory = os.path.join(templates, kind)
        os.mkdir(directory)
        stores.make(kind, directory)
        found.append((directory, stores.NAME))
    directory = os.path.join(templates, "core-data")
    os.mkdir(directory)
    mutations.make_core_data_store(directory)
    found.append((directory, stores.NAME))
    for directory, _, files in sorted(os.walk(real_stores)) if real_stores else []:
        for name in sorted(files):
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                is_store = file.read(16) == b"SQLite format 3\0"
            if is_store and os.path.getsize(path) < 4 << 20:
                found.append((directory, name))
    return found


def _models(real_stores):
    found = []
    for directory, _, files in sorted(os.walk(real_stores)) if real_stores else []:
        found += [
            os.path.join(directory, name) for name in sorted(files)
            if name.endswith(".mom") or name == "contents" and directory.endswith(".xcdatamodel")]
    return found


class Run:
    """One mutation, and its findings."""

    def __init__(self, programs, random, root, limits, other):
        self.programs = programs
        # The place of a store with its own rows.
        self.other = other
        self.random = random
        self.root = root
        self.limits = limits
        self.found = []
        self.statuses = []
        self.slowest = self.largest = 0

    def model(self, original):
        """Mutates a model's file; returns what was done."""
        name = os.path.basename(original)
        directory = os.path.join(self.root, "Model.xcdatamodel" if name == "contents" else "Model.momd")
        os.mkdir(directory)
        with open(original, "rb") as file:
            content = bytearray(file.read())
        change = mutations.property_list if name != "contents" and self.random.random() < 0.7 else \
            self.random.choice(mutations.BLIND)
        path = os.path.join(directory, name)
        with open(path, "wb") as file:
            file.write(change(self.random, content))
        for command in ("show", "hash"):
            self._run("model", command, directory if name == "contents" else path, "--json")
        return f"{original[-60:]} {change.__name__}"

    def store(self, directory, name):
        """Mutates a store; returns what was done."""
        word = self._mutate(directory, name)
        legacy, group = os.path.join(self.root, "legacy"), os.path.join(self.root, "group")
        database = os.path.join(legacy, name)
        if self.random.random() < 0.3:
            shutil.copyfile(os.path.join(self.other, stores.NAME), os.path.join(group, name))
        before = stores.tree(legacy)
        for command in (("inspect",), ("model", "show"), ("model", "hash")):
            if self.random.random() < 0.35:
                self._run(*command, database, "--json")
                if stores.tree(legacy) != before:
                    self.found.append(f"{command} left a trace")
        if self.random.random() < 0.1:
            self._recover(legacy, group, name)
            before = stores.tree(legacy)
        self._relocate(legacy, group, name, before)
        return word

    def _mutate(self, directory, name):
        random = self.random
        legacy = os.path.join(self.root, "legacy")
        os.mkdir(legacy)
        os.mkdir(os.path.join(self.root, "group"))
        for part in stores.parts(directory, name):
            shutil.copyfile(os.path.join(directory, part), os.path.join(legacy, part))
        place = f"{os.path.basename(directory)}/{name}"
        if random.random() < 0.35:
            word = random.choice([mutations.record, mutations.record, mutations.schema])(
                random, os.path.join(legacy, name))
            if word:
                return f"{place}: {word}"
        parts = stores.parts(legacy, name)
        part = random.choice(parts)
        changes = mutations.KNOWING.get(part[len(name):], [])
        change = random.choice(changes if changes and random.random() < 0.5 else mutations.BLIND)
        path = os.path.join(legacy, part)
        with open(path, "rb") as file:
            content = bytearray(file.read())
        if content:
            content = change(random, content)
        with open(path, "wb") as file:
            file.write(content)
        if random.random() < 0.1:
            os.rename(path, os.path.join(legacy, random.choice(parts) + random.choice(stores.SIDE_FILES)))
        return f"{place}: {part} {change.__name__}"

    def _recover(self, legacy, group, name):
        """Undoes an interrupted relocation, which may open the store through SQLite."""
        database = os.path.join(legacy, name)
        if not os.path.isfile(database):
            return
        status = os.stat(database)
        stores.write_journal(
            group, ID, legacy, name, (status.st_dev, status.st_ino), self.random.choice(["intended", "withdrawn"]))
        if self._run("recover", group, "--json") != 0:
            # Reported, and left for a person to inspect.
            shutil.rmtree(os.path.join(group, ".groupstore"))

    def _relocate(self, legacy, group, name, before):
        database = os.path.join(legacy, name)
        holds_anything = os.path.isfile(database) and os.path.getsize(database) > 0
        content = _readable(legacy, name)
        status = self._run("relocate", database, group, "--json", "--deadline", "1")
        if content is not None and status == 0 and holds_anything:
            # If the group had a store with rows, a store without may have gone to the archive.
            places = [directory for directory, _, files in os.walk(self.root) if name in files]
            if all(_readable(place, name) != content for place in places):
                self.found.append(f"its content is not what it was: {self.output[-300:]}")
        if status in (65, 73) and _without_index(stores.tree(legacy)) != _without_index(before):
            now = _without_index(stores.tree(legacy))
            changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
            self.found.append(f"refused, and yet changed: {changed} {self.output[-500:]}")
        if os.path.lexists(os.path.join(group, ".groupstore", "journal.json")):
            self.found.append("a journal is left")

    def _run(self, *words):
        """Returns the exit status; judges the resources used."""
        limit = self.limits.seconds
        started = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [self.programs.groupstore, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=dict(os.environ, GROUPSTORE_SOCKET="/nonexistent/agent.sock", ASAN_OPTIONS="detect_leaks=0"),
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)))
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            output.seek(0)
            self.output = output.read().decode(errors="replace")
        seconds, status = time.monotonic() - started, process.returncode
        self.statuses.append(status)
        self.slowest, self.largest = max(self.slowest, seconds), max(self.largest, usage.ru_maxrss)
        if status not in STATUSES:
            self.found.append(f"{words[:2]}: status {status}: {self.output[-1500:]}")
        if seconds > limit:
            self.found.append(f"{words[:2]} took {seconds:.1f} s")
        if usage.ru_maxrss > self.limits.kilobytes:
            self.found.append(f"{words[:2]} took {usage.ru_maxrss} KB of memory")
        return status


def _without_index(tree):
    return {name: file for name, file in tree.items() if not name.endswith("-shm")}


def _readable(directory, name):
    """Returns every row of every table as SQLite reads them from a copy; None if it can't read all."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        for part in stores.parts(directory, name):
            path = os.path.join(directory, part)
            if os.path.isfile(path):
                stores.copy(path, os.path.join(scratch, part))
        connection = sqlite3.connect(os.path.join(scratch, name))
        connection.text_factory = bytes
        # Without it, SQLite may read a damaged page's cells beyond the page's end: different bytes each time.
        connection.execute("PRAGMA cell_size_check = ON")
        try:
            tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1").fetchall()
            return [
                (table, connection.execute(f'SELECT * FROM "{table.decode()}"').fetchall()) for table, in tables]
        except (sqlite3.Error, UnicodeDecodeError, OverflowError, AttributeError):
            return None
        finally:
            connection.close()
