"""Hostile content: stores with a few bytes changed, cut off or put together wrongly. Each has an outcome of the table, in
bounded time and memory, and refusing one changes nothing."""

import os
import resource
import shutil
import sqlite3
import subprocess
import tempfile
import time

import stores

SECONDS = 20
KILOBYTES = 200_000
STATUSES = (0, 65, 73, 74, 75)


def each_mutation(programs, progress, count, here, real_stores):
    """`count` mutated stores, of every kind and of each real store."""
    with tempfile.TemporaryDirectory(prefix="torture.", dir="/dev/shm") as templates:
        originals = _originals(templates, real_stores)
        for number in range(count):
            if progress.is_over:
                return
            directory, name = progress.random.choice(originals)
            with tempfile.TemporaryDirectory(prefix="torture.", dir=here) as root:
                word = _mutated(progress.random, directory, name, root)
                progress.judge(f"mutation {number}, {word}", _judged(programs, progress.random, root, name))


def _originals(templates, real_stores):
    found = []
    for kind in stores.KINDS:
        directory = os.path.join(templates, kind)
        os.mkdir(directory)
        stores.make(kind, directory)
        found.append((directory, stores.NAME))
    for directory, _, files in os.walk(real_stores or templates):
        for name in files:
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                is_store = file.read(16) == b"SQLite format 3\0"
            if is_store and directory not in [one for one, _ in found] and os.path.getsize(path) < 4 << 20:
                found.append((directory, name))
    return found


def _mutated(random, directory, name, root):
    """Copies the store, changed. Says what was done."""
    legacy = os.path.join(root, "legacy")
    os.mkdir(legacy)
    os.mkdir(os.path.join(root, "group"))
    parts = stores.parts(directory, name)
    for part in parts:
        shutil.copyfile(os.path.join(directory, part), os.path.join(legacy, part))
    if random.random() < 0.2 and (word := _change_record(random, legacy, name)):
        return f"{name}: {word}"
    parts = stores.parts(legacy, name)
    part = random.choice(parts)
    path = os.path.join(legacy, part)
    with open(path, "rb") as file:
        content = bytearray(file.read())
    changes = [_flip, _flip_in_header, _cut, _fill, _extend, _zero_page, _swap_pages]
    change = random.choice(changes)
    if content:
        content = change(random, content)
    with open(path, "wb") as file:
        file.write(content)
    if random.random() < 0.1:
        os.rename(path, os.path.join(legacy, random.choice(parts) + random.choice(stores.SIDE_FILES)))
    return f"{os.path.basename(directory)}/{part} {change.__name__[1:]}"


def _change_record(random, legacy, name):
    """Core Data's metadata property list, or its compressed model."""
    table, column = random.choice([("Z_METADATA", "Z_PLIST"), ("Z_MODELCACHE", "Z_CONTENT")])
    connection = sqlite3.connect(os.path.join(legacy, name), isolation_level=None)
    try:
        row = connection.execute(f"SELECT {column} FROM {table}").fetchone()
        if row and isinstance(row[0], bytes) and row[0]:
            change = random.choice([_flip, _cut, _fill, _extend])
            connection.execute(f"UPDATE {table} SET {column} = ?", (bytes(change(random, bytearray(row[0]))),))
            return f"{column} {change.__name__[1:]}"
    except sqlite3.DatabaseError:
        pass
    finally:
        connection.close()
    return None


def _flip(random, content):
    for _ in range(random.choice([1, 1, 2, 8, 64])):
        content[random.randrange(len(content))] = random.randrange(256)
    return content


def _flip_in_header(random, content):
    for _ in range(random.choice([1, 2, 4])):
        content[random.randrange(min(len(content), 120))] = random.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
    return content


def _cut(random, content):
    return content[: random.randrange(len(content))]


def _fill(random, content):
    start = random.randrange(len(content))
    length = min(random.choice([1, 4, 100, 4096]), len(content) - start)
    content[start:start + length] = bytes([random.choice([0, 0xFF])]) * length
    return content


def _extend(random, content):
    return content + random.randbytes(random.choice([1, 100, 4096]))


def _zero_page(random, content):
    start = random.randrange(len(content)) // 512 * 512
    content[start:start + 512] = bytes(len(content[start:start + 512]))
    return content


def _swap_pages(random, content):
    size = random.choice([1024, 4096])
    pages = [content[start:start + size] for start in range(0, len(content), size)]
    random.shuffle(pages)
    return bytearray(b"".join(pages))


def _judged(programs, random, root, name):
    legacy, group = os.path.join(root, "legacy"), os.path.join(root, "group")
    words = [programs.groupstore, "relocate", os.path.join(legacy, name), group, "--json", "--deadline", "1"]
    if random.random() < 0.3:
        stores.make("other", group, support=False)
        os.rename(os.path.join(group, stores.NAME), os.path.join(group, name))
    database = os.path.join(legacy, name)
    holds_anything = os.path.isfile(database) and os.path.getsize(database) > 0
    before, content = stores.tree(legacy), _readable(legacy, name)
    started = time.monotonic()
    status, peak, said = _run(words)
    found = []
    if status not in STATUSES:
        found.append(f"status {status}: {said[-600:]}")
    if time.monotonic() - started > SECONDS:
        found.append("it took too long")
    if peak > KILOBYTES:
        found.append(f"it took {peak} KB of memory")
    if content is not None and status == 0 and holds_anything:
        # Where the group had a store with rows, one without may have gone to the archive.
        places = [directory for directory, _, files in os.walk(root) if name in files]
        if all(_readable(place, name) != content for place in places):
            found.append(f"its content is not what it was: {said[-300:]}")
    if status in (65, 73) and _without_index(stores.tree(legacy)) != _without_index(before):
        now = _without_index(stores.tree(legacy))
        changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
        found.append(f"refused, and yet changed: {changed} {said[-500:]}")
    if os.path.lexists(os.path.join(group, ".groupstore", "journal.json")):
        found.append("a journal is left")
    return found


def _run(words):
    """Exit status, most memory in KB, and what it said."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=dict(os.environ, GROUPSTORE_SOCKET="/nonexistent/agent.sock"),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS)))
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return process.returncode, usage.ru_maxrss, output.read().decode(errors="replace")


def _without_index(tree):
    return {name: file for name, file in tree.items() if not name.endswith("-shm")}


def _readable(directory, name):
    """Every row of every table as SQLite reads them from a copy; None where it can't read all."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        for part in stores.parts(directory, name):
            path = os.path.join(directory, part)
            if os.path.isfile(path):
                shutil.copyfile(path, os.path.join(scratch, part))
        connection = sqlite3.connect(os.path.join(scratch, name))
        connection.text_factory = bytes
        try:
            tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1").fetchall()
            return [
                (table, connection.execute(f'SELECT * FROM "{table.decode()}"').fetchall()) for table, in tables]
        except (sqlite3.Error, UnicodeDecodeError, OverflowError):
            return None
        finally:
            connection.close()
