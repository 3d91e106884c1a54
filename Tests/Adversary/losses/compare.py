"""What an old store had and a new one hasn't: counted from two States."""

from coredata import *


class Diff:
    """Pairs entities and properties by renaming identifier, objects by key (after a mapping model by uid), and compares.

    gone     objects that went, by entity          values   (old declaring entity, attribute): values that went
    changes  values that became others             over     values that a new derivation replaced
    links    links that neither end keeps           ends     links that one end doesn't keep though its relationship stays, or neither
    with_objects  links from or to a removed object  wrong   sentences about what should not be
    """

    def __init__(self, old, new, strict=True, mapped=None):
        self.old, self.new, self.mapped = old, new, mapped
        m, n = old.m, new.m
        byrid = {e.rid: e.name for e in n.ents.values()}
        self.ent = {e.name: byrid.get(e.rid) for e in m.ents.values()}
        self.gone, self.kept, self.wrong = {}, {}, []
        uids = {(e, new.val.get((k, "uid"))): k for k, e in new.obj.items()} if mapped else {}
        for o, e in old.obj.items():
            e2 = self.ent[e]
            if e2 is None or (mapped and (o in mapped["drop"] or e in mapped["gone"])):
                self.gone.setdefault(e, []).append(o)
                continue
            k = (n.root(e2), o[1])
            if mapped:
                if n.ents[e2].abstract and not any(x == e2 for x in new.obj.values()):
                    self.gone.setdefault(e, []).append(o)
                    continue
                if any(a.name == "uid" for _, a in n.attrs(e2)):
                    k = uids.get((e2, old.val[o, "uid"]), k)
            if new.obj.get(k) != e2:
                self.wrong.append(f"object {e} {o[1]} should be {e2} {k}, is {new.obj.get(k)}")
                continue
            self.kept[o] = k
            if not mapped and old.opt[o] != new.opt[k]:
                self.wrong.append(f"Z_OPT of {e} {o[1]}: {old.opt[o]} became {new.opt[k]}")
        back = {k: o for o, k in self.kept.items()}
        for k, e in new.obj.items():
            if k not in back:
                self.wrong.append(f"an object that nobody had: {e} {k}")
        self.values, self.changes, self.over, self.pairs = {}, {}, {}, {}
        for e in m.ents:
            there = {a.rid: a for _, a in n.attrs(self.ent[e])} if self.ent[e] else {}
            self.pairs[e] = [(c, a, there.get(a.rid)) for c, a in m.attrs(e) if not a.trans]
        for o, k in self.kept.items():
            e, got = old.obj[o], set()
            for c, a, b in self.pairs[e]:
                v = old.val[o, a.name]
                if b:
                    got.add(b.name)
                if b is None or b.trans:
                    if v is not None and not a.derived:
                        self.values.setdefault((c, a.name), []).append((o, v, None))
                    continue
                w = new.val[k, b.name]
                if a.derived or b.derived:
                    if not a.derived and v is not None and v != w:
                        self.over.setdefault((c, a.name), []).append((o, v, w))
                    continue
                if mapped and (e, a.name) in mapped["fresh"] and w == v and v is not None and v != default_value(b):
                    self.wrong.append(f"{e} {o[1]}.{a.name} should be new, is {w!r}")
                if v is None:
                    if w is not None and (b.opt or b.default is None) and not mapped:
                        self.wrong.append(f"{e} {o[1]}.{a.name} was NULL, is {w!r}")
                    elif w is None and not b.opt:
                        self.wrong.append(f"{e} {o[1]}.{b.name} is NULL and mandatory")
                elif w is None or (mapped and (e, a.name) in mapped["fresh"] and w == default_value(b)):
                    self.values.setdefault((c, a.name), []).append((o, v, w))
                elif v != w or type(v) != type(w) or not fits(a.type, b.type, w):
                    if a.type == b.type:
                        self.wrong.append(f"{e} {o[1]}.{a.name}: {v!r} became {w!r}, of the same type {a.type}")
                    self.changes.setdefault((c, a.name), []).append((o, v, w, a.type, b.type))
            for _, b in n.attrs(new.obj[k]) if strict else ():
                if b.trans or b.derived or b.name in got:
                    continue
                w, want = new.val[k, b.name], default_value(b)
                if w != want:
                    self.wrong.append(f"new {new.obj[k]}.{b.name} of {k} is {w!r}, its default is {want!r}")
        self.links, self.with_objects, self.ends, self.orders, self.inv = {}, {}, {}, [], {}
        seen = set()
        for e in m.ents:
            for r in m.ents[e].rels.values():
                if r.trans or (e, r.name) in seen:
                    continue
                i = m.rel_of(r.dest, r.inv) if r.inv else None
                seen |= {(e, r.name), (m.owner_of(r.dest, r.inv) if i else None, r.inv)}
                self.inv[e, r.name] = names = (
                    set()
                )  # under which it may be told: its own, its inverse's, the newer ones'
                for c, x in [(e, r)] + ([(m.owner_of(r.dest, r.inv), i)] if i else []):
                    later = [y.name for z in n.ents.values() for y in z.rels.values() if y.rid == x.rid]
                    names |= {(q, y) for q in (c, self.ent[c]) for y in [x.name] + later}
                for a, b in old.links.get((e, r.name), ()):
                    if i is r and (b, a) in old.links[e, r.name] and b < a:
                        continue
                    if a not in self.kept or b not in self.kept:
                        self.with_objects.setdefault((e, r.name), []).append((a, b))
                        continue
                    x, y = self.kept[a], self.kept[b]
                    one, two = self.has(x, y, r.rid), i and self.has(y, x, i.rid)
                    if not one:
                        self.ends.setdefault((e, r.name), []).append((a, b))
                    if i and not two and i is not r:
                        self.ends.setdefault((e, r.name), []).append((b, a))
                    if not one and not two:
                        self.links.setdefault((e, r.name), []).append((a, b))
        for e2 in n.ents:  # links that are new, and orders
            for r2 in n.ents[e2].rels.values():
                if r2.trans:
                    continue
                i2 = n.rel_of(r2.dest, r2.inv) if r2.inv else None
                for x, y in new.links.get((e2, r2.name), ()):
                    if x not in back or y not in back:
                        continue
                    if not (self.had(back[x], back[y], r2.rid) or (i2 and self.had(back[y], back[x], i2.rid))):
                        self.wrong.append(f"a link that nobody had: {e2}.{r2.name} {x} -> {y}")
                if (
                    not r2.ordered
                    or r2.inv == r2.name
                    or any(r.rid == r2.rid and r.inv == r.name for x in m.ents.values() for r in x.rels.values())
                ):
                    continue
                for x, ys in new.order.get((e2, r2.name), {}).items():
                    if x not in back:
                        continue
                    c = next(((c, r) for c, r in m.rels(old.obj[back[x]]) if r.rid == r2.rid and not r.trans), None)
                    was = (
                        old.order.get((c[0], c[1].name), {}).get(back[x])
                        if c and c[1].ordered and c[1].inv != c[1].name
                        else None
                    )
                    if was is None:
                        # A new relationship takes the order of the one whose links it shares.
                        if mapped or c is None:
                            continue
                        want = sorted(ys, key=lambda y: y[1])
                    else:
                        want = [self.kept[b] for b in was if b in self.kept and self.kept[b] in ys]
                        if len(want) < len(ys):
                            ys = [y for y in ys if y in want]
                    if want != ys:
                        self.orders.append(
                            f"order of {e2}.{r2.name} of {x}: {[w[1] for w in want]} became {[y[1] for y in ys]}"
                            + ("" if was else " (had none)")
                        )

        was = {(self.kept.get(a, a), self.kept.get(b, b)) for _, a, b in old.dangling}
        was |= {(b, a) for a, b in was}
        for k, a, b in new.dangling:
            if mapped or (a, b) not in was:
                self.wrong.append(f"a reference to nothing that nobody had: {k} {a} -> {b}")

    def has(self, x, y, rid):
        return any(
            r.rid == rid and not r.trans and (x, y) in self.new.links.get((c, r.name), ())
            for c, r in self.new.m.rels(self.new.obj[x])
        )

    def had(self, a, b, rid):
        return any(
            r.rid == rid and not r.trans and (a, b) in self.old.links.get((c, r.name), ())
            for c, r in self.old.m.rels(self.old.obj[a])
        )


def default_value(a):
    if a.default is None:
        return None
    if a.type == "Boolean":
        return 1 if a.default in ("YES", 1, True) else 0
    if a.type == "String":
        return a.default
    return norm(float(a.default))


RANGES = {"Integer 16": 2**15, "Integer 32": 2**31, "Integer 64": 2**63}


def fits(old, new, value):
    """Returns true if an app reads the stored number as it is: a narrower type makes another one of it."""
    if old == new or isinstance(value, (str, bytes)):
        return True
    if new in RANGES:
        return -RANGES[new] <= value < RANGES[new]
    if new == "Boolean":
        return value in (0, 1)
    if new == "Decimal":
        return value == 0 or 1e-128 <= abs(value) <= 3.4e165
    if new == "Float" and old not in ("Boolean", "Integer 16"):
        try:
            return struct.unpack("f", struct.pack("f", value))[0] == value
        except OverflowError:
            return False
    return True
