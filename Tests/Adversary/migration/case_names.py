"""Class names: the name of a property, entity or index must not affect what becomes of its values.

Column names follow section 1.4: `Z` and the name in capitals, with a number if the table already has that name.
"""

import unicodedata

from model import Attribute, Entity, Model, Relationship, mixes_forms
from pairs import migrate_pair
from store import default

# Each family holds names that are easily confused.
FAMILIES = [
    ["a", "ab", "abc", "a_b", "a_b_c", "ab_c", "a1", "a11", "a_1", "a_1_b", "a__b", "a_", "b", "b_c", "c"],
    ["name", "nameData", "name_data", "name1", "name2", "name_1", "name11", "n", "na"],
    [
        "select",
        "from",
        "where",
        "order",
        "group",
        "index",
        "table",
        "values",
        "default",
        "check",
        "primary",
        "references",
        "null",
        "case",
        "when",
        "rowid",
        "oid",
        "_rowid_",
        "old",
        "NEW",
        "EXCLUDED",
        "main",
        "temp",
    ],
    [
        "pk",
        "ent",
        "opt",
        "z_pk",
        "Z_PK",
        "ZPK",
        "_pk",
        "_ent",
        "_opt",
        "fok_x",
        "_fok_x",
        "z",
        "Z",
        "zz",
        "max",
        "super",
    ],
    ["\u00e9", "e\u0301", "e", "E", "\u00c9"],
    ["\u00df", "ss", "SS", "\u1e9e"],
    ["\u0131", "i", "I", "\u0130"],
    ["\u03a9", "\u2126", "\u03c9", "o"],
    ["\ufb01x", "fix", "FIX"],
    ["\u540d\u524d", "\u540d", "\u524d"],
    ["\u0646\u0627\u0645", "\u0646", "\u0646_1"],
    ["\u00c5", "\u212b", "A\u030a"],
    ["x" * 60, "x" * 61, "x" * 60 + "_y"],
    ["L" + "o" * 400 + "ng", "L" + "o" * 401 + "ng", "L" + "o" * 400 + "ng_1"],
    ["k" * 24, "k" * 8 + "j" + "k" * 15],
    ["self", "hash", "no", "nil", "true", "YES", "description", "objectID", "managed", "x", "y_x", "x_y"],
]
ENTITY_FAMILIES = [
    ["Item", "Items", "ItemA", "Item_A", "Item1", "Item_1", "ItemItem"],
    ["A", "AB", "A_B", "A_ZB", "ZA", "ZZA"],
    ["Order", "Group", "Select", "Table", "Index", "Values", "Trigger"],
    ["\u00c9t\u00e9", "E\u0301te\u0301", "Ete"],
    ["Entity", "Metadata_", "PrimaryKey", "ModelCache", "Change", "Transaction", "TransactionString"],
    ["Stra\u00dfe", "Strasse", "Stras"],
    ["X" * 80, "X" * 80 + "_Y", "X" * 81],
    ["a", "B", "c", "D", "_E"],
]
KINDS = ["String", "Integer 32", "Integer 64", "Double", "Date", "Binary", "UUID", "Boolean", "URI", "Transformable"]


def distinct(names):
    """Returns names that a model may hold together: they differ in more than case and Unicode form. No document says which
    columns two forms of one name get, so the hand-written pairs cover that."""
    return list({unicodedata.normalize("NFC", n.upper()): n for n in reversed(names)}.values())


def pool(rng, cases):
    names = [n for family in rng.sample(FAMILIES, rng.choice([1, 1, 2])) for n in family]
    rng.shuffle(names)
    return names if cases else distinct(names)


def random_pair(rng):
    cases = rng.random() < 0.15
    family = distinct(rng.choice(ENTITY_FAMILIES))
    rng.shuffle(family)
    names = family[: rng.randint(1, 3)]
    old = Model()
    for i, name in enumerate(names):
        old.add(Entity(name, parent=rng.choice(names[:i]) if i and rng.random() < 0.4 else None))
    free = pool(rng, cases)
    for name in names:
        taken = {p.name for x in old.line(name) + old.family(name) for p in old[x].properties}
        for n in [n for n in free if n not in taken][: rng.randint(2, 6)]:
            kind = rng.choice(KINDS)
            old[name].properties.append(Attribute(n, kind, default=default(rng, kind) if rng.random() < 0.3 else None))
        if rng.random() < 0.4:
            elements = [Attribute(n, rng.choice(["String", "Double"])) for n in rng.sample(free, min(2, len(free)))]
            n = next(
                (
                    n
                    for n in free
                    if n not in {p.name for x in old.line(name) + old.family(name) for p in old[x].properties}
                ),
                None,
            )
            if n:
                old[name].properties.append(Attribute(n, "Composite", elements=elements))
    for name in names:  # relationships take their names from the same families
        if rng.random() < 0.6:
            dest = rng.choice(names)
            mine, theirs = rng.choice(free), rng.choice(free)
            taken = {p.name for x in old.family(old.root(name)) + old.family(old.root(dest)) for p in old[x].properties}
            if mine != theirs and not {mine, theirs} & taken:
                many, back = rng.random() < 0.5, rng.random() < 0.6
                old[name].properties.append(Relationship(mine, dest, theirs, many, many and rng.random() < 0.4))
                old[dest].properties.append(Relationship(theirs, name, mine, back, back and rng.random() < 0.4))
    for name in names:
        keys = [a.name for a in old[name].attributes() if a.type in ("String", "Integer 32", "URI")]
        if keys and rng.random() < 0.3:
            old[name].indexes.append((rng.choice(["a", "a_b", "byName", "UNIQUE_a", "x"]), keys[: rng.randint(1, 2)]))
        if len(keys) > 1 and rng.random() < 0.2:
            old[name].unique.append(keys[:2])
    return old, changed(rng, old, free)


def rename(model, entity, p, new):
    """Renames a property and keeps its renaming identifier: the canonical name that each later version keeps (4.1)."""
    p.ident = p.identity
    for x in model.family(entity):
        e = model[x]
        e.unique = [[new if k == p.name else k for k in u] for u in e.unique]
        e.indexes = [(n, [new if k == p.name else k for k in u]) for n, u in e.indexes]
    if p.kind == "relationship" and p.inverse:
        inverse = model.inverse(p)
        inverse.inverse = new
    p.name = new


def changed(rng, old, free):
    """Makes a next version: names exchanged, shifted along, moved to another Unicode form, or reused for other things."""
    new = old.copy()
    for _ in range(rng.randint(1, 3)):
        name = rng.choice(list(new.entities))
        e, what = new[name], rng.choice(["cycle", "reuse", "rename", "form", "add", "drop", "entity"])
        taken = {p.name for x in new.line(name) + new.family(name) for p in new[x].properties}
        attributes = e.attributes()
        unused = [n for n in free if n not in taken]
        if what == "cycle" and len(attributes) > 1:
            chosen = rng.sample(attributes, rng.randint(2, min(3, len(attributes))))
            names = [p.name for p in chosen]
            for p, n in zip(chosen, names[1:] + names[:1]):
                p.ident, p.name = p.identity, n
            e.indexes, e.unique = [], []
        elif what == "reuse" and attributes:  # another attribute has the name from now on
            p = rng.choice(attributes)
            n = p.name
            if unused and rng.random() < 0.6:
                rename(new, name, p, rng.choice(unused))
            else:
                e.properties.remove(p)
            kind = rng.choice(KINDS)
            e.properties.append(
                Attribute(
                    n,
                    kind,
                    ident=f"new{rng.randrange(10**6)}",
                    default=default(rng, kind) if rng.random() < 0.5 else None,
                )
            )
            e.indexes, e.unique = [], []
        elif what == "rename" and e.properties and unused:
            rename(new, name, rng.choice(e.properties), rng.choice(unused))
        elif what == "form" and e.properties:
            p = rng.choice(e.properties)
            n = unicodedata.normalize(rng.choice(["NFC", "NFD"]), p.name)
            if n not in taken:
                rename(new, name, p, n)
        elif what == "add" and unused:
            kind = rng.choice(KINDS)
            e.properties.append(
                Attribute(
                    rng.choice(unused),
                    kind,
                    default=default(rng, kind),
                    ident=rng.choice([None, f"new{rng.randrange(10**6)}"]),
                )
            )
        elif what == "drop" and attributes:
            gone = rng.choice(attributes)
            e.properties.remove(gone)
            e.indexes, e.unique = [], []
        elif what == "entity":
            other = [n for f in ENTITY_FAMILIES for n in f if n.upper() not in {x.upper() for x in new.entities}]
            n = rng.choice(other)
            e.ident, e.name = e.identity, n
            new.entities = {(n if k == name else k): v for k, v in new.entities.items()}
            for x in new.entities.values():
                x.parent = n if x.parent == name else x.parent
                for r in x.relationships():
                    r.dest = n if r.dest == name else r.dest
    for name, e in new.entities.items():  # an index's names must exist
        there = {p.name for p in new.properties(name) if p.kind == "attribute" and p.type != "Composite"}
        e.unique = [u for u in e.unique if set(u) <= there]
        e.indexes = [(n, u) for n, u in e.indexes if set(u) <= there]
    return new


def by_hand():
    """Returns pairs whose names were chosen to collide, as (words, old, new)."""
    S, I = "String", "Integer 32"
    yield (
        "indexes Item.A_b and Item_A.b have one name, Z_Item_A_b, and are added",
        Model(Entity("Item", Attribute("x", S)), Entity("Item_A", Attribute("y", S))),
        Model(
            Entity("Item", Attribute("x", S), Attribute("n"), indexes=[("A_b", ["x"])]),
            Entity("Item_A", Attribute("y", S), Attribute("n"), indexes=[("b", ["y"])]),
        ),
    )
    yield (
        "constraints Item UNIQUE A_UNIQUE_b and Item_UNIQUE_A(b) have one index name",
        Model(Entity("Item", Attribute("A", S), Attribute("UNIQUE_b", S)), Entity("Item_UNIQUE_A", Attribute("x", S))),
        Model(
            Entity("Item", Attribute("A", S), Attribute("UNIQUE_b", S), unique=[["A", "UNIQUE_b"]]),
            Entity("Item_UNIQUE_A", Attribute("x", S), Attribute("UNIQUE_b", S), unique=[["UNIQUE_b"]]),
        ),
    )
    yield (
        "a fetch index named UNIQUE_a beside the constraint of a",
        Model(Entity("Item", Attribute("a", S))),
        Model(Entity("Item", Attribute("a", S), Attribute("b", S), unique=[["a"]], indexes=[("UNIQUE_a", ["b"])])),
    )
    yield (
        "reference indexes ZA_ZB_ZC_INDEX of two tables (A.b_Zc and A_ZB.c)",
        Model(
            Entity("A", Relationship("b_Zc", "T", "one")),
            Entity("A_ZB", Relationship("c", "T", "two")),
            Entity("T", Relationship("one", "A", "b_Zc", True), Relationship("two", "A_ZB", "c", True)),
        ),
        Model(
            Entity("A", Relationship("b_Zc", "T", "one"), Attribute("n")),
            Entity("A_ZB", Relationship("c", "T", "two"), Attribute("n")),
            Entity("T", Relationship("one", "A", "b_Zc", True), Relationship("two", "A_ZB", "c", True)),
        ),
    )
    yield (
        "a table named as another table's index: entities A and A_Z_ENT_INDEX",
        Model(Entity("A", Attribute("n")), Entity("B", Attribute("m"), parent="A")),
        Model(
            Entity("A", Attribute("n")),
            Entity("B", Attribute("m"), parent="A"),
            Entity("A_Z_ENT_INDEX", Attribute("n")),
        ),
    )
    yield (
        "an entity that takes the name a removed one had, with the same attribute names",
        Model(Entity("A", Attribute("n")), Entity("B", Attribute("n"))),
        Model(Entity("A", Attribute("n"), ident="B"), Entity("C", Attribute("n"), ident="A")),
    )
    yield (
        "two names that differ in the Unicode form alone, in one entity",
        Model(Entity("A", Attribute("\u00e9", S), Attribute("e\u0301", S))),
        Model(Entity("A", Attribute("\u00e9", S), Attribute("e\u0301", S), Attribute("z", I, default="3"))),
    )
    yield (
        "they exchange their names",
        Model(Entity("A", Attribute("\u00e9", S), Attribute("e\u0301", S))),
        Model(Entity("A", Attribute("\u00e9", S, ident="e\u0301"), Attribute("e\u0301", S, ident="\u00e9"))),
    )
    yield (
        "attributes whose capitals are one column, moved by an earlier name: ZX and ZX1 change places",
        Model(Entity("P"), Entity("A", Attribute("x", S), parent="P"), Entity("B", Attribute("x", S), parent="P")),
        Model(
            Entity("P"),
            Entity("A", Attribute("x", S), parent="P", ident="B"),
            Entity("B", Attribute("x", S), parent="P", ident="A"),
        ),
    )
    yield (
        "x1 takes the column that the second x had",
        Model(Entity("P"), Entity("A", Attribute("x", S), parent="P"), Entity("B", Attribute("x", S), parent="P")),
        Model(
            Entity("P"),
            Entity("A", Attribute("x", S), Attribute("x1", S, default="d"), parent="P"),
            Entity("B", Attribute("x", S), parent="P"),
        ),
    )
    yield (
        "_pk, _ent, _opt as attributes, renamed around",
        Model(Entity("A", Attribute("_pk", I), Attribute("_ent", I), Attribute("_opt", I))),
        Model(
            Entity(
                "A",
                Attribute("_pk", I, ident="_ent"),
                Attribute("_ent", I, ident="_opt"),
                Attribute("_opt", I, ident="_pk"),
                Attribute("pk1"),
            )
        ),
    )
    yield (
        "an attribute named as a reference's number column: 2_r beside r",
        Model(
            Entity("A", Relationship("r", "B", "s"), Attribute("fok_r", I)),
            Entity("B", Relationship("s", "A", "r", True)),
            Entity("C", parent="B"),
        ),
        Model(
            Entity("A", Relationship("r", "B", "s"), Attribute("fok_r", I), Attribute("_fok_r", I, default="7")),
            Entity("B", Relationship("s", "A", "r", True, True)),
            Entity("C", parent="B"),
        ),
    )
    yield (
        "composites a{b_c} and a_b{c}: both are joined to a_b_c",
        Model(
            Entity(
                "A",
                Attribute("a", "Composite", elements=[Attribute("b_c", S)]),
                Attribute("a_b", "Composite", elements=[Attribute("c", S)]),
            )
        ),
        Model(
            Entity(
                "A",
                Attribute("a", "Composite", elements=[Attribute("b_c", S)]),
                Attribute("a_b", "Composite", elements=[Attribute("c", S)]),
                Attribute("n", I, default="1"),
            )
        ),
    )
    yield (
        "an element named as a sibling attribute",
        Model(Entity("A", Attribute("a", "Composite", elements=[Attribute("n", S)]), Attribute("n", S))),
        Model(
            Entity(
                "A",
                Attribute("a", "Composite", elements=[Attribute("n", S)]),
                Attribute("n", S),
                Attribute("a_n", S, default="d"),
            )
        ),
    )
    yield (
        "an attribute becomes an element's name, and the composite goes",
        Model(Entity("A", Attribute("a", "Composite", elements=[Attribute("n", S)]), Attribute("m", S))),
        Model(Entity("A", Attribute("n", S, ident="m"))),
    )
    for name in ("_METADATA", "_PRIMARYKEY", "_MODELCACHE"):
        yield (
            f"an entity {name} would be a table of Core Data's",
            Model(Entity("A", Attribute("n"))),
            Model(Entity("A", Attribute("n")), Entity(name, Attribute("n"))),
        )
    yield (
        "an entity _2TAGS would be the table that joins the second entity's tags",
        Model(Entity("A", Attribute("n")), Entity("B", Attribute("n"))),
        Model(
            Entity("_1TAGS", Attribute("n")),
            Entity("A", Relationship("tags", "B", "owners", True)),
            Entity("B", Relationship("owners", "A", "tags", True)),
        ),
    )
    yield (
        "join columns of one name: both sides relate by x",
        Model(Entity("A", Relationship("x", "B", "x", True)), Entity("B", Relationship("x", "A", "x", True))),
        Model(
            Entity("A0", Attribute("n")),
            Entity("A", Relationship("x", "B", "x", True)),
            Entity("B", Relationship("x", "A", "x", True)),
        ),
    )


HAND = list(by_hand())


def run(round):
    rng = round.rng
    if round.number < len(HAND):
        words, old, new = HAND[round.number]
        round.title = words
        migrate_pair(round, old.copy(), new.copy(), place=True)
        return
    while True:
        old, new = random_pair(rng)
        if old.fault() is None and new.fault() is None and not mixes_forms(old, new):
            break
    round.title = "random names"
    migrate_pair(round, old, new)
