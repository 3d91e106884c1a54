"""One store under attack: its writers, what a reader would find in it, and what its listeners were told.

`Store` knows nothing about the steps (see steps.py); it opens writers, counts acknowledged commits, reads the content on a
private copy (never through groupstore), and judges whether each listener was told.
"""
import hashlib
import json
import os
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import logs

HERE = os.path.dirname(os.path.abspath(__file__))
KEY = "correct horse"
NAMES = ["Notes.sqlite", "two words.db", "it's \"quoted\".sqlite", "Ünïcödé.store", "-dash.sqlite", "a.b.c", "%41#?.db",
         "n" * 180 + ".sqlite", "noextension", ".hidden.sqlite"]
TOLD = 45    # a listener that was told nothing for so long was told nothing
LATE = 10    # counted, not a problem: the machine may be busy


class Child:
    """A process of writer.py."""

    def __init__(self, world):
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "writer.py")], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.rest = b""
        self.world = world

    def send(self, **command):
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def line(self, seconds=60):
        end = time.monotonic() + seconds
        while b"\n" not in self.rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return {"error": "no answer"}
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                return {"error": "ended"}
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def call(self, **command):
        self.send(**command)
        answer = self.line()
        if "error" in answer:
            self.world.count("refused by the engine")
        return answer

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Store:
    def __init__(self, world, number):
        rng = self.rng = world.rng
        self.world = world
        self.name = "%d%s" % (number, rng.choice(NAMES)) if rng.random() < 0.5 else "%d.sqlite" % number
        if rng.random() < 0.1:
            self.name = rng.choice([".", "-"]) + self.name
        self.path = os.path.join(world.group, self.name)
        self.scratch = os.path.join(world.base, "scratch%d" % number)
        os.mkdir(self.scratch)
        choices = [e for e in ("sqlite", "shell", "apsw", "turso", "cipher") if e in world.engines]
        self.engines = choices if rng.random() < 0.5 else [rng.choice(choices)]
        self.key = KEY if "cipher" in world.engines and rng.random() < 0.12 else None
        if self.key:
            self.engines = ["cipher"]
        self.mode = rng.choice(["wal", "wal", "wal", "delete", "truncate", "persist", "memory", "off"])
        self.dormant = rng.random() < 0.3      # no subscriber at the agent: tokens alone
        self.history = not self.key and rng.random() < 0.25
        self.configured = rng.random() < 0.6   # the agent's configuration names it
        self.size = rng.choice([5, 5, 50, 400])
        self.tables = rng.choice([0, 0, 0, 30, 1500])
        self.counter = 0
        self.writer = None         # a child that has the store open
        self.held = False          # that child holds locks which keep readers out
        self.writer_engine = None
        self.killed = []           # children to be reaped
        self.attic = {}            # leftovers of earlier moments, by suffix
        self.saved = None          # an older copy of the whole store
        self.events = {"agent": [], "direct": []}
        self.tokens = {}           # a token for each listener, of before the last step that must be told
        self.history_token = None
        self.steps = []
        self.known = None          # the content, if nothing was done since it was read
        self.create()

    # Making and writing

    def create(self):
        rng = self.rng
        child = self.start()
        pragmas = ["PRAGMA page_size=%d" % rng.choice([512, 1024, 4096, 4096, 65536]),
                   "PRAGMA auto_vacuum=%d" % rng.choice([0, 0, 1, 2])]
        if self.key or self.engines == ["turso"]:
            pragmas = []
        child.call(do="open", engine="cipher" if self.key else "sqlite", path=self.path, key=self.key, pragmas=pragmas)
        child.call(do="run", sql=["PRAGMA journal_mode=" + self.mode,
                                  "CREATE TABLE note (id INTEGER PRIMARY KEY, tag TEXT, body BLOB)",
                                  "CREATE TABLE tag (name TEXT)"])
        for number in range(self.tables):
            child.send(do="run", sql=["CREATE TABLE t%d (a, b)" % number] if number % 50 else ["BEGIN"])
            child.line()
            if number % 50 == 49:
                child.call(do="run", sql=["COMMIT"])
        child.call(do="run", sql=["SELECT 1"])
        child.call(do="insert", tags=self.tags(self.size), size=self.rng.choice([20, 300, 3000]))
        child.call(do="close")
        child.kill()
        self.forget()
        if self.history:
            result = subprocess.run([self.world.program, "history", "enable", self.path], capture_output=True)
            self.history = result.returncode == 0

    def start(self):
        child = Child(self.world)
        self.world.children.append(child)
        return child

    def tags(self, number):
        self.counter += number
        return ["%s.%d" % (self.name[:8], n) for n in range(self.counter - number, self.counter)]

    def open(self, engine=None, pragmas=(), keep=False, **options):
        """Opens a writer. With `keep` it becomes the store's writer until `close` or `kill`."""
        engine = engine or self.rng.choice([e for e in self.engines if e != "shell"] or ["sqlite"])
        pragmas = list(pragmas)
        if engine != "turso" and self.rng.random() < 0.5 and not any("locking_mode" in p for p in pragmas):
            pragmas.append("PRAGMA journal_mode=" + self.mode)
        child = self.start()
        answer = child.call(do="open", engine=engine, path=self.path, key=self.key, pragmas=pragmas, **options)
        self.world.count("opened by " + engine)
        self.forget()
        held = engine == "turso" or any("EXCLUSIVE" in p for p in pragmas)
        self.note(engine, *(p.replace("PRAGMA ", "") for p in pragmas))
        if "error" in answer:
            self.note("refused")
            child.kill()
            return None
        if keep:
            self.writer, self.held, self.writer_engine = child, held, engine
        return child

    def note(self, *words):
        """Adds to what a report says about the step."""
        if self.steps:
            self.steps[-1] += " " + " ".join(map(str, words))

    def close(self, child=None):
        child = child or self.writer
        if child:
            self.note("closed")
            child.call(do="close")
            child.kill()
            self.forget(child)

    def kill(self, child=None):
        child = child or self.writer
        if child:
            self.note("killed")
            child.kill()
            self.forget(child)

    def forget(self, child=None):
        """What was read of the content is no longer sure; a child that is gone isn't the store's writer any more."""
        self.known = None
        if child is not None and child is self.writer:
            self.writer, self.held, self.writer_engine = None, False, None

    def commit(self, child, rows=1, size=100):
        """One commit; True if it was acknowledged."""
        answer = child.call(do="insert", tags=self.tags(rows), size=size)
        self.forget()
        if "error" in answer:
            child.call(do="run", sql=["ROLLBACK"])
        else:
            self.world.count("commits")
        return "error" not in answer

    # Reading, on a copy of our own

    def content(self):
        """A digest of what a program that opens the store now would find in it."""
        if self.known is None:
            self.known = self.read()
        return self.known

    def read(self):
        copy = os.path.join(self.scratch, "copy")
        for suffix in ("", "-wal", "-shm", "-journal"):
            if os.path.exists(copy + suffix):
                os.unlink(copy + suffix)
        if not os.path.exists(self.path):
            return "absent"
        for suffix in ("", "-wal", "-journal"):
            try:
                shutil.copyfile(self.path + suffix, copy + suffix)
            except FileNotFoundError:
                pass
        digest = hashlib.sha256()
        module = sqlite3
        if self.key:
            from sqlcipher3 import dbapi2 as module
        connection = module.connect(copy, isolation_level=None)
        connection.text_factory = bytes
        try:
            if self.key:
                connection.execute("PRAGMA cipher_log_level = NONE")
                connection.execute("PRAGMA key = '%s'" % self.key)
            for row in connection.execute("PRAGMA user_version"):
                digest.update(repr(row).encode())
            tables = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
            for name, sql in tables:
                digest.update(repr((name, sql)).encode())
                if not name.startswith(b"sqlite_") and sql:
                    for row in connection.execute('SELECT * FROM "%s"' % name.decode()):
                        digest.update(repr(row).encode())
            return digest.hexdigest()
        except Exception:  # damaged, or another engine's: then its pages are what can be compared
            return "bytes " + hashlib.sha256(logs.database(self.path)).hexdigest()
        finally:
            connection.close()

    def whole(self):
        """True if the database file alone is all of the store."""
        return os.path.exists(self.path) and not any(
            os.path.exists(self.path + s) and os.path.getsize(self.path + s) for s in ("-wal", "-journal"))

    # What the listeners were told

    def listeners(self):
        return [l for l in ("agent", "direct") if self.world.listens(l, self)]

    def told_after(self, listener, moment):
        """The last event that came after this moment."""
        for at, event in reversed(self.events[listener]):
            return (at, event) if at >= moment else None
        return None

    def await_told(self, listener, moment, settled):
        """Waits until an event came; with `settled`, until the last one isn't `unreadable`. Returns the event or None."""
        end = time.monotonic() + TOLD
        while True:
            found = self.told_after(listener, moment)
            if found and not (settled and found[1].get("reason") == "unreadable"):
                self.world.delay(found[0] - moment)
                return found[1]
            if time.monotonic() > end:
                return None
            self.world.pump(0.2)

    def unreadable(self, listener):
        """True if the listener's last word of this store is that it can't be read now."""
        return bool(self.events[listener]) and self.events[listener][-1][1].get("reason") == "unreadable"
