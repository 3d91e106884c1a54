"""One round: its directory, the commands it runs, and what it finds in files."""

import collections, hashlib, json, os, plistlib, random, shutil, sqlite3, subprocess, sys, time, uuid

from changes import *
from compare import Diff

STORE_NAMES = ["S.sqlite"] * 25 + [
    "my store.sqlite",
    'it\'s "x".db',
    "naïve.store",
    ".hidden",
    "noext",
    "a.b.c",
    "L" * 180 + ".sqlite",
]


class Round:
    def __init__(self, o, number, counts):
        self.program, self.number, self.counts, self.seed = o.groupstore, number, counts, o.seed
        self.rng = random.Random(f"{o.seed}/{number}")
        self.dir = os.path.join(o.work, "round")
        shutil.rmtree(self.dir, ignore_errors=True)
        os.makedirs(self.dir + "/here")
        os.makedirs(self.dir + "/scratch")
        self.here, self.scratch = self.dir + "/here", self.dir + "/scratch"
        self.problems, self.story, self.commands, self.serial, self.strangers, self.odd, self.history = (
            [],
            [],
            [],
            0,
            set(),
            False,
            False,
        )

    def problem(self, kind, text):
        self.problems.append((kind, str(text)[:600]))

    def count(self, what, n=1):
        self.counts[what] += n

    def run(self, *a, kill=None, wait=90):
        """Exit code (None if killed), JSON lines, stderr."""
        a = [self.program, *a, "--json"]
        self.commands.append(
            " ".join(
                "'%s'" % x.replace("'", "'\\''")
                for x in map(os.fsencode, a)
                for x in [x.decode(errors="backslashreplace")]
            )
        )
        env = dict(os.environ, TMPDIR=self.scratch)
        t = time.monotonic()
        p = subprocess.Popen([os.fsencode(x) for x in a], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        try:
            out, err = p.communicate(timeout=kill if kill is not None else wait)
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            if kill is None:
                self.problem("hang", f"took more than {wait} s: {self.commands[-1]}")
            self.count("kills")
            return None, [], ""
        self.took = time.monotonic() - t
        lines = []
        for l in out.decode(errors="surrogateescape").splitlines():
            try:
                lines.append(json.loads(l))
            except ValueError:
                self.problem("output", f"no JSON: {l[:200]}")
        if p.returncode < 0 or p.returncode not in (0, 64, 65, 69, 73, 74, 75, 77, 78):
            self.problem("crash", f"exit {p.returncode}: {self.commands[-1]}: {err[-300:]}")
        if (
            p.returncode == 65
            and lines
            and (lines[-1].get("error") or {}).get("code") in ("audit_failed", "merge_proof")
        ):
            self.problem("defect", f"{lines[-1]['error']}"[:500])
        return p.returncode, lines, err.decode(errors="replace")

    def model(self, m, m2=None, names=("M 1", "M 2"), more=()):
        self.bundle = self.here + "/M.xcdatamodeld"
        v = {names[0]: m}
        for n, x in more:
            v[n] = x
        if m2:
            v[names[1]] = m2
        write_bundle(self.bundle, v, names[1] if m2 else names[0])

    def new_store(self, version, name, m, rng=None, **how):
        """A filled store in the scratch directory; its path, or None if the model is refused."""
        p = f"{self.scratch}/{name}"
        rc, out, err = self.run("create", p, "--model", self.bundle, *(["--model-version", version] if version else []))
        if rc:
            self.count("model refused")
            return None
        self.db = populate(rng or self.rng, p, m, **how)
        return p

    def stranger(self, m):
        """A row of an entity number that the model doesn't have; a newer model may have it."""
        root = self.rng.choice(m.kids(None))
        n = len(m.ents) + 1
        if not [r for c, r in m.rels(root) if not r.opt]:
            self.strangers = {n}
            self.count("with a row of an unknown entity")
            self.db.execute(f'INSERT INTO "Z{root.upper()}" (Z_PK, Z_ENT, Z_OPT) VALUES (8000, ?, 1)', (n,))

    def place(self, scratch, final):
        """Moves a store from the scratch directory to its place, sometimes with its log, sometimes in rollback mode."""
        k = self.rng.choice(["wal", "log", "log", "delete"])
        if k == "log":  # a log that was never checkpointed, as after a crash
            self.db.execute("PRAGMA wal_autocheckpoint=0")
            self.db.execute("BEGIN IMMEDIATE")
            self.db.execute("UPDATE Z_METADATA SET Z_VERSION=1")
            self.db.execute("COMMIT")
            shutil.copy(scratch, final)
            if os.path.exists(scratch + "-wal"):
                shutil.copy(scratch + "-wal", final + "-wal")
                self.count("with a log")
            self.db.close()
        else:
            if k == "delete":
                self.db.execute("PRAGMA journal_mode=DELETE")
            self.db.close()
            shutil.copy(scratch, final)
        a, b = os.path.dirname(support(scratch)), os.path.dirname(support(final))
        if os.path.isdir(a):
            os.rename(a, b)
            self.count("with external files")
            if self.rng.random() < 0.3:
                open(b + "/_EXTERNAL_DATA/" + str(uuid.UUID(bytes=self.rng.randbytes(16))).upper(), "wb").write(
                    b"nobody refers to this"
                )
                self.count("with an orphan file")

    def look(self, path, m, strangers=()):
        """The State of a store, read from a copy so that nothing is left beside it."""
        self.serial += 1
        c = f"{self.scratch}/look{self.serial}.sqlite"
        shutil.copy(path, c)
        if os.path.exists(path + "-wal"):
            shutil.copy(path + "-wal", c + "-wal")
        st = State(c, m, sup=support(path), strangers=strangers)
        st.dump, st.copy, st.sup = dump(c), c, folder(os.path.dirname(support(path)))
        return st


def folder(d):
    return {
        os.path.relpath(os.path.join(p, f), d): hashlib.sha256(open(os.path.join(p, f), "rb").read()).hexdigest()
        for p, _, fs in os.walk(d)
        for f in fs
    }


def tree(d, skip=()):
    out = {}
    for p, ds, fs in os.walk(d):
        ds[:] = [x for x in ds if x not in skip]
        for x in ds:
            out[os.path.relpath(os.path.join(p, x), d)] = "directory"
        for f in fs:
            q = os.path.join(p, f)
            if not f.endswith("-shm"):
                out[os.path.relpath(q, d)] = hashlib.sha256(open(q, "rb").read()).hexdigest()
    return out


def dump(path):
    """All rows of all tables, with rowids where there are any."""
    db = sqlite3.connect(path)
    db.text_factory = bytes
    out = {}
    for n, sql in db.execute(
        "SELECT name, sql FROM sqlite_master WHERE type='table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    ).fetchall():
        n = n.decode()
        out[n] = sorted(db.execute('SELECT * FROM "%s"' % n.replace('"', '""')).fetchall(), key=repr)
    db.close()
    return out


def archives(d):
    a = os.path.join(d, ".groupstore/archive")
    return sorted(os.path.join(a, x) for x in os.listdir(a)) if os.path.isdir(a) else []


def check_archived(r, group, before, name, what):
    """Is the store in an archive of the group, whole?"""
    why = []
    for a in archives(group):
        p = os.path.join(a, name)
        if not os.path.exists(p):
            continue
        c = f"{r.scratch}/archived{r.serial}.sqlite"
        r.serial += 1
        shutil.copy(p, c)
        if os.path.exists(p + "-wal"):
            shutil.copy(p + "-wal", c + "-wal")
        if dump(c) != before.dump:
            why.append("its rows differ")
            continue
        f = folder(os.path.dirname(support(p)))
        if f != before.sup:
            why.append(f"external files differ: {set(before.sup.items()) ^ set(f.items())}")
            continue
        if not os.path.exists(a + "/about.json"):
            why.append("no about.json")
            continue
        return True
    r.problem("not archived", f"{what}; archives of {group}: {why or archives(group)}")


def leftovers(r, *dirs):
    for d in dirs:
        for p, ds, fs in os.walk(d):
            for x in ds + fs:
                if x.startswith(".groupstore-"):
                    r.problem("leftover", os.path.join(p, x))
            if os.path.basename(p) == "staging" and (ds or fs):
                r.problem("leftover", f"{p}: {ds + fs}")
            if os.path.basename(p) == ".groupstore" and "journal.json" in fs:
                r.problem("leftover", p + "/journal.json")
