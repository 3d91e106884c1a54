"""Migrations beside a program that writes the store."""

from judge import *

WRITER = """
import sqlite3, sys, time, random
path, seed = sys.argv[1:3]; r = random.Random(seed)
for n in range(100000):
    try:
        db = sqlite3.connect(path, timeout=r.choice([0, 0.2, 5]), isolation_level=None)
        for k in range(r.choice([1, 1, 5])):
            db.execute("BEGIN IMMEDIATE"); db.execute("INSERT INTO acks (n, k) VALUES (?, ?)", (n, k)); db.execute("COMMIT")
            print(n, k, flush=True)
            if r.random() < 0.3: time.sleep(0.003)
        db.close()
    except sqlite3.Error: pass
    time.sleep(r.choice([0.001, 0.01, 0.03]))
"""


def writer(r):
    """A program that knows nothing of groupstore writes while its store is migrated: no acknowledged row is lost."""
    rng = r.rng
    m = random_model(rng)
    for _ in range(50):
        if valid(m):
            break
        m = random_model(rng)
    m.forget_ids()
    m2, said = next_model(rng, m, 2)
    r.story += said
    r.model(m, m2)
    src = r.new_store("M 1", "s.sqlite", m, most=rng.choice([9, 200]))
    if not src:
        return
    r.db.execute("CREATE TABLE acks (n INTEGER, k INTEGER)")
    os.makedirs(r.here + "/old")
    S = r.here + "/old/S.sqlite"
    r.place(src, S)
    if not os.path.exists(S + "-wal") and rng.random() < 0.5:
        db = connect(S)
        db.execute("PRAGMA journal_mode=WAL")
        db.close()
    before = r.look(S, m)
    move = rng.random() < 0.4
    N = S
    if move:
        os.makedirs(r.here + "/group")
        N = r.here + "/group/S.sqlite"
        args = ["relocate", S, r.here + "/group", "--model", r.bundle, "--deadline", "3"]
    else:
        args = ["migrate", S, "--model", r.bundle, "--deadline", "3"]
    ps = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, S, str(rng.random())],
            stdout=open(f"{r.scratch}/acks{i}", "w"),
            stderr=subprocess.DEVNULL,
        )
        for i in range(rng.choice([1, 1, 2]))
    ]
    try:
        time.sleep(0.15)
        killed = 0
        for _ in range(rng.choice([1, 1, 2, 3])):
            rc, run, err = r.run(*args, kill=rng.choice([None, None, rng.uniform(0.02, 0.4)]))
            killed += rc is None
        if rc is None:
            rc, run, err = r.run(*args)
        time.sleep(0.1)
    finally:
        for p in ps:
            p.kill()
            p.wait()
    acks = [
        tuple(map(int, l.split())) for i in range(len(ps)) for l in open(f"{r.scratch}/acks{i}").read().split("\n")[:-1]
    ]
    r.count(
        f"writers: {run[-1].get('outcome') if run else None} {(run[-1].get('error') or {}).get('code') if run else ''}"
    )
    r.count("acknowledged rows", len(acks))
    have = collections.Counter()
    for path in {S, N}:
        if os.path.isfile(path):
            db = connect(path)
            try:
                have.update(db.execute("SELECT n, k FROM acks").fetchall())
            except sqlite3.Error:
                pass
            db.close()
    want = collections.Counter(acks)
    lost = want - have
    # the last row may be committed and not yet told
    if lost:
        r.problem(
            "lost rows", f"{sum(lost.values())} of {len(acks)} acknowledged rows are gone: {list(lost)[:5]}; {run[-1:]}"
        )
    extra = have - want
    if sum(extra.values()) > len(ps):
        r.problem("doubled rows", f"{list(extra.items())[:5]}")
    if rc == 0 and run[-1].get("outcome") in ("migrated", "relocated"):
        after = r.look(N, m2)
        d = Diff(before, after)
        for b in (after.bad + d.wrong)[:3]:
            r.problem("wrong content", b)
        judge_losses(r, d, removes_of(run), ["?"], True, None, None)
