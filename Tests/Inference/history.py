"""Creates Core Data's persistent history in a store, and compares it after a migration."""

import sqlite3

import oracle
from oracle import counterpart

_TABLES = (
    "CREATE TABLE ACHANGE ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCHANGETYPE INTEGER, ZENTITY INTEGER, "
    "ZENTITYPK INTEGER, ZTRANSACTIONID INTEGER, ZCOLUMNS BLOB%s )",
    "CREATE TABLE ATRANSACTION ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZTIMESTAMP FLOAT, "
    "ZAUTHOR VARCHAR )",
)


def slots(model, entity):
    """Returns identifiers in the order of the bitmap: to-one relationships, with their entity if they need one, attributes,
    to-many relationships; ancestors' first, then by name."""
    one, attributes, many = [], [], []
    for each in model.line(entity):
        for relationship in sorted(each.relationships, key=lambda found: found.name):
            name = ("relationship", relationship.identifier)
            if relationship.many:
                many.append(name)
            else:
                one.append(name)
                if model.children(relationship.destination):
                    one.append(("entity", relationship.identifier))
        attributes += [
            ("attribute", found.identifier) for found in sorted(each.attributes, key=lambda found: found.name)
            if not found.transient]
    return one + attributes + many


def preserved(model, entity):
    return [
        one for each in model.line(entity) for one in sorted(each.attributes, key=lambda found: found.name)
        if one.preserved and not one.transient]


def bits(chosen, slots):
    found = bytearray((len(slots) + 7) // 8)
    for index, slot in enumerate(slots):
        if slot in chosen:
            found[index // 8] |= 0x80 >> (index % 8)
    return bytes(found)


def add(path, model, layout, objects, random):
    """Returns the changes: (key, kind, entity, object's key, slots, tombstones)."""
    width = max([len(preserved(model, entity)) for entity in model.entities] or [0])
    changes = []
    for (_, key), (entity, _, values) in objects.items():
        kind = random.choice((0, 1, 1, 2))
        chosen = [slot for slot in slots(model, entity) if random.random() < 0.5] if kind == 1 else None
        tombstones = {one.identifier: values[one.name] for one in preserved(model, entity)} if kind == 2 else {}
        changes.append((len(changes) + 1, kind, entity, key, chosen, tombstones))
    with sqlite3.connect(path) as store:
        more = "".join(f", ZTOMBSTONE{index} BLOB" for index in range(width))
        for table in _TABLES:
            store.execute(table % more if "%s" in table else table)
        store.execute("INSERT INTO ATRANSACTION VALUES (1, 16002, NULL, 600000000.5, 'app')")
        for key, kind, entity, object, chosen, tombstones in changes:
            row = [key, 16001, None, kind, layout.numbers[entity], object, 1,
                   None if chosen is None else bits(chosen, slots(model, entity))]
            row += _tombstones(model, entity, tombstones, width)
            store.execute(f"INSERT INTO ACHANGE VALUES ({', '.join('?' * len(row))})", row)
        for number, name in ((16001, "CHANGE"), (16002, "TRANSACTION")):
            store.execute("INSERT INTO Z_PRIMARYKEY VALUES (?, ?, 0, ?)", (number, name, len(changes)))
    store.close()
    return changes


def _tombstones(model, entity, tombstones, width):
    found = [tombstones.get(one.identifier) for one in preserved(model, entity)]
    return (found + [None] * width)[:max(width, 0)]


def expected(old, new, layout, changes):
    """Returns the rows of `ACHANGE` after the migration: its columns except Z_ENT, Z_OPT and ZTRANSACTIONID."""
    became = {before: entity for entity, before in oracle.pairs(old, new).items()}
    width = max(
        [len(preserved(old, entity)) for entity in old.entities]
        + [len(preserved(new, entity)) for entity in became.values()])
    rows = []
    for key, kind, entity, object, chosen, tombstones in changes:
        if entity not in became:
            continue
        after = became[entity]
        columns = None if chosen is None else bits(_carried(old, new, entity, after, chosen), slots(new, after))
        kept = {}
        for one in preserved(new, after):
            other = counterpart(old.attributes(entity), one)
            if other and other.preserved and not other.transient:
                kept[one.identifier] = tombstones.get(one.identifier)
        rows.append((key, kind, layout.numbers[after], object, columns, *_tombstones(new, after, kept, width)))
    return rows, width


def _carried(old, new, entity, after, chosen):
    """Returns the slot of a relationship changed from to-one to to-many: its identifier still identifies it."""
    there = {one.identifier for one in old.attributes(entity)}
    return [slot for slot in chosen if slot[0] != "attribute" or slot[1] in there]


def read(path, width):
    store = sqlite3.connect(path)
    more = "".join(f", ZTOMBSTONE{index}" for index in range(width))
    rows = store.execute(
        f"SELECT Z_PK, ZCHANGETYPE, ZENTITY, ZENTITYPK, ZCOLUMNS{more} FROM ACHANGE ORDER BY 1").fetchall()
    store.close()
    return rows
