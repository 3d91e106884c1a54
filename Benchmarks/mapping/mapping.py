#!/usr/bin/env python3
"""Compares migrations by a mapping model with the best hand-written SQL.

usage: mapping.py --groupstore PATH [--rows N] [--rounds N] [--directory DIR] [--require RATIO] [--require-whole RATIO]

The mapping model has expressions and a relationship. In one case it also has a filter; in the other all objects are
mapped, so that the audit compares each of them. The time of groupstore is that of the whole command: the copy of the
store, the migration, validation, indexes, the audit and the sync. It is compared with the SQL alone, without journal and
syncs, and with `cp` of the store, the same SQL on the copy and a sync. The SQL is run with several settings of SQLite, and
the fastest counts.
"""

import argparse
import os
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
import time

OLD = """<model><entity name='Team'><attribute name='name' optional='YES' attributeType='String'/>
<relationship name='members' optional='YES' toMany='YES' destinationEntity='Person' inverseName='team'/></entity>
<entity name='Person'><attribute name='first' optional='YES' attributeType='String'/>
<attribute name='last' optional='YES' attributeType='String'/>
<attribute name='years' optional='YES' attributeType='Integer 32'/>
<attribute name='pay' optional='YES' attributeType='Double'/>
<relationship name='team' optional='YES' maxCount='1' destinationEntity='Team' inverseName='members'/></entity></model>"""

NEW = """<model><entity name='Team'><attribute name='name' optional='YES' attributeType='String'/>
<relationship name='members' optional='YES' toMany='YES' destinationEntity='Person' inverseName='team'/></entity>
<entity name='Person'><attribute name='fullName' optional='YES' attributeType='String'/>
<attribute name='age' optional='YES' attributeType='Integer 32'/>
<attribute name='pay' optional='YES' attributeType='Double'/>
<relationship name='team' optional='YES' maxCount='1' destinationEntity='Team' inverseName='members'/></entity></model>"""

MAPPING = """mapping: 1
entities:
  - {from: Team, to: Team}
  - from: Person
    to: Person
FILTER    attributes:
      fullName: FUNCTION($source.first, "stringByAppendingString:", $source.last)
      age: $source.years + 1
      pay: $source.pay * 12
"""

BY_HAND = """
CREATE TABLE main.ZTEAM (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZNAME VARCHAR);
CREATE TABLE main.ZPERSON (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZAGE INTEGER, ZTEAM INTEGER, ZPAY FLOAT,
  ZFULLNAME VARCHAR);
INSERT INTO main.ZTEAM SELECT Z_PK, Z_ENT, 1, ZNAME FROM source.ZTEAM;
INSERT INTO main.ZPERSON SELECT Z_PK, Z_ENT, 1, ZYEARS + 1, ZTEAM, ZPAY * 12, ZFIRST || ZLAST FROM source.ZPERSON
  FILTER;
CREATE INDEX main.ZPERSON_ZTEAM_INDEX ON ZPERSON (ZTEAM);
"""


# Name, the filter of the mapping model, the filter in SQL.
CASES = [("with a filter", "    where: years >= 0\n", "WHERE ZYEARS >= 0"), ("all objects, audited one by one", "", "")]

# SQLite's settings for the SQL by hand.
SETTINGS = [[], ["cache_size = -8192"], ["mmap_size = 1000000000"]]


def model(directory, name, text):
    path = os.path.join(directory, name + ".xcdatamodel")
    os.mkdir(path)
    with open(os.path.join(path, "contents"), "w", encoding="utf-8") as file:
        file.write(text)
    return path


def fill(store, rows):
    connection = sqlite3.connect(store)
    connection.executescript("PRAGMA journal_mode = DELETE; PRAGMA synchronous = OFF;")
    with connection:
        connection.executemany("INSERT INTO ZTEAM (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (?, 2, 1, ?)",
                               ((n, f"team {n}") for n in range(1, 1001)))
        connection.executemany(
            "INSERT INTO ZPERSON (Z_PK, Z_ENT, Z_OPT, ZFIRST, ZLAST, ZYEARS, ZPAY, ZTEAM) VALUES (?, 1, 1, ?, ?, ?, ?, ?)",
            ((n, f"first {n}", f"last {n}", n % 90, n / 7, n % 1000 + 1) for n in range(1, rows + 1)))
        connection.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = ?", (rows,))
    connection.close()


def sync(path):
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)


def run_by_hand(store, path, sql, settings=()):
    start = time.monotonic()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
    connection.execute("ATTACH ? AS source", (store,))
    for setting in settings:
        for database in ("main", "source"):
            connection.execute(f"PRAGMA {database}.{setting}").fetchall()
    connection.executescript("BEGIN;" + sql + "COMMIT;")
    connection.close()
    return time.monotonic() - start


def support(path):
    """Returns the folder of a store's external data."""
    directory, name = os.path.split(path)
    return os.path.join(directory, "." + name.removesuffix(".sqlite") + "_SUPPORT")


def remove(path):
    os.remove(path)
    shutil.rmtree(support(path), ignore_errors=True)


def run_whole_by_hand(store, path, sql, settings):
    """Copies the store, fills a new one from the copy, and syncs it with its directory. Copies and syncs the store's
    folder, too."""
    copy = path + "-copy"
    start = time.monotonic()
    subprocess.run(["cp", store, copy], check=True)
    if os.path.exists(support(store)):
        subprocess.run(["cp", "-r", support(store), support(path)], check=True)
        subprocess.run(["find", support(path), "-type", "f", "-exec", "sync", "{}", "+"], check=True)
    run_by_hand(copy, path, sql, settings)
    sync(path)
    sync(os.path.dirname(path))
    seconds = time.monotonic() - start
    os.remove(copy)
    return seconds


def run(program, store, new, mapping, path):
    """Returns the seconds and the peak memory in MB."""
    start = time.monotonic()
    process = subprocess.Popen(
        [program, "migrate", store, "--model", new, "--mapping", mapping, "--to", path, "--quiet"])
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    if status != 0:
        raise SystemExit(f"groupstore migrate ended with status {status}")
    return seconds, usage.ru_maxrss / 1000


def content(path):
    connection = sqlite3.connect(path)
    found = connection.execute(
        "SELECT count(*), sum(ZAGE), sum(ZTEAM), total(ZPAY), sum(length(ZFULLNAME)) FROM ZPERSON").fetchone()
    connection.close()
    return found


def paths(directory, case):
    """Returns the paths of the store, of the new model and of the case's mapping model."""
    mapping = os.path.join(directory, "Map.yaml")
    with open(mapping, "w", encoding="utf-8") as file:
        file.write(MAPPING.replace("FILTER", case[1]))
    return os.path.join(directory, "Store.sqlite"), os.path.join(directory, "New.xcdatamodel"), mapping


def measure_memory(options, directory, case):
    store, new, mapping = paths(directory, case)
    other = os.path.join(directory, "groupstore.sqlite")
    _, memory = run(options.groupstore, store, new, mapping, other)
    os.remove(other)
    return memory


def compare(options, store, new, mapping, sql, content):
    """Migrates in turn by groupstore and by hand. `content` returns what must be equal afterwards. Returns the cells of a
    table, the speed where that of the SQL is 1, and the time where that of cp, SQL and sync is 1."""
    directory = os.path.dirname(store)
    path, other = os.path.join(directory, "hand.sqlite"), os.path.join(directory, "groupstore.sqlite")
    hand, whole, ours = [], [], []
    for _ in range(options.rounds):
        times = []
        for settings in SETTINGS:
            times.append(run_by_hand(store, path, sql, settings))
            os.remove(path)
        hand.append(min(times))
        whole.append(run_whole_by_hand(store, path, sql, SETTINGS[times.index(min(times))]))
        ours.append(run(options.groupstore, store, new, mapping, other)[0])
        if content(path) != content(other):
            raise SystemExit(f"{mapping}: groupstore and the SQL by hand made different stores")
        remove(path)
        remove(other)
    one, two, three = statistics.median(hand), statistics.median(whole), statistics.median(ours)
    cells = f"{three:.2f} s | {one:.2f} s | {one / three:.2f} | {two:.2f} s | {three / two:.2f}"
    return cells, one / three, three / two


def measure(options, directory, case, memory):
    name, _, sql_filter = case
    store, new, mapping = paths(directory, case)
    cells, speed, whole = compare(options, store, new, mapping, BY_HAND.replace("FILTER", sql_filter), content)
    print(f"| {name} | {cells} | {memory:.0f} MB |", flush=True)
    return speed, whole


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--groupstore", default=".build/release/groupstore")
    parser.add_argument("--directory")
    parser.add_argument("--require", type=float, help="the least speed, where that of the SQL with a filter is 1")
    parser.add_argument("--require-whole", type=float, help="the longest time, where that of cp, SQL and sync is 1")
    options = parser.parse_args()
    print(f"### Migration of {options.rows:,} objects by a mapping model\n")
    print("| mapping model | groupstore | SQL by hand | speed, SQL = 1 | cp, SQL and sync | time, these = 1 | memory |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        old = model(directory, "Old", OLD)
        model(directory, "New", NEW)
        store = os.path.join(directory, "Store.sqlite")
        subprocess.run([options.groupstore, "create", store, "--model", old, "--quiet"], check=True)
        fill(store, options.rows)
        # First, since a process begins with the peak memory of the one that starts it, and the SQL by hand takes memory.
        memory = [measure_memory(options, directory, case) for case in CASES]
        results = [measure(options, directory, case, peak) for case, peak in zip(CASES, memory)]
    if options.require is not None and results[0][0] < options.require:
        raise SystemExit(f"the speed is {results[0][0]:.2f}, less than {options.require}")
    slowest = max(whole for _, whole in results)
    if options.require_whole is not None and slowest > options.require_whole:
        raise SystemExit(f"the whole migration takes {slowest:.2f} times as long, more than {options.require_whole}")


if __name__ == "__main__":
    main()
