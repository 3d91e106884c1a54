#!/usr/bin/env python3
"""Compares inferred migrations of 1,000,000 objects with the best hand-written SQL for the same change.

usage: migration.py GROUPSTORE [--rows N] [--rounds N] [--directory DIR]

Both work on a private copy, without journal and syncs. The comparison covers the time of the statements; for groupstore,
all of them, as its trace reports it. Memory is the program's peak.
"""
import argparse
import os
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
import time

OLD = ('<entity name="Note">'
       '<attribute name="body" optional="YES" attributeType="String"/>'
       '<attribute name="count" optional="YES" attributeType="Integer 64"/>'
       '<attribute name="title" optional="YES" attributeType="String"/>'
       '<fetchIndex name="byTitle"><fetchIndexElement property="title" type="Binary" order="ascending"/></fetchIndex>'
       '</entity>')
INDEXES = [f"CREATE INDEX Z_Note_{name} ON ZNOTE (ZTITLE COLLATE BINARY ASC)" for name in ("title", "byTitle")]
# Name, new model, SQL. The fastest of several SQL variants is the baseline.
CHANGES = [
    ("optional attribute added",
     OLD.replace("</entity>", '<attribute name="at" optional="YES" attributeType="Date"/></entity>'),
     [["ALTER TABLE ZNOTE ADD COLUMN ZAT TIMESTAMP"]]),
    ("attribute with a default added",
     OLD.replace("</entity>", '<attribute name="stars" attributeType="Integer 16" defaultValueString="3"/></entity>'),
     [["ALTER TABLE ZNOTE ADD COLUMN ZSTARS INTEGER", "UPDATE ZNOTE SET ZSTARS = 3"],
      ["CREATE TABLE N (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCOUNT INTEGER, ZSTARS INTEGER, "
       "ZBODY VARCHAR, ZTITLE VARCHAR)",
       "INSERT INTO N SELECT Z_PK, Z_ENT, Z_OPT, ZCOUNT, 3, ZBODY, ZTITLE FROM ZNOTE",
       "DROP TABLE ZNOTE", "ALTER TABLE N RENAME TO ZNOTE", *INDEXES]]),
    ("attribute removed",
     OLD.replace('<attribute name="count" optional="YES" attributeType="Integer 64"/>', ""),
     [["ALTER TABLE ZNOTE DROP COLUMN ZCOUNT"],
      ["CREATE TABLE N (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZBODY VARCHAR, ZTITLE VARCHAR)",
       "INSERT INTO N SELECT Z_PK, Z_ENT, Z_OPT, ZBODY, ZTITLE FROM ZNOTE",
       "DROP TABLE ZNOTE", "ALTER TABLE N RENAME TO ZNOTE", *INDEXES]]),
    ("two attributes removed",
     OLD.replace('<attribute name="count" optional="YES" attributeType="Integer 64"/>', "")
     .replace('<attribute name="body" optional="YES" attributeType="String"/>', ""),
     [["ALTER TABLE ZNOTE DROP COLUMN ZCOUNT", "ALTER TABLE ZNOTE DROP COLUMN ZBODY"],
      ["CREATE TABLE N (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZTITLE VARCHAR)",
       "INSERT INTO N SELECT Z_PK, Z_ENT, Z_OPT, ZTITLE FROM ZNOTE",
       "DROP TABLE ZNOTE", "ALTER TABLE N RENAME TO ZNOTE", *INDEXES]]),
    ("attribute renamed",
     OLD.replace('name="body"', 'name="text" elementID="body"'),
     [["ALTER TABLE ZNOTE RENAME COLUMN ZBODY TO ZTEXT"]]),
    ("attribute made mandatory, with a default",
     OLD.replace('name="count" optional="YES" attributeType="Integer 64"',
                 'name="count" attributeType="Integer 64" defaultValueString="0"'),
     [["UPDATE ZNOTE SET ZCOUNT = 0 WHERE ZCOUNT IS NULL"]]),
    ("type changed",
     OLD.replace('attributeType="Integer 64"', 'attributeType="Double"'),
     [["CREATE TABLE N (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCOUNT FLOAT, ZBODY VARCHAR, "
       "ZTITLE VARCHAR)",
       "INSERT INTO N SELECT Z_PK, Z_ENT, Z_OPT, ZCOUNT, ZBODY, ZTITLE FROM ZNOTE",
       "DROP TABLE ZNOTE", "ALTER TABLE N RENAME TO ZNOTE", *INDEXES]]),
    ("entity added before",
     '<entity name="Folder"/>' + OLD,
     [["UPDATE ZNOTE SET Z_ENT = 2"],
      ["CREATE TABLE N (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCOUNT INTEGER, ZBODY VARCHAR, "
       "ZTITLE VARCHAR)",
       "INSERT INTO N SELECT Z_PK, 2, Z_OPT, ZCOUNT, ZBODY, ZTITLE FROM ZNOTE",
       "DROP TABLE ZNOTE", "ALTER TABLE N RENAME TO ZNOTE", *INDEXES]]),
]


def write_model(directory, name, content):
    folder = os.path.join(directory, name + ".xcdatamodel")
    os.makedirs(folder)
    with open(os.path.join(folder, "contents"), "w", encoding="utf-8") as file:
        file.write("<model>" + content + "</model>")
    return folder

# In seconds: SQLite's trace reports whole milliseconds.
RESOLUTION = 0.001


def make_store(groupstore, directory, model, name, rows):
    path = os.path.join(directory, name)
    subprocess.run([groupstore, "create", path, "--model", model, "--quiet"], check=True)
    store = sqlite3.connect(path, isolation_level=None)
    store.execute("PRAGMA journal_mode = DELETE")
    store.execute("BEGIN")
    store.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO ZNOTE "
                  "(Z_PK, Z_ENT, Z_OPT, ZCOUNT, ZBODY, ZTITLE) SELECT i, 1, 1, i, hex(zeroblob(50)), 'note ' || i FROM n",
                  (rows,))
    store.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = ?", (rows,))
    store.execute("COMMIT")
    store.close()
    return path


def by_hand(store, copy, statements):
    shutil.copyfile(store, copy)
    connection = sqlite3.connect(copy, isolation_level=None)
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE", "cache_size = -8192"):
        connection.execute("PRAGMA " + pragma).fetchall()
    began = time.perf_counter()
    connection.execute("BEGIN")
    for statement in statements:
        connection.execute(statement)
    connection.execute("COMMIT")
    seconds = time.perf_counter() - began
    connection.close()
    os.remove(copy)
    return seconds


def by_groupstore(groupstore, store, copy, model, trace):
    """Returns the time of all statements, as the program reports it, and its peak memory in MB."""
    words = [groupstore, "migrate", store, "--model", model, "--to", copy, "--quiet", "--trace-sql", trace]
    process = subprocess.Popen(words)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"groupstore migrate ended with status {status}")
    with open(trace, encoding="utf-8") as lines:
        seconds = sum(float(line.split(" ms", 1)[0]) for line in lines if " ms  " in line) / 1000
    os.remove(copy)
    os.remove(trace)
    return seconds, usage.ru_maxrss / 1000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("groupstore")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory")
    options = parser.parse_args()
    print(f"### Inferred migration of {options.rows:,} objects\n")
    print("| change | groupstore | best by hand | ratio | memory, all objects | memory, 10,000 |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        old = write_model(directory, "Old", OLD)
        large = make_store(options.groupstore, directory, old, "large.sqlite", options.rows)
        small = make_store(options.groupstore, directory, old, "small.sqlite", 10_000)
        copy, trace = os.path.join(directory, "copy.sqlite"), os.path.join(directory, "trace")
        for number, (name, content, ways) in enumerate(CHANGES):
            new = write_model(directory, f"New{number}", content)
            ours, hand, memory = [], [], 0
            for _ in range(options.rounds):
                hand.append(min(by_hand(large, copy, way) for way in ways))
                seconds, peak = by_groupstore(options.groupstore, large, copy, new, trace)
                ours.append(seconds)
                memory = max(memory, peak)
            _, little = by_groupstore(options.groupstore, small, copy, new, trace)
            one, other = statistics.median(ours), statistics.median(hand)
            print(f"| {name} | {one * 1000:,.1f} ms | {other * 1000:,.1f} ms | {max(other, RESOLUTION) / max(one, RESOLUTION):.2f} | {memory:.0f} MB | "
                  f"{little:.0f} MB |", flush=True)


if __name__ == "__main__":
    main()
