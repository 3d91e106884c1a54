"""Migrates one store of one version to another, as most classes do."""

import re

import oracle
from doors import try_doors
from model import Layout
from program import connect
from store import bookkeeping, fill, read

RESERVED = {"Z_PRIMARYKEY", "Z_METADATA", "Z_MODELCACHE"}


def make_store(round, model, name="A", most=3):
    """Creates and fills S.sqlite. Returns None if the model is refused, with a problem if it shouldn't be."""
    path = round.path("S.sqlite")
    version = round.write_model(name, model)
    answer = round.run("create", path, "--model", version, "--journal-mode", "delete")
    if answer.code:
        if not may_refuse(model):
            round.problem("create-refused", answer.error[:300])
        elif answer.code != 65:
            round.problem("create-raw-error", f"{answer.code}: {answer.error[:300]}")
        return None
    layout = Layout(model)
    if not bookkeeping(round, path, model, layout, prefix="create-"):
        return None
    constraints(round, path, model, layout, "create-")
    fill(path, model, layout, round.rng, most)
    return read(path, model, layout)


def may_refuse(model):
    """Returns whether names that no store can have may be refused (Formats, "What `model check` prints"; Guarantees,
    "Models"): tables of one name, names that need quotes, Core Data's own tables, and names that differ in case only."""
    names = list(model.entities)
    tables = [Layout(model).table(n) for n in model.roots()] + list(Layout(model).joins)
    if len({t.upper() for t in tables} | RESERVED) < len(tables) + len(RESERVED):
        return True
    for name in model.entities:
        own = [p.name for e in model.family(model.root(name)) for p in model[e].properties]
        line = [p.name.upper() for p in model.properties(name)]
        names += own
        if len(set(line)) < len(line):
            return True
    for layout_columns in list(Layout(model).tables.values()) + list(Layout(model).joins.values()):
        if len({c.lower() for c in layout_columns}) < len(layout_columns):
            return True
    return any(not re.fullmatch(r"[^\W\d]\w*", n) for n in names)


def constraints(round, path, model, layout, prefix=""):
    """Checks that each uniqueness constraint has a unique index (section 1.6)."""
    connection = connect(path)
    unique = set()
    for name in {layout.table(n) for n in model.entities}:
        for row in connection.execute(f'PRAGMA index_list("{name}")').fetchall():
            if row[2]:
                index = row[1][1].decode()
                columns = connection.execute('PRAGMA index_info("{}")'.format(index.replace('"', '""'))).fetchall()
                unique.add((name, tuple(c[2][1].decode() for c in columns if c[2])))
    connection.close()
    for name, e in model.entities.items():
        for keys in e.unique:
            columns = []
            for key in keys:
                owner = model.declaring(name, key)
                p = model.property(name, key)
                columns.append(layout.column.get((owner, (key,)) if p.kind == "attribute" else (owner, key)))
            found = any(t == layout.table(name) and sorted(c) == sorted(columns) for t, c in unique)
            if None not in columns and not found:
                round.problem(prefix + "constraint-missing", f"{name}: no unique index of {keys}")


def migrate_pair(round, old, new, options=(), place=None, must="infer", most=3):
    """Makes a store of `old`, migrates it to `new` through each door, and compares. Returns the answer or None."""
    round.described = old.xml() + "\n\n" + new.xml()
    state = make_store(round, old, most=most)
    if state is None or state.faults:
        if state is not None:
            round.problem("own-fault", state.faults[:2])
        return None
    expected = oracle.Expected(state, old, new)
    why = oracle.refusals(old, new)
    if must == "infer":
        must = False if why or expected.certain else None if expected.doubtful or may_refuse(new) else True
    if oracle.compatible(old, new):
        must, expected = None, None  # compatible: nothing to migrate
    round.outcome = "compatible" if expected is None else f"{must}"
    answer = try_doors(round, round.write_model("B", new), None if why else expected, options, must=must, place=place)
    round.outcome += f", exit {answer.code}"
    if answer.code == 0 and expected is not None and not why:
        constraints(round, round.path("T.sqlite"), new, Layout(new))
    return answer
