"""Works out what an inferred migration must leave, from the format notes, sections 4.1 to 4.3 alone, and checks it."""

from model import NUMBERS, Layout
from store import bookkeeping, read, same


def as_text(value):
    return ("text", value.encode()) if isinstance(value, str) else value


def refusals(old, new):
    """Returns why inference must refuse the pair (section 4.2); empty if it must not."""
    found = []

    def doubled(things):
        names = [t.identity for t in things]
        return len(set(names)) != len(names)

    if doubled(old.entities.values()) or doubled(new.entities.values()):
        return ["two entities of one renaming identifier"]
    before = {e.identity: e.name for e in old.entities.values()}
    roots = {}
    for e in new.entities.values():
        if e.identity in before:
            roots.setdefault(new.root(e.name), set()).add(old.root(before[e.identity]))
    if any(len(r) > 1 for r in roots.values()):
        found.append("two root tables become one")
    for e in new.entities.values():
        if e.identity not in before:
            continue
        mine, theirs = new.properties(e.name), old.properties(before[e.identity])
        if doubled(mine) or doubled(theirs):
            found.append(f"two properties of {e.name} of one renaming identifier")
            continue
        by_identity = {p.identity: p for p in theirs}
        for p in mine:
            o = by_identity.get(p.identity)
            if o is None or o.kind != p.kind:
                continue
            if p.kind == "relationship":
                if o.many and not p.many:
                    found.append(f"{e.name}.{p.name}: to-many becomes to-one")
            elif not (o.transient or p.transient):
                found += [f"{e.name}.{p.name}: {why}" for why in attribute_refusals(o, p)]
    return found


def attribute_refusals(old, new):
    if old.type == new.type == "Composite":
        by = {x.identity: x for x in old.elements}
        return [w for x in new.elements if x.identity in by for w in attribute_refusals(by[x.identity], x)]
    if old.type != new.type and not (old.type in NUMBERS and new.type in NUMBERS):
        return [f"{old.type} becomes {new.type}"]
    return ["external data moves into the store"] if old.external and not new.external else []


def converted(value, old, new):
    return b"\1" + value if isinstance(value, bytes) and new.external and not old.external else value


class Expected:
    """The expected result.

    objects: {(root, key): (entity, Z_OPT, {path: (value, where from, loose)})} `certain` holds why the migration must fail,
    `doubtful` why it may; `lost` what it drops and must name: (what, words, number).
    """

    def __init__(self, state, old, new):
        self.old, self.new, self.state = old, new, state
        self.objects, self.links, self.certain, self.doubtful, self.lost = {}, {}, [], [], []
        self.cut = {}  # values that changed with their type: (entity, attribute): (before, after)
        before = {e.identity: e.name for e in old.entities.values()}
        self.former = {e.name: before[e.identity] for e in new.entities.values() if e.identity in before}
        self.later = {v: k for k, v in self.former.items()}
        self.doubted = set()
        self.key, self.hashes = {}, (old.hashes(), new.hashes())
        for (root, pk), (entity, opt, values) in state.objects.items():
            if entity in self.later:
                self._object(root, pk, entity, opt, values)
        for name in new.entities:
            for r in new[name].relationships():
                self._relationship(name, r)
        self._unique()
        self._losses()

    def before(self, entity):
        """Returns the older entity's properties by their names in the newer entity: renaming identifiers decide."""
        by = {p.identity: p for p in self.old.properties(entity)}
        return {p.name: by[p.identity] for p in self.new.properties(self.later[entity]) if p.identity in by}

    def unsure(self, entity, name):
        """Returns whether a property goes by its identifier, or by name because its entity is copied for its equal hash
        (4.2)."""
        if self.hashes[0][entity] != self.hashes[1][self.later[entity]]:
            return False
        former = self.before(entity).get(name)
        return former is None or former.name != name

    def _object(self, root, pk, entity, opt, values):
        new, later = self.new, self.later[entity]
        self.key[(root, pk)] = (new.root(later), pk)
        by = self.before(entity)
        wanted = {}
        for a in new.properties(later):
            if a.kind != "attribute" or a.transient or a.derived or self.unsure(entity, a.name):
                continue  # a derived value may be computed again
            o = by.get(a.name)
            self._value(
                wanted,
                values,
                later,
                a,
                o if o and o.kind == "attribute" else None,
                (a.name,),
                (o.name,) if o else None,
            )
        self.objects[self.key[(root, pk)]] = (later, opt, wanted)

    def _value(self, wanted, values, entity, a, o, path, old_path):
        if a.type == "Composite":
            by = {x.identity: x for x in o.elements} if o and o.type == "Composite" else {}
            for x in a.elements:
                y = by.get(x.identity)
                self._value(wanted, values, entity, x, y, path + (x.name,), old_path + (y.name,) if y else None)
            return
        if o is None or o.transient or old_path not in values:
            value, source = as_text(a.default_value()), "new"
            if value is None and not a.optional and len(path) == 1:
                where = self.doubtful if o is not None and not o.optional else self.certain
                where.append(f"{entity}.{a.name} is new and mandatory")
        else:
            value, source = converted(values[old_path], o, a), "kept"
            if value is None and not a.optional and o.optional and len(path) == 1:
                value, source = as_text(a.default_value()), "null-becomes-default"
                if value is None:
                    self.certain.append(f"{entity}.{a.name} becomes mandatory and is NULL")
        wanted[path] = (value, source, bool(o) and o.type != a.type)

    def _carried(self, name, r):
        """Returns the older store's links for this relationship: (found, links, ordered before)."""
        links, found, ordered = [], False, True
        for entity in [self.former[f] for f in self.new.family(name) if f in self.former]:
            self.doubted |= {(name, r.name)} if self.unsure(entity, r.name) else set()
            o = self.before(entity).get(r.name)
            if o is None or o.kind != "relationship":
                continue
            found, ordered = True, ordered and o.ordered
            root, target_root = self.old.root(entity), self.old.root(o.dest)
            for owner, target, place in self.state.links[(self.old.declaring(entity, o.name), o.name)]:
                mine = self.state.objects.get((root, owner))
                key = self.key.get((target_root, target))
                if mine and mine[0] == entity and key and r.dest in self.new.line(self.objects[key][0]):
                    links.append((owner, target, place))
        return found, links, ordered

    def _relationship(self, name, r):
        found, links, ordered = self._carried(name, r)
        inverse, other, back, back_ordered = self.new.inverse(r), False, [], False
        if inverse and inverse is not r:
            other, back, _ = self._carried(self.new.declaring(r.dest, r.inverse), inverse)
            back = [(b, a) for a, b, _ in back]
        self.links[(name, r.name)] = (found, links, ordered, other, back)
        if not r.many and not r.optional:
            have = {owner for owner, _, _ in links} | {a for a, _ in back}
            for (root, pk), (entity, _, _) in self.objects.items():
                if root == self.new.root(name) and name in self.new.line(entity) and pk not in have:
                    self.doubtful.append(f"{entity}.{r.name} is mandatory and empty")

    def _unique(self):
        for name, e in self.new.entities.items():
            for keys in e.unique:
                seen = set()
                for entity, _, wanted in self.objects.values():
                    if name in self.new.line(entity):
                        values = tuple(wanted.get((k,), (None,))[0] for k in keys)
                        if None not in values and values in seen:
                            self.doubtful.append(f"{name}: two objects of {keys}")
                        seen.add(values)
        # An index counts all rows of a shared table, so other entities' rows may collide as well.
        if any(e.unique for e in self.new.entities.values()) and any(e.parent for e in self.new.entities.values()):
            self.doubtful.append("a unique index in a shared table")

    def _losses(self):
        """Records objects, values and links that have no place in the new model."""
        old, new, counts = self.old, self.new, {}
        for (root, pk), (entity, _, values) in self.state.objects.items():
            if entity not in self.later:
                counts[("objects", entity)] = counts.get(("objects", entity), 0) + 1
                continue
            mine = {id(o): new.property(self.later[entity], n) for n, o in self.before(entity).items()}
            for p in old.properties(entity):
                kept = mine.get(id(p))
                if self.hashes[0][entity] == self.hashes[1][self.later[entity]]:
                    continue
                if (
                    p.kind == "attribute"
                    and p.type != "Composite"
                    and values.get((p.name,)) is not None
                    and (kept is None or kept.kind != p.kind or kept.transient or kept.type == "Composite")
                ):
                    counts[("values", p.name)] = counts.get(("values", p.name), 0) + 1
        self.lost = [(what, name, number) for (what, name), number in counts.items()]


def compatible(old, new):
    """Returns whether a store of one model is a store of the other: nothing is migrated then."""

    def elements(model):
        return [
            [(path, leaf.type, leaf.optional, leaf.external) for path, leaf in a.leaves()]
            for e in model.entities.values()
            for a in e.attributes()
            if a.type == "Composite"
        ]

    return old.hashes() == new.hashes() and elements(old) == elements(new)


def compare(round, expected, state, prefix=""):
    new = expected.new
    for kind, text in state.faults:
        round.problem(prefix + kind, text)
    for key, (entity, opt, wanted) in expected.objects.items():
        if key not in state.objects:
            round.problem(prefix + "object-lost", f"{entity} {key}")
            continue
        found, found_opt, values = state.objects[key]
        if found != entity:
            round.problem(prefix + "object-entity", f"{key}: {found}, not {entity}")
            continue
        if found_opt != opt:  # 4.3, invariant 1
            round.problem(prefix + "z-opt", f"{entity} {key}: {opt} became {found_opt}")
        for path, (value, source, loose) in wanted.items():
            got = values.get(path)
            if same(value, got):
                continue
            if (
                source == "new"
                and all(isinstance(x, (int, float)) for x in (value, got))
                and abs(value - got) <= 1e-9 * max(abs(value), abs(got), 1)
            ):
                continue
            if loose and value is not None:  # another type: the same number, or a loss that must be named
                if not (isinstance(value, (int, float)) and value == got):
                    expected.cut.setdefault((entity, path[0]), (value, got))
                continue
            kind = "value-lost" if got is None and source != "new" else "value-wrong" if source != "new" else "default"
            round.problem(prefix + kind, f"{entity}.{'.'.join(path)} of {key}: {value!r} became {got!r} ({source})")
    for key in state.objects.keys() - expected.objects.keys():
        round.problem(prefix + "object-appeared", f"{state.objects[key][0]} {key}")
    for key in expected.links.keys() - expected.doubted:
        _compare_links(round, expected, state, key, prefix, new)


def _compare_links(round, expected, state, key, prefix, new):
    found, links, ordered, other, back = expected.links[key]
    r, inverse = new.property(*key), new.inverse(new.property(*key))
    got = [(a, b) for a, b, _ in state.links[key]]
    actual, own, theirs = set(got), {(a, b) for a, b, _ in links}, set(back)
    if len(actual) != len(got):
        round.problem(prefix + "link-twice", f"{key}: {got}")

    def fits(wanted):
        """Returns whether the links match; if a side allows only one, whether each object with links keeps one."""
        if actual == wanted:
            return True
        if not actual <= wanted:
            return False
        one_owner = (inverse and not inverse.many) or (not inverse and r.many)
        if one_owner and {b for _, b in wanted} == {b for _, b in actual}:
            return True
        if not r.many and {a for a, _ in wanted} == {a for a, _ in actual}:
            return True
        return bool(one_owner and not r.many)

    if found and other and own != theirs:  # both sides existed, in different pairs: each has a claim
        if not ((own & theirs) <= actual <= (own | theirs) or fits(own) or fits(theirs) or fits(own | theirs)):
            round.problem(prefix + "link-conflict", f"{key}: {sorted(own)} or {sorted(theirs)}, got {sorted(actual)}")
    elif found and not fits(own):
        round.problem(
            prefix + ("link-lost" if actual < own else "link-wrong"), f"{key}: {sorted(own)}, got {sorted(actual)}"
        )
    elif not found and other and actual and not fits(theirs):
        round.problem(
            prefix + ("link-lost" if actual < theirs else "link-wrong"),
            f"{key}, by its inverse: {sorted(theirs)}, got {sorted(actual)}",
        )
    elif not found and not other and actual:
        round.problem(prefix + "link-appeared", f"{key}: {sorted(actual)}")
    if r.many and r.ordered and found and ordered and actual == own:
        for owner in {a for a, _ in own}:

            def sequence(rows):
                mine = [(p is None, p, b) for a, b, p in rows if a == owner]
                return [b for _, _, b in sorted(mine, key=lambda x: (x[0], x[1] or 0))]

            if sequence(links) != sequence(state.links[key]):
                round.problem(
                    prefix + "order-lost",
                    f"{key} of {owner}: {sequence(links)} became " f"{sequence(state.links[key])}",
                )


def after(expected):
    """Returns the state that a further migration begins with."""
    from store import State

    state = State()
    state.objects = {k: (e, o, {p: v[0] for p, v in w.items()}) for k, (e, o, w) in expected.objects.items()}
    state.links = {
        k: (own if found else [(a, b, None) for a, b in back]) for k, (found, own, _, _, back) in expected.links.items()
    }
    return state


def verify(round, path, expected, foreign=(), prefix=""):
    """Checks whether the migrated store is what `expected` says."""
    model = expected.new
    layout = Layout(model)
    if bookkeeping(round, path, model, layout, foreign, prefix):
        compare(round, expected, read(path, model, layout), prefix)
