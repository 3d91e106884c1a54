"""Class losses: counts what a migration loses, object by object, in the two stores, and compares the count with what
`model check`, the dry run and the run say, and with whether the original is in the archive.

CoreData.md: "A migration that removes objects, values or links reports how many of each, also with `--dry-run`. It keeps
the original store in `.groupstore/archive`". Formats.md, `removes`: its fields.
"""

import os
import shutil
import struct
from collections import Counter

import case_hierarchy
from case_hierarchy import drop, move
from doors import archives
from model import Attribute, Entity, Layout, Model, Relationship
from store import fill, read

NUMBERS = ["Integer 64", "Integer 32", "Integer 16", "Boolean", "Double", "Float", "Decimal"]
RANGES = {"Boolean": (0, 1), "Integer 16": (-(2**15), 2**15 - 1), "Integer 32": (-(2**31), 2**31 - 1)}


def widened(rng, model):
    """Gives attributes other types of numbers, so that later versions can narrow them."""
    for entity in model.entities.values():
        for a in entity.attributes():
            if rng.random() < 0.4:
                a.type, a.default = rng.choice(NUMBERS), None


def change(rng, model):
    """Makes one change that may lose something; returns its name."""
    entity = model[rng.choice(list(model.entities))]
    attributes, many = entity.attributes(), [r for r in entity.relationships() if r.many]
    what = rng.choice(["type", "type", "derive", "unorder", "transient", "mandatory", "drop", "drop-one-end", "down", "out"])
    if what == "type":
        numbers = [a for a in attributes if a.type in NUMBERS]
        if not numbers:
            return None
        a = rng.choice(numbers)
        a.type, a.default = rng.choice([t for t in NUMBERS if t != a.type]), None
    elif what in ("derive", "transient", "mandatory"):
        texts = [a for a in attributes if a.type == "String" and not a.derived]
        if not texts:
            return None
        a = rng.choice(texts)
        if what == "derive":
            others = [x for x in texts if x is not a and not x.transient]
            if not others:
                return None
            a.derived, a.default, a.optional = f"uppercase:({rng.choice(others).name})", None, True
        elif what == "transient":
            a.transient = True
        else:
            a.optional, a.default = False, "filled"
    elif what == "unorder":
        ordered = [r for r in many if r.ordered]
        if not ordered:
            return None
        rng.choice(ordered).ordered = False
    elif what in ("drop", "drop-one-end"):
        if not entity.properties:
            return None
        p = rng.choice(entity.properties)
        if what == "drop-one-end" and p.kind == "relationship" and p.inverse and model.inverse(p) is not p:
            model.inverse(p).inverse = None
            entity.properties.remove(p)
        else:
            drop(model, entity.name, p)
    elif what == "down":
        children, own = model.children(entity.name), entity.relationships()
        if not children or not own:
            return None
        move(model, rng.choice(own), entity.name, rng.choice(children))
    elif entity.parent is None:
        return None
    else:
        entity.parent = None
    return what


class Count:
    """Counts losses: {(entity, property or None, field): number}, named as in the older version."""

    def __init__(self, old, new, before, after):
        self.old, self.new, self.before, self.after = old, new, before, after
        names = {e.identity: e.name for e in new.entities.values()}
        self.later = {e.name: names[e.identity] for e in old.entities.values() if e.identity in names}
        self.found = Counter()
        self.places = {key: {(a, b) for a, b, _ in links} for key, links in after.links.items()}
        for (root, key), (entity, _, values) in before.objects.items():
            self._object(root, key, entity, values)
        for name in old.entities:
            for r in old[name].relationships():
                self._relationship(name, r)

    def successor(self, entity, p):
        """Returns the newer property with the content of an older one of the entity's objects, and its entity."""
        later = self.later.get(entity)
        if later is None:
            return None, None
        q = next((q for q in self.new.properties(later) if q.identity == p.identity and q.kind == p.kind), None)
        return (None, None) if q is None or q.transient else (q, self.new.declaring(later, q.name))

    def _object(self, root, key, entity, values):
        if entity not in self.later:
            self.found[(entity, None, "objects")] += 1
            return
        now = self.after.objects.get((self.new.root(self.later[entity]), key))
        for declaring in self.old.line(entity):
            for a in self.old[declaring].attributes():
                if not a.transient and not a.derived:
                    q, _ = self.successor(entity, a)
                    field = self._lost(a, q, values[(a.name,)], now[2][(q.name,)] if q else None)
                    if field:
                        self.found[(declaring, a.name, field)] += 1

    def _lost(self, a, q, was, now):
        if was is None:
            return None  # a default in its place is no loss
        if now is None:
            return "values"
        if isinstance(was, (int, float)) and isinstance(now, (int, float)):
            if was != now:
                return "changes"
            return None if a.type == q.type or self._fits(q.type, now) else "changes"
        expected = b"\1" + was if isinstance(was, bytes) and q.external and not a.external else was
        return None if now == expected else "changes"

    @staticmethod
    def _fits(kind, value):
        if kind in RANGES:
            return RANGES[kind][0] <= value <= RANGES[kind][1]
        return kind != "Float" or struct.unpack("f", struct.pack("f", value))[0] == value

    def _relationship(self, name, r):
        inverse = self.old.inverse(r)
        other = self.old.declaring(r.dest, r.inverse) if inverse else None
        if inverse and inverse is not r:
            # Links are reported from the to-one end, or else from the end that sorts first.
            mine, theirs = (r.many, (name, r.name)), (inverse.many, (other, inverse.name))
            if (theirs[0] < mine[0]) if mine[0] != theirs[0] else theirs[1] < mine[1]:
                return
        roots = self.old.root(name), self.old.root(r.dest)
        lists = {}
        back = inverse if inverse is not r else None
        places = {(b, a): p for a, b, p in self.before.links[(other, back.name)]} if back else {}
        for owner, target, place in self.before.links[(name, r.name)]:
            entities = [self.before.objects[(root, key)][0] for root, key in zip(roots, (owner, target))]
            p, p_entity = self.successor(entities[0], r)
            q, q_entity = self.successor(entities[1], back) if back else (None, None)
            kept = bool(p and (owner, target) in self.places[(p_entity, p.name)]) or bool(
                q and (target, owner) in self.places[(q_entity, q.name)]
            )
            alive = [e in self.later for e in entities]
            if not kept:
                if alive[0]:
                    self.found[(name, r.name, "links")] += 1
                elif alive[1] and back:
                    self.found[(other, back.name, "links")] += 1
                continue
            for end, now, key, one, position in (
                ((name, r), (p, p_entity), owner, target, place),
                ((other, back), (q, q_entity), target, owner, places.get((owner, target))),
            ):
                if not end[1] or not end[1].many or not end[1].ordered or position is None:
                    continue
                new = now[0]
                # A relationship that can't lead to this object any more keeps no order either.
                fits = new and new.dest in self.new.line(self.later[entities[1] if key is owner else entities[0]])
                if not (fits and new.many and new.ordered):
                    lists.setdefault((end[0], end[1].name, key), []).append(one)
        for (entity, relationship, _), members in lists.items():
            if len(members) > 1:
                self.found[(entity, relationship, "changes")] += len(members)


def said(removes):
    """Returns the program's count in the same form."""
    found = Counter()
    for one in removes or []:
        for field in ("objects", "values", "links", "changes"):
            if field in one:
                found[(one["entity"], one.get("property"), field)] += one[field]
    return found


def judge(round, old, new, most=6):
    store = round.path("S.sqlite")
    models = round.write_model("V1", old), round.write_model("V2", new)
    made = round.run("create", store, "--model", models[0], "--journal-mode", "delete")
    if made.code:
        return round.problem("not-created", made.error)
    fill(store, old, Layout(old), round.rng, most)
    answer = round.run("migrate", store, "--model", models[1], "--to", round.path("T.sqlite"))
    check = round.run("model", "check", store, models[1])
    dry = round.run("migrate", store, "--model", models[1], "--dry-run")
    if (check.code == 0) != (answer.code == 0) or dry.code != answer.code:
        round.problem("answers-differ", [a.code for a in (answer, check, dry)] + [answer.error])
    if answer.code or answer.summary["outcome"] != "migrated":
        round.outcome = "refused"
        return None
    before, after = read(store, old, Layout(old)), read(round.path("T.sqlite"), new, Layout(new))
    count = Count(old, new, before, after)
    wanted = Counter({key: n for key, n in count.found.items() if n})
    removes = next((x.get("removes") for x in check.lines if x.get("type") == "check"), None)
    for what, found in (
        ("run", said(answer.summary.get("removes"))),
        ("dry-run", said(dry.summary.get("removes"))),
        ("check", said(removes)),
    ):
        if found != wanted:
            round.problem(f"{what}-miscounts", f"lost {dict(wanted - found)}, said too much {dict(found - wanted)}")
    if round.rng.random() < 0.5:
        _map(round, old, new, models, before)
    for place, words in (("place", ["migrate"]), ("move", ["relocate"])):
        folder, group = round.path(place), round.path(place + "-group")
        os.makedirs(folder)
        os.makedirs(group)
        copy = shutil.copy2(store, folder)
        if os.path.isdir(round.path(".S_SUPPORT")):
            shutil.copytree(round.path(".S_SUPPORT"), os.path.join(folder, ".S_SUPPORT"))
        original = open(copy, "rb").read()
        into = [group] if place == "move" else []
        done = round.run(*words, copy, *into, "--model", models[1], *(["--retire", "delete"] if into else []))
        kept = [f for f in archives(group if into else folder) if os.path.basename(f) == "S.sqlite"]
        if done.code or said(done.summary.get("removes")) != wanted:
            round.problem(f"{place}-miscounts", f"exit {done.code}: {done.summary.get('removes')}, lost {dict(wanted)}")
        if bool(kept) != bool(wanted):
            round.problem("archive", f"{place}: kept {kept}, lost {dict(wanted)}")
        if kept and read(kept[0], old, Layout(old)).objects != before.objects:
            round.problem("archive", f"{place}: another store is kept")
        if original != open(store, "rb").read():
            round.problem("source-changed", place)
    return None


def _map(round, old, new, models, before):
    """Runs the same change by a mapping model that is made of the two versions."""
    mapping, target = round.path("Made.yaml"), round.path("N.sqlite")
    made = round.run("model", "mapping", "create", *models, "--to", mapping)
    if made.code or made.summary.get("to_do"):
        return
    words = ["migrate", round.path("S.sqlite"), "--model", models[1], "--mapping", mapping]
    answer, dry = round.run(*words, "--to", target), round.run(*words, "--dry-run")
    if answer.code:
        return
    count = Count(old, new, before, read(target, new, Layout(new)))
    wanted = Counter({key: n for key, n in count.found.items() if n})
    for what, found in (("run", said(answer.summary.get("removes"))), ("dry-run", said(dry.summary.get("removes")))):
        if found != wanted:
            round.problem(
                f"mapped-{what}-miscounts", f"lost {dict(wanted - found)}, said too much {dict(found - wanted)}"
            )


def named(name, *more):
    return Attribute(name, *more)


def hand():
    """Returns the smallest models that lose links, orders and values."""

    def both(old, new):
        return old, new

    def ends(one, other, many=(False, True), ordered=(False, False), names=("to", "from")):
        return (
            Relationship(names[0], other, names[1], many[0], ordered[0]),
            Relationship(names[1], one, names[0], many[1], ordered[1]),
        )

    found = []
    for many in ((False, True), (True, True), (False, False), (True, False)):
        a, b = ends("Z", "P", many)
        tree = [Entity("P", named("k"), b), Entity("A", parent="P"), Entity("B", parent="P"), Entity("Z", a)]
        old = Model(*tree)
        leaves = old.copy()
        leaves["A"].parent = None
        leaves["A"].properties = [named("k")]
        found.append(("a subentity leaves its hierarchy", *both(old, leaves)))
        down = old.copy()
        down["P"].properties = down["P"].properties[:1]
        down["A"].properties = [Relationship("from", "Z", "to", many[1])]
        down["Z"].properties = [Relationship("to", "A", "from", many[0])]
        found.append(("a relationship moves down", *both(old, down)))
        gone = old.copy()
        gone["Z"].properties = []
        gone["P"].properties = gone["P"].properties[:1]
        found.append(("a relationship is removed", *both(old, gone)))
        other = old.copy()
        del other.entities["B"]
        found.append(("a subentity is removed", *both(old, other)))
    a, b = ends("Z", "P", (True, True), (True, True))
    old = Model(Entity("P", named("k"), b), Entity("Z", a))
    new = old.copy()
    for name in ("P", "Z"):
        for r in new[name].relationships():
            r.ordered = False
    found.append(("orders are given up", old, new))
    for kinds in (("Integer 64", "Integer 16"), ("Double", "Float"), ("Decimal", "Boolean"), ("Double", "Integer 32")):
        found.append(("a type narrows", *(Model(Entity("N", named("n", kind))) for kind in kinds)))
    return found


HAND = hand()


def run(round):
    rng = round.rng
    if round.number < len(HAND):
        round.title, old, new = HAND[round.number]
        return judge(round, old.copy(), new.copy())
    while True:
        old = case_hierarchy.random_model(rng)
        widened(rng, old)
        if old.fault():
            continue
        new, steps = old.copy(), []
        for _ in range(rng.choice([1, 1, 2, 3, 5])):
            trial = new.copy()
            try:
                what = (change if rng.random() < 0.6 else case_hierarchy.step)(rng, trial)
            except StopIteration:
                continue
            if what and trial.fault() is None and trial.entities:
                new = trial
                steps.append(what)
        same = old.hashes()
        # Entities of one hash are copied, by name or by identifier (section 4.2).
        if steps and all(same.get(n) != h or n == new[n].identity for n, h in new.hashes().items()):
            break
    round.title = ", ".join(steps)
    return judge(round, old, new)
