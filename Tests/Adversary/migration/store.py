"""Fills a store by a model and reads it back as objects and links, with SQL of its own."""

import math
import os
import uuid

from program import connect, plain, tables


class State:
    """A store's content.

    objects: {(root, key): (entity, Z_OPT, {path: value})}; links: {(entity, relationship): [(owner, target, place)]}
    faults: what no store may hold, as (kind, text).
    """

    def __init__(self):
        self.objects, self.links, self.faults, self.unknown = {}, {}, [], {}


def same(a, b):
    """Returns whether storage class and value match; text is ("text", bytes)."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and a == b


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def read(path, model, layout):
    state, connection = State(), connect(path)
    try:
        _read_objects(state, connection, model, layout)
        for name in model.entities:
            for r in model[name].relationships():
                state.links[(name, r.name)] = _read_links(state, connection, model, layout, name, r)
    finally:
        connection.close()
    return state


def _read_objects(state, connection, model, layout):
    names = {number: name for name, number in layout.ids.items()}
    for root in model.roots():
        cursor = connection.execute(f"SELECT * FROM {quoted(layout.table(root))}")
        columns = [d[0] for d in cursor.description]
        for row in map(lambda r: dict(zip(columns, r)), cursor.fetchall()):
            entity = names.get(row["Z_ENT"])
            if entity is None or model.root(entity) != root:
                state.unknown[(root, row["Z_PK"])] = row
                continue
            values = {
                path: row[layout.column[(e, path)]]
                for e in model.line(entity)
                for a in model[e].attributes()
                if not a.transient
                for path, _ in a.leaves()
            }
            state.objects[(root, row["Z_PK"])] = (entity, row["Z_OPT"], values)


def _read_links(state, connection, model, layout, name, r):
    key, inverse, links = (name, r.name), model.inverse(r), []

    def check(owner, target, row):
        for entity, pk in ((name, owner), (r.dest, target)):
            found = state.objects.get((model.root(entity), pk), (None,))[0]
            if found is None or entity not in model.line(found):
                state.faults.append(("dangling-link", f"{key}: {row}: {pk} is {found}"))

    def family(entity):
        return ",".join(str(layout.ids[x]) for x in model.family(entity))

    if r.many and inverse and inverse.many:
        table, owner, target, place = layout.join[key]
        sql = f"SELECT {quoted(owner)}, {quoted(target)}, {quoted(place) if place else 'NULL'} FROM {quoted(table)}"
        links = connection.execute(sql).fetchall()
        for row in links:
            check(row[0], row[1], row)
    elif r.many and inverse:
        d = model.declaring(r.dest, r.inverse)
        column, place = layout.column[(d, r.inverse)], layout.order_column.get((d, r.inverse))
        sql = (
            f"SELECT {quoted(column)}, Z_PK, {quoted(place) if place else 'NULL'} FROM {quoted(layout.table(d))}"
            f" WHERE {quoted(column)} IS NOT NULL AND Z_ENT IN ({family(d)})"
        )
        links = connection.execute(sql).fetchall()
    elif r.many:
        column, place = layout.column[key], layout.order_column.get(key)
        sql = (
            f"SELECT {quoted(column)}, Z_PK, {quoted(place) if place else 'NULL'} FROM"
            f" {quoted(layout.table(r.dest))} WHERE {quoted(column)} IS NOT NULL"
        )
        links = connection.execute(sql).fetchall()
        for row in links:
            check(row[0], row[1], row)
            if place and row[2] is None:
                state.faults.append(("no-order", f"{key}: {row}"))
    else:
        column, number, place = layout.column[key], layout.number_column.get(key), layout.order_column.get(key)
        sql = (
            f"SELECT Z_PK, {quoted(column)}, {quoted(place) if place else 'NULL'},"
            f" {quoted(number) if number else 'NULL'} FROM {quoted(layout.table(name))}"
            f" WHERE {quoted(column)} IS NOT NULL AND Z_ENT IN ({family(name)})"
        )
        for row in connection.execute(sql).fetchall():
            check(row[0], row[1], row)
            entity = state.objects.get((model.root(r.dest), row[1]), (None,))[0]
            if number and entity and row[3] != layout.ids[entity]:
                state.faults.append(("wrong-entity-number", f"{key}: {row}: {entity} is {layout.ids[entity]}"))
            if place and row[2] is None:
                state.faults.append(("no-order", f"{key}: {row}"))
            links.append(row[:3])
    return links


# The triggers of derived attributes call functions that only Core Data has (section 1.9).
DERIVING = ("NSCoreDataDATriggerUpdatedAffectedObjectValue", "NSCoreDataDATriggerInsertUpdatedAffectedObjectValue")

# Filling -------------------------------------------------------------------------------------------------------

TEXTS = ["", "x", "it's", '"q"', "\u00fcn\u00ef \u00df", "NULL", "0", "12", "\u2603", "a\nb", "%s", "e\u0301", "\u00e9"]


def value(rng, attribute):
    kind = attribute.type
    if kind == "Integer 16":
        return rng.choice([0, 1, -1, 32767, -32768, rng.randrange(-999, 999)])
    if kind == "Integer 32":
        return rng.choice([0, 2**31 - 1, -(2**31), rng.randrange(-99999, 99999)])
    if kind == "Integer 64":
        return rng.choice([0, 2**53 - 1, -(2**40), rng.randrange(-(10**12), 10**12)])
    if kind == "Boolean":
        return rng.randrange(2)
    if kind in ("Double", "Float", "Decimal"):
        return rng.choice([0.0, 1.5, -2.25, 1e10, rng.randrange(-1000, 1000) / 8])
    if kind == "Date":
        return rng.choice([0, 5.0, 700000000.25, -1.5, rng.randrange(10**9) / 4])
    if kind == "UUID":
        return rng.randbytes(16)
    if kind in ("String", "URI"):
        return rng.choice(TEXTS) + str(rng.randrange(10000))
    return (b"\1" if attribute.external else b"") + rng.randbytes(rng.randrange(1, 6))


def default(rng, kind):
    """Returns a default as the XML has it, or None."""
    return {
        "String": rng.choice(["d", "it's", "", 'a"b', "NULL", "x' || 'y"]),
        "Boolean": rng.choice(["YES", "NO"]),
        "Integer 16": "-7",
        "Integer 32": rng.choice(["5", "NO"]),
        "Integer 64": "9007199254740993",
        "Double": rng.choice(["0.1", "-2.5"]),
        "Float": rng.choice(["0.5", "0.1"]),
        "Date": "123.5",
        "Decimal": "12.34",
        "UUID": "E621E1F8-C36C-495A-93FC-0C247A3E6E5F",
        "URI": "http://a.b/?x='y",
    }.get(kind)


def insert(connection, layout, entity, key, values, opt=1):
    columns = {"Z_PK": key, "Z_ENT": layout.ids[entity], "Z_OPT": opt, **values}
    connection.execute(
        "INSERT INTO {} ({}) VALUES ({})".format(
            quoted(layout.table(entity)), ",".join(map(quoted, columns)), ",".join("?" * len(columns))
        ),
        list(columns.values()),
    )


def fill(path, model, layout, rng, most=3, nulls=0.2):
    """Adds objects of every concrete entity and links between them, as an app that uses Core Data would."""
    connection = connect(path, "rw")
    for function in DERIVING:
        connection.create_function(function, 5, lambda *arguments: None)
    connection.execute("BEGIN IMMEDIATE")
    keys = {}
    for root in model.roots():
        number = layout.ids[root]
        top = connection.execute("SELECT Z_MAX FROM Z_PRIMARYKEY WHERE Z_ENT = ?", (number,)).fetchone()[0]
        for entity in [n for n in layout.order if model.root(n) == root and not model[n].abstract]:
            for _ in range(rng.randint(1, most)):
                top += rng.choice([1, 1, 3])
                values = {}
                unique = {k for e in model.line(entity) for keys_ in model[e].unique for k in keys_}
                for e in model.line(entity):
                    for a in [a for a in model[e].attributes() if not a.transient]:
                        for leaf_path, leaf in a.leaves():
                            if leaf.optional and a.optional and rng.random() < nulls:
                                continue
                            v = value(rng, leaf)
                            if a.name in unique:  # one more for each object: unique
                                v = {"String": f"u{top}", "URI": f"u{top}", "Date": float(top)}.get(leaf.type, top)
                            if leaf.external and rng.random() < 0.3:
                                v = external_file(path, rng)
                            values[layout.column[(e, leaf_path)]] = v
                insert(connection, layout, entity, top, values, rng.randint(1, 5))
                keys.setdefault(entity, []).append(top)
        connection.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = ? WHERE Z_ENT = ?", (top, number))
    done = set()
    for name in model.entities:
        for r in model[name].relationships():
            if (name, r.name) not in done:
                _link(connection, model, layout, rng, name, r, keys, done)
    connection.execute("COMMIT")
    connection.close()
    return keys


def external_file(path, rng):
    """Writes a file of external data and returns the value that refers to it (section 1.7)."""
    name = str(uuid.UUID(int=rng.getrandbits(128))).upper()
    stem = os.path.splitext(os.path.basename(path))[0]
    folder = os.path.join(os.path.dirname(path), f".{stem}_SUPPORT", "_EXTERNAL_DATA")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(b"external " + name.encode())
    return b"\2" + name.encode() + b"\0"


def _link(connection, model, layout, rng, name, r, keys, done):
    inverse = model.inverse(r)
    owners = [(e, k) for e in model.family(name) for k in keys.get(e, [])]
    targets = [(e, k) for e in model.family(r.dest) for k in keys.get(e, [])]
    places = {}

    def place(key):
        used = places.setdefault(key, set())
        free = rng.choice([p for p in range(2048, 2048 + 60 * 512, 512) if p not in used])
        used.add(free)
        return free

    def point(entity, rel, owner, target):
        columns = {layout.column[(entity, rel.name)]: target[1]}
        if (entity, rel.name) in layout.number_column:
            columns[layout.number_column[(entity, rel.name)]] = layout.ids[target[0]]
        if (entity, rel.name) in layout.order_column:
            columns[layout.order_column[(entity, rel.name)]] = place(target)
        connection.execute(
            "UPDATE {} SET {} WHERE Z_PK = ?".format(
                quoted(layout.table(entity)), ",".join(f"{quoted(c)} = ?" for c in columns)
            ),
            [*columns.values(), owner[1]],
        )

    if not r.many and inverse is r:  # a to-one relationship that is its own inverse: pairs
        rng.shuffle(owners)
        for a, b in zip(owners[::2], owners[1::2]):
            point(name, r, a, b)
            point(name, r, b, a)
    elif not r.many and inverse and not inverse.many:
        other = model.declaring(r.dest, r.inverse)
        done.add((other, r.inverse))
        rng.shuffle(targets)
        for owner, target in zip(owners, targets):
            point(name, r, owner, target)
            point(other, inverse, target, owner)
    elif not r.many:
        for owner in owners:
            if targets and (not r.optional or rng.random() < 0.85):
                point(name, r, owner, rng.choice(targets))
    elif inverse is None:
        for target in targets:
            if owners and rng.random() < 0.8:
                owner = rng.choice(owners)
                columns = {layout.column[(name, r.name)]: owner[1]}
                if r.ordered:
                    columns[layout.order_column[(name, r.name)]] = place(owner)
                connection.execute(
                    "UPDATE {} SET {} WHERE Z_PK = ?".format(
                        quoted(layout.table(r.dest)), ",".join(f"{quoted(c)} = ?" for c in columns)
                    ),
                    [*columns.values(), target[1]],
                )
    elif inverse.many:
        other = model.declaring(r.dest, r.inverse)
        done |= {(name, r.name), (other, r.inverse)}
        table, first, second, second_order = layout.join[(name, r.name)]
        own = second == "REFLEXIVE"
        first_order = None if own else layout.join[(other, r.inverse)][3]
        if own and r.ordered:
            first_order = "Z_FOK_" + first[2:]
        pairs = {(a, b) for a in owners for b in targets if rng.random() < 0.4}
        pairs |= {(b, a) for a, b in pairs} if own else set()
        for a, b in sorted(pairs):
            columns = {first: a[1], second: b[1]}
            if second_order:
                columns[second_order] = place(("a", a))
            if first_order:
                columns[first_order] = place(("b", b))
            connection.execute(
                "INSERT INTO {} ({}) VALUES ({})".format(
                    quoted(table), ",".join(map(quoted, columns)), ",".join("?" * len(columns))
                ),
                list(columns.values()),
            )


def bookkeeping(round, path, model, layout, foreign=(), prefix=""):
    """Checks integrity, tables, entity numbers, Z_MAX and metadata: sections 1.1, 1.2, 1.4, 1.5 and 2."""
    import plistlib

    connection = connect(path)
    found = []
    try:
        check = plain(connection.execute("PRAGMA integrity_check").fetchone()[0])
        if check != "ok":
            found.append(("integrity", check))
        have, want = tables(connection), {**layout.tables, **layout.joins}
        for table, columns in want.items():
            if have.get(table) != columns:
                got = have.get(table) or {}
                found.append(
                    (
                        "schema",
                        f"{table}: missing {sorted(columns.items() - got.items())}, "
                        f"too many {sorted(got.items() - columns.items())}",
                    )
                )
        own = {"Z_PRIMARYKEY", "Z_METADATA", "Z_MODELCACHE", *want, *foreign}
        extra = [t for t in have if t not in own and not t.startswith("sqlite_")]
        if extra:
            found.append(("schema", f"tables that no model has: {extra}"))
        rows = {r[0]: r for r in connection.execute("SELECT Z_ENT, Z_SUPER, Z_MAX FROM Z_PRIMARYKEY")}
        rows = {i: r for i, r in rows.items() if i not in getattr(round, "foreign_ids", ())}  # history's, 1.2
        want_rows = {i: layout.ids.get(model[n].parent, 0) for n, i in layout.ids.items()}
        if {i: r[1] for i, r in rows.items()} != want_rows:
            found.append(("primary-key", f"{sorted(rows.values())} for {layout.ids}"))
        for root in model.roots():
            if layout.table(root) in have and layout.ids[root] in rows:
                top = connection.execute(f"SELECT max(Z_PK) FROM {quoted(layout.table(root))}").fetchone()[0] or 0
                if (rows[layout.ids[root]][2] or 0) < top:  # 1.2: Z_MAX is at least the highest key
                    found.append(("z-max", f"{root}: {rows[layout.ids[root]][2]} < {top}"))
        plist = plistlib.loads(connection.execute("SELECT Z_PLIST FROM Z_METADATA").fetchone()[0])
        if not model.has_unhashed():
            if plist.get("NSStoreModelVersionHashes") != model.hashes():
                found.append(("hashes", "the metadata's hashes aren't the model's"))
            if plist.get("NSStoreModelVersionHashesDigest") not in (None, model.digest()):
                found.append(("hashes", "the metadata's digest isn't the model's"))
    finally:
        connection.close()
    for kind, text in found:
        round.problem(prefix + kind, text)
    return not found
