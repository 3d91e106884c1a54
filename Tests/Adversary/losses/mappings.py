"""Migrations by a mapping model that the program drafts and the tester edits."""

from migrate import *


def edit_mapping(r, P):
    """Sometimes a condition, an attribute that is not read, an entity without a mapping: (entity, {(entity, attribute)}, {entity})."""
    import re

    rng, where, fresh, gone = r.rng, None, set(), set()
    lines = open(P).read().split("\n")
    at = [i for i, l in enumerate(lines) if l.startswith("  - ")] + [len(lines)]
    blocks = [lines[a:b] for a, b in zip(at, at[1:])]
    name = lambda b: b[0].split("from:")[1].strip().strip("\"'") if "from:" in b[0] else None
    for b in blocks:
        n, k = name(b), rng.random()
        if not n or len(b) < 2 or not b[1].strip().startswith("to:"):
            continue
        if k < 0.2 and not where:
            where = n
            b.insert(2, '    where: uid < "uid5"')
            r.count("mappings with a condition")
            r.story.append(f"where uid < uid5 for {n}")
        elif k < 0.4:
            c = [i for i, l in enumerate(b) if re.fullmatch(r"      (\w+): \$source\.\1", l) and "uid" not in l]
            if c:
                i = rng.choice(c)
                a = b[i].split(":")[0].strip()
                b[i] = f"      {a}: ~"
                fresh.add((n, a))
                r.count("mappings that don't read an attribute")
                r.story.append(f"{n}.{a} is not read")
        elif k < 0.48:
            gone.add(n)
            b[:] = []
            r.count("mappings without an entity")
            r.story.append(f"no mapping of {n}")
    open(P, "w").write("\n".join(lines[: at[0]] + [l for b in blocks for l in b]))
    return where, fresh, gone


def mapping(r):
    """A mapping model made by the program from two models, sometimes with a condition added by us."""
    rng = r.rng
    m = random_model(rng)
    for _ in range(50):
        if valid(m):
            break
        m = random_model(rng)
    m.forget_ids()
    m.add_uid()
    m2, said = next_model(rng, m, rng.choice([1, 1, 2, 3]))
    r.story += said
    r.model(m, m2)
    P = r.here + "/p.mapping.yaml"
    rc, out, err = r.run(
        "model", "mapping", "create", r.bundle + "/M 1.xcdatamodel", r.bundle + "/M 2.xcdatamodel", "--to", P
    )
    if rc:
        r.count("no draft")
        return
    r.count("drafts with to-dos" if any(x.get("type") == "to_do" for x in out) else "drafts")
    where, fresh, gone = edit_mapping(r, P)
    src = r.new_store("M 1", "s.sqlite", m)
    if not src:
        return
    extra = extras.add(r, m, src)
    base = r.here + "/old"
    os.makedirs(base)
    S = os.path.join(base, rng.choice(STORE_NAMES))
    r.place(src, S)
    before = r.look(S, m)
    drop = {o for o, e in before.obj.items() if e == where and not before.val[o, "uid"] < "uid5"} if where else set()
    migrate(
        r,
        m,
        m2,
        S,
        before,
        extra,
        rng.choice(["in place", "in place", "--to", "relocate"]),
        False,
        ["--mapping", P],
        mapping={"drop": drop, "fresh": fresh, "gone": gone},
    )
