"""Random models, next versions of them, and random content."""

import os, sqlite3, struct, uuid
from coredata import *

ENT_NAMES = [
    "Alpha",
    "beta",
    "Gamma",
    "Delta",
    "Epsilon",
    "Note",
    "note2",
    "Tag",
    "Person",
    "Animal",
    "Zoo",
    "Order",
    "Group",
    "Select",
    "Item1",
    "Item",
    "Ab",
    "AbC",
]
ATTR_NAMES = [
    "title",
    "text",
    "text1",
    "Text",
    "a",
    "ab",
    "a1",
    "a11",
    "value",
    "order",
    "group",
    "key",
    "date",
    "body",
    "count",
    "pk",
    "ent",
    "opt",
    "fok_mum",
    "z",
    "description2",
    "select",
    "index",
]
REL_NAMES = [
    "owner",
    "owner1",
    "parent",
    "child",
    "children",
    "tags",
    "links",
    "mum",
    "peer",
    "from",
    "to",
    "next",
    "Owner",
    "refs",
    "members",
    "table",
]


def default_for(rng, t):
    if t.startswith("Integer"):
        return rng.choice([0, 1, -7, 32767])
    if t == "Boolean":
        return rng.choice(["YES", "NO"])
    if t in ("Decimal", "Double", "Float"):
        return rng.choice([0, 1.5, -2.25])
    if t == "String":
        return rng.choice(["new", 'it\'s "x"', "é漢"])
    if t == "Date":
        return rng.choice([0, 700000000, 1.5])
    return None


def random_attr(rng, name, mandatory=0.15):
    t = rng.choice(TYPES)
    a = Attr(name, t, opt=rng.random() > mandatory, default=default_for(rng, t) if rng.random() < 0.4 else None)
    if t == "Binary" and rng.random() < 0.7:
        a.ext = True
    if rng.random() < 0.06:
        a.trans = True
    if rng.random() < 0.08 and not a.trans:
        a.pres = True
    return a


def name_for(rng, pool, used, up=()):
    """A name that no class in the chain or below it has."""
    c = [n for n in pool if n not in used]
    return rng.choice(c) if c else f"x{rng.randrange(10**6)}"


def used_names(m, e):
    return {x for c in m.chain(e) + m.tree(e) for x in list(m.ents[c].attrs) + list(m.ents[c].rels)}


def add_rel(rng, m, kind=None, where=None):
    es = sorted(m.ents)
    s, d = where or (rng.choice(es), rng.choice(es))
    n = name_for(rng, REL_NAMES, used_names(m, s))
    kind = kind or rng.choice(["one", "many0", "1-n", "1-n", "1-n", "n-m", "n-m", "1-1", "self"])
    o = lambda: rng.random() < 0.5
    if kind == "one":
        m.ents[s].rels[n] = Rel(n, d)
    elif kind == "many0":
        m.ents[s].rels[n] = Rel(n, d, many=True, ordered=o())
    elif kind == "self":
        m.ents[s].rels[n] = Rel(n, s, inv=n, many=True, ordered=rng.random() < 0.2)
    else:
        m.ents[s].rels[n] = Rel(n, d, many=kind == "n-m")
        i = name_for(rng, REL_NAMES, used_names(m, d) | used_names(m, s))
        m.ents[d].rels[i] = Rel(i, s, inv=n, many=kind != "1-1", ordered=kind != "1-1" and o())
        m.ents[s].rels[n].inv = i
        if kind == "n-m" and o():
            m.ents[s].rels[n].ordered = True
    return s, n


def random_model(rng):
    m = Model()
    for n in rng.sample(ENT_NAMES, rng.randint(2, 6)):
        p = rng.choice(sorted(m.ents)) if m.ents and rng.random() < 0.45 else None
        m.ents[n] = Ent(n, p, abstract=rng.random() < 0.12)
    if len({r.upper() for r in m.ents}) < len(m.ents):
        return random_model(rng)
    for e in list(m.ents):
        for _ in range(rng.randint(0, 4)):
            n = name_for(rng, ATTR_NAMES, used_names(m, e))
            m.ents[e].attrs[n] = random_attr(rng, n)
    for _ in range(rng.randint(0, 5)):
        add_rel(rng, m)
    return m


def value_for(rng, a):
    t = a.type
    if t.startswith("Integer"):
        b = int(t[8:])
        return rng.choice(
            [
                0,
                1,
                -1,
                2 ** (b - 1) - 1,
                -(2 ** (b - 1)),
                rng.randrange(-1000, 1000),
                rng.randrange(-(2 ** (b - 1)), 2 ** (b - 1)),
            ]
        )
    if t == "Boolean":
        return rng.randint(0, 1)
    if t == "Decimal":
        return rng.choice([0, 1, 3.25, -1e15, 123456789012345678, 0.1, rng.random()])
    if t == "Double":
        return rng.choice([0.0, -1.5, 1e300, 2.0**53, 0.1, rng.uniform(-1e6, 1e6), 70000.0])
    if t == "Float":
        return struct.unpack("f", struct.pack("f", rng.choice([0.0, 1.5, 0.1, 3e38, rng.uniform(-1e6, 1e6), 40000.0])))[
            0
        ]
    if t == "String":
        return rng.choice(
            [
                "",
                "a",
                "it's",
                "é漢字🙂",
                "line\nbreak\r\n",
                " ",
                "1",
                "1.0",
                "x" * rng.randrange(5000),
                "%s" % rng.random(),
            ]
        )
    if t == "URI":
        return rng.choice(["http://example.com/%d" % rng.randrange(99), "x-coredata:///A/p1"])
    if t == "Date":
        return rng.choice([0.0, 723485158.135, 1e9, -1e10, rng.uniform(0, 8e8)])
    if t == "UUID":
        return rng.randbytes(16)
    if t == "Transformable":
        return b"bplist00" + rng.randbytes(rng.randrange(40))
    return rng.choice([b"", b"\x01", b"\x02", b"\x02" + rng.randbytes(37), rng.randbytes(rng.randrange(3000))])


MISSING = [0.05]  # how often a file that is referred to isn't there


def set_external(rng, store, b):
    """The bytes that stand in the column for b, which may go into a file."""
    if rng.random() < 0.6:
        return b"\1" + b
    name = str(uuid.UUID(bytes=rng.randbytes(16))).upper()
    d = support(store)
    os.makedirs(d, exist_ok=True)
    if rng.random() > MISSING[0]:
        open(os.path.join(d, name), "wb").write(b * rng.choice([1, 1, 50]))
    return b"\2" + name.encode() + b"\0"


def populate(rng, store, m, most=9, nulls=0.25, one_count=False, uid_pool=400, odd=False, dangling=False):
    """Fills an empty store; returns the connection, with everything committed."""
    db = connect(store)
    L = Layout(m)
    L.find_joins(db)
    db.execute("BEGIN")
    objs = {}  # entity -> keys, of that very entity
    pk = 0
    for root in m.kids(None):
        if not one_count:
            pk = 0
        uids = rng.sample(range(uid_pool), uid_pool)
        for e in m.tree(root):
            objs.setdefault(e, [])
            if m.ents[e].abstract:
                continue
            for _ in range(rng.choice([0, 1, 2, rng.randint(1, most)])):
                pk += rng.choice([1, 1, 1, 2, 5])
                cols = {"Z_PK": pk, "Z_ENT": L.id[e], "Z_OPT": rng.choice([1, 1, 2, 17])}
                for c, a in m.attrs(e):
                    if a.trans:
                        continue
                    if a.name == "uid":
                        cols[L.col[c, a.name]] = f"uid{uids.pop()}{e}"
                        continue
                    if a.opt and rng.random() < nulls:
                        continue
                    v = value_for(rng, a)
                    if odd and rng.random() < 0.03 and not a.ext:
                        v = rng.choice([b"\x00\xff", 70000, -1, 2**40, 0.5, 1e19, "12", "abc", b"12", 2])
                    cols[L.col[c, a.name]] = set_external(rng, store, v) if a.ext else v
                try:
                    db.execute(
                        'INSERT INTO "%s" (%s) VALUES (%s)'
                        % (L.table[e], ",".join(f'"{c}"' for c in cols), ",".join("?" * len(cols))),
                        list(cols.values()),
                    )
                except sqlite3.IntegrityError:
                    continue  # a uniqueness constraint
                objs[e].append(pk)
        db.execute(
            "UPDATE Z_PRIMARYKEY SET Z_MAX=? WHERE Z_ENT=?", (pk + rng.choice([0, 0, 3]) if pk else 0, L.id[root])
        )
    of = lambda e: [(x, k) for x in m.tree(e) for k in objs[x]]
    lost = lambda d: (d[0], 7000 + rng.randrange(9)) if dangling and rng.random() < 0.1 else d

    def put(c, r, src, dst, pos):
        """The to-one link src -> dst in its columns."""
        cols = {L.col[c, r.name]: dst[1]}
        if (c, r.name) in L.entcol:
            cols[L.entcol[c, r.name]] = L.id[dst[0]]
        if (c, r.name) in L.fokcol:
            cols[L.fokcol[c, r.name]] = pos
        db.execute(
            'UPDATE "%s" SET %s WHERE Z_PK=?' % (L.table[c], ",".join(f'"{x}"=?' for x in cols)),
            list(cols.values()) + [src[1]],
        )

    done = set()
    for e in m.ents:
        for r in m.ents[e].rels.values():
            if r.trans or (e, r.name) in done:
                continue
            src, dst = of(e), of(r.dest)
            if not src or not dst:
                continue
            i = m.rel_of(r.dest, r.inv) if r.inv else None
            ie = m.owner_of(r.dest, r.inv) if r.inv else None
            done |= {(e, r.name), (ie, r.inv)}
            pos = lambda n: 2048 + 1024 * n
            if r.many and not i:
                t, c, f = L.virtual[e, r.name]
                for n, d in enumerate(dst):
                    if rng.random() < 0.7:
                        db.execute(
                            f'UPDATE "{t}" SET "{c}"=?{", %s=?" % f if f else ""} WHERE Z_PK=?',
                            [rng.choice(src)[1]] + ([pos(rng.randrange(99) * 100 + n)] if f else []) + [d[1]],
                        )
            elif r.many and i.many:
                t, a, b, f = L.join[e, r.name]
                g = L.join[ie, r.inv][3]
                pairs = sorted({(rng.choice(src)[1], rng.choice(dst)[1]) for _ in range(rng.randint(1, 12))})
                if i is r:
                    pairs = [p for p in pairs if p[0] < p[1] or (p[0] == p[1]) or (p[1], p[0]) not in pairs]
                for n, (x, y) in enumerate(pairs):
                    cols = {a: x, b: y}
                    if f:
                        cols[f] = pos(rng.randrange(99) * 100 + n)
                    if g:
                        cols.setdefault(g, pos(rng.randrange(99) * 100 + n))
                    for fx in [c[1] for c in db.execute(f'PRAGMA table_info("{t}")')]:
                        if "FOK" in fx and fx not in cols:
                            cols[fx] = pos(rng.randrange(99) * 100 + n)
                    db.execute(
                        'INSERT INTO "%s" (%s) VALUES (%s)'
                        % (t, ",".join(f'"{c}"' for c in cols), ",".join("?" * len(cols))),
                        list(cols.values()),
                    )
            elif i and not r.many and not i.many and i is not r:  # one to one, in two columns
                rng.shuffle(src)
                dst = dst[:]
                rng.shuffle(dst)
                for s_, d in zip(src, dst):
                    if rng.random() < 0.7:
                        put(e, r, s_, d, None)
                        put(ie, i, d, s_, None)
            elif not r.many:
                for n, s_ in enumerate(src):
                    if rng.random() < 0.75 or not r.opt:
                        put(e, r, s_, lost(rng.choice(dst)), pos(rng.randrange(99) * 100 + n))
            else:  # to-many with a to-one inverse
                for n, d in enumerate(dst):
                    if rng.random() < 0.75:
                        put(ie, i, d, rng.choice(src), pos(rng.randrange(99) * 100 + n))
    db.execute("COMMIT")
    return db


# ---- next versions ----
