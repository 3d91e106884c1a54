"""Class hierarchy: tests deep hierarchies whose entities are moved, inserted, removed, renamed and so renumbered.

Section 4.1: new parent or child, properties moved up or down, an entity moved out. 4.3, invariants 2, 3 and 4: entity
numbers follow the new model everywhere, and values that move are unchanged.
"""

import copy

from model import Attribute, Entity, Model, Relationship
from pairs import migrate_pair
from store import default

KINDS = ["String", "Integer 32", "Double", "Date", "Binary", "Boolean"]
NAMES = ["Aa", "Bb", "Cc", "Dd", "Ee", "Ff", "Gg", "Hh", "Mm", "Nn", "Xx", "Yy", "Zz", "Animal", "Base", "Item", "Root"]
ATTRIBUTES = ["kind", "title", "note", "size", "when"]  # few, so that siblings share them
RELATIONSHIPS = ["items", "owner", "tags", "parts", "other", "peer", "links", "home", "left", "right"]


def taken(model, name):
    """Returns the names that are used above or below an entity."""
    return {p.name for x in model.line(name) + model.family(name) for p in model[x].properties}


def random_model(rng):
    model, names = Model(), rng.sample(NAMES, rng.randint(4, 8))
    chain = rng.random() < 0.4
    for i, name in enumerate(names):
        parent = None
        if i and rng.random() < 0.85:
            parent = names[i - 1] if chain and len(model.line(names[i - 1])) < 5 else rng.choice(names[:i])
        model.add(Entity(name, parent=parent, abstract=rng.random() < (0.3 if i == 0 else 0.12)))
    for name in names:
        for n in rng.sample(ATTRIBUTES, rng.randint(0, 3)):
            if n not in taken(model, name):
                kind = rng.choice(KINDS[:2] if rng.random() < 0.5 else KINDS)
                model[name].properties.append(
                    Attribute(n, kind, default=default(rng, kind) if rng.random() < 0.3 else None)
                )
    for _ in range(rng.randint(2, 5)):
        relate(rng, model)
    return model


def relate(rng, model, ident=None):
    names = list(model.entities)
    a, b = rng.choice(names), rng.choice(names)
    mine, theirs = rng.sample(RELATIONSHIPS, 2)
    if {mine, theirs} & (taken(model, a) | taken(model, b)):
        return
    many, back = rng.random() < 0.65, rng.random() < 0.5
    if rng.random() < 0.1:
        model[a].properties.append(Relationship(mine, b, None, many, many and rng.random() < 0.5, ident=ident))
        return
    model[a].properties.append(Relationship(mine, b, theirs, many, many and rng.random() < 0.5, ident=ident))
    model[b].properties.append(Relationship(theirs, a, mine, back, back and rng.random() < 0.5))


def move(model, p, source, target):
    """Moves a property from one entity to another; its inverse then leads to the new owner."""
    model[source].properties.remove(p)
    model[target].properties.append(p)
    if p.kind == "relationship" and p.inverse:
        own = p.dest == source and p.inverse == p.name
        inverse = p if own else next(x for x in model[p.dest].properties if x.name == p.inverse)
        inverse.dest = target


def drop(model, name, p):
    model[name].properties.remove(p)
    if p.kind == "relationship" and p.inverse:
        model[p.dest].properties = [x for x in model[p.dest].properties if x.name != p.inverse or x.kind == "attribute"]


def rename_entity(model, old, new):
    e = model[old]
    e.ident, e.name = e.identity, new
    model.entities = {(new if k == old else k): v for k, v in model.entities.items()}
    for x in model.entities.values():
        x.parent = new if x.parent == old else x.parent
        for r in x.relationships():
            r.dest = new if r.dest == old else r.dest


def step(rng, model):
    """Makes one change; returns its name."""
    name = rng.choice(list(model.entities))
    e, children = model[name], model.children(name)
    free = [n for n in NAMES if n not in model.entities]
    what = rng.choice(
        [
            "reparent",
            "reparent",
            "insert-parent",
            "insert-parent",
            "remove-parent",
            "remove-parent",
            "up",
            "down",
            "down-all",
            "up-all",
            "rename",
            "rename",
            "exchange",
            "abstract",
            "first",
            "leaf",
            "out",
            "remove-leaf",
            "relate",
            "order",
            "many",
            "down-own",
            "up-own",
        ]
    )
    if what == "reparent":
        family = model.family(name)
        others = [x for x in model.family(model.root(name)) if x not in family and x != e.parent]
        if not others:
            return None
        e.parent = rng.choice(others)
    elif what == "out":
        e.parent = None
    elif what == "insert-parent":
        new = model.add(Entity(rng.choice(free), parent=e.parent, abstract=rng.random() < 0.5))
        e.parent = new.name
        for p in [p for p in list(e.properties) if rng.random() < 0.5]:
            move(model, p, name, new.name)
    elif what == "remove-parent":
        if not children:
            return None
        siblings = [x for x in model.entities if model[x].parent == e.parent and x != name]
        for child in children:
            model[child].parent = e.parent
        for p in list(e.properties):
            if p.kind == "attribute":
                e.properties.remove(p)
                for child in children:
                    if p.name not in taken(model, child):
                        model[child].properties.append(copy.deepcopy(p))
            elif p not in e.properties:  # it went with its inverse
                continue
            elif rng.random() < 0.6:
                move(model, p, name, rng.choice(children))
            else:
                drop(model, name, p)
        if any(r.dest == name for x in model.entities.values() for r in x.relationships()) or not siblings + children:
            return None
        del model.entities[name]
    elif what in ("up", "up-all"):
        if not e.parent or not e.properties:
            return None
        p = rng.choice(e.properties)
        if what == "up-all":
            for child in model.children(e.parent):
                if child != name:
                    model[child].properties = [
                        x for x in model[child].properties if x.name != p.name or x.kind != "attribute"
                    ]
        move(model, p, name, e.parent)
    elif what in ("down", "down-all"):
        if not children or not e.properties:
            return None
        p = rng.choice(e.properties)
        if what == "down-all" and p.kind == "attribute":
            e.properties.remove(p)
            for child in children:
                model[child].properties.append(copy.deepcopy(p))
        else:
            move(model, p, name, rng.choice(children))
    elif what == "down-own":  # each child gets the relationship with its own inverse
        own = [r for r in e.relationships() if r.inverse and r.dest not in model.family(model.root(name))]
        if not children or not own:
            return None
        r = rng.choice(own)
        inverse = model.inverse(r)
        e.properties.remove(r)
        model[r.dest].properties.remove(inverse)
        for i, child in enumerate(children):
            mine, theirs = copy.deepcopy(r), copy.deepcopy(inverse)
            theirs.name, theirs.dest = (theirs.name if i == 0 else f"{theirs.name}Of{child}"), child
            mine.inverse = theirs.name
            theirs.ident = None if i else theirs.ident
            model[child].properties.append(mine)
            model[r.dest].properties.append(theirs)
    elif what == "up-own":  # the children's relationships of one name become their parent's
        own = [r for r in e.relationships() if r.inverse and r.dest not in model.family(model.root(name))]
        if not e.parent or not own:
            return None
        r = rng.choice(own)
        for child in model.children(e.parent):
            for x in [x for x in model[child].relationships() if child != name and x.name == r.name]:
                drop(model, child, x)
        move(model, r, name, e.parent)
    elif what == "rename":
        rename_entity(model, name, rng.choice(free))
    elif what == "exchange":
        other = rng.choice(list(model.entities))
        if other == name:
            return None
        rename_entity(model, name, "\0")
        rename_entity(model, other, name)
        rename_entity(model, "\0", other)
    elif what == "abstract":
        e.abstract = not e.abstract
    elif what == "first":  # this renumbers everything
        model.add(Entity("A" + "a" * rng.randint(2, 4), Attribute("n")))
    elif what == "leaf":
        child = model.add(Entity(rng.choice(free), parent=name))
        n = rng.choice(ATTRIBUTES)
        if n not in taken(model, child.name):
            child.properties.append(Attribute(n, "String", default=rng.choice([None, "d"])))
    elif what == "remove-leaf":
        if children or len(model.entities) < 3:
            return None
        for p in list(e.properties):
            if p in e.properties:
                drop(model, name, p)
        for x in model.entities.values():
            x.properties = [p for p in x.properties if p.kind == "attribute" or p.dest != name]
        del model.entities[name]
    elif what == "relate":
        relate(rng, model, f"new{rng.randrange(10**6)}")
    else:
        many = [r for r in e.relationships() if r.many or what == "many"]
        if not many:
            return None
        r = rng.choice(many)
        r.ordered, r.many, r.optional = (not r.ordered if r.many else False), True, True
    return what


def by_hand():
    """Returns pairs that move one thing on which everything else depends."""

    def tree(*extra):
        return [
            Entity("L1", Attribute("a")),
            Entity("L2", Attribute("b"), parent="L1"),
            Entity("L3", Attribute("c"), parent="L2"),
            Entity("L4", Attribute("d"), parent="L3"),
            Entity("L5", Attribute("e"), parent="L4"),
            *extra,
        ]

    yield "five levels, each attribute moved one up", Model(*tree()), Model(
        Entity("L1", Attribute("a"), Attribute("b")),
        Entity("L2", Attribute("c"), parent="L1"),
        Entity("L3", Attribute("d"), parent="L2"),
        Entity("L4", Attribute("e"), parent="L3"),
        Entity("L5", parent="L4"),
    )
    yield "five levels, each attribute moved to the last", Model(*tree()), Model(
        Entity("L1"),
        Entity("L2", parent="L1"),
        Entity("L3", parent="L2"),
        Entity("L4", parent="L3"),
        Entity("L5", *[Attribute(x) for x in "abcde"], parent="L4"),
    )
    yield "five levels become siblings of the root", Model(*tree()), Model(
        Entity("L1", Attribute("a")),
        Entity("L2", Attribute("b"), parent="L1"),
        Entity("L3", Attribute("b"), Attribute("c"), parent="L1"),
        Entity("L4", Attribute("b"), Attribute("c"), Attribute("d"), parent="L1"),
        Entity("L5", Attribute("b"), Attribute("c"), Attribute("d"), Attribute("e"), parent="L1"),
    )
    for many in (True, False):
        yield (
            f"an ordered relationship to a middle level gets a new parent, its inverse to-{'many' if many else 'one'}",
            middle(tree, many),
            middle(tree, many, parent=True),
        )
    yield (
        "siblings' ordered relationships of one name to one entity, and the siblings exchange their names",
        Model(
            Entity("B"),
            Entity("P", Relationship("o", "T", "x", True, True), parent="B"),
            Entity("Q", Relationship("o", "T", "y", True, True), parent="B"),
            Entity("T", Relationship("x", "P", "o"), Relationship("y", "Q", "o")),
        ),
        Model(
            Entity("B"),
            Entity("Q", Relationship("o", "T", "x", True, True), parent="B", ident="P"),
            Entity("P", Relationship("o", "T", "y", True, True), parent="B", ident="Q"),
            Entity("T", Relationship("x", "Q", "o"), Relationship("y", "P", "o")),
        ),
    )
    yield (
        "a sub-entity's objects and a relationship to the root, and the root goes out from under them",
        Model(
            Entity("R", Attribute("n"), Relationship("ts", "T", "r", True, True)),
            Entity("S", Attribute("m"), parent="R"),
            Entity("T", Relationship("r", "R", "ts")),
        ),
        Model(
            Entity("R", Attribute("n"), Relationship("ts", "T", "r", True, True)),
            Entity("S", Attribute("m"), Attribute("n")),
            Entity("T", Relationship("r", "R", "ts")),
        ),
    )


def many_to_many():
    """Returns pairs of links whose relationship moves between a parent and its children (1.5; 4.3, invariants 2 and 6)."""

    def model(owners, ordered=True):
        """Makes P with children A and B; each owner relates to T by `tags`, with its own inverse."""
        m = Model(Entity("P"), Entity("A", parent="P"), Entity("B", parent="P"), Entity("T", Attribute("n")))
        for name in owners:
            inverse = "of" + name
            m[name].properties.append(Relationship("tags", "T", inverse, True, ordered))
            m["T"].properties.append(Relationship(inverse, name, "tags", True))
        return m

    yield "many-to-many moves from the parent to both children", model("P"), model("AB")
    yield "many-to-many moves from the parent to one child", model("P"), model("A")
    yield "many-to-many moves from both children to the parent", model("AB"), model("P")
    half = model("AB")
    half["B"].properties[0].ordered = False
    yield "the same, ordered in one of them alone", half, model("P")
    yield "many-to-many moves from one child to the other", model("A"), model("B")
    replaced = model("P")
    change = next(p for p in replaced["T"].properties if p.kind == "relationship")
    change.name = replaced["P"].properties[0].inverse = "another"
    yield "an ordered many-to-many gets another inverse", model("P"), replaced
    to_one = model("P")
    next(p for p in to_one["T"].properties if p.kind == "relationship").many = False
    other = to_one.copy()
    change = next(p for p in other["T"].properties if p.kind == "relationship")
    change.name = other["P"].properties[0].inverse = "another"
    yield "an ordered to-many gets another to-one inverse", to_one, other


def middle(tree, many, parent=False):
    """Makes five levels and a T whose ordered relationship leads to the third.

    With `parent`, the third has a new parent.
    """
    entities = tree(Entity("T", Relationship("ls", "L3", "t", True, True)))
    entities[2].properties.append(Relationship("t", "T", "ls", many))
    if parent:
        entities.append(Entity("A", parent="L2"))
        entities[2].parent = "A"
    return Model(*entities)


HAND = [*by_hand(), *many_to_many()]


def run(round):
    rng = round.rng
    if round.number < len(HAND):
        round.title, old, new = HAND[round.number]
        migrate_pair(round, old.copy(), new.copy(), place=True, most=8)
        return
    while True:
        old = random_model(rng)
        new, steps = old.copy(), []
        if old.fault():
            continue
        for _ in range(rng.choice([1, 1, 2, 3, 5, 8])):
            trial = new.copy()
            try:
                what = step(rng, trial)
            except StopIteration:  # a relationship that is its own inverse moves nowhere
                continue
            if what and trial.fault() is None and trial.entities:
                new = trial
                steps.append(what)
        if steps:
            break
    round.title = ", ".join(steps)
    migrate_pair(round, old, new, most=rng.choice([3, 6]))
