"""Measures what history costs a writer: inserts the same rows into the same table with and without it, in turns.

usage: history.py ROWS_PROGRAM GROUPSTORE [--rounds N] [--rows N]
"""

import argparse
import os
import shutil
import sqlite3
import statistics
import subprocess
import tempfile

PARTS = [
    ("single", "one-row transaction, INSERT", 10, 2.2),
    ("insert", "row in a batch, INSERT", 1, 3.0),
    ("update", "row in a batch, UPDATE of one column", 1, 3.0),
    ("delete", "row in a batch, DELETE", 1, 3.0),
]
WAYS = [("without", None), ("with", []), ("before", ["--before"])]
TABLE = """
CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT, body TEXT, modified REAL);
CREATE INDEX note_modified ON note (modified);
"""


def make(path, rows, groupstore, options):
    """Makes a store with rows to change, and enables history if given options for it."""
    store = sqlite3.connect(path)
    store.execute("PRAGMA journal_mode = WAL")
    store.executescript(TABLE)
    store.executemany(
        "INSERT INTO note (title, body, modified) VALUES ('A title', ?, ?)",
        ((4 * "Some words of a note, as somebody types them. ", row) for row in range(rows)),
    )
    store.commit()
    store.close()
    if options is not None:
        subprocess.run([groupstore, "history", "enable", "--quiet", *options, path], check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("groupstore")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--rows", type=int, default=50_000)
    options = parser.parse_args()
    print("| a row with history | µs without | µs with | ratio | wanted | µs with --before | ratio |")
    print("| --- | --: | --: | --: | --: | --: | --: |")
    with tempfile.TemporaryDirectory() as directory:
        stores = {}
        for name, words in WAYS:
            stores[name] = os.path.join(directory, name + ".sqlite")
            make(stores[name], options.rows, options.groupstore, words)
        for part, words, divisor, wanted in PARTS:
            times = {name: [] for name, _ in WAYS}
            for turn in range(options.rounds):
                for name, store in stores.items():
                    copy = os.path.join(directory, "copy.sqlite")
                    shutil.copy(store, copy)
                    # INSERT grows the table; the other parts look up each row.
                    count = options.rows // divisor
                    output = subprocess.check_output([options.program, copy, part, str(count)], text=True)
                    times[name].append(float(output))
                    for suffix in ["", "-wal", "-shm"]:
                        if os.path.exists(copy + suffix):
                            os.remove(copy + suffix)
            without, with_history, before = (statistics.median(times[name]) for name, _ in WAYS)
            ratio, further = (
                statistics.median(b / a for a, b in zip(times["without"], times[name])) for name in ["with", "before"]
            )
            print(
                f"| {words} | {without:.2f} | {with_history:.2f} | {ratio:.2f} | {wanted} | {before:.2f} | {further:.2f} |",
                flush=True,
            )


main()
