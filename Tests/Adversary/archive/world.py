"""The directories of a round, and the ordinary programs that write stores there."""
import base64, json, os, random, shutil, signal, sqlite3, subprocess, time

from stores import *


class World:
    """The directories of a round, and what other programs and accidents do in them."""

    def __init__(self, options, number, reached):
        self.options, self.number, self.reached = options, number, reached
        self.random = random.Random("%d/%d" % (options.seed, number))
        self.top, self.scratch = os.path.join(options.base, "r%d" % number), os.path.join(options.base, "scratch%d" % number)
        self.other = self.top + "/tm"                       # another file system
        self.log, self.tokens, self.children, self.backups, self.mounts = [], 0, [], [], [self.other]
        self.forgiven, self.forced, self.asked_away = set(), set(), set()   # items, archives, directories asked away by name
        self.agent, self.middle, self.released = None, None, []
        self.user = OTHER_USER if self.random.random() < 0.12 else 0
        self.close()
        for directory in (self.scratch, self.other):
            os.makedirs(directory)
        os.chmod(self.scratch, 0o777)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "adversary-archive", self.other], check=True)
        self.reader = Reader(self.scratch)
        self.environment = dict(
            os.environ, HOME=self.top + "/home", XDG_DATA_HOME=self.top + "/data", XDG_RUNTIME_DIR=self.scratch + "/run",
            XDG_CONFIG_HOME=self.scratch + "/config", TMPDIR=self.scratch, GROUPSTORE_SOCKET=self.scratch + "/agent.sock")
        os.makedirs(self.scratch + "/run", 0o700)
        self.directories = [self.top + d for d in ("/old", "/older", "/place", "/data/app-groups/group.a", "/tm/old", "/tm/group.b")]
        for directory in self.directories:
            os.makedirs(directory)
        self.groups = dict(zip([self.directories[i] for i in (3, 5, 2)], ("group.a", "group.b", "group.c")))
        for name, extra in (("M1", EXTRA), ("M2", "")):
            os.makedirs(self.scratch + "/%s.xcdatamodel" % name)
            put(self.scratch + "/%s.xcdatamodel/contents" % name, (MODEL % extra).encode())
        self.give_away()

    def give_away(self):
        """In some rounds everything belongs to another user, and groupstore runs as that user."""
        if self.user:
            subprocess.run(["chown", "-Rh", "%d:%d" % (self.user, self.user), self.top, self.scratch], stderr=subprocess.DEVNULL)

    def say(self, text):
        self.log.append(text)
        if self.options.verbose:
            print("  " + text.encode("utf-8", "backslashreplace").decode(), flush=True)

    def count(self, *names):
        self.reached[" ".join(n for n in names if n)] += 1

    def short(self, path):
        return path.replace(self.top + "/", "").replace("ong" * 60, "ong…")

    def token(self):
        self.tokens += 1
        return "tok%dx%dz" % (self.number, self.tokens)

    def scan(self, fresh=False):
        if fresh:       # times may have been set back
            self.reader.cache.clear()
        for attempt in range(20):
            try:
                return self.reader.scan(self.top)
            except FileNotFoundError:   # an agent is at work
                time.sleep(0.05)
        return self.reader.scan(self.top)

    def pick(self, places, *kinds):
        chosen = [p for p in places if p.store and p.kind in (kinds or ("plain",))]
        return self.random.choice(chosen) if chosen else None

    def in_child(self, work, limit=3.0):
        """Runs work in a child process, as another program; it may block on a lease, and then it is ended."""
        pid = os.fork()
        if pid == 0:
            try:
                if self.user:
                    os.setgid(self.user), os.setuid(self.user)
                os._exit(1 if work() is False else 0)
            except BaseException:
                os._exit(1)
        end = time.monotonic() + limit
        while time.monotonic() < end:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return status == 0
            time.sleep(0.004)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return False

    # -- ordinary programs --------------------------------------------------------------------------------------------

    def create(self, directory):
        r = self.random
        path = os.path.join(directory, r.choice(NAMES[:2] if r.random() < 0.5 else NAMES))
        if not os.path.isdir(directory) or os.path.lexists(path) or os.path.lexists(support(path)) and r.random() < 0.8:
            return

        def work():
            connection = connect(path, "rwc")
            connection.execute("PRAGMA page_size = %d" % r.choice([512, 1024, 4096, 4096, 65536]))
            connection.execute("PRAGMA encoding = %s" % r.choice(["'UTF-8'"] * 6 + ["'UTF-16le'"]))
            connection.execute("PRAGMA journal_mode = %s" % r.choice(["wal", "wal", "delete", "truncate", "persist"]))
            chosen = r.sample(TABLES, r.randint(1, 4))
            for table in chosen:
                connection.execute("CREATE TABLE " + table)
            if r.random() < 0.15 and not any(table.startswith("f_data") for table in chosen):
                connection.execute("CREATE VIRTUAL TABLE f USING fts5(tok, p)")
            connection.close()
        core_data = r.random() < 0.2
        if core_data:
            self.plain(["create", "--model", self.scratch + "/M1.xcdatamodel", "--", path])
        elif not self.in_child(work):
            return
        self.say("create %s%s" % (self.short(path), " (Core Data)" if core_data else ""))
        self.write(path, r.randint(0, 8) and r.randint(1, 12))

    def insert(self, connection, found):
        """One row with a token of its own; returns the token."""
        (table, columns), token = self.random.choice(found), self.token()
        if table == "ZNOTE":
            names = [c for c in ("ZTOK", "ZEXTRA") if c in columns]
            connection.execute("BEGIN IMMEDIATE")
            key = connection.execute("SELECT ifnull(max(Z_PK), 0) + 1 FROM ZNOTE").fetchone()[0]
            connection.execute("INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, %s) VALUES (%d, 1, 1, %s)" % (
                ", ".join(names), key, ", ".join("?" * len(names))), [token, "extra " + token][:len(names)])
            connection.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = %d" % key)
            connection.execute("COMMIT")
        else:
            for _ in range(1 + (table == "u v" and self.random.random() < 0.4)):
                connection.execute("INSERT INTO %s (tok, p) VALUES (?, ?)" % quote(table), (token, self.random.choice(PAYLOADS)))
        return token

    def write(self, path, rows, style=None):
        """A program inserts rows, and ends in one of several ways."""
        r = self.random
        style = style or r.choice(["close", "close", "wal", "hot"])
        external = token = None
        if r.random() < 0.4:
            external = os.path.join(support(path), "_EXTERNAL_DATA", r.choice(["A", "B'b ", "\udcff"]) + str(self.tokens + 100))
            token = self.token().encode()

        def work():
            connection = connect(path)
            connection.execute("PRAGMA wal_autocheckpoint = %d" % (0 if style == "wal" else 1000))
            found = tables(connection)
            for _ in range(rows):
                self.insert(connection, found)
            if external:                # as Core Data does: while it has the store open
                os.makedirs(os.path.dirname(external), exist_ok=True)
                put(external, token)
            if style == "hot":          # an unfinished transaction stays behind, spilled to the disk
                connection.execute("PRAGMA cache_size = 1")
                connection.execute("BEGIN IMMEDIATE")
                for table in [t for t, columns in found if "tok" in columns]:
                    for _ in range(40):
                        connection.execute("INSERT INTO %s (tok, p) VALUES (hex(randomblob(8)), ?)" % quote(table), ("x" * 3000,))
            if style == "close":
                connection.close()
            os._exit(0)
        done = self.in_child(work)
        self.tokens += 100
        r.random()
        self.say("write %d rows to %s (%s%s)" % (rows, self.short(path), style, "" if done else ", failed"))
        if external and done:
            self.say("external file for %s" % self.short(path))

    def delete_by_name(self, place):
        before = self.reader.store(place.path)

        def work():
            connection = connect(place.path)
            table = quote(self.random.choice([t for t, columns in tables(connection) if "tok" in columns]))
            token = self.random.choice(connection.execute("SELECT tok FROM %s" % table).fetchall())[0].decode()
            what = "UPDATE %s SET p = 'new ' || tok" if self.random.random() < 0.5 else "DELETE FROM %s"
            connection.execute(what % table + " WHERE tok = ?", (token,))
            connection.close()
        if self.in_child(work):
            self.forgiven |= before.items - self.reader.read(place.path).items
            self.say("delete or update a row of %s" % self.short(place.path))

    def holder(self, path):
        """A program has the store open while groupstore runs."""
        way, (ready, tell) = self.random.choice(["idle", "reading", "writing", "committed"]), os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                connection = connect(path)
                connection.execute("PRAGMA wal_autocheckpoint = 0")
                connection.execute({"reading": "BEGIN", "writing": "BEGIN IMMEDIATE"}.get(way, "SELECT 1"))
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                if way in ("writing", "committed"):
                    self.insert(connection, [t for t in tables(connection) if t[0] != "ZNOTE" or way == "committed"])
            except BaseException:
                os.write(tell, b"n")
                os._exit(1)
            os.write(tell, b"y")
            time.sleep(100)
            os._exit(0)
        os.close(tell)
        ok = os.read(ready, 1) == b"y"
        os.close(ready)
        self.tokens += 10
        self.say("a program holds %s (%s%s)" % (self.short(path), way, "" if ok else ", failed"))
        self.children.append(pid)
        return ok

    def writer(self, path):
        """A program writes a row after another, and notes each that was committed."""
        put(self.scratch + "/acknowledged", b"")
        pid = os.fork()
        if pid == 0:
            notes = os.open(self.scratch + "/acknowledged", os.O_WRONLY | os.O_APPEND)
            while True:
                try:
                    connection = connect(path, timeout=0.2)
                    found = tables(connection)
                    while True:
                        os.write(notes, self.insert(connection, found).encode() + b"\n")
                        time.sleep(0.002)
                except sqlite3.Error:
                    time.sleep(0.002)
                except BaseException:
                    os._exit(0)
        self.tokens += 100000
        self.say("a program writes %s all the time" % self.short(path))
        self.children.append(pid)
        return True

    def end_children(self):
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.children = []

    @staticmethod
    def to_json(path):
        raw = os.fsencode(path)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(raw).decode()}

    @staticmethod
    def from_json(path):
        return os.fsdecode(base64.b64decode(path["b64"])) if isinstance(path, dict) else path

    def archives(self):
        found = []
        for top, directories, _ in os.walk(self.top):
            if top.endswith("/.groupstore/archive"):
                found += [os.path.join(top, d) for d in directories]
                directories[:] = []
        return sorted(found)

    def unfinished(self):
        return [f for f in files_in(self.top) if f.endswith("/.groupstore/journal.json") or "/.groupstore/postponed/" in f]

    def close(self):
        self.end_children()
        if self.agent:
            self.agent.kill(), self.agent.wait()
        subprocess.run(["chattr", "-R", "-i", self.top], stderr=subprocess.DEVNULL)
        with open("/proc/self/mounts", "rb") as mounts:
            left = [line.split()[1].decode("unicode_escape").encode("latin-1") for line in mounts]
        for target in reversed([m for m in left if m.startswith(os.fsencode(self.top) + b"/")]):
            subprocess.run(["umount", "-l", target], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.top, ignore_errors=True)
        shutil.rmtree(self.scratch, ignore_errors=True)
