"""Models and stores of Core Data, written, laid out and read with code of our own."""

import os, sqlite3, struct, uuid, random, copy
from xml.sax.saxutils import quoteattr

NUMERIC = ["Integer 16", "Integer 32", "Integer 64", "Decimal", "Double", "Float", "Boolean"]
TYPES = NUMERIC + ["String", "Date", "Binary", "UUID", "URI", "Transformable"]


class Attr:
    def __init__(self, name, type, opt=True, trans=False, derived=None, default=None, ext=False, pres=False, rid=None):
        self.name, self.type, self.opt, self.trans, self.derived, self.default, self.ext, self.pres = (
            name,
            type,
            opt,
            trans,
            derived,
            default,
            ext,
            pres,
        )
        self.rid = rid or name


class Rel:
    def __init__(
        self, name, dest, inv=None, many=False, ordered=False, opt=True, rule="Nullify", trans=False, rid=None
    ):
        self.name, self.dest, self.inv, self.many, self.ordered, self.opt, self.rule, self.trans = (
            name,
            dest,
            inv,
            many,
            ordered,
            opt,
            rule,
            trans,
        )
        self.rid = rid or name


class Ent:
    def __init__(self, name, parent=None, abstract=False, rid=None):
        self.name, self.parent, self.abstract, self.rid = name, parent, abstract, rid or name
        self.attrs, self.rels, self.unique = {}, {}, []


class Model:
    def __init__(self, ents=()):
        self.ents = {e.name: e for e in ents}

    def copy(self):
        return copy.deepcopy(self)

    def chain(self, e):  # the root first
        out = []
        while e:
            out.insert(0, e)
            e = self.ents[e].parent
        return out

    def root(self, e):
        return self.chain(e)[0]

    def kids(self, e):
        return sorted((n for n, x in self.ents.items() if x.parent == e), key=lambda n: (n.lower(), n))

    def tree(self, e):
        return [e] + [y for k in self.kids(e) for y in self.tree(k)]

    def attrs(self, e):
        return [(c, a) for c in self.chain(e) for _, a in sorted(self.ents[c].attrs.items())]

    def rels(self, e):
        return [(c, r) for c in self.chain(e) for _, r in sorted(self.ents[c].rels.items())]

    def rel_of(self, e, name):
        return next((r for _, r in self.rels(e) if r.name == name), None)

    def owner_of(self, e, name):
        return next((c for c, r in self.rels(e) if r.name == name), None)

    def ids(self):
        return {e: i + 1 for i, e in enumerate(y for r in self.kids(None) for y in self.tree(r))}

    def stored_rel(self, e, r):
        return not r.trans

    def forget_ids(self):
        """Every name is its own renaming identifier, as in a first version."""
        for e in self.ents.values():
            e.rid = e.name
            for p in [*e.attrs.values(), *e.rels.values()]:
                p.rid = p.name

    def add_uid(self):
        """A text attribute in each root entity by which objects can be told apart; next versions leave it alone."""
        for e in self.kids(None):
            self.ents[e].attrs["uid"] = Attr("uid", "String")

    def xml(self, ident=""):
        o = [
            '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<model type="com.apple.IDECoreDataModeler.DataModel" '
            'documentVersion="1.0" lastSavedToolsVersion="22522" systemVersion="23B81" minimumToolsVersion="Automatic" '
            'sourceLanguage="Swift" userDefinedModelVersionIdentifier=%s>' % quoteattr(ident)
        ]
        for e in self.ents.values():
            o.append(
                ' <entity name=%s representedClassName=%s%s%s%s syncable="YES">'
                % (
                    quoteattr(e.name),
                    quoteattr(e.name),
                    " parentEntity=%s" % quoteattr(e.parent) if e.parent else "",
                    ' isAbstract="YES"' if e.abstract else "",
                    " elementID=%s" % quoteattr(e.rid) if e.rid != e.name else "",
                )
            )
            for a in e.attrs.values():
                x = ' optional="YES"' if a.opt else ""
                if a.trans:
                    x += ' transient="YES"'
                if a.derived:
                    x += ' derived="YES" derivationExpression=%s' % quoteattr(a.derived)
                if a.default is not None:
                    x += (" defaultDateTimeInterval=%s" if a.type == "Date" else " defaultValueString=%s") % quoteattr(
                        str(a.default)
                    )
                if a.ext:
                    x += ' allowsExternalBinaryDataStorage="YES"'
                if a.pres:
                    x += ' preserveAfterDeletion="YES"'
                if a.rid != a.name:
                    x += " elementID=%s" % quoteattr(a.rid)
                o.append('  <attribute name=%s attributeType="%s"%s/>' % (quoteattr(a.name), a.type, x))
            for r in e.rels.values():
                x = ' optional="YES"' if r.opt else ""
                x += ' toMany="YES"' if r.many else ' maxCount="1"'
                if r.ordered:
                    x += ' ordered="YES"'
                if r.trans:
                    x += ' transient="YES"'
                if r.inv:
                    x += " inverseName=%s inverseEntity=%s" % (
                        quoteattr(r.inv),
                        quoteattr(self.owner_of(r.dest, r.inv)),
                    )
                if r.rid != r.name:
                    x += " elementID=%s" % quoteattr(r.rid)
                o.append(
                    '  <relationship name=%s destinationEntity=%s deletionRule="%s"%s/>'
                    % (quoteattr(r.name), quoteattr(r.dest), r.rule, x)
                )
            if e.unique:
                o.append(
                    "  <uniquenessConstraints>"
                    + "".join(
                        "<uniquenessConstraint>"
                        + "".join("<constraint value=%s/>" % quoteattr(c) for c in u)
                        + "</uniquenessConstraint>"
                        for u in e.unique
                    )
                    + "</uniquenessConstraints>"
                )
            o.append(" </entity>")
        return "\n".join(o) + "\n</model>\n"


def write_bundle(path, versions, current):
    """versions: {name: Model}; an .xcdatamodeld."""
    for n, m in versions.items():
        os.makedirs(f"{path}/{n}.xcdatamodel")
        open(f"{path}/{n}.xcdatamodel/contents", "w").write(m.xml())
    open(f"{path}/.xccurrentversion", "w").write(
        '<?xml version="1.0" encoding="UTF-8"?>\n<plist version="1.0"><dict><key>'
        "_XCCurrentVersionName</key><string>%s.xcdatamodel</string></dict></plist>\n" % current
    )


class Layout:
    """Tables and columns of a model's store. cols[(declaring entity, property)] = column."""

    def __init__(self, m):
        self.m, self.id = m, m.ids()
        self.table, self.col, self.entcol, self.fokcol = {}, {}, {}, {}
        self.virtual = {}  # to-many without an inverse: (entity, name) -> (dest table, column, order column)
        for root in m.kids(None):
            taken = {"Z_PK", "Z_ENT", "Z_OPT"}

            def take(n):
                c, i = n, 0
                while c in taken:
                    i += 1
                    c = n + str(i)
                taken.add(c)
                return c

            for e in m.tree(root):
                self.table[e] = "Z" + root.upper()
                for a in sorted(m.ents[e].attrs.values(), key=lambda a: a.name):
                    if not a.trans:
                        self.col[e, a.name] = take("Z" + a.name.upper())
                for r in sorted(m.ents[e].rels.values(), key=lambda r: r.name):
                    if r.many or r.trans:
                        continue
                    c = self.col[e, r.name] = take("Z" + r.name.upper())
                    if len(m.tree(r.dest)) > 1:
                        self.entcol[e, r.name] = take("Z%d_%s" % (self.id[r.dest], r.name.upper()))
                    i = m.rel_of(r.dest, r.inv) if r.inv else None
                    if i and i.many and i.ordered:
                        self.fokcol[e, r.name] = take("Z_FOK_" + r.name.upper())
        for e in m.ents:
            for r in m.ents[e].rels.values():
                if r.many and not r.inv and not r.trans:
                    c = "Z%d%s" % (self.id[e], r.name.upper())
                    self.virtual[e, r.name] = (self.table[r.dest], c, "Z_FOK_" + c[1:] if r.ordered else None)

    def find_joins(self, db):
        """Many-to-many: (entity, name) -> (table, column of this side's objects, of the other's, this relationship's order or None)."""
        self.join, m = {}, self.m
        tabs = {}
        for (t,) in db.execute("SELECT name FROM sqlite_master WHERE type='table' AND name LIKE 'Z\\_%' ESCAPE '\\'"):
            tabs[t] = [r[1] for r in db.execute(f'PRAGMA table_info("{t}")')]
        for e in m.ents:
            for r in m.ents[e].rels.values():
                if not r.many or not r.inv or r.trans:
                    continue
                i = m.rel_of(r.dest, r.inv)
                if not i.many:
                    continue
                o = m.owner_of(r.dest, r.inv)
                mine, other = "Z_%d%s" % (self.id[e], i.name.upper()), "Z_%d%s" % (self.id[o], r.name.upper())
                if i is r:
                    mine, other = other, "REFLEXIVE"
                fits = lambda c, name: c == name or (c.startswith(name) and c[len(name) :].isdigit())
                names, found = [f"Z_{self.id[e]}{r.name.upper()}", f"Z_{self.id[o]}{i.name.upper()}"], []
                for t, cs in tabs.items():
                    if not any(fits(t, n) for n in names):
                        continue
                    two = [c for c in cs if "FOK_" not in c]
                    for a, b in (two, two[::-1]) if len(two) == 2 else ():
                        if fits(a, mine) and fits(b, other):
                            found.append(((a != mine) + (b != other) + 2 * (t not in names), t, a, b))
                            break
                if not found:
                    raise LookupError(f"join table of {e}.{r.name}: {mine}, {other}: {tabs}")
                _, t, a, b = min(found)
                fok = [c for c in tabs[t] if fits(c, "Z_FOK_" + other[2:])]
                if r.ordered and i is not r and not fok:
                    raise LookupError(f"order column of {e}.{r.name}: {tabs[t]}")
                self.join[e, r.name] = (t, a, b, fok[0] if r.ordered and i is not r else None)


def connect(path):
    """A connection to a store, with the functions that Core Data's triggers call."""
    db = sqlite3.connect(path, isolation_level=None)
    for f in ("InsertUpdatedAffectedObjectValue", "UpdatedAffectedObjectValue"):
        db.create_function("NSCoreDataDATrigger" + f, -1, lambda *a: None)
    return db


def support(store):
    d, b = os.path.split(store)
    stem = b[: b.rindex(".")] if "." in b[1:] else b
    return os.path.join(d, f".{stem}_SUPPORT/_EXTERNAL_DATA")


def norm(v):
    """A value with its type; whole reals and integers are the same number."""
    if isinstance(v, float) and v.is_integer() and -(2**63) <= v < 2**63:
        return int(v)
    return v


class State:
    """What a store says: objects, values, links, orders. Objects are (root entity, Z_PK)."""

    def __init__(self, path, m, sup=None, strangers=()):
        self.m, self.path = m, path
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        db.text_factory = lambda b: b.decode("utf-8", "surrogateescape")
        self.lay = L = Layout(m)
        L.find_joins(db)
        byid = {i: e for e, i in L.id.items()}
        self.obj, self.opt, self.val, self.raw, self.links, self.order, self.bad, self.files = (
            {},
            {},
            {},
            {},
            {},
            {},
            [],
            {},
        )
        sup = sup or support(path)
        self.strangers = set()  # rows whose entity number the model doesn't have
        for root in m.kids(None):
            t = L.table[root]
            cur = db.execute(f'SELECT * FROM "{t}"')
            names = [d[0] for d in cur.description]
            rows = [dict(zip(names, r)) for r in cur]
            for r in rows:
                e = byid.get(r["Z_ENT"])
                if r["Z_ENT"] in strangers:
                    self.strangers.add((root, r["Z_PK"], r["Z_ENT"]))
                    continue
                if not e or L.table[e] != t:
                    self.bad.append(f"{t}: Z_PK {r['Z_PK']} has Z_ENT {r['Z_ENT']}")
                    continue
                o = (root, r["Z_PK"])
                self.obj[o], self.opt[o] = e, r["Z_OPT"]
                for c, a in m.attrs(e):
                    if a.trans:
                        continue
                    v = r[L.col[c, a.name]]
                    if a.ext and v is not None:
                        self.raw[o, a.name] = v
                        v = self.external(o, a, v, sup)
                    self.val[o, a.name] = norm(v)
                for c, a in [(c, a) for c in m.tree(root) for a in m.ents[c].attrs.values()]:
                    if not a.trans and c not in m.chain(e) and r[L.col[c, a.name]] is not None:
                        self.bad.append(f"{t} {o[1]} ({e}): has a value of {c}.{a.name}")
                for c in m.tree(root):
                    for x in m.ents[c].rels.values():
                        if x.many or x.trans:
                            continue
                        v = r[L.col[c, x.name]]
                        if v is None:
                            continue
                        if c not in m.chain(e):
                            self.bad.append(f"{t} {o[1]} ({e}): has a link of {c}.{x.name}")
                            continue
                        d = (m.root(x.dest), v)
                        self.links.setdefault((c, x.name), set()).add((o, d))
                        if (c, x.name) in L.entcol:
                            self.raw[o, x.name, "ent"] = byid.get(r[L.entcol[c, x.name]])
                        if (c, x.name) in L.fokcol:
                            self.raw[o, x.name, "fok"] = r[L.fokcol[c, x.name]]
        for e in m.ents:
            for r in m.ents[e].rels.values():
                if not r.many or r.trans:
                    continue
                k, here = (e, r.name), []
                if k in L.virtual:
                    t, c, f = L.virtual[k]
                    for pk, v, p in db.execute(
                        f'SELECT Z_PK, "{c}", {chr(34)+f+chr(34) if f else "NULL"} FROM "{t}" WHERE "{c}" IS NOT NULL'
                    ):
                        here.append(((m.root(e), v), (m.root(r.dest), pk), p))
                elif k in L.join:
                    t, a, b, f = L.join[k]
                    for v, w, p in db.execute(f'SELECT "{a}", "{b}", {chr(34)+f+chr(34) if f else "NULL"} FROM "{t}"'):
                        here.append(((m.root(e), v), (m.root(r.dest), w), p))
                else:
                    ik = (m.owner_of(r.dest, r.inv), r.inv)
                    for o, d in self.links.get(ik, ()):
                        here.append((d, o, self.raw.get((o, r.inv, "fok"))))
                self.links[k] = {(a, b) for a, b, _ in here}
                if k in L.join and m.rel_of(r.dest, r.inv) is r:
                    self.links[k] |= {(b, a) for a, b in self.links[k]}
                if r.ordered and r.inv != r.name:
                    for a, b, p in here:
                        if p is None:
                            self.bad.append(f"{e}.{r.name}: {a}->{b} has no position")
                        self.order.setdefault(k, {}).setdefault(a, []).append((p if p is not None else -1, b))
                    self.order[k] = {a: [b for _, b in sorted(v)] for a, v in self.order.get(k, {}).items()}
        self.dangling = {
            (k, a, b) for k, ls in self.links.items() for a, b in ls if a not in self.obj or b not in self.obj
        }
        for k, a, b in self.dangling:
            self.links[k].discard((a, b))
            if a in self.order.get(k, {}):
                self.order[k][a] = [x for x in self.order[k][a] if x != b]
        for k, ls in self.links.items():  # each link leads to an object that the relationship may have
            r = m.ents[k[0]].rels[k[1]]
            for a, b in ls:
                if self.obj.get(a) not in m.tree(k[0]):
                    self.bad.append(f"{k[0]}.{k[1]}: link from {a}, which is {self.obj.get(a)}")
                if self.obj.get(b) not in m.tree(r.dest):
                    self.bad.append(f"{k[0]}.{k[1]}: link from {a} to {b}, which is {self.obj.get(b)}")
                if (a, r.name, "ent") in self.raw and self.raw[a, r.name, "ent"] != self.obj.get(b):
                    self.bad.append(
                        f"{k[0]}.{k[1]}: {a} says its target {b} is {self.raw[a, r.name, 'ent']}, it is {self.obj.get(b)}"
                    )
        self.pk = {r[0]: r[1:] for r in db.execute("SELECT Z_ENT, Z_NAME, Z_SUPER, Z_MAX FROM Z_PRIMARYKEY")}
        for e, i in L.id.items():
            row = self.pk.get(i)
            if not row:
                self.bad.append(f"Z_PRIMARYKEY has no {e}")
                continue
            if row[1] != (L.id[m.ents[e].parent] if m.ents[e].parent else 0):
                self.bad.append(f"Z_PRIMARYKEY: {e} has Z_SUPER {row[1]}")
            if not m.ents[e].parent:
                top = max([o[1] for o in self.obj if o[0] == e] or [0])
                if (row[2] or 0) < top:
                    self.bad.append(f"Z_PRIMARYKEY: Z_MAX of {e} is {row[2]}, below key {top}")
        for i in self.pk:
            if i < 16000 and i not in byid:
                self.bad.append(f"Z_PRIMARYKEY has a row {i} of no entity")
        self.meta = db.execute("SELECT Z_UUID, Z_PLIST FROM Z_METADATA").fetchall()
        self.check = db.execute("PRAGMA integrity_check").fetchone()[0]
        if self.check != "ok":
            self.bad.append("integrity_check: " + self.check)
        db.close()

    def external(self, o, a, v, sup):
        if not isinstance(v, bytes) or not v:
            return ("marker?", v)
        if v[:1] == b"\1":
            return v[1:]
        if v[:1] == b"\2" and len(v) == 38 and v[-1:] == b"\0":
            f = v[1:37].decode()
            self.files.setdefault(f, []).append((o, a.name))
            try:
                return open(os.path.join(sup, f), "rb").read()
            except OSError:
                return ("missing", f)
        return ("marker?", v)
