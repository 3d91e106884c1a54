#!/usr/bin/env python3
"""Random models, filled stores of them, and next versions: what `groupstore migrate` leaves is compared with what an
inferred migration must leave, derived here independently from the description of Core Data's format.

usage: inference.py GROUPSTORE [--seed N] [--first N] [--rounds N] [--keep DIRECTORY]
"""

import argparse
import collections
import json
import os
import plistlib
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile

import hashes
import history
import oracle
import store as stores
from changes import Author
from layout import Layout


def plain(sql):
    """Removes the quotes that SQLite adds to names in the index of a renamed table or column."""
    return sql.replace('"', "")


class Round:
    def __init__(self, groupstore, directory, seed, number):
        self.groupstore, self.directory = groupstore, directory
        self.random = random.Random(f"{seed}.{number}")
        author = Author(self.random)
        self.old = author.model()
        self.new = author.next(self.old)
        self.did = author.did
        self.problems = []

    def path(self, name):
        return os.path.join(self.directory, name)

    def run(self, *words):
        done = subprocess.run([self.groupstore, *words], capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    def check(self, what, found, wanted):
        if found != wanted:
            self.problems.append(f"{what}: found {found!r}, not {wanted!r}")

    def play(self):
        """Returns the outcome: `migrated`, `refused`, `same`."""
        for name, model in (("V1", self.old), ("V2", self.new)):
            model.write(self.path(name + ".xcdatamodel"))
            status, said = self.run("create", self.path(name + ".sqlite"), "--model", self.path(name + ".xcdatamodel"))
            if status:
                self.problems.append(f"create {name}: {said}")
                return "wrong"
        self.layouts = [Layout(self.old), Layout(self.new)]
        for name, layout in zip(("V1", "V2"), self.layouts):
            self._check_tables(self.path(name + ".sqlite"), layout, name)
        for name, model in (("V1.sqlite", self.old), ("V2.sqlite", self.new)):
            metadata = self._metadata(name)[1]
            self.check(f"{name}: hashes", metadata["NSStoreModelVersionHashes"], hashes.of(model))
            self.check(f"{name}: checksum", metadata["NSStoreModelVersionChecksumKey"], hashes.checksum(hashes.of(model)))
        self._check_verdict()
        self._check_export()
        if self.problems:
            return "wrong"
        objects, links = stores.fill(self.path("V1.sqlite"), self.old, self.layouts[0], self.random)
        changes = None
        # The bitmap slots of a composite attribute in a history are unknown.
        is_composed = any(one.type == "Composite" for model in (self.old, self.new)
                          for entity in model.entities.values() for one in entity.attributes)
        if self.random.random() < 0.4 and not is_composed:
            changes = history.add(self.path("V1.sqlite"), self.old, self.layouts[0], objects, self.random)
        before = self._dump(self.path("V1.sqlite"))
        words = ["--allow-partial-history"] if changes and self.random.random() < 0.5 else []
        status, said = self.run(
            "migrate", self.path("V1.sqlite"), "--model", self.path("V2.xcdatamodel"), "--to", self.path("M.sqlite"),
            "--json", *words)
        self.check("the store that was left alone", self._dump(self.path("V1.sqlite")), before)
        wanted = oracle.refusals(self.old, self.new)
        if changes and not words and not wanted:
            kept = set(oracle.pairs(self.old, self.new).values())
            wanted = [f"history of {change[2]}, which is removed" for change in changes if change[2] not in kept]
        if not wanted and hashes.of(self.old) != hashes.of(self.new):
            wanted = oracle.collisions(self.new, oracle.expected(self.old, self.new, objects, links)[0])
        if status == 65 and wanted:
            return "refused"
        if wanted:
            self.problems.append(f"exit {status}, where this is refused: {wanted}: {said}")
            return "wrong"
        # A failed run prints its message for people last.
        last = json.loads(said.splitlines()[-1]) if said.strip() and not status else {}
        if last.get("type") != "summary":
            self.problems.append(f"exit {status}: {said}")
            return "wrong"
        if last["outcome"] == "copied":
            self.check("hashes that are the same", self._hashes("V1.sqlite"), self._hashes("V2.sqlite"))
            return "same"
        self._check_tables(self.path("M.sqlite"), self.layouts[1], "M")
        self._check_objects(objects, links)
        self._check_records()
        if changes is not None:
            rows, width = history.expected(self.old, self.new, self.layouts[1], changes)
            for found, wanted in zip(history.read(self.path("M.sqlite"), width), rows, strict=True):
                self.check("history", found, wanted)
        self._check_mapping()
        return "wrong" if self.problems else "migrated"

    def _check_export(self):
        """Checks that the model that a store carries is written with the same hashes."""
        status, said = self.run("model", "export", self.path("V2.sqlite"), "--to", self.path("E.xcdatamodel"))
        self.check(f"export: {said}", status, 0)
        status, said = self.run("create", self.path("E.sqlite"), "--model", self.path("E.xcdatamodel"))
        self.check(f"create of the exported model: {said}", status, 0)
        if not self.problems:
            self.check("hashes of the exported model", self._hashes("E.sqlite"), hashes.of(self.new))
            self.check("schema of the exported model", self._objects("E.sqlite"), self._objects("V2.sqlite"))

    def _check_mapping(self):
        """Checks that a mapping model made from the two models leaves the objects that the inferred migration leaves."""
        form = self.random.choice(("xcmappingmodel", "yaml"))
        mapping = self.path("Made." + form)
        status, said = self.run(
            "model", "mapping", "create", self.path("V1.xcdatamodel"), self.path("V2.xcdatamodel"), "--to", mapping,
            "--json")
        if status:
            # Xcode names entity mappings itself, and two of them may have one name.
            self.check(f"{form}: {said}", form == "xcmappingmodel" and "would name this mapping" in said, True)
            return
        if "is abstract now" in said:
            return
        self.check(f"{form}: places to fill in", json.loads(said.splitlines()[-1])["to_do"], 0)
        status, said = self.run(
            "migrate", self.path("V1.sqlite"), "--model", self.path("V2.xcdatamodel"), "--mapping", mapping, "--to",
            self.path("N.sqlite"), "--json")
        if status == 65 and "it is mandatory but has no" in said:
            # A mapping model's new objects are validated, which an inferred migration's are not.
            return
        self.check(f"migration by {form}: {said}", status, 0)
        if status:
            return
        inferred = stores.read(self.path("M.sqlite"), self.new, self.layouts[1])
        mapped = stores.read(self.path("N.sqlite"), self.new, self.layouts[1])
        self.problems += mapped[2]
        for identity in sorted(inferred[0].keys() | mapped[0].keys()):
            one, other = mapped[0].get(identity), inferred[0].get(identity)
            # The save counter begins again.
            self.check(
                f"{form}: object {identity}", one and (one[0], one[2]), other and (other[0], other[2]))
        for key in inferred[1].keys() | mapped[1].keys():
            one, other = (collections.Counter(links.get(key, ())) for links in (mapped[1], inferred[1]))
            self.check(f"{form}: links of {key}", one, other)

    def _check_verdict(self):
        """Checks what `model check` says before there is a store."""
        _, said = self.run("model", "check", self.path("V1.xcdatamodel"), self.path("V2.xcdatamodel"), "--json")
        verdict = next(line["verdict"] for line in map(json.loads, said.splitlines()) if line["type"] == "check")
        wanted = "refused" if oracle.refusals(self.old, self.new) else "inferred"
        if hashes.of(self.old) == hashes.of(self.new):
            wanted = "compatible"
        self.check("verdict", verdict, wanted)

    # Content of the tables

    def _check_tables(self, path, layout, name):
        store = sqlite3.connect(path)
        found = {}
        for (table,) in store.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"):
            found[table] = {row[1]: row[2] for row in store.execute(f'PRAGMA table_info("{table}")')}
        for table in layout.spatial():
            for part in ("", "_node", "_parent", "_rowid"):
                found.pop(table + part, None)
        for table in ("Z_PRIMARYKEY", "Z_METADATA", "Z_MODELCACHE", "ACHANGE", "ATRANSACTION"):
            found.pop(table, None)
        self.check(f"{name}: tables", sorted(found), sorted(layout.columns))
        for table in found.keys() & layout.columns.keys():
            self.check(f"{name}: {table}", found[table], layout.columns[table])
        indexes = dict(store.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"))
        indexes = {index: plain(sql) for index, sql in indexes.items()}
        self.check(f"{name}: indexes", indexes, {index: plain(sql) for index, sql in layout.indexes().items()})
        for index, (table, columns) in layout.spatial().items():
            self._check_spatial(store, name, index, table, columns)
        self.check(f"{name}: integrity", store.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
        numbers = store.execute("SELECT Z_ENT, Z_SUPER FROM Z_PRIMARYKEY WHERE Z_ENT < 16000 ORDER BY 1").fetchall()
        wanted = [(layout.numbers[one.name], layout.numbers.get(one.parent, 0)) for one in layout.by_number()]
        self.check(f"{name}: entity numbers", numbers, wanted)
        store.close()

    def _check_spatial(self, store, name, index, table, columns):
        """Checks that the index holds exactly the objects that have all values, with those values."""
        try:
            bounds = {row[0]: row[1:] for row in store.execute(f"SELECT * FROM {index}")}
        except sqlite3.Error as error:
            self.problems.append(f"{name}: {index}: {error}")
            return
        keys = set()
        for key, *values in store.execute(f"SELECT Z_PK, {', '.join(columns)} FROM {table}"):
            keys.add(key)
            if None in values:
                continue
            found = bounds.get(key)
            fits = found and all(found[2 * at] <= one <= found[2 * at + 1] for at, one in enumerate(values))
            self.check(f"{name}: {index}: {key} {values} in {found}", bool(fits), True)
        self.check(f"{name}: {index}: objects that are not there", set(bounds) - keys, set())
        triggers = {f"{index}_{event}" for event in ("INSERT", "UPDATE", "DELETE")}
        there = {one for (one,) in store.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")}
        self.check(f"{name}: triggers of {index}", triggers - there, set())

    def _check_objects(self, objects, links):
        wanted, wanted_links = oracle.expected(self.old, self.new, objects, links)
        found, found_links, wrong = stores.read(self.path("M.sqlite"), self.new, self.layouts[1])
        self.problems += wrong
        for identity in sorted(wanted.keys() | found.keys()):
            one, other = found.get(identity), wanted.get(identity)
            if one and other and one[2].keys() == other[2].keys():
                for name, value in other[2].items():
                    self.check(f"{identity}.{name}", one[2][name], value)
                one, other = one[:2], other[:2]
            self.check(f"object {identity}", one, other)
        for key, pairs in wanted_links.items():
            if pairs is None:
                continue
            self.check(f"links of {key}", collections.Counter(found_links[key]), collections.Counter(pairs))
            one = self.new.relationship(*key)
            if one.many and one.ordered:
                self._check_order(key, found_links[key], pairs)

    def _check_order(self, key, found, wanted):
        """Checks that an existing order is kept, in all entities that own the relationship."""
        moved = oracle._moved(self.old, self.new, self.new.relationship(*key), key[0])
        if not moved or not all(self.old.relationship(*each).ordered for each in moved):
            return
        for owner in {owner for owner, _ in wanted}:
            self.check(
                f"order of {key} of {owner}", [target for one, target in found if one == owner],
                [target for one, target in wanted if one == owner])

    # Content beside the tables

    def _check_records(self):
        old, new = (self._metadata(name) for name in ("V1.sqlite", "M.sqlite"))
        fresh = self._metadata("V2.sqlite")
        self.check("store UUID", new[0], old[0])
        self.check("metadata", new[1], {**old[1], **fresh[1]})
        self.check("schema of indexes and triggers", self._objects("M.sqlite"), self._objects("V2.sqlite"))
        self.check("model cache", self._rows("M.sqlite", "Z_MODELCACHE"), self._rows("V2.sqlite", "Z_MODELCACHE"))
        before = dict(self._query("V1.sqlite", "SELECT Z_ENT, Z_MAX FROM Z_PRIMARYKEY"))
        was = oracle.pairs(self.old, self.new)
        for number, most in self._query(
            "M.sqlite", "SELECT Z_ENT, Z_MAX FROM Z_PRIMARYKEY WHERE Z_ENT < 16000"
        ):
            entity = next(name for name, each in self.layouts[1].numbers.items() if each == number)
            sources = {self.old.root(was[one]) for one in self.new.family(entity) if one in was}
            is_root = self.new.entities[entity].parent is None
            wanted = before[self.layouts[0].numbers[sources.pop()]] if is_root and sources else 0
            self.check(f"Z_MAX of {entity}", most, wanted)

    def _query(self, name, sql):
        store = sqlite3.connect(self.path(name))
        rows = store.execute(sql).fetchall()
        store.close()
        return rows

    def _rows(self, name, table):
        return self._query(name, f"SELECT * FROM {table}")

    def _metadata(self, name):
        ((uuid, content),) = self._query(name, "SELECT Z_UUID, Z_PLIST FROM Z_METADATA")
        return uuid, plistlib.loads(content)

    def _hashes(self, name):
        return self._metadata(name)[1]["NSStoreModelVersionHashes"]

    def _objects(self, name):
        rows = self._query(
            name, "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE type <> 'table' AND sql IS NOT NULL")
        return sorted((*row[:3], plain(row[3])) for row in rows)

    @staticmethod
    def _dump(path):
        store = sqlite3.connect(path)
        lines = list(store.iterdump())
        store.close()
        return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groupstore")
    parser.add_argument("--seed", default=str(os.getpid()))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--keep", help="where the files of rounds that fail are left")
    options = parser.parse_args()
    counts = collections.Counter()
    for number in range(options.first, options.first + options.rounds):
        with tempfile.TemporaryDirectory(prefix="inference.") as directory:
            this = Round(options.groupstore, directory, options.seed, number)
            outcome = this.play()
            counts[outcome] += 1
            if this.problems:
                print(f"inference: seed {options.seed} round {number}: {'; '.join(this.did)}", flush=True)
                for problem in this.problems[:8]:
                    print("    " + problem[:400], flush=True)
                if options.keep:
                    shutil.copytree(directory, os.path.join(options.keep, str(number)), dirs_exist_ok=True)
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(f"inference: seed {options.seed}: {options.rounds} rounds: {said}", flush=True)
    sys.exit(1 if counts["wrong"] else 0)


if __name__ == "__main__":
    main()
