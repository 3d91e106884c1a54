"""Makes stores as programs leave them behind, and reads their content."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile

NAME = "Notes.sqlite"
SUPPORT = ".Notes_SUPPORT"
SIDE_FILES = ("-wal", "-shm", "-journal")
# Larger than any test's support folder.
GIANT = 1 << 30

# Each ends within a transaction: its acknowledged rows count, the rest must never be visible.
_WRITERS = {
    "wal": """
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("PRAGMA wal_autocheckpoint = 0")
rows(1, 20)
connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
rows(21, 60)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN")
spoil()
rows(1000, 1100)
os._exit(0)
""",
    "journal": """
rows(1, 60)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN")
spoil()
rows(1000, 1100)
os._exit(0)
""",
    "plain": "rows(1, 60)\n",
    "closed-wal": 'connection.execute("PRAGMA journal_mode = WAL")\nrows(1, 60)\nconnection.close()\n',
    "other": "rows(500, 510)\n",
    "empty": "",
}

_PROLOGUE = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA page_size = 1024")
connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)")
def rows(first, last):
    for number in range(first, last + 1):
        connection.execute("INSERT INTO note VALUES (?, ?)", (number, f"note {number} " + "x" * 100))
def spoil():
    connection.execute("UPDATE note SET text = 'never acknowledged'")
"""

# One note keeps its photo in a file.
_CORE_DATA_PROLOGUE = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = DELETE")
connection.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = 1100")
photo = chr(2) + "0F8FAD5B-D9CB-469F-A165-70867728950E" + chr(0)
def rows(first, last):
    for number in range(first, last + 1):
        values = (number, f"note {number} " + "x" * 100, photo.encode() if number == 1 else None)
        connection.execute("INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTITLE, ZPHOTO) VALUES (?, 1, 1, ?, ?)", values)
def spoil():
    connection.execute("UPDATE ZNOTE SET ZTITLE = 'never acknowledged'")
"""

KINDS = ("wal", "journal", "plain", "closed-wal")


def make(kind, directory, support=True):
    """Makes a store of that kind in a separate process."""
    _write(directory, _PROLOGUE + _WRITERS[kind], {"1F2E": kind * 3000, "empty": ""} if support else {})


def make_core_data(kind, directory, groupstore, model):
    """Makes a Core Data store of that kind, with the first version of a model."""
    path = os.path.join(directory, NAME)
    words = [groupstore, "create", path, "--model", model, "--version", "Notes", "--quiet"]
    subprocess.run(words, check=True)
    _write(directory, _CORE_DATA_PROLOGUE + _WRITERS[kind], {"0F8FAD5B-D9CB-469F-A165-70867728950E": kind * 3000})


def _write(directory, program, blobs):
    path = os.path.join(directory, NAME)
    subprocess.run([sys.executable, "-c", program, path], check=True)
    folder = os.path.join(directory, SUPPORT, "_EXTERNAL_DATA")
    for name, text in blobs.items():
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)
    os.chmod(path, 0o640)


def merge(group, legacy, directory):
    """Makes a store with the rows and the files of two others."""
    shutil.copytree(group, directory)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        for part in parts(legacy):
            copy(os.path.join(legacy, part), os.path.join(scratch, part))
        other = sqlite3.connect(os.path.join(scratch, NAME), isolation_level=None)
        rows = other.execute("SELECT id, text FROM note").fetchall()
        other.close()
    connection = sqlite3.connect(os.path.join(directory, NAME), isolation_level=None)
    connection.executemany("INSERT INTO note VALUES (?, ?)", rows)
    connection.close()
    if os.path.isdir(os.path.join(legacy, SUPPORT)):
        shutil.copytree(os.path.join(legacy, SUPPORT), os.path.join(directory, SUPPORT), dirs_exist_ok=True)


def close(directory):
    """Removes the owner's write permission from the support folder."""
    for folder in (os.path.join(directory, SUPPORT, "_EXTERNAL_DATA"), os.path.join(directory, SUPPORT)):
        os.chmod(folder, 0o555)


def parts(directory, name=NAME):
    """Returns the store's existing files, without its support folder."""
    found = [name] + [name + suffix for suffix in SIDE_FILES]
    return [part for part in found if os.path.lexists(os.path.join(directory, part))]


def content(directory, name=NAME):
    """Returns rows, schema and support folder, as the next program to open the store finds them; None if there is none.

    Reads a copy, so it changes nothing.
    """
    path = os.path.join(directory, name)
    if not os.path.isfile(path) or os.path.islink(path):
        return None
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        for part in parts(directory, name):
            copy(os.path.join(directory, part), os.path.join(scratch, part))
        connection = sqlite3.connect(os.path.join(scratch, name), isolation_level=None)
        try:
            check = connection.execute("PRAGMA integrity_check").fetchall()
            if check != [("ok",)]:
                return {"broken": check}
            schema = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall()
            rows = _rows(connection, [name for kind, name, _ in schema if kind == "table"])
        except sqlite3.DatabaseError as error:
            return {"broken": str(error)}
        finally:
            connection.close()
    stem = os.path.splitext(name)[0]
    support = os.path.join(directory, f".{stem}_SUPPORT")
    folder = oct(os.lstat(support).st_mode) if os.path.lexists(support) else None
    return {"rows": rows, "schema": schema, "support": tree(support), "folder": folder}


def _rows(connection, tables):
    """Returns a Core Data store's rows without what each run may write in another order: its metadata and its model cache."""
    if "note" in tables:
        return connection.execute("SELECT id, text FROM note ORDER BY id").fetchall()
    rows = []
    for table in tables:
        if table not in ("Z_METADATA", "Z_MODELCACHE"):
            found = connection.execute(f'SELECT * FROM "{table}" ORDER BY 1').fetchall()
            rows += [(f"{table} {row[0]}", *row[1:]) for row in found]
    if "Z_METADATA" in tables:
        rows += connection.execute("SELECT Z_VERSION FROM Z_METADATA").fetchall()
    return rows


def copy(source, target):
    """Makes a plain copy, and keeps holes."""
    status = os.stat(source)
    if status.st_blocks * 512 < status.st_size:
        # A log with a page number of 2^31 makes a sparse file of terabytes; a plain copy would fill it.
        subprocess.run(["cp", "--sparse=always", source, target], check=True)
    else:
        shutil.copyfile(source, target)


def tree(path):
    """Returns every file below, with kind, mode and bytes (for a giant, its size); None if there is nothing."""
    if not os.path.lexists(path):
        return None
    found = {}
    for directory, folders, files in os.walk(path):
        for name in folders + files:
            below = os.path.join(directory, name)
            status = os.lstat(below)
            data = None
            if os.path.islink(below):
                data = os.readlink(below)
            elif os.path.isfile(below) and status.st_size > GIANT:
                data = status.st_size
            elif os.path.isfile(below):
                with open(below, "rb") as file:
                    data = file.read()
            found[os.path.relpath(below, path)] = (oct(status.st_mode), data)
    return found


def uses_log(directory, name=NAME):
    """Returns whether the header says that write-ahead logging is on."""
    with open(os.path.join(directory, name), "rb") as file:
        return file.read(20)[18:20] == b"\x02\x02"


def write_journal(group, identifier, directory, name, database, state, support=None):
    """Writes the journal of an interrupted relocation; the caller does the rest of that relocation's effects."""
    file = {"device": database[0], "inode": database[1]}
    states = {"intended": {}, "withdrawn": {}, "committing": {"database": file}}
    transfer = {
        "id": identifier, "purpose": {"publish": {"as": name}}, "directory": directory, "name": name,
        "database": file, "copies": False, "retirement": "delete", "hadWAL": True}
    if support:
        transfer["support"] = {"device": support[0], "inode": support[1]}
    bookkeeping = os.path.join(group, ".groupstore")
    os.makedirs(bookkeeping, exist_ok=True)
    with open(os.path.join(bookkeeping, "journal.json"), "w", encoding="utf-8") as out:
        json.dump({"version": 1, "state": {state: states[state]}, "transfer": transfer}, out)
