"""Random changes of a model: what a newer version may have otherwise."""

from generate import *


def op_add_attr(rng, m):
    e = rng.choice(sorted(m.ents))
    n = name_for(rng, ATTR_NAMES, used_names(m, e))
    m.ents[e].attrs[n] = random_attr(rng, n, 0.25)
    m.ents[e].attrs[n].rid = n
    return f"add {e}.{n}"


def any_attr(rng, m):
    c = [(e, a) for e in sorted(m.ents) for a in m.ents[e].attrs.values() if a.name != "uid"]
    return rng.choice(c) if c else None


def any_rel(rng, m):
    c = [(e, r) for e in sorted(m.ents) for r in m.ents[e].rels.values()]
    return rng.choice(c) if c else None


def op_del_attr(rng, m):
    x = any_attr(rng, m)
    if x:
        del m.ents[x[0]].attrs[x[1].name]
        return f"remove {x[0]}.{x[1].name}"


def op_rename_attr(rng, m):
    x = any_attr(rng, m)
    if not x:
        return
    e, a = x
    n = name_for(rng, ATTR_NAMES, used_names(m, e))
    old = a.name
    del m.ents[e].attrs[old]
    a.name = n
    if rng.random() < 0.15:
        a.rid = n
    m.ents[e].attrs[n] = a
    return f"rename {e}.{old} to {n} (id {a.rid})"


def op_swap_attr(rng, m):
    e = rng.choice(sorted(m.ents))
    at = m.ents[e].attrs
    if len(at) < 2:
        return
    x, y = rng.sample(sorted(at), 2)
    if "uid" in (x, y):
        return
    a, b = at[x], at[y]
    a.name, b.name = y, x
    at[x], at[y] = b, a
    return f"swap {e}.{x} and {y}"


def op_type(rng, m):
    x = any_attr(rng, m)
    if not x:
        return
    e, a = x
    old = a.type
    a.type = rng.choice(NUMERIC) if a.type in NUMERIC and rng.random() < 0.93 else rng.choice(TYPES)
    a.default = default_for(rng, a.type) if a.default is not None else None
    if a.type != "Binary":
        a.ext = False
    return f"type of {e}.{a.name}: {old} to {a.type}"


def op_optional(rng, m):
    x = any_attr(rng, m)
    if not x:
        return
    e, a = x
    a.opt = not a.opt
    if not a.opt and a.default is None and rng.random() < 0.7:
        a.default = default_for(rng, a.type)
    return f"{e}.{a.name} optional={a.opt} default={a.default}"


def op_flags(rng, m):
    x = any_attr(rng, m)
    if not x:
        return
    e, a = x
    k = rng.choice(["trans", "ext", "ext", "pres", "derived"])
    if k == "trans":
        a.trans = not a.trans
    elif k == "ext":
        if a.type != "Binary":
            return
        a.ext = not a.ext
    elif k == "pres":
        a.pres = not a.pres
    else:
        src = [b for b in m.ents[e].attrs.values() if b is not a and b.type == a.type and not b.trans and not b.derived]
        if not src or a.type == "Binary":
            return
        a.derived = rng.choice(src).name
        a.default = None
        a.opt = True
        a.ext = False
    return f"{e}.{a.name}: {k}"


def op_move_prop(rng, m):
    """Up or down in the hierarchy."""
    x = rng.choice([any_attr, any_rel])(rng, m)
    if not x:
        return
    e, p = x
    to = [c for c in m.chain(e) + m.tree(e) if c != e]
    if not to:
        return
    t = rng.choice(to)
    if p.name in used_names(m, t) - set(m.ents[e].attrs) - set(m.ents[e].rels):
        return
    d = "attrs" if isinstance(p, Attr) else "rels"
    del getattr(m.ents[e], d)[p.name]
    if p.name in used_names(m, t):
        getattr(m.ents[e], d)[p.name] = p
        return
    getattr(m.ents[t], d)[p.name] = p
    if d == "rels" and p.inv:
        i = m.rel_of(p.dest, p.inv)
        if i is p:
            p.dest = t
        else:
            i.dest = t
    return f"move {e}.{p.name} to {t}"


def op_add_rel(rng, m):
    s, n = add_rel(rng, m)
    return f"add {s}.{n}"


def drop_rel(m, e, r):
    del m.ents[e].rels[r.name]
    if r.inv:
        i = m.rel_of(r.dest, r.inv)
        if i:
            i.inv = None


def op_del_rel(rng, m):
    x = any_rel(rng, m)
    if not x:
        return
    e, r = x
    i, ie = (m.rel_of(r.dest, r.inv), m.owner_of(r.dest, r.inv)) if r.inv else (None, None)
    drop_rel(m, e, r)
    if i and i is not r and rng.random() < 0.6:
        del m.ents[ie].rels[i.name]
        return f"remove {e}.{r.name} and {ie}.{i.name}"
    return f"remove {e}.{r.name}" + (f", {ie}.{i.name} stays" if i else "")


def op_inverse(rng, m):
    """Two relationships stop or begin being each other's inverse, or take other ones."""
    x = any_rel(rng, m)
    if not x:
        return
    e, r = x
    if r.inv:
        i = m.rel_of(r.dest, r.inv)
        if i is r:
            r.inv = None
            return f"{e}.{r.name} no longer its own inverse"
        i.inv = r.inv = None
        return f"{e}.{r.name} without inverse"
    free = [
        (c, q)
        for c in m.tree(r.dest) + m.chain(r.dest)
        for q in m.ents[c].rels.values()
        if not q.inv and q.dest == e and c == r.dest and q is not r
    ]
    if free:
        c, q = rng.choice(free)
        r.inv, q.inv = q.name, r.name
        return f"{e}.{r.name} and {c}.{q.name} become inverse"
    n = name_for(rng, REL_NAMES, used_names(m, r.dest) | used_names(m, e))
    m.ents[r.dest].rels[n] = Rel(n, e, inv=r.name, many=rng.random() < 0.7, ordered=False)
    if m.ents[r.dest].rels[n].many and rng.random() < 0.4:
        m.ents[r.dest].rels[n].ordered = True
    r.inv = n
    return f"{e}.{r.name} gets inverse {r.dest}.{n}"


def op_rel_kind(rng, m):
    x = any_rel(rng, m)
    if not x:
        return
    e, r = x
    k = rng.choice(["many", "ordered", "ordered", "dest", "opt", "trans"])
    if k == "many":
        r.many = not r.many
        r.ordered = r.ordered and r.many
    elif k == "ordered":
        if not r.many:
            return
        r.ordered = not r.ordered
    elif k == "opt":
        r.opt = not r.opt
    elif k == "trans":
        if rng.random() < 0.5:
            return
        r.trans = True
        if r.inv:
            m.rel_of(r.dest, r.inv).trans = True
    else:
        to = [c for c in m.chain(r.dest) + m.tree(r.dest) if c != r.dest] or sorted(m.ents)
        t = rng.choice(to)
        i = m.rel_of(r.dest, r.inv) if r.inv else None
        if i is r:
            return
        if i:
            ie = m.owner_of(r.dest, r.inv)
            if ie != t:  # the inverse moves along
                if i.name in used_names(m, t) and ie not in m.chain(t) + m.tree(t):
                    return
                del m.ents[ie].rels[i.name]
                if i.name in used_names(m, t):
                    m.ents[ie].rels[i.name] = i
                    return
                m.ents[t].rels[i.name] = i
        r.dest = t
    return f"{e}.{r.name}: {k} (many={r.many} ordered={r.ordered} dest={r.dest} optional={r.opt} transient={r.trans})"


def op_rename_rel(rng, m):
    x = any_rel(rng, m)
    if not x:
        return
    e, r = x
    n = name_for(rng, REL_NAMES, used_names(m, e))
    old = r.name
    i = m.rel_of(r.dest, r.inv) if r.inv else None
    del m.ents[e].rels[old]
    r.name = n
    m.ents[e].rels[n] = r
    if i:
        i.inv = n
    if rng.random() < 0.12:
        r.rid = n
    return f"rename {e}.{old} to {n} (id {r.rid})"


def op_add_ent(rng, m):
    n = name_for(rng, ENT_NAMES, m.ents)
    if n.upper() in {x.upper() for x in m.ents}:
        return
    m.ents[n] = Ent(n, rng.choice(sorted(m.ents) + [None]))
    a = name_for(rng, ATTR_NAMES, used_names(m, n))
    m.ents[n].attrs[a] = random_attr(rng, a)
    return f"add entity {n} under {m.ents[n].parent}"


def op_new_parent(rng, m):
    e = rng.choice(sorted(m.ents))
    n = name_for(rng, ENT_NAMES, m.ents)
    if n.upper() in {x.upper() for x in m.ents}:
        return
    m.ents[n] = Ent(n, m.ents[e].parent, abstract=rng.random() < 0.5)
    m.ents[e].parent = n
    for k in m.kids(m.ents[n].parent):
        if k not in (e, n) and rng.random() < 0.3 and m.ents[n].parent:
            m.ents[k].parent = n
    return f"{e} gets the new parent {n}"


def op_del_ent(rng, m):
    e = rng.choice(sorted(m.ents))
    if len(m.ents) < 2:
        return
    p = m.ents[e].parent
    gone = [e]
    for k in m.kids(e):
        if rng.random() < 0.6:
            m.ents[k].parent = p
        else:
            gone += m.tree(k)
    for x in list(m.ents):
        for r in list(m.ents[x].rels.values()):
            if x in gone or r.dest in gone:
                if r.name in m.ents[x].rels:
                    i = m.ents.get(r.dest) and r.inv and m.owner_of(r.dest, r.inv)
                    drop_rel(m, x, r)
    for g in gone:
        del m.ents[g]
    for x in m.ents.values():  # an inverse that was with the removed entity
        for r in x.rels.values():
            if r.inv and (r.dest not in m.ents or not m.rel_of(r.dest, r.inv)):
                r.inv = None
    return f"remove {', '.join(gone)}"


def op_reparent(rng, m):
    e = rng.choice(sorted(m.ents))
    to = [x for x in sorted(m.ents) if x not in m.tree(e) and x != m.ents[e].parent] + [None]
    same = [x for x in to if x and m.root(x) == m.root(e)] + [None]
    t = rng.choice(same if rng.random() < 0.75 else to)
    if t == m.ents[e].parent:
        return
    old = m.ents[e].parent
    m.ents[e].parent = t
    if t and {x for c in m.chain(t) for x in list(m.ents[c].attrs) + list(m.ents[c].rels)} & {
        x for c in m.tree(e) for x in list(m.ents[c].attrs) + list(m.ents[c].rels)
    }:
        m.ents[e].parent = old
        return
    return f"{e}: parent {old} becomes {t}"


def op_rename_ent(rng, m):
    e = rng.choice(sorted(m.ents))
    n = name_for(rng, ENT_NAMES, m.ents)
    if n.upper() in {x.upper() for x in m.ents if x != e}:
        return
    x = m.ents.pop(e)
    x.name = n
    m.ents[n] = x
    if rng.random() < 0.1:
        x.rid = n
    for y in m.ents.values():
        if y.parent == e:
            y.parent = n
        for r in y.rels.values():
            if r.dest == e:
                r.dest = n
    return f"rename entity {e} to {n} (id {x.rid})"


def op_abstract(rng, m):
    e = rng.choice(sorted(m.ents))
    m.ents[e].abstract = not m.ents[e].abstract
    return f"{e} abstract={m.ents[e].abstract}"


def op_unique(rng, m):
    x = any_attr(rng, m)
    if not x or x[1].trans or x[1].type in ("Binary", "Transformable", "Decimal") or x[1].derived:
        return
    m.ents[x[0]].unique = [] if m.ents[x[0]].unique else [[x[1].name]]
    return f"{x[0]} unique {m.ents[x[0]].unique}"


OPS = [
    op_add_attr,
    op_del_attr,
    op_rename_attr,
    op_swap_attr,
    op_type,
    op_type,
    op_optional,
    op_flags,
    op_move_prop,
    op_move_prop,
    op_add_rel,
    op_del_rel,
    op_inverse,
    op_inverse,
    op_rel_kind,
    op_rel_kind,
    op_rename_rel,
    op_add_ent,
    op_new_parent,
    op_del_ent,
    op_reparent,
    op_reparent,
    op_rename_ent,
    op_abstract,
    op_unique,
]


def valid(m):
    """Is this a model that Xcode would accept?"""
    if not m.ents:
        return False
    for e in m.ents:
        names = [p.name for _, p in m.attrs(e)] + [p.name for _, p in m.rels(e)]
        if len(set(names)) < len(names):
            return False
        rids = [p.rid for _, p in m.attrs(e)] + [p.rid for _, p in m.rels(e)]
        if len(set(rids)) < len(rids):
            return False
        for r in m.ents[e].rels.values():
            if r.dest not in m.ents:
                return False
            if r.inv:
                i = m.rel_of(r.dest, r.inv)
                if not i or i.inv != r.name or i.dest != e:
                    return False
                if i.trans != r.trans:
                    return False
            elif r.ordered and False:
                return False
        for u in m.ents[e].unique:
            if any(not any(a.name == c and not a.trans and not a.derived for _, a in m.attrs(e)) for c in u):
                return False
        for a in m.ents[e].attrs.values():
            if a.derived and not any(b.name == a.derived and not b.trans for _, b in m.attrs(e)):
                return False
    rids = [x.rid for x in m.ents.values()]
    if len(set(rids)) < len(rids) or len({x.upper() for x in m.ents}) < len(m.ents):
        return False
    names = [x.root for x in []]
    return True


def next_model(rng, m, count):
    n, said = m.copy(), []
    while len(said) < count:
        c = n.copy()
        try:
            t = rng.choice(OPS)(rng, c)
        except (KeyError, AttributeError, IndexError):
            t = None
        if t and valid(c):
            n, said = c, said + [t]
        elif rng.random() < 0.02:
            break
    return n, said
