#!/usr/bin/env python3
"""Compares a mapping model with expressions, a filter and a relationship to the best hand-written SQL.

Both read the same store and make a new file; journals and syncs are off for both. The ratio is hand-written time divided by
the time of groupstore's whole command, including its copy of the store, validation and indexes.

    Benchmarks/mapping/mapping.py [--rows N] [--groupstore PATH]
"""

import argparse
import json
import os
import resource
import sqlite3
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
    where: years >= 0
    attributes:
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
  WHERE ZYEARS >= 0;
CREATE INDEX main.ZPERSON_ZTEAM_INDEX ON ZPERSON (ZTEAM);
"""


def model(directory, name, text):
    path = os.path.join(directory, name + ".xcdatamodel")
    os.mkdir(path)
    with open(os.path.join(path, "contents"), "w") as file:
        file.write(text)
    return path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--groupstore", default=".build/release/groupstore")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        old, new = model(directory, "Old", OLD), model(directory, "New", NEW)
        store = os.path.join(directory, "Store.sqlite")
        subprocess.run([options.groupstore, "create", store, "--model", old, "--quiet"], check=True)
        fill(store, options.rows)
        by_hand = min(run_by_hand(store, os.path.join(directory, f"hand{n}")) for n in range(3))
        mapping = os.path.join(directory, "Map.yaml")
        with open(mapping, "w") as file:
            file.write(MAPPING)
        ours = min(run(options.groupstore, store, new, mapping, os.path.join(directory, f"ours{n}")) for n in range(3))
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
        print(json.dumps({
            "rows": options.rows, "by_hand_seconds": round(by_hand, 3), "groupstore_seconds": round(ours, 3),
            "ratio": round(by_hand / ours, 2), "peak_mb": peak,
        }))


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


def run_by_hand(store, path):
    start = time.monotonic()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;")
    connection.execute("ATTACH ? AS source", (store,))
    connection.executescript("BEGIN;" + BY_HAND + "COMMIT;")
    connection.close()
    return time.monotonic() - start


def run(program, store, new, mapping, path):
    start = time.monotonic()
    subprocess.run([program, "migrate", store, "--model", new, "--mapping", mapping, "--to", path, "--quiet"], check=True)
    return time.monotonic() - start


if __name__ == "__main__":
    main()
