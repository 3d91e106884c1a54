"""Class mapping: tests random mapping models in YAML (Documentation/MappingModels.md), judged object by object.

Every object has its own `uid`, copied automatically. It identifies the object in the new store whatever its key.
"""

from doors import try_doors
from model import Attribute, Entity, Layout, Model, Relationship
from program import connect
from store import bookkeeping, insert, quoted, read

NAMES = ["Anna", "bob", "x", "", "O'Neil", 'a"b', "\u00e9t\u00e9", "NULL", "zoe", "Xaver", "100%", "a_b", "back\\slash"]
# An expression in YAML, its attribute's type, and its value for a source object.
EXPRESSIONS = [
    ("$source.n + 1", "Integer 32", lambda o: o["n"] + 1),
    ("$source.n * 2 - 3", "Integer 64", lambda o: o["n"] * 2 - 3),
    ("-$source.n", "Integer 32", lambda o: -o["n"]),
    ("$source.n * 1.5", "Double", lambda o: o["n"] * 1.5),
    ('FUNCTION($source.name, "stringByAppendingString:", $source.kind)', "String", lambda o: o["name"] + o["kind"]),
    ("uppercase($source.kind)", "String", lambda o: o["kind"].upper()),
    ("$source.name", "String", lambda o: o["name"]),
    ("$source.note", "String", lambda o: o["note"]),
    ('"it\'s"', "String", lambda o: "it's"),
    ("42", "Integer 32", lambda o: 42),
    ("length($source.kind)", "Integer 32", lambda o: len(o["kind"])),
    ('TERNARY($source.n > 3, "big", "small")', "String", lambda o: "big" if o["n"] > 3 else "small"),
    ("$source.pets.@count", "Integer 32", lambda o: len(o["pets"])),
    ("$source.boss.name", "String", lambda o: o["boss"]["name"] if o["boss"] else None),
    (
        "$source.boss.boss.n",
        "Integer 32",
        lambda o: o["boss"]["boss"]["n"] if o["boss"] and o["boss"]["boss"] else None,
    ),
    ("$source.no", "Integer 32", lambda o: o["no"]),
    ("$source.nil", "String", lambda o: o["nil"]),
    ("$source.true", "Boolean", lambda o: o["true"]),
]
# Only `no` and `true` are constants in a predicate; `#` before them makes them names (NSPredicate's grammar).
CONDITIONS = [
    ("n > 3", lambda o: o["n"] > 3),
    ('kind == "a"', lambda o: o["kind"] == "a"),
    ('kind IN {"a", "b"}', lambda o: o["kind"] in "ab"),
    ('name BEGINSWITH "x"', lambda o: o["name"].startswith("x")),
    ('name BEGINSWITH[c] "x"', lambda o: o["name"].lower().startswith("x")),
    ("note == nil", lambda o: o["note"] is None),
    ("note != nil", lambda o: o["note"] is not None),
    ("pets.@count > 1", lambda o: len(o["pets"]) > 1),
    ("boss == nil", lambda o: o["boss"] is None),
    ('NOT kind == "a"', lambda o: o["kind"] != "a"),
    ("n BETWEEN {1, 5}", lambda o: 1 <= o["n"] <= 5),
    ('kind == "a" AND n > 2', lambda o: o["kind"] == "a" and o["n"] > 2),
    ('kind == "a" OR n > 2', lambda o: o["kind"] == "a" or o["n"] > 2),
    ("#no == 1", lambda o: o["no"] == 1),
    ('name CONTAINS "\'"', lambda o: "'" in o["name"]),
    ('name CONTAINS "%"', lambda o: "%" in o["name"]),
    ('name CONTAINS "_"', lambda o: "_" in o["name"]),
    ('name == ""', lambda o: o["name"] == ""),
    ("TRUEPREDICATE", lambda o: True),
    ("FALSEPREDICATE", lambda o: False),
    ("ANY pets.n > 3", lambda o: any(p["n"] > 3 for p in o["pets"])),
    ("NONE pets.n > 3", lambda o: not any(p["n"] > 3 for p in o["pets"])),
    ("#true == 1", lambda o: o["true"] == 1),
]


def old_model(rng):
    """Returns the same entities in each round; their relationships are ordered or not."""
    person = Entity(
        "Person",
        Attribute("uid"),
        Attribute("name"),
        Attribute("kind"),
        Attribute("n", "Integer 32"),
        Attribute("note"),
        Attribute("no", "Integer 32"),
        Attribute("nil"),
        Attribute("true", "Boolean"),
        Relationship("pets", "Pet", "owner", True, rng.random() < 0.5),
        Relationship("tags", "Tag", "people", True, rng.random() < 0.5),
        Relationship("boss", "Person", "staff"),
        Relationship("staff", "Person", "boss", True),
    )
    pet = Entity(
        "Pet",
        Attribute("uid"),
        Attribute("name"),
        Attribute("n", "Integer 32"),
        Relationship("owner", "Person", "pets"),
    )
    toy = Entity("Toy", Attribute("uid"), Attribute("name"), Attribute("n", "Integer 32"))
    tag = Entity(
        "Tag", Attribute("uid"), Attribute("name"), Relationship("people", "Person", "tags", True, rng.random() < 0.3)
    )
    worker = Entity("Worker", Attribute("wage", "Double"), parent="Person")
    return Model(person, pet, toy, tag, *([worker] if rng.random() < 0.5 else []))


def fill(path, model, layout, rng):
    """Fills the store; returns the oracle's own objects, {entity: [object]}."""
    connection, objects, keys = connect(path, "rw"), {n: [] for n in model.entities}, {}
    connection.execute("BEGIN")
    for name in layout.order:
        for _ in range(rng.randint(2, 5)):
            table = layout.table(name)
            keys[table] = keys.get(table, 0) + rng.choice([1, 1, 2])
            o = {
                "entity": name,
                "key": keys[table],
                "uid": f"{name}{keys[table]}",
                "name": rng.choice(NAMES),
                "n": rng.randrange(8),
                "pets": [],
                "tags": [],
                "boss": None,
                "owner": None,
                "people": [],
                "staff": [],
                "dropped": False,
            }
            for attribute, v in (
                ("kind", rng.choice("abc")),
                ("note", rng.choice([None, "note", ""])),
                ("no", rng.randrange(3)),
                ("nil", rng.choice([None, "v"])),
                ("true", rng.randrange(2)),
                ("wage", 1.5),
            ):
                o[attribute] = v if model.property(name, attribute) else None
            columns = {
                layout.column[(model.declaring(name, a.name), (a.name,))]: o[a.name]
                for a in model.properties(name)
                if a.kind == "attribute"
            }
            insert(connection, layout, name, o["key"], columns, rng.randint(1, 4))
            objects[name].append(o)
    people = objects["Person"] + objects.get("Worker", [])

    def point(o, key, target, place):
        entity = model.declaring(o["entity"], key)
        columns = {layout.column[(entity, key)]: target["key"]}
        if (entity, key) in layout.number_column:
            columns[layout.number_column[(entity, key)]] = layout.ids[target["entity"]]
        if (entity, key) in layout.order_column:
            columns[layout.order_column[(entity, key)]] = place
        connection.execute(
            "UPDATE {} SET {} WHERE Z_PK = ?".format(
                quoted(layout.table(entity)), ",".join(f"{quoted(c)} = ?" for c in columns)
            ),
            [*columns.values(), o["key"]],
        )

    for o in people:
        if rng.random() < 0.6:
            o["boss"] = rng.choice(people)
            o["boss"]["staff"].append(o)
            point(o, "boss", o["boss"], 0)
    places = rng.sample(range(2048, 9999), len(objects["Pet"]))
    for pet, place in sorted(zip(objects["Pet"], places), key=lambda x: x[1]):
        if rng.random() < 0.85:
            pet["owner"] = rng.choice(people)
            pet["owner"]["pets"].append(pet)
            point(pet, "owner", pet["owner"], place)
    table, mine, theirs, order = layout.join[("Person", "tags")]
    back = layout.join[("Tag", "people")][3]
    rows = []
    for o in people:
        chosen = [t for t in objects["Tag"] if rng.random() < 0.5]
        rng.shuffle(chosen)
        for place, t in enumerate(chosen):
            o["tags"].append(t)
            rows.append([o, t, 2048 + 1024 * place, None])
    rng.shuffle(rows)
    for place, row in enumerate(rows):
        row[3] = 2048 + 1024 * place
        row[1]["people"].append(row[0])
        columns = {
            mine: row[0]["key"],
            theirs: row[1]["key"],
            **({order: row[2]} if order else {}),
            **({back: row[3]} if back else {}),
        }
        connection.execute(
            "INSERT INTO {} ({}) VALUES ({})".format(
                quoted(table), ",".join(map(quoted, columns)), ",".join("?" * len(columns))
            ),
            list(columns.values()),
        )
    for root in model.roots():
        connection.execute(
            "UPDATE Z_PRIMARYKEY SET Z_MAX = ? WHERE Z_ENT = ?", (keys.get(layout.table(root), 0), layout.ids[root])
        )
    connection.execute("COMMIT")
    connection.close()
    return objects


class Mapping:
    """An entity mapping: its YAML, and the objects that it makes."""

    def __init__(self, source, dest, name=None):
        self.source, self.dest, self.name = source, dest, name or f"{source}To{dest}"
        self.named, self.where, self.attributes, self.relationships = bool(name), None, {}, {}
        self.only_listed, self.made = False, {}

    def yaml(self, rng):
        def text(expression):
            return "'" + expression.replace("'", "''") + "'"

        def key(name):
            return rng.choice([name, f'"{name}"', f"'{name}'"])

        lines = [f"  - from: {self.source}", f"    to: {self.dest}"]
        lines += [f"    name: {self.name}"] if self.named else []
        lines += [f"    where: {text(self.where[0])}"] if self.where else []
        lines += ["    only-listed: yes"] if self.only_listed else []
        if self.attributes:
            lines.append("    attributes:")
            lines += [
                f"      {key(n)}: {e[0] if e[0] in ('~', 'automatic') else text(e[0])}"
                for n, e in self.attributes.items()
            ]
        if self.relationships:
            lines.append("    relationships:")
            for n, (mapping, path) in self.relationships.items():
                lines.append(f"      {key(n)}: {{ {f'mapping: {mapping}, ' if mapping else ''}from: {path} }}")
        return lines


def scenario(rng, old):
    """Returns a next version and its entity mappings."""
    ordered = {k: rng.random() < 0.5 for k in ("pets", "tags", "people")}
    workers, pets_name = "Worker" in old.entities, rng.choice(["Pet", "Thing"])
    fate = rng.choice(["keep", "keep", "rename", "split", "profile"])
    person = {"keep": "Person", "rename": "Human", "profile": "Person", "split": "Being"}[fate]
    new, mappings = Model(), []
    being = new.add(
        Entity(
            person,
            *[
                Attribute(a.name, a.type)
                for a in old["Person"].attributes()
                if a.name in ("uid", "kind", "n") or rng.random() < 0.6
            ],
            abstract=fate == "split",
        )
    )
    being.properties += [
        Relationship("pets", pets_name, "owner", True, ordered["pets"]),
        Relationship("boss", person, "staff"),
        Relationship("staff", person, "boss", True),
    ]
    new.add(
        Entity(
            pets_name,
            Attribute("uid"),
            Attribute("name"),
            Attribute("n", "Integer 32"),
            Relationship("owner", person, "pets"),
        )
    )
    with_tags = rng.random() < 0.75
    if with_tags:
        being.properties.append(Relationship("tags", "Tag", "people", True, ordered["tags"]))
        new.add(
            Entity(
                "Tag",
                Attribute("uid"),
                Attribute("name"),
                Relationship("people", person, "tags", True, ordered["people"]),
            )
        )
    listed = {}
    for i, (text, kind, value) in enumerate(rng.sample(EXPRESSIONS, rng.randint(0, 4))):
        being.properties.append(Attribute(f"made{i}", kind))
        listed[f"made{i}"] = (text, value)
    if rng.random() < 0.4:
        being.properties.append(Attribute("fresh", "Integer 32", default="7"))
        listed["fresh"] = rng.choice([("~", lambda o: 7), ("automatic", lambda o: 7)])
    sources = ["Person"] + (["Worker"] if workers else [])
    if fate == "split":
        new.add(Entity("Alpha", Attribute("alphaOnly", "String", default="x"), parent="Being"))
        new.add(Entity("Beta", parent="Being"))
        condition, test = rng.choice(CONDITIONS)
        for source in sources:
            for dest, where in (
                ("Alpha", (condition, test)),
                ("Beta", (f"NOT ({condition})", lambda o, t=test: not t(o))),
            ):
                if rng.random() < 0.93:
                    m = Mapping(source, dest)
                    m.where = where
                    mappings.append(m)
    else:
        own = workers and rng.random() < 0.5  # the sub-entity remains separate, or is merged with its parent
        if own:
            new.add(
                Entity("Worker", Attribute("wage", "Double"), Attribute("grade", "Float", default="0.1"), parent=person)
            )
        for source in sources:
            m = Mapping(
                source, "Worker" if own and source == "Worker" else person, rng.choice([None, None, f"map{source}"])
            )
            m.where = rng.choice([None, None, rng.choice(CONDITIONS)])
            mappings.append(m)
    for m in mappings:
        m.attributes = dict(listed)
    if fate == "profile":  # one source object, two new objects
        new.add(Entity("Profile", Attribute("uid"), Attribute("name")))
        for m in list(mappings):
            p = Mapping(m.source, "Profile")
            p.where = m.where
            mappings.append(p)
    mappings.append(Mapping("Pet", pets_name))
    if pets_name == "Thing":  # two sources, one destination
        mappings.append(Mapping("Toy", "Thing"))
    elif rng.random() < 0.5:
        new.add(Entity("Toy", Attribute("uid"), Attribute("name"), Attribute("n", "Integer 32")))
        mappings.append(Mapping("Toy", "Toy"))
    if with_tags:
        mappings.append(Mapping("Tag", "Tag"))
    # A relationship may name its mapping, if there is only one; otherwise any mapping that fits applies.
    for m in mappings:
        if m.source in ("Person", "Worker") and m.dest != "Profile" and rng.random() < 0.4:
            m.relationships["pets"] = (rng.choice([None, next(x.name for x in mappings if x.source == "Pet")]), "pets")
    rng.shuffle(mappings)
    return new, mappings


def drop(objects, entity, test):
    """Does what `before: - drop:` does: removes the objects and all links to them."""
    gone = [o for o in objects[entity] if test(o)]
    for o in gone:
        o["dropped"] = True
    for o in [o for name in objects for o in objects[name]]:
        for key in ("pets", "tags", "people", "staff"):
            o[key] = [x for x in o[key] if not x["dropped"]]
        for key in ("boss", "owner"):
            o[key] = None if o[key] and o[key]["dropped"] else o[key]


def expected(objects, new, mappings):
    """Returns [new objects], each {entity, uid, values, source}, in the order of the mappings."""
    made = []
    for m in mappings:
        for o in objects[m.source]:
            if m.where and not m.where[1](o):
                continue
            if o["dropped"]:
                continue
            values = {}  # a NULL in the older object stays NULL: only a new attribute gets its default
            for a in [p for p in new.properties(m.dest) if p.kind == "attribute"]:
                if a.name in m.attributes:
                    values[a.name] = m.attributes[a.name][1](o)
                elif a.name in o and o[a.name] is not None:
                    values[a.name] = o[a.name]
                else:
                    values[a.name] = a.default_value() if a.name not in SOURCE[m.source] else None
            made.append({"entity": m.dest, "uid": o["uid"], "values": values, "source": o, "mapping": m})
    return made


SOURCE = {
    "Person": {"uid", "name", "kind", "n", "note", "no", "nil", "true"},
    "Pet": {"uid", "name", "n"},
    "Toy": {"uid", "name", "n"},
    "Tag": {"uid", "name"},
}
SOURCE["Worker"] = SOURCE["Person"] | {"wage"}


def compare(round, path, old, new, objects, mappings, prefix=""):
    layout = Layout(new)
    if not bookkeeping(round, path, new, layout, prefix=prefix):
        return
    state, made = read(path, new, layout), expected(objects, new, mappings)
    for kind, text in state.faults:
        round.problem(prefix + kind, text)
    found, where = {}, {}
    for (root, key), (entity, opt, values) in state.objects.items():
        uid = values[("uid",)][1].decode() if values[("uid",)] else None
        found.setdefault((entity, uid), []).append((root, key))
        where[(root, key)] = (entity, uid)
        if opt != 1:  # MappingModels, "What a migration by a mapping model leaves"
            round.problem(prefix + "z-opt", f"{entity} {key}: {opt}")
    wanted = {}
    for o in made:
        wanted.setdefault((o["entity"], o["uid"]), []).append(o)
    for name in sorted(wanted.keys() | found.keys(), key=repr):
        if len(wanted.get(name, [])) != len(found.get(name, [])):
            round.problem(
                prefix + "objects", f"{name}: {len(wanted.get(name, []))} wanted, {len(found.get(name, []))} there"
            )
            return
    for name, (o, *_) in wanted.items():
        values = state.objects[found[name][0]][2]
        for key, v in o["values"].items():
            got = values[(key,)]
            v = ("text", v.encode()) if isinstance(v, str) else v
            if got != v:
                text = next((e[0] for n, e in o["mapping"].attributes.items() if n == key), "automatic")
                round.problem(prefix + "value", f"{name}.{key} = {text}: {v!r} wanted, {got!r} there")
    _keys(round, old, new, mappings, made, found, prefix)
    for key, links in state.links.items():
        _links(round, old, new, key, links, made, where, found, prefix)


def _keys(round, old, new, mappings, made, found, prefix):
    """Checks that keys are kept if each table takes all from one older table, each entity once; else numbered from 1."""
    for root in new.roots():
        mine = [o for o in made if new.root(o["entity"]) == root]
        sources = [m.source for m in mappings if new.root(m.dest) == root]
        one = len({old.root(s) for s in sources}) == 1 and len(set(sources)) == len(sources)
        keys = [(found[(o["entity"], o["uid"])][0][1], o["source"]["key"]) for o in mine]
        if one and any(a != b for a, b in keys):
            round.problem(prefix + "keys", f"{root}: {keys} aren't kept")


def _links(round, old, new, key, links, made, where, found, prefix):
    entity, name = key
    r = new.property(entity, name)
    by_source = {}
    for o in made:
        by_source.setdefault(id(o["source"]), []).append(o)
    wanted = []
    for o in [o for o in made if entity in new.line(o["entity"])]:
        source = o["source"]
        targets = source.get(name) if name in source else None
        targets = targets if isinstance(targets, list) else [targets] if targets else []
        if not old.property(source["entity"], name):
            continue
        mapping = o["mapping"].relationships.get(name, (None, None))[0]
        for t in targets:
            for x in by_source.get(id(t), []):
                if r.dest in new.line(x["entity"]) and (mapping is None or x["mapping"].name == mapping):
                    wanted.append(((o["entity"], o["uid"]), (x["entity"], x["uid"])))
    root, target_root = new.root(entity), new.root(r.dest)
    got = [
        (where.get((root, a)), where.get((target_root, b)))
        for a, b, _ in sorted(links, key=lambda x: (x[0], x[2] is None, x[2] or 0))
    ]
    if sorted(map(repr, got)) != sorted(map(repr, wanted)):
        round.problem(
            prefix + "links",
            f"{key}: missing {[w for w in wanted if w not in got]}, too many " f"{[g for g in got if g not in wanted]}",
        )
        return
    before = (
        old.property("Person" if name in ("pets", "tags") else "Tag", name)
        if name in ("pets", "tags", "people")
        else None
    )
    if r.ordered and before and before.ordered:
        for owner in {a for a, _ in wanted}:
            a, b = [x for o, x in wanted if o == owner], [x for o, x in got if o == owner]
            if a != b:
                round.problem(prefix + "order", f"{key} of {owner}: {a} became {b}")


def run(round):
    rng = round.rng
    old = old_model(rng)
    while True:
        new, mappings = scenario(rng, old)
        if new.fault() is None and mappings:
            break
    round.described = old.xml() + "\n\n" + new.xml()
    round.title = ", ".join(f"{m.name}{' where ' + m.where[0] if m.where else ''}" for m in mappings)
    path, layout = round.path("S.sqlite"), Layout(old)
    answer = round.run("create", path, "--model", round.write_model("A", old), "--journal-mode", "delete")
    if answer.code:
        round.problem("create", answer.error)
        return
    objects = fill(path, old, layout, rng)
    file, target = round.path("M.mapping.yaml"), round.path("T.sqlite")
    text, before = ["mapping: 1", "source: A", "destination: B", ""], None
    if rng.random() < 0.2:
        entity, (condition, test) = rng.choice(
            [
                ("Pet", ("n > 3", lambda o: o["n"] > 3)),
                ("Tag", ('name == ""', lambda o: o["name"] == "")),
                ("Toy", ("TRUEPREDICATE", lambda o: True)),
                ("Pet", ("owner == nil", lambda o: not o["owner"])),
            ]
        )
        before = ["before:", f"  - drop: {entity}", f"    where: '{condition}'"]
        drop(objects, entity, test)
        round.title += f", before: drop {entity} where {condition}"
    text += (before or []) + ["entities:"]
    with open(file, "w", encoding="utf-8") as out:
        out.write("\n".join(text + [line for m in mappings for line in m.yaml(rng)]) + "\n")
    options = ["--mapping", file]
    answer = try_doors(round, round.write_model("B", new), None, options, must=True)
    if answer.code == 0:
        compare(round, target, old, new, objects, mappings)
    if rng.random() < 0.25:  # the same mapping model in Xcode's form does the same
        other = round.path("M.xcmappingmodel")
        converted = round.run(
            "model",
            "mapping",
            "convert",
            file,
            other,
            "--old",
            round.path("A.xcdatamodel"),
            "--new",
            round.path("B.xcdatamodel"),
        )
        if converted.code == 0:
            again = round.run(
                "migrate",
                path,
                "--model",
                round.path("B.xcdatamodel"),
                "--mapping",
                other,
                "--to",
                round.path("X.sqlite"),
            )
            if again.code != answer.code:
                round.problem("xcode-form", f"{again.code} {again.error[:300]}")
            elif again.code == 0:
                compare(round, round.path("X.sqlite"), old, new, objects, mappings, "xcode-")
        elif not any(m.named for m in mappings) and not before:  # "names a mapping itself: such a file is refused"
            round.problem("convert", converted.error[:300])
    if (
        rng.random() < 0.25
    ):  # a third version behind it: the mapping model, then inference (MappingModels, last section)
        third = new.copy()
        third[mappings[0].dest].properties.append(Attribute("later", "String", default="d"))
        bundle = round.write_bundle("C", {"A": old, "B": new, "C": third})
        through = round.run("migrate", path, "--model", bundle, "--mapping", file, "--to", round.path("U.sqlite"))
        if through.code:
            round.problem("bundle-refused", through.error[:300])
        else:
            compare(round, round.path("U.sqlite"), old, third, objects, mappings, "bundle-")
