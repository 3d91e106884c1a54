"""Inferred migrations, in one step or several, in place, to another path or into a group."""

from judge import *
import extras


def infer(r, steps=False):
    rng = r.rng
    m = random_model(rng)
    for _ in range(50):
        if valid(m):
            break
        m = random_model(rng)
    m, _ = next_model(rng, m, 3)
    m.forget_ids()
    more = []
    if steps:
        mid, s1 = next_model(rng, m, rng.choice([1, 2]))
        m2, s2 = next_model(rng, mid, rng.choice([1, 2, 3]))
        more = [("M 2", mid)]
        said = s1 + ["then"] + s2
    else:
        m2, said = next_model(rng, m, rng.choice([1, 1, 1, 2, 3]))
    r.story += said
    r.model(m, m2, names=("M 1", "M 3" if steps else "M 2"), more=more)
    r.odd = rng.random() < 0.15
    src = r.new_store(
        "M 1", "s.sqlite", m, most=rng.choice([3, 9, 9, 30] * 4 + [600]), odd=r.odd, dangling=rng.random() < 0.15
    )
    if not src:
        return
    if rng.random() < 0.05:
        r.stranger(m)
    extra = extras.add(r, m, src)
    name = rng.choice(STORE_NAMES)
    how = rng.choice(["in place"] * 3 + ["--to", "relocate", "relocate"])
    base = r.here + "/old"
    os.makedirs(base)
    S = os.path.join(base, name)
    r.place(src, S)
    if not steps and rng.random() < 0.12 and not r.strangers:
        rc, out, err = r.run("history", "enable", S)
        if rc == 0:
            r.count("with groupstore's history")
            r.history = True
            db = connect(S)
            for root in m.kids(None):
                db.execute(f'UPDATE "Z{root.upper()}" SET Z_OPT = Z_OPT + 1 WHERE Z_PK % 2')
            db.close()
        else:
            r.count("history refused")
    before = r.look(S, m, r.strangers)
    if before.dangling:
        r.count("with references to nothing")
    if before.bad:
        r.problem("TESTER", before.bad[:3])
        return
    migrate(r, m, m2, S, before, extra, how, steps)


def migrate(r, m, m2, S, before, extra, how, steps, options=(), mapping=None):
    rng, base, name = r.rng, os.path.dirname(S), os.path.basename(S)
    group = r.here + "/group"
    start = tree(r.here)
    rc0, chk, _ = r.run("model", "check", S, r.bundle, *options)
    rc1, dry, _ = r.run("migrate", S, "--model", r.bundle, "--dry-run", *options)
    cost = r.took
    if tree(r.here) != start:
        r.problem("dry run changed files", set(start.items()) ^ set(tree(r.here).items()))
    if how == "in place":
        args, N, group = ["migrate", S, "--model", r.bundle, *options], S, base
    elif how == "--to":
        N = r.here + "/new.sqlite"
        args = ["migrate", S, "--model", r.bundle, "--to", N, *options]
    else:
        os.makedirs(group)
        N = os.path.join(group, name)
        args = [
            "relocate",
            S,
            group,
            "--model",
            r.bundle,
            *options,
            *rng.choice([[], [], ["--retire", "archive"], ["--retire", "symlink"]]),
        ]
        if rng.random() < 0.2:
            args += ["--name", "other.sqlite"]
            N = os.path.join(group, "other.sqlite")
        rc2, dry2, _ = r.run(*args, "--dry-run")
        if rc2 == 0 and rc1 == 0 and removes_of(dry2) != removes_of(dry):
            r.problem("two answers", f"dry runs of migrate and relocate: {removes_of(dry)} and {removes_of(dry2)}")
        start = tree(r.here)
    kills = rng.choice([0, 0, 0, 1, 2, 3])
    killed = 0
    for _ in range(kills):
        rc, run, err = r.run(*args, kill=rng.uniform(0.005, max(0.06, cost * 4)))
        if rc is not None:
            break
        killed += 1
        if how == "--to" and os.path.lexists(N):
            break
    else:
        rc, run, err = r.run(*args)
    if killed and how == "--to" and os.path.lexists(N):
        rc = 0
        run = dry
    r.count(f"{how}: exit {rc}")
    if killed:
        r.count("killed runs")
    last = run[-1] if run else {}
    if rc is None:
        return
    if rc:
        code = (last.get("error") or {}).get("code")
        r.count(f"refused {code}")
        if rc0 == 0 or rc1 == 0:
            r.problem("two answers", f"check {rc0}, dry run {rc1}, run {rc}: {last.get('error')}")
        now = tree(r.here, skip=(".groupstore",))
        was = {k: v for k, v in start.items()}
        again = r.look(S, m)
        if not killed and now != was:
            # A checkpoint moves the log's pages into the store: its content stays, and is compared below.
            changed = {path for path, _ in set(now.items()) ^ set(was.items())}
            if changed <= {"old/" + name, "old/" + name + "-wal"}:
                r.count("refusals after a checkpoint")
            else:
                r.problem("a refusal changed files", f"{code}: {sorted(changed)}")
        if again.dump != before.dump or again.sup != before.sup:
            r.problem("a refusal changed content", code)
        leftovers(r, r.here)
        if how == "relocate" and rc == 65 and code not in ("name_collision",) and rng.random() < 0.5:
            set_aside(r, m2, S, before, group, args, N)
        return
    if rc0 or rc1:
        r.problem(
            "two answers",
            f"check {rc0} {[x for x in chk if x.get('severity') == 'error'][:2]}, dry run {rc1} {dry[-1:]}, run 0",
        )
    outcome = last.get("outcome")
    r.count(f"outcome {outcome}")
    leftovers(r, r.here)
    if not killed:
        a, b, c = removes_of(chk, "check"), removes_of(dry), removes_of(run)
        if not a == b == c:
            r.problem("two answers", f"removes: check {a}, dry run {b}, run {c}")
        if how != "relocate":
            t = lambda ls: sorted(x["text"] for x in ls if x.get("type") == "note" and "kept in" not in x["text"])
            if t(dry) != t(run):
                r.problem("notes differ", f"dry run {t(dry)}, run {t(run)}")
    if outcome in ("nothing_to_do", "copied") or (
        outcome in ("relocated", "already_relocated") and "to_model" not in last
    ):
        c = r.scratch + "/same.sqlite"
        shutil.copy(N, c)
        if os.path.exists(N + "-wal"):
            shutil.copy(N + "-wal", c + "-wal")
        if dump(c) != before.dump and not killed:
            r.problem("changed without a migration", outcome)
        if not killed or dry[-1].get("outcome") in ("nothing_to_do", "would_copy"):
            return
    try:
        after = r.look(N, m2)
    except (LookupError, sqlite3.Error, OSError) as x:
        r.problem("unreadable", f"{type(x).__name__} {x}")
        return
    d = Diff(before, after, strict=not steps, mapped=mapping)
    if before.strangers:
        # "rows whose entity number the model doesn't have stay as they are": they must not become objects of a new entity
        for root, pk, n in before.strangers:
            e = d.ent.get(root)
            k = (m2.root(e), pk) if e else None
            if k and k in after.obj:
                r.problem("unknown row became an object", f"{root} {pk} with Z_ENT {n} is now of {after.obj[k]}")
        after.bad = [b for b in after.bad if " 8000 " not in b]
        d.wrong = [w for w in d.wrong if "8000)" not in w]
    for b in after.bad[:3]:
        r.problem("wrong content", b)
    for b in d.wrong[:3]:
        r.problem("wrong content", b)
    for b in d.orders[:2]:
        r.problem("order", b)
    notes = (
        [x["text"] for x in run if x.get("type") == "note"]
        if not killed
        else [x["text"] for x in dry if x.get("type") == "note"]
    )
    lost = judge_losses(
        r, d, removes_of(run) if not killed else removes_of(dry), notes, not steps and not mapping, group, name
    )
    if how == "--to":
        again = r.look(S, m)
        if again.dump != before.dump or again.sup != before.sup:
            r.problem("--to changed the store", S)
    elif lost:
        check_archived(r, group, before, name, f"lost something ({outcome})")
    if how != "--to" and lost and rng.random() < 0.15 and len(archives(group)) == 1:
        R = r.here + "/restored.sqlite"
        rc3, out, _ = r.run("archive", "restore", group, os.path.basename(archives(group)[0]), "--to", R)
        if rc3:
            r.problem("archive restore", out[-1:])
        else:
            r.count("archives restored")
            again = r.look(R, m, r.strangers)
            if again.dump != before.dump or again.sup != before.sup:
                r.problem("archive restore", "the restored store isn't the original")
    if how == "relocate" and os.path.lexists(S) and not os.path.islink(S):
        r.problem("two stores", f"{S} is still there")
    # every external file is in the new folder or in an archive
    gone = {f: h for f, h in before.sup.items() if h != after.sup.get(f)}
    if gone and how != "relocate":
        r.problem("external files", f"gone from the folder: {gone}")
    elif gone and not any(
        f in folder(os.path.join(a, x))
        for a in archives(group)
        for x in os.listdir(a)
        if x.endswith("_SUPPORT")
        for f in gone
    ):
        r.problem("external files", f"neither in the new store nor in an archive: {gone}")
    missing = [
        f
        for f in after.files
        if f not in {os.path.basename(x) for x in after.sup} and f in {os.path.basename(x) for x in before.sup}
    ]
    if missing:
        r.problem("external files", f"referred to and not there: {missing}")
    if before.meta[0][0] != after.meta[0][0]:
        r.problem("metadata", f"Z_UUID {before.meta[0][0]} became {after.meta[0][0]}")
    old, new = plistlib.loads(before.meta[0][1]), plistlib.loads(after.meta[0][1])
    for k in old:
        if not k.startswith("NSStoreModel") and old[k] != new.get(k):
            r.problem("metadata", f"{k}: {old[k]} became {new.get(k)}")
    if r.history:
        check_history(r, N, before, after, m, m2)
    if not steps:
        extras.check(r, extra, before, after, d, notes, mapping)


def check_history(r, N, before, after, m, m2):
    """groupstore's own history goes on: old rows stay, and each later write is recorded."""
    old, new = before.dump.get("GS_CHANGE"), after.dump.get("GS_CHANGE")
    if old is None:
        return
    if new is None:
        r.problem("groupstore's history", "GS_CHANGE is gone")
        return
    if [x for x in old if x not in set(new)]:
        r.problem("groupstore's history", f"rows are gone: {[x for x in old if x not in set(new)][:2]}")
    if r.rng.random() < 0.5 or not after.obj:
        return
    db = connect(N)
    top = db.execute("SELECT max(number) FROM GS_CHANGE").fetchone()[0] or 0
    o, e = r.rng.choice(sorted(after.obj.items()))
    t = after.lay.table[e]
    try:
        db.execute(f'UPDATE "{t}" SET Z_OPT = Z_OPT + 1 WHERE Z_PK = ?', (o[1],))
    except sqlite3.Error as x:
        r.problem("groupstore's history", f"a write to {t} fails after the migration: {x}")
    else:
        got = db.execute(
            "SELECT t.name, c.operation, c.key FROM GS_CHANGE c JOIN GS_TABLE t ON t.id = c.table_id WHERE c.number > ? AND c.operation = 1",
            (top,),
        ).fetchall()
        if not any(g[0] == t and str(g[2]) == str(o[1]) for g in got):
            r.problem("groupstore's history", f"a write to {t} {o[1]} after the migration is not recorded: {got}")
        r.count("writes recorded after a migration")
    db.close()


def set_aside(r, m2, S, before, group, args, N):
    rc, out, err = r.run(*args, "--on-incompatible", "set-aside", kill=r.rng.choice([None, None, 0.05, 0.1]))
    if rc is None:
        rc, out, err = r.run(*args, "--on-incompatible", "set-aside")
    if rc:
        r.problem("set aside", f"exit {rc}: {out[-1:]}")
        return
    r.count("set aside")
    check_archived(r, group, before, os.path.basename(S), "set aside")
    s = r.look(N, m2)
    if s.obj:
        r.problem("set aside", "the new store isn't empty")
    leftovers(r, r.here)
