"""Class doors: tries refusals and losses of every kind through each door.

Exit 0 of `model check` means that the migration succeeds. A refusal leaves every byte. A loss is named with its number,
in the dry run as in the run, and an archive keeps the original.
"""

from doors import try_doors
from model import Attribute, Entity, Model, Relationship
from pairs import make_store, migrate_pair

S, I, D, B = "String", "Integer 32", "Double", "Binary"


def base():
    return Model(
        Entity(
            "Item",
            Attribute("name"),
            Attribute("n", I),
            Attribute("d", D),
            Attribute("data", B),
            Attribute("ext", B, external=True),
            Relationship("tags", "Tag", "items", True, True),
            Relationship("owner", "Owner", "items"),
        ),
        Entity("Tag", Attribute("t"), Relationship("items", "Item", "tags", True)),
        Entity("Owner", Attribute("name"), Relationship("items", "Item", "owner", True, True)),
        Entity("Special", Attribute("extra", I), parent="Item"),
        Entity("Old", Attribute("x"), Attribute("y", I)),
    )


def change(model, entity, name, **values):
    for key, v in values.items():
        setattr(next(p for p in model[entity].properties if p.name == name), key, v)


def drop(model, entity, name):
    p = next(p for p in model[entity].properties if p.name == name)
    model[entity].properties.remove(p)
    if p.kind == "relationship" and p.inverse:
        model[p.dest].properties = [x for x in model[p.dest].properties if x.name != p.inverse]


def changes():
    """Returns (words, change to the model): each may be refused, may lose something, or may do neither."""
    yield "String becomes Integer 32", lambda m: change(m, "Item", "name", type=I)
    yield "Binary becomes String", lambda m: change(m, "Item", "data", type=S)
    yield "Double becomes Date", lambda m: change(m, "Item", "d", type="Date")
    yield "Integer 32 becomes Boolean", lambda m: change(m, "Item", "n", type="Boolean")
    yield "Double becomes Integer 16", lambda m: change(m, "Item", "d", type="Integer 16")
    yield "external becomes inline", lambda m: change(m, "Item", "ext", external=False)
    yield "inline becomes external", lambda m: change(m, "Item", "data", external=True)
    yield "to-many becomes to-one", lambda m: change(m, "Item", "tags", many=False, ordered=False)
    yield "to-one becomes to-many", lambda m: change(m, "Item", "owner", many=True)
    yield "optional becomes mandatory, with a default", lambda m: change(
        m, "Item", "name", optional=False, default="none"
    )
    yield "optional becomes mandatory, without", lambda m: change(m, "Item", "name", optional=False)
    yield "relationship becomes mandatory", lambda m: change(m, "Item", "owner", optional=False)
    yield "new mandatory attribute", lambda m: m["Item"].properties.append(Attribute("must", S, False))
    yield "new mandatory attribute in a sub-entity", lambda m: m["Special"].properties.append(
        Attribute("must", S, False)
    )
    yield "new mandatory attribute of a new entity", lambda m: m.add(Entity("New", Attribute("must", S, False)))
    yield "new mandatory relationship", lambda m: (
        m["Item"].properties.append(Relationship("boss", "Owner", "staff", optional=False)),
        m["Owner"].properties.append(Relationship("staff", "Item", "boss", True)),
    )
    yield "mandatory attribute of an inserted parent", lambda m: (
        m.add(Entity("Between", Attribute("must", S, False), parent="Item")),
        change_parent(m, "Special", "Between"),
    )
    yield "mandatory attribute moves up", lambda m: (
        drop(m, "Special", "extra"),
        m["Item"].properties.append(Attribute("extra", I, False)),
    )
    yield "mandatory attribute moves up, with a default", lambda m: (
        drop(m, "Special", "extra"),
        m["Item"].properties.append(Attribute("extra", I, False, default="4")),
    )
    yield "unique attribute moves up, with a default", lambda m: (
        drop(m, "Special", "extra"),
        m["Item"].properties.append(Attribute("extra", I, default="4")),
        m["Item"].unique.append(["extra"]),
    )
    yield "unique", lambda m: m["Item"].unique.append(["n"])
    yield "unique pair", lambda m: m["Item"].unique.append(["n", "name"])
    yield "unique in a sub-entity", lambda m: m["Special"].unique.append(["extra"])
    yield "unique with a default", lambda m: (
        m["Tag"].properties.append(Attribute("u", I, default="1")),
        m["Tag"].unique.append(["u"]),
    )
    yield "two roots get one parent", lambda m: (
        m.add(Entity("Top")),
        change_parent(m, "Item"),
        change_parent(m, "Tag"),
    )
    yield "sub-entity out of its hierarchy", lambda m: change_parent(m, "Special", None)
    yield "one renaming identifier twice", lambda m: change(m, "Item", "n", ident="name")
    yield "entity's identifier twice", lambda m: setattr(m["Tag"], "ident", "Owner")
    yield "drop attribute", lambda m: drop(m, "Item", "name")
    yield "drop external attribute", lambda m: drop(m, "Item", "ext")
    yield "drop to-one relationship", lambda m: drop(m, "Item", "owner")
    yield "drop many-to-many relationship", lambda m: drop(m, "Item", "tags")
    yield "drop entity", lambda m: m.entities.pop("Old")
    yield "drop sub-entity", lambda m: m.entities.pop("Special")
    yield "drop attribute of a sub-entity", lambda m: drop(m, "Special", "extra")
    yield "attribute moves to a sub-entity", lambda m: (
        drop(m, "Item", "n"),
        m["Special"].properties.append(Attribute("n", I)),
    )
    yield "attribute becomes transient", lambda m: change(m, "Item", "name", transient=True)
    yield "attribute becomes derived", lambda m: change(m, "Item", "name", derived="owner.name")
    yield "attribute becomes a relationship", lambda m: (
        drop(m, "Item", "n"),
        m["Item"].properties.append(Relationship("n", "Old")),
    )
    yield "relationship becomes an attribute", lambda m: (
        drop(m, "Item", "owner"),
        m["Item"].properties.append(Attribute("owner", S)),
    )
    yield "name kept, identifier new", lambda m: change(m, "Item", "name", ident="another")
    yield "entity's name kept, identifier new", lambda m: setattr(m["Old"], "ident", "another")
    yield "order is given up", lambda m: change(m, "Item", "tags", ordered=False)
    yield "entity becomes abstract", lambda m: setattr(m["Old"], "abstract", True)
    yield "destination becomes a sub-entity", lambda m: (
        drop(m, "Tag", "items"),
        m["Special"].properties.append(Relationship("tags", "Tag", "items", True, True)),
        m["Tag"].properties.append(Relationship("items", "Special", "tags", True)),
    )
    yield "relationship without its inverse", lambda m: (
        drop(m, "Owner", "items"),
        m["Item"].properties.append(Relationship("owner", "Owner")),
    )


def change_parent(model, name, parent="Top"):
    model[name].parent = parent


CHANGES = list(changes())


def run(round):
    rng = round.rng
    place = round.number < len(CHANGES) or None  # the hand-written changes open the slow doors as well
    if place:
        chosen = [CHANGES[round.number]]
    else:
        chosen = rng.sample(CHANGES, 2)
    old, new = base(), base()
    for _, apply in chosen:
        try:
            apply(new)
        except (KeyError, StopIteration):  # the other change has removed this change's target
            pass
    round.title = " + ".join(words for words, _ in chosen)
    if new.fault() or {"String becomes Integer 32", "optional becomes mandatory, with a default"} <= {w for w, _ in chosen}:
        return  # a text as the default of a number is no model
    if not place and rng.random() < 0.15:
        return newer(round, old, new)
    if "becomes derived" in round.title or "abstract" in round.title:
        migrate_pair(round, old, new, must=None, place=place)
    else:
        migrate_pair(round, old, new, place=place)


def newer(round, old, new):
    """Tries a store of the newer version with an older current version: refused (134100), every byte kept."""
    round.title += ", backwards"
    if make_store(round, new) is None or old.hashes() == new.hashes():
        return
    try_doors(round, round.write_bundle("M", {"V1": old, "V2": new}, current="V1"), None, place=True)
