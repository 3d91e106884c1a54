"""One place: a legacy path, the name in the group that it is configured for, and everything that was committed there.

The content is read with SQL of the tester's own, from copies of the files.
"""
import os
import shutil
import sqlite3
import time

NAMES = ["Notes.sqlite", "two words.db", "it's \"quoted\".sqlite", "Ünï.store", ".hidden.db", "noextension", "a.b.sqlite",
         "l" * 150 + ".db"]
PARTS = ("", "-wal", "-shm", "-journal")


def support(path):
    """The folder of external data that belongs to a store: a leading dot doesn't begin an extension."""
    folder, name = os.path.split(path)
    stem = name if "." not in name[1:] else name[:name.rindex(".")]
    return os.path.join(folder, "." + stem + "_SUPPORT")


class Place:
    def __init__(self, world, number):
        rng = self.rng = world.rng
        self.world, self.number = world, number
        self.kind = rng.choice(["near", "near", "near", "far"])
        self.name = "%d%s" % (number, rng.choice(NAMES)) if rng.random() < 0.5 else "%d.sqlite" % number
        self.folder = os.path.join(world.base, "legacy%d" % number, "data")
        self.legacy = os.path.join(self.folder, self.name)
        self.group = os.path.join(world.directories[self.kind], self.name)
        self.scratch = os.path.join(world.base, "elsewhere%d" % number)   # on the file system of the legacy place
        os.makedirs(self.folder)
        os.mkdir(self.scratch, 0o755)
        for path in (os.path.dirname(self.folder), self.folder, self.scratch):
            self.give(path)
        self.tags = set()          # rows that were acknowledged, and must be somewhere for ever
        self.counter = 0
        self.notes = []            # what was done, for reports
        self.expect = "relocated"
        self.retries = False       # the cause is one that the agent has to look for again and again
        self.strict = True         # that the content arrives whole is certain (no bound in time was exceeded)
        self.arrived = False       # no part is under way at this moment
        self.last = None           # when the last part came
        self.presenters, self.holders, self.events = [], [], []
        self.case = None

    def note(self, *words):
        self.notes.append("%.1f %s" % (self.world.elapsed(), " ".join(map(str, words))))

    def beat(self):
        """A part comes, or goes on. If the machine was so busy that this took longer than `settle`, nothing is promised."""
        now = time.monotonic()
        if self.last and now - self.last > 0.9:
            self.strict = False
            self.note("a pause of %.1f s, by a busy machine" % (now - self.last))
        self.last = now

    def give(self, path, user=None):
        """To the agent's user, unless the tester isn't root."""
        if self.world.user:
            os.chown(path, *(user or self.world.user), follow_symlinks=False)

    def new_tags(self, number):
        self.counter += number
        return ["%d.%d" % (self.number, n) for n in range(self.counter - number, self.counter)]

    def build(self, path, mode="delete", rows=None, log=False, folder=False):
        """Makes a store of known rows elsewhere; with `log`, with commits that are in its -wal alone."""
        rows = rows or self.rng.choice([1, 20, 400])
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA journal_mode=" + ("wal" if log else mode))
        connection.execute("CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, tag TEXT, body BLOB)")
        tags = self.new_tags(rows)
        for part in (tags[:rows // 2], tags[rows // 2:]):
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO note (tag, body) VALUES (?, randomblob(700))", [(t,) for t in part])
            connection.execute("COMMIT")
            if log and part is tags[:rows // 2]:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if log:    # the files as they are now: closing would checkpoint
            for suffix in PARTS[:3]:
                shutil.copyfile(path + suffix, path + ".kept" + suffix)
        connection.close()
        if log:
            for suffix in PARTS[:3]:
                os.rename(path + ".kept" + suffix, path + suffix)
        for suffix in PARTS:
            if os.path.exists(path + suffix):
                self.give(path + suffix)
        if folder:
            os.makedirs(support(path) + "/_EXTERNAL_DATA")
            with open(support(path) + "/_EXTERNAL_DATA/A1", "w") as file:
                file.write("external data of %d" % self.number)
            for path in (support(path), support(path) + "/_EXTERNAL_DATA", support(path) + "/_EXTERNAL_DATA/A1"):
                self.give(path)
        self.tags |= set(tags)

    def where(self):
        """Where a program that follows the store would open it now."""
        for path in (self.group, self.legacy):
            if os.path.isfile(path) and os.path.getsize(path):
                return path
        return None

    # What is there

    def read(self, path):
        """The tags in the store at a path, from a copy of its files; an empty set if there is none that can be read."""
        copy = os.path.join(self.world.base, "reading")
        for suffix in PARTS:
            if os.path.lexists(copy + suffix):
                os.unlink(copy + suffix)
        try:
            if not os.path.isfile(path):
                return set()
            for suffix in ("", "-wal", "-journal"):
                if os.path.isfile(path + suffix):
                    shutil.copyfile(path + suffix, copy + suffix)
            connection = sqlite3.connect(copy)
        except OSError:
            return set()
        try:
            return {row[0] for row in connection.execute("SELECT tag FROM note")}
        except sqlite3.Error:
            return set()
        finally:
            connection.close()

    def kept(self):
        """The tags in everything else that has kept a store: the archive, staged and hidden files of both places."""
        found = set()
        for top in (os.path.dirname(self.group), self.folder, self.scratch):
            for folder, _, files in os.walk(top):
                for file in files:
                    path = os.path.join(folder, file)
                    if file.endswith(PARTS[1:]) or path == self.group:
                        continue
                    try:
                        with open(path, "rb") as opened:
                            if opened.read(15) != b"SQLite format 3":
                                continue
                    except OSError:
                        continue
                    found |= self.read(path)
        return found

    def fulfilled(self):
        """True once the place is as it should be; None while an agent could still be about to do it."""
        if self.expect == "relocated":
            if not os.path.isfile(self.group) or os.path.lexists(self.legacy):
                return False
            return not self.strict or self.tags <= self.read(self.group)
        return True

    def missing(self):
        return self.tags - self.read(self.group) - self.read(self.legacy) if self.expect == "relocated" else (
            self.tags - self.read(self.group) - self.read(self.legacy) - self.kept())
