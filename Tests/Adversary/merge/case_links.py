"""References: new numbers, self references, cycles, cascades, references to nothing, keys by references."""

import schemas
from check import merged
from oracle import Column, Table


def parent(chance, name, others):
    """Returns a table with numbers, and maybe another key."""
    names = schemas.distinct(chance, 4)
    number = Column(names[0], "INTEGER")
    columns = [number, Column(names[1], chance.choice(["TEXT", ""]), chance.choice(schemas.COLLATIONS))]
    columns += [Column(n, chance.choice(schemas.DECLARED)) for n in names[2 : chance.randint(2, 4)]]
    table = Table(name, columns, [names[0]], number=names[0], automatic=chance.random() < 0.3)
    if plain(name) and plain(names[1]) and chance.random() < 0.75:
        table.key, table.flag = [names[1]], True
    refer(chance, table, others, chance.randint(0, 2))
    return table


def plain(name):
    return "=" not in name and "," not in name and name != "*" and name.strip() == name


def refer(chance, table, targets, number):
    """Adds columns that refer to others' numbers."""
    if not targets:
        return
    for name in schemas.distinct(chance, number, but=[c.name for c in table.columns]):
        target = chance.choice(targets)
        table.columns.append(
            Column(
                name,
                chance.choice(["INTEGER", ""]),
                refers=(target.name, target.number, chance.choice(schemas.ACTIONS)),
            )
        )


def child(chance, name, parents):
    """Returns a table whose key may contain references."""
    kind = chance.choice(["without", "several", "star", "named", "null"])
    names = schemas.distinct(chance, 3)
    table = Table(
        name,
        [Column(names[0], chance.choice(["INT", "TEXT", ""]), chance.choice(schemas.COLLATIONS)), Column(names[1])],
    )
    refer(chance, table, parents, chance.randint(1, 2))
    link = table.columns[2].name
    if kind in ("without", "several"):
        table.primary = table.key = chance.choice(
            [[names[0], link], [link, names[0]], [link, table.columns[-1].name][: len(table.columns) - 2]]
        )
        table.rowid = kind == "several"
    elif kind == "null":
        table.primary = table.key = [names[0]]
    elif kind == "star" or not plain(link) or not plain(names[0]):
        if plain(name):
            table.key, table.flag = "*", True
    elif plain(name):
        table.key, table.flag = [link, names[0]], True
    return table


def run(stage, chance):
    names = schemas.distinct(chance, chance.randint(2, 5))
    parents = []
    for name in names[:-1]:
        parents.append(parent(chance, name, parents))
    tables = parents + [child(chance, names[-1], parents)]
    unique = [t for t in parents if t.flag and t.key != "*"]
    if unique and chance.random() < 0.4:  # circles: only with keys without NULL and references
        refer(chance, unique[0], [chance.choice(unique)], 1)
        for table in parents:
            if table.flag:
                table.column(table.key[0]).extra = "NOT NULL"
    if chance.random() < 0.3:
        chance.shuffle(tables)
    references = chance.choice([1, 1, 0.8])
    rows, sequences = schemas.made(chance, stage, tables, chance.choice([3, 8, 30]), filler=filler(references))
    merged(stage, tables, rows, sequences, schemas.preferences(chance, tables), allowed=ALLOWED)


# Rows of the result may violate a primary key with references, or NOT NULL: that can't be foreseen simply.
ALLOWED = ("merge_constraint",)


def filler(references):
    def fill(chance, connections, tables, most, wide):
        schemas.fill(chance, connections, tables, most, wide, references)

    return fill
