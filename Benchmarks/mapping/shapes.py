#!/usr/bin/env python3
"""Compares migrations by a mapping model with the best hand-written SQL, for stores of other shapes than mapping.py's.

usage: shapes.py --groupstore PATH [--rounds N] [--directory DIR] [--only SHAPE] [--require RATIO]

- wide: 100,000 objects with 40 attributes of all types, of which three get expressions
- links: 20 entities with 20,000 objects each, to-one and many-to-many relationships between neighbours
- blobs: 4,000 objects with 60 kB in the table, and 400 with 300 kB in external files

The SQL has the tables that groupstore creates for the new model, one INSERT … SELECT for each, and the indexes afterwards.
"""

import argparse
import os
import sqlite3
import subprocess
import tempfile
import uuid

from mapping import compare, model

TYPES = (["String"] * 10 + ["Integer 32"] * 6 + ["Integer 64"] * 4 + ["Double"] * 6 + ["Date"] * 4 + ["Boolean"] * 4
         + ["Decimal"] * 2 + ["UUID"] * 2 + ["Binary"] * 2)


def attribute(name, kind, more=""):
    return f"<attribute name='{name}' optional='YES' attributeType='{kind}' {more}/>"


def value(kind, row, index):
    number = row * 31 + index * 7
    return {
        "String": f"text {number}", "Double": number / 7, "Date": number * 1.5, "Decimal": number + 0.25,
        "Boolean": number % 2, "UUID": uuid.UUID(int=number).bytes, "Binary": b"data %d" % number,
    }.get(kind, number)


class Wide:
    """Many columns in each row."""
    rows = 100_000

    def models(self):
        def text(extra):
            attributes = "".join(attribute(f"a{n}", kind) for n, kind in enumerate(TYPES)) + extra
            return f"<model><entity name='Item'>{attributes}</entity></model>"
        return text(""), text(attribute("extra", "Integer 16", "defaultValueString='7'"))

    mapping = """mapping: 1
entities:
  - from: Item
    to: Item
    attributes:
      a0: FUNCTION($source.a0, "stringByAppendingString:", $source.a1)
      a10: $source.a10 + 1
      a20: $source.a20 * 2
"""
    expressions = {"ZITEM": {"ZA0": "ZA0 || ZA1", "ZA10": "ZA10 + 1", "ZA20": "ZA20 * 2", "ZEXTRA": "7"}}

    def fill(self, connection, _):
        columns = ", ".join(f"ZA{n}" for n in range(len(TYPES)))
        connection.executemany(
            f"INSERT INTO ZITEM (Z_PK, Z_ENT, Z_OPT, {columns}) VALUES (?, 1, 1{', ?' * len(TYPES)})",
            ([row] + [value(kind, row, n) for n, kind in enumerate(TYPES)] for row in range(1, self.rows + 1)))


class Links:
    """Many entities with relationships."""
    entities = 20
    rows = 20_000

    def models(self):
        def text(extra):
            parts = []
            for n in range(self.entities):
                after, before = (n + 1) % self.entities, (n - 1) % self.entities
                parts.append(
                    f"<entity name='E{n:02}'>" + attribute("name", "String") + attribute("size", "Integer 32") + extra
                    + f"<relationship name='next' optional='YES' maxCount='1' destinationEntity='E{after:02}' "
                    "inverseName='previous'/>"
                    f"<relationship name='previous' optional='YES' toMany='YES' destinationEntity='E{before:02}' "
                    "inverseName='next'/>"
                    f"<relationship name='friends' optional='YES' toMany='YES' destinationEntity='E{after:02}' "
                    "inverseName='fans'/>"
                    f"<relationship name='fans' optional='YES' toMany='YES' destinationEntity='E{before:02}' "
                    "inverseName='friends'/></entity>")
            return "<model>" + "".join(parts) + "</model>"
        return text(""), text(attribute("extra", "Integer 16", "defaultValueString='7'"))

    @property
    def mapping(self):
        return "mapping: 1\nentities:\n" + "".join(
            f"  - from: E{n:02}\n    to: E{n:02}\n    attributes:\n      size: $source.size + 1\n"
            for n in range(self.entities))

    @property
    def expressions(self):
        return {f"ZE{n:02}": {"ZSIZE": "ZSIZE + 1", "ZEXTRA": "7"} for n in range(self.entities)}

    def fill(self, connection, _):
        for n in range(self.entities):
            connection.executemany(
                f"INSERT INTO ZE{n:02} (Z_PK, Z_ENT, Z_OPT, ZNAME, ZSIZE, ZNEXT) VALUES (?, {n + 1}, 1, ?, ?, ?)",
                ((row, f"object {row}", row % 90, row * 7919 % self.rows + 1) for row in range(1, self.rows + 1)))
        tables = connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'Z_[0-9]*'").fetchall()
        for (name,) in tables:
            connection.executemany(
                f"INSERT INTO {name} VALUES (?, ?)",
                ((row + 1, row * 6151 % self.rows + 1) for row in range(self.rows)))


class Blobs:
    """Large values, some of them in external files."""
    inline, external = 4000, 400

    def models(self):
        def text(extra):
            return ("<model><entity name='Photo'>" + attribute("title", "String")
                    + attribute("data", "Binary", "allowsExternalBinaryDataStorage='YES'") + extra + "</entity></model>")
        return text(""), text(attribute("extra", "Integer 16", "defaultValueString='7'"))

    mapping = """mapping: 1
entities:
  - from: Photo
    to: Photo
    attributes:
      title: FUNCTION($source.title, "stringByAppendingString:", ".jpg")
"""
    expressions = {"ZPHOTO": {"ZTITLE": "ZTITLE || '.jpg'", "ZEXTRA": "7"}}

    def fill(self, connection, store):
        directory, name = os.path.split(store)
        folder = os.path.join(directory, "." + name.removesuffix(".sqlite") + "_SUPPORT", "_EXTERNAL_DATA")
        os.makedirs(folder)

        def rows():
            for row in range(1, self.inline + self.external + 1):
                data = b"\1" + row.to_bytes(4, "big") * 15_000
                if row > self.inline:
                    identity = str(uuid.UUID(int=row)).upper()
                    with open(os.path.join(folder, identity), "wb") as file:
                        file.write(row.to_bytes(4, "big") * 75_000)
                    data = b"\2" + identity.encode() + b"\0"
                yield row, f"photo {row}", data
        connection.executemany("INSERT INTO ZPHOTO (Z_PK, Z_ENT, Z_OPT, ZTITLE, ZDATA) VALUES (?, 1, 1, ?, ?)", rows())


SHAPES = {"wide": Wide, "links": Links, "blobs": Blobs}


def sql_by_hand(old, new, expressions):
    """Returns the SQL that makes the tables of `new` from those of `old`."""
    connection = sqlite3.connect(new)
    connection.execute("ATTACH ? AS old", (old,))
    statements, indexes = [], []
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql NOT NULL").fetchall():
        if kind == "index":
            indexes.append(sql)
            continue
        statements.append(sql.replace("CREATE TABLE ", "CREATE TABLE main.", 1))
        there = {row[1] for row in connection.execute(f"PRAGMA old.table_info({name})")}
        columns = [row[1] for row in connection.execute(f"PRAGMA main.table_info({name})")]
        if name not in expressions:
            columns = [column for column in columns if column in there]
        values = [expressions.get(name, {}).get(column, column) for column in columns]
        if "Z_OPT" in columns:
            values[columns.index("Z_OPT")] = "1"
        statements.append(f"INSERT INTO main.{name} ({', '.join(columns)}) SELECT {', '.join(values)} FROM source.{name}")
    connection.close()
    return ";\n".join(statements + indexes) + ";"


def content(path):
    """Returns the rows of all tables but the bookkeeping, as hashes that don't depend on the order."""
    connection = sqlite3.connect(path)
    found = {}
    for (name,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN "
            "('Z_METADATA', 'Z_MODELCACHE', 'Z_PRIMARYKEY')").fetchall():
        columns = sorted(row[1] for row in connection.execute(f"PRAGMA table_info({name})"))
        found[name] = sum(hash(row) for row in connection.execute(f"SELECT {', '.join(columns)} FROM {name}"))
    connection.close()
    return found


def measure(options, name, shape, directory):
    old, new = shape.models()
    old, new = model(directory, "Old", old), model(directory, "New", new)
    store, empty = os.path.join(directory, "Store.sqlite"), os.path.join(directory, "Empty.sqlite")
    for path, version in [(store, old), (empty, new)]:
        subprocess.run(
            [options.groupstore, "create", path, "--model", version, "--quiet", "--journal-mode", "delete"], check=True)
    mapping = os.path.join(directory, "Map.yaml")
    with open(mapping, "w", encoding="utf-8") as file:
        file.write(shape.mapping)
    connection = sqlite3.connect(store)
    connection.execute("PRAGMA synchronous = OFF")
    with connection:
        shape.fill(connection, store)
        connection.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = 1000000")
    connection.close()
    sql = sql_by_hand(store, empty, shape.expressions)
    cells, _, whole = compare(options, store, new, mapping, sql, content)
    print(f"| {name} | {cells} |", flush=True)
    return whole


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--groupstore", default=".build/release/groupstore")
    parser.add_argument("--directory")
    parser.add_argument("--only", choices=SHAPES)
    parser.add_argument("--require", type=float, help="the longest time, where that of cp, SQL and sync is 1")
    options = parser.parse_args()
    print("| shape | groupstore | SQL by hand | speed, SQL = 1 | cp, SQL and sync | time, these = 1 |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    slowest = 0
    for name in [options.only] if options.only else SHAPES:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            slowest = max(slowest, measure(options, name, SHAPES[name](), directory))
    if options.require is not None and slowest > options.require:
        raise SystemExit(f"a migration takes {slowest:.2f} times as long, more than {options.require}")


if __name__ == "__main__":
    main()
