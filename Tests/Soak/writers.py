"""The soak's writers: each commits single rows, and reports each operation after its COMMIT returns: `insert 5`.

Writers that number their rows themselves do at step n: update row n - 4 if n ends with 7, delete it if with 9, else
insert row n. Every second writer names itself in its own transaction.
"""

import random
import subprocess
import sys

TABLES = ["c_1", "c_2", "shell_1", "shell_2", "python_1", "python_2", "note"]
AUTHORS = {table: table for table in TABLES if table.endswith("_2")}

PYTHON = """
import sqlite3, sys
path, table, first, count, author = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
store = sqlite3.connect(f"file:{path}?mode=rw", uri=True, isolation_level=None, timeout=600)
store.execute("PRAGMA synchronous = OFF")
steps = {
    "insert": f"INSERT INTO {table} (number, text) VALUES (?, hex(randomblob(60)))",
    "update": f"UPDATE {table} SET text = hex(randomblob(60)) WHERE number = ?",
    "delete": f"DELETE FROM {table} WHERE number = ?",
}
for step in range(first, first + count):
    word = {7: "update", 9: "delete"}.get(step % 10, "insert")
    row = step if word == "insert" else step - 4
    if author:
        store.execute("BEGIN IMMEDIATE")
        store.execute("UPDATE GS_AUTHOR SET name = ?", (author,))
    assert store.execute(steps[word], (row,)).rowcount == 1
    if author:
        store.execute("UPDATE GS_AUTHOR SET name = NULL")
        store.execute("COMMIT")
    print(word, row)
store.close()
"""


def shell_line(table, step):
    """Returns one step as the sqlite3 shell reads it; with -bail it prints nothing about failed statements."""
    word = {7: "update", 9: "delete"}.get(step % 10, "insert")
    row = step if word == "insert" else step - 4
    sql = {
        "insert": f"INSERT INTO {table} VALUES ({row}, hex(randomblob(60)));",
        "update": f"UPDATE {table} SET text = hex(randomblob(60)) WHERE number = {row};",
        "delete": f"DELETE FROM {table} WHERE number = {row};",
    }[word]
    if table in AUTHORS:
        author = f"UPDATE GS_AUTHOR SET name = '{AUTHORS[table]}';"
        sql = f"BEGIN IMMEDIATE; {author} {sql} UPDATE GS_AUTHOR SET name = NULL; COMMIT;"
    return f"{sql}\n.print {word} {row}\n"


def batch(world, table, first, count):
    """Returns the program and its input."""
    author = AUTHORS.get(table, "")
    if table.startswith("c_"):
        return [world.c_writer, world.place, table, str(first), str(count), author], None
    if table.startswith("python_"):
        return [sys.executable, "-c", PYTHON, world.place, table, str(first), str(count), author], None
    if table.startswith("shell_"):
        start = ".output /dev/null\nPRAGMA busy_timeout = 600000;\n.output stdout\nPRAGMA synchronous = OFF;\n"
        steps = "".join(shell_line(table, step) for step in range(first, first + count))
        return ["sqlite3", "-batch", "-bail", "-init", "/dev/null", world.place], start + steps
    # Two programs write into one table: the numbering is the program's own.
    return [world.legacy_writer, world.place, "--rows", str(count)], None


def done_by(output):
    """Returns the operations that a writer reported. LegacyWriter prints `row 5`."""
    for line in output.splitlines():
        word, row = line.split()
        yield ("insert" if word == "row" else word), int(row)


def write(world, table, total, rng: random.Random):
    done = 0
    while done < total and not world.is_over:
        count = min(total - done, rng.randint(50, 1500))
        with world.pause.batch():
            words, text = batch(world, table, done, count)
            finished = subprocess.run(words, input=text, capture_output=True, text=True)
            if finished.returncode != 0:
                with world.lock:
                    world.failures.append(f"{words[0]}: {finished.stderr}")
                    world.is_over = True
                return
            with world.lock:
                world.logs[table] += done_by(finished.stdout)
        done += count
        with world.lock:
            world.committed[table] += count
