#!/usr/bin/env python3
"""Breaks planner and migrator of inferred migrations in many ways, one at a time, and reports which the audit catches.

One build holds all mutants: GROUPSTORE_MUTANT=N chooses one. The stores are those of Tests/Inference: random models, filled
stores with links, orders, external data and history, and next versions. A mutant that changes no result doesn't count.

usage: mutation.py [--rounds N] [--seed N] [--only N] [--keep DIRECTORY] [--program FILE] [--debug]
"""

import argparse
import collections
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(PACKAGE, "Tests", "Inference")]

from mutants import MUTANTS, PREPARATION  # noqa: E402

SWITCH = '''import Glibc

/// The mutant that runs; 0 for none.
package let runningMutant = getenv("GROUPSTORE_MUTANT").flatMap { Int(String(cString: $0)) } ?? 0
nonisolated(unsafe) private var isLayingOut = false

package func mutant(_ number: Int) -> Bool { runningMutant == number }
package func layoutMutant(_ number: Int) -> Bool { isLayingOut && runningMutant == number }

package func laidOutByMutant<Result>(_ body: () -> Result) -> Result {
    isLayingOut = true
    defer { isLayingOut = false }
    return body()
}
'''


def mutate(package):
    """Puts all mutants into the copy. Reports a text that is missing or not unique: that mutant needs rewriting."""
    def edit(path, old, new):
        with open(os.path.join(package, path)) as file:
            text = file.read()
        if text.count(old) != 1:
            return False
        with open(os.path.join(package, path), "w") as file:
            file.write(text.replace(old, new))
        return True

    # Each of several mutants of one place edits what the last one left, and keeps its anchor in the original's place.
    places = collections.OrderedDict()
    for number, (_, path, old, new) in enumerate(MUTANTS, 1):
        new = new.replace("@M", f"mutant({number})").replace("@L", f"layoutMutant({number})")
        places.setdefault((path, old), []).append((number, new))
    stale = []
    for path, old, new in PREPARATION:
        if not edit(path, old, new):
            sys.exit(f"{path}: {old!r} is not there once")
    for (path, old), news in places.items():
        text = news[0][1]
        for number, new in news[1:]:
            if text.count(old) != 1:
                stale.append(number)
                continue
            text = text.replace(old, new)
        if not edit(path, old, text):
            stale += [number for number, _ in news]
    with open(os.path.join(package, "Sources/CoreData/ManagedObjectModels/Mutant.swift"), "w") as file:
        file.write(SWITCH)
    for path in {path for _, path, _, _ in MUTANTS}:
        with open(os.path.join(package, path)) as file:
            text = file.read()
        if "import ManagedObjectModels" not in text:
            with open(os.path.join(package, path), "w") as file:
                file.write("import ManagedObjectModels\n" + text)
    return stale


def build(directory, debug):
    package = os.path.join(directory, "package")
    ignored = shutil.ignore_patterns(".git", ".build")
    shutil.copytree(PACKAGE, package, ignore=ignored)
    stale = mutate(package)
    # The copy reuses the package's fetched dependencies.
    for name in ("repositories", "checkouts", "workspace-state.json"):
        path = os.path.join(PACKAGE, ".build", name)
        if os.path.isdir(path):
            shutil.copytree(path, os.path.join(package, ".build", name), symlinks=True)
        elif os.path.exists(path):
            shutil.copy(path, os.path.join(package, ".build", name))
    words = ["swift", "build", "-c", "debug" if debug else "release", "--product", "groupstore"]
    if subprocess.run(words, cwd=package).returncode:
        sys.exit("the mutants don't build")
    return os.path.join(package, ".build", "debug" if debug else "release", "groupstore"), stale


# Stores


def make_stores(groupstore, directory, rounds, seed):
    import history
    import random
    import store as stores
    from changes import Author
    from layout import Layout
    from pairs import PAIRS
    found = []
    repeated = 4 * len(PAIRS)
    for number in range(rounds + repeated):
        place = os.path.join(directory, str(number))
        os.makedirs(place)
        chance = random.Random(f"{seed}.{number}")
        if number < repeated:
            old, new = PAIRS[number % len(PAIRS)]()
        else:
            author = Author(chance)
            old = author.model()
            new = author.next(old)
            for _ in range(chance.randint(0, 2)):
                new = author.next(new)
        for name, model in (("V1", old), ("V2", new)):
            model.write(os.path.join(place, name + ".xcdatamodel"))
        path = os.path.join(place, "V1.sqlite")
        run = subprocess.run([groupstore, "create", path, "--model", os.path.join(place, "V1.xcdatamodel")], capture_output=True)
        if run.returncode:
            print(f"round {number}: {run.stderr.decode().strip()}", flush=True)
            continue
        layout = Layout(old)
        objects, _ = stores.fill(path, old, layout, chance)
        is_composed = any(one.type == "Composite" for model in (old, new)
                          for entity in model.entities.values() for one in entity.attributes)
        if (number < repeated or chance.random() < 0.5) and not is_composed:
            history.add(path, old, layout, objects, chance)
        with sqlite3.connect(path) as store:
            # The highest keys of deleted objects, an app's own entries, and a foreign table.
            store.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = Z_MAX + 5 WHERE Z_SUPER = 0")
            import plistlib
            (list_,) = store.execute("SELECT Z_PLIST FROM Z_METADATA").fetchone()
            list_ = plistlib.loads(list_)
            list_["app"] = {"kept": [1, "two"]}
            store.execute("UPDATE Z_METADATA SET Z_PLIST = ?", (plistlib.dumps(list_, fmt=plistlib.FMT_BINARY),))
            numbers = [row[0] for row in store.execute("SELECT Z_ENT FROM Z_PRIMARYKEY WHERE Z_ENT < 16000 ORDER BY 1")]
            store.execute("CREATE TABLE ANSCKRECORDMETADATA (Z_PK INTEGER PRIMARY KEY, ZENTITYID INTEGER, ZENTITYPK INTEGER)")
            store.executemany("INSERT INTO ANSCKRECORDMETADATA (ZENTITYID, ZENTITYPK) VALUES (?, 1)", [(one,) for one in numbers])
            store.execute("CREATE TABLE other (x)")
            store.execute("INSERT INTO other VALUES (1), ('two')")
        store.close()
        status, code = migrate(groupstore, place, 0)
        if status == 0:
            layout = Layout(new)
            found.append((place, dump(os.path.join(place, "M.sqlite"), layout), layout))
        elif code == "audit_failed" or number < repeated:
            print(f"round {number}: refused without a mutant: {failures(place)}", flush=True)
    return found


def migrate(groupstore, place, mutant):
    target = os.path.join(place, "M.sqlite")
    if os.path.exists(target):
        os.remove(target)
    shutil.rmtree(os.path.join(place, ".M_SUPPORT"), ignore_errors=True)
    words = [groupstore, "migrate", os.path.join(place, "V1.sqlite"), "--model", os.path.join(place, "V2.xcdatamodel"),
             "--to", target, "--json", "--allow-partial-history"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env={**os.environ, "GROUPSTORE_MUTANT": str(mutant)})
    with open(os.path.join(place, "said"), "w") as file:
        file.write(done.stdout + done.stderr)
    code = re.search(r'"code":\s*"([^"]+)"', done.stdout + done.stderr)
    return done.returncode, code.group(1) if code else None


def failures(place):
    with open(os.path.join(place, "said")) as file:
        return file.read().strip()[-900:]


def dump(path, layout):
    """Returns everything in a store's tables, except the model cache; the metadata as values.

    Leaves out what a row holds in the columns of properties that its entity doesn't have: nobody reads it.
    """
    import plistlib
    store = sqlite3.connect(path)
    store.text_factory = lambda text: text.decode(errors="surrogateescape")
    found = {}
    for (table,) in store.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND rootpage > 0"):
        if table == "Z_MODELCACHE" or table.endswith(("_node", "_parent", "_rowid")):
            continue
        columns = sorted(row[1] for row in store.execute(f'PRAGMA table_info("{table}")'))
        names = ", ".join(f'"{column}"' for column in columns)
        rows = [row if table != "Z_METADATA" else tuple(repr(plistlib.loads(value)) if column == "Z_PLIST" else value for column, value in zip(columns, row))
                for row in store.execute(f'SELECT {names} FROM "{table}"')]
        rows = readable(rows, columns, table, layout)
        for index, column in enumerate(columns):
            if "FOK_" in column:
                rows = ranked(rows, columns, index)
        found[table] = (columns, sorted(map(repr, rows)))
    store.close()
    return found


def readable(rows, columns, table, layout):
    """Returns the rows of an entity's table without the values of properties that a row's entity doesn't have."""
    if "Z_ENT" not in columns or table not in layout.columns:
        return rows
    model = layout.model
    # A to-many relationship without an inverse is kept with its targets.
    owners = {
        column: entity for (entity, key), parts in layout.place.items() if layout.table(entity) == table
        for column in parts.values() if not any(one.many and one.name == key for one in model.relationships(entity))}
    lines = {number: {one.name for one in model.line(name)} for name, number in layout.numbers.items()}

    def has(row, column):
        return column not in owners or owners[column] in lines.get(row[columns.index("Z_ENT")], {owners[column]})

    return [tuple(value if has(row, column) else None for value, column in zip(row, columns)) for row in rows]


def ranked(rows, columns, index):
    """Returns each place as its rank within the same object: places may differ, the order may not."""
    name = columns[index].replace("FOK_", "", 1)
    if name.replace("Z_", "Z", 1) in columns:
        group = columns.index(name.replace("Z_", "Z", 1))
    else:
        others = [at for at, column in enumerate(columns) if "FOK_" not in column and column != name]
        if name not in columns or len(others) != 1:
            return rows
        group = others[0]
    places = collections.defaultdict(list)
    for row in rows:
        if row[group] is not None and row[index] is not None:
            places[row[group]].append(row[index])

    def rank(row):
        if row[group] is None or row[index] is None:
            return None
        return sum(place < row[index] for place in places[row[group]])

    return [row[:index] + (rank(row),) + row[index + 1:] for row in rows]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--keep")
    parser.add_argument("--program", help="mutants that were built before")
    parser.add_argument("--debug", action="store_true")
    words = parser.parse_args()
    directory = words.keep or tempfile.mkdtemp(prefix="groupstore-mutation-")
    os.makedirs(directory, exist_ok=True)
    program, stale = (words.program, []) if words.program else build(directory, words.debug)
    shutil.rmtree(os.path.join(directory, "stores"), ignore_errors=True)
    stores = make_stores(program, os.path.join(directory, "stores"), words.rounds, words.seed)
    print(f"{len(stores)} migrations", flush=True)
    counts = collections.Counter()
    for number, (name, *_) in enumerate(MUTANTS, 1):
        if words.only not in (None, number):
            continue
        outcome = "stale" if number in stale else judge(program, stores, number)
        counts[outcome.split(":")[0]] += 1
        print(f"{number:4} {name}: {outcome}", flush=True)
    print(json.dumps(dict(counts)))
    if not words.keep:
        shutil.rmtree(directory)
    sys.exit(1 if counts["survived"] or counts["stale"] else 0)


def judge(program, stores, number):
    """Returns `killed`, `survived` or `without effect`; also reports what another check refuses."""
    caught, slipped, others = [], [], []
    for place, wanted, layout in stores:
        status, code = migrate(program, place, number)
        if code == "audit_failed":
            caught.append((place, failures(place)))
            if len(caught) >= 3:
                break
        elif status:
            others.append((place, code))
        elif dump(os.path.join(place, "M.sqlite"), layout) != wanted:
            slipped.append(place)
    if slipped:
        return f"survived: in {slipped[0]}, {len(slipped)} of {len(stores)}; caught in {len(caught)}"
    if caught:
        found = re.search(r'"message":\s*"([^"]*)', caught[0][1])
        return f"killed: {found.group(1)[:150] if found else caught[0][1][:150]}"
    return f"without effect; refused elsewhere: {len(others)} {others[0][1] if others else ''}"


if __name__ == "__main__":
    main()
