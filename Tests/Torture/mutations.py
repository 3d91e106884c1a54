"""Changes bytes: blindly, or with knowledge of the format and repaired checksums, so that readers believe
the change.
"""

import os
import plistlib
import random as randomness
import sqlite3
import struct
import zlib

import stores


# Blind changes: (random, content) -> content


def flip(random, content):
    for _ in range(random.choice([1, 1, 2, 8, 64])):
        content[random.randrange(len(content))] = random.randrange(256)
    return content


def flip_in_header(random, content):
    for _ in range(random.choice([1, 2, 4])):
        content[random.randrange(min(len(content), 120))] = random.choice([0, 1, 2, 0x7F, 0x80, 0xFF])
    return content


def cut(random, content):
    return content[: random.randrange(len(content))]


def fill(random, content):
    start = random.randrange(len(content))
    length = min(random.choice([1, 4, 100, 4096]), len(content) - start)
    content[start:start + length] = bytes([random.choice([0, 0xFF])]) * length
    return content


def extend(random, content):
    return content + random.randbytes(random.choice([1, 100, 4096]))


def zero_page(random, content):
    start = random.randrange(len(content)) // 512 * 512
    content[start:start + 512] = bytes(len(content[start:start + 512]))
    return content


def swap_pages(random, content):
    size = random.choice([1024, 4096])
    pages = [content[start:start + size] for start in range(0, len(content), size)]
    random.shuffle(pages)
    return bytearray(b"".join(pages))


def repeat(random, content):
    start = random.randrange(len(content))
    part = content[start:start + random.choice([16, 512, 4096])]
    return content[:start] + part * random.choice([2, 8]) + content[start:]


BLIND = [flip, flip_in_header, cut, fill, extend, zero_page, swap_pages, repeat]

_NUMBERS = [0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]


def _put(random, content, offset, form):
    if offset + struct.calcsize(form) <= len(content):
        struct.pack_into(form, content, offset, random.choice(_NUMBERS) & (1 << 8 * struct.calcsize(form)) - 1)


# The database: https://sqlite.org/fileformat2.html, §1.3 and §1.6


def header_field(random, content):
    """Changes page size, versions, counters, freelist or encoding: one field or two."""
    fields = [(16, ">H"), (18, ">B"), (19, ">B"), (20, ">B"), (24, ">I"), (28, ">I"), (32, ">I"), (36, ">I"),
              (44, ">I"), (52, ">I"), (56, ">I"), (92, ">I"), (96, ">I")]
    for offset, form in random.sample(fields, random.choice([1, 1, 2])):
        _put(random, content, offset, form)
    return content


def page_field(random, content):
    """Changes a b-tree page's kind, freeblock, cell count, content start, child, or a cell's pointer."""
    size = struct.unpack_from(">H", content, 16)[0] if len(content) > 18 else 0
    size = 65536 if size == 1 else size
    if size < 512 or len(content) <= size:
        return flip(random, content)
    page = random.randrange(len(content) // size) * size
    base = page + (100 if page == 0 else 0)
    offset, form = random.choice([(0, ">B"), (1, ">H"), (3, ">H"), (5, ">H"), (7, ">B"), (8, ">I"), (12, ">H")])
    _put(random, content, base + offset, form)
    return content


# The log: https://sqlite.org/fileformat2.html, §4


def log_field(random, content):
    """Changes the log's header or a frame's and repairs checksums: a page number, a commit's size, the page size, page
    content."""
    if len(content) < 56:
        return flip(random, content)
    size = struct.unpack_from(">I", content, 8)[0]
    if not 512 <= size <= 65536:
        return flip(random, content)
    frames = (len(content) - 32) // (size + 24)
    if frames == 0 or random.random() < 0.2:
        _put(random, content, random.choice([0, 4, 8, 12, 16, 20]), ">I")
    else:
        frame = 32 + random.randrange(frames) * (size + 24)
        if random.random() < 0.5:
            _put(random, content, frame + random.choice([0, 4]), ">I")
        else:
            content[frame + 24 + random.randrange(size)] = random.randrange(256)
    return _mended(content, size)


def _mended(content, size):
    order = ">" if content[3] & 1 else "<"
    sums = _checksum(content[:24], (0, 0), order)
    struct.pack_into(">II", content, 24, *sums)
    for frame in range(32, len(content) - size - 23, size + 24):
        content[frame + 8:frame + 16] = content[16:24]
        sums = _checksum(content[frame:frame + 8], sums, order)
        sums = _checksum(content[frame + 24:frame + 24 + size], sums, order)
        struct.pack_into(">II", content, frame + 16, *sums)
    return content


def _checksum(data, sums, order):
    one, other = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for index in range(0, len(words), 2):
        one = one + words[index] + other & 0xFFFFFFFF
        other = other + words[index + 1] + one & 0xFFFFFFFF
    return one, other


# The rollback journal: https://sqlite.org/fileformat2.html, §3


def journal_field(random, content):
    """Changes the count of records, the first size, sector and page size, or a record's page number."""
    if len(content) < 28:
        return flip(random, content)
    if random.random() < 0.6:
        _put(random, content, random.choice([8, 12, 16, 20, 24]), ">I")
    else:
        sector, size = struct.unpack_from(">II", content, 20)
        if 512 <= sector <= 65536 and 512 <= size <= 65536 and len(content) > sector:
            records = max(1, (len(content) - sector) // (size + 8))
            _put(random, content, sector + random.randrange(records) * (size + 8), ">I")
    return content


KNOWING = {"": [header_field, page_field], "-wal": [log_field], "-journal": [journal_field], "-shm": []}


# Through SQLite: the schema and what Core Data keeps


def schema(random, path):
    """Writes rows of the schema table that no CREATE statement would."""
    return _through_sqlite(path, lambda connection: _change_schema(random, connection))


def _change_schema(random, connection):
    connection.execute("PRAGMA writable_schema = ON")
    rows = connection.execute("SELECT rowid, sql FROM sqlite_schema").fetchall()
    if not rows:
        return None
    row, sql = random.choice(rows)
    column, value = random.choice([
        ("rootpage", random.choice([0, 1, 2, 3, -1, 1 << 31, 1 << 40])), ("type", random.choice(["table", "view", "x"])),
        ("name", random.choice(["sqlite_master", "", "Z_METADATA", "a\x00b", "x" * 70000])),
        ("tbl_name", random.choice(["Z_METADATA", "note", None])),
        ("sql", random.choice([
            None, "", "CREATE", "SELECT load_extension('x')", (sql or "")[: len(sql or "") // 2],
            "CREATE VIEW v AS SELECT * FROM v", "CREATE TABLE t(" + ",".join(f"c{i}" for i in range(3000)) + ")",
            "CREATE VIRTUAL TABLE t USING nothing(x)", "CREATE TABLE t(a GENERATED ALWAYS AS (a))",
            "CREATE TRIGGER t AFTER INSERT ON note BEGIN DELETE FROM note; END",
            "CREATE TABLE t(a DEFAULT (" + "(" * 900 + "1" + ")" * 900 + "))", "CREATE TABLE note(a, a)"]))])
    connection.execute(f"UPDATE sqlite_schema SET {column} = ? WHERE rowid = ?", (value, row))
    return f"schema {column} = {str(value)[:40]}"


def record(random, path):
    """Changes Core Data's metadata property list or its compressed model: the bytes, or what they hold."""
    return _through_sqlite(path, lambda connection: _change_record(random, connection))


def _change_record(random, connection):
    table, column = random.choice([("Z_METADATA", "Z_PLIST"), ("Z_MODELCACHE", "Z_CONTENT")])
    row = connection.execute(f"SELECT {column} FROM {table}").fetchone()
    if not row or not isinstance(row[0], bytes) or not row[0]:
        return None
    content = bytearray(row[0])
    inside = random.random() < 0.7
    if inside and column == "Z_CONTENT":
        content = _deflated(property_list(random, bytearray(zlib.decompress(content, -15))))
    elif inside:
        content = property_list(random, content)
    else:
        content = random.choice([flip, cut, fill, extend])(random, content)
    connection.execute(f"UPDATE {table} SET {column} = ?", (bytes(content),))
    return f"{column}{' inside' if inside else ''}"


def _deflated(content):
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return compressor.compress(bytes(content)) + compressor.flush()


def property_list(random, content):
    """Changes a binary property list's trailer, offset table or objects; or rewrites its values."""
    choice = random.random()
    if choice < 0.3 and len(content) > 40:
        _put(random, content, len(content) - random.choice([26, 25, 24 - 4, 16 - 4, 8 - 4]), ">B")
        return content
    if choice < 0.6:
        return random.choice([flip, cut, fill, repeat])(random, content)
    try:
        values = plistlib.loads(bytes(content))
    except Exception:  # Any parser error: it can't be taken apart.
        return flip(random, content)
    for _ in range(random.choice([1, 2, 8])):
        _change_value(random, values)
    try:
        return bytearray(plistlib.dumps(values, fmt=plistlib.FMT_BINARY))
    except Exception:
        return flip(random, content)


def _change_value(random, values):
    """Replaces a nested value by another of its kind or of any kind."""
    while isinstance(values, (dict, list)) and values:
        key = random.choice(list(values)) if isinstance(values, dict) else random.randrange(len(values))
        if isinstance(values[key], (dict, list)) and values[key] and random.random() < 0.8:
            values = values[key]
            continue
        others = [0, -1, 1 << 62, 1.5, True, "", "x" * 5000, b"", bytes(32), [], {}, ["a"] * 50, plistlib.UID(0),
                  plistlib.UID(1), plistlib.UID(random.randrange(200)), plistlib.UID(1 << 30)]
        values[key] = random.choice(others)
        return


def _through_sqlite(path, change):
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return change(connection)
    except (sqlite3.Error, zlib.error, OverflowError):
        return None
    finally:
        connection.close()


# A store in Core Data's layout, if there is no real one


def make_core_data_store(directory):
    path = os.path.join(directory, stores.NAME)
    connection = sqlite3.connect(path)
    # The hashes that Core Data's rules derive from the archived model; with others, the store's own model isn't believed.
    hashes = {
        "Note": bytes.fromhex("e0426ffe2628f4b01169ae901a9db3a72002dd66f852ce63ad0c82d78e81de28"),
        "Tag": bytes.fromhex("ae5e5744a0806cf5c35f1ab4c582af74da4366e5918aa06537d618c42491aea9")}
    metadata = {
        "NSStoreType": "SQLite", "NSPersistenceFrameworkVersion": 1244, "NSStoreModelVersionHashes": hashes,
        "NSStoreModelVersionIdentifiers": ["1"], "NSStoreModelVersionHashesVersion": 3}
    connection.executescript("""
        CREATE TABLE ZNOTE (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZTEXT VARCHAR);
        CREATE TABLE ZTAG (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZNAME VARCHAR);
        CREATE TABLE Z_PRIMARYKEY (Z_ENT INTEGER PRIMARY KEY, Z_NAME VARCHAR, Z_SUPER INTEGER, Z_MAX INTEGER);
        CREATE TABLE Z_METADATA (Z_VERSION INTEGER PRIMARY KEY, Z_UUID VARCHAR(255), Z_PLIST BLOB);
        CREATE TABLE Z_MODELCACHE (Z_CONTENT BLOB);
        INSERT INTO Z_PRIMARYKEY VALUES (1, 'Note', 0, 50), (2, 'Tag', 0, 0);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50)
        INSERT INTO ZNOTE SELECT i, 1, 1, 'note ' || i FROM n;""")
    connection.execute(
        "INSERT INTO Z_METADATA VALUES (1, 'B0C9B6C2-0000-4000-8000-000000000001', ?)",
        (plistlib.dumps(metadata, fmt=plistlib.FMT_BINARY),))
    connection.execute("INSERT INTO Z_MODELCACHE VALUES (?)", (_deflated(_archived_model()),))
    connection.commit()
    connection.close()


def _archived_model():
    """Returns a keyed archive of a model with two entities, as NSKeyedArchiver writes it."""
    uid = plistlib.UID
    objects = ["$null", {"$class": uid(2), "NSEntities": uid(3), "NSVersionIdentifiers": uid(4)},
               {"$classname": "NSManagedObjectModel", "$classes": ["NSManagedObjectModel", "NSObject"]},
               {"$class": uid(5), "NS.keys": [uid(6), uid(7)], "NS.objects": [uid(8), uid(9)]},
               {"$class": uid(10), "NS.objects": [uid(11)]},
               {"$classname": "NSMutableDictionary", "$classes": ["NSMutableDictionary", "NSDictionary", "NSObject"]},
               "Note", "Tag",
               {"$class": uid(12), "NSEntityName": uid(6), "NSClassNameForEntity": uid(6), "NSProperties": uid(13)},
               {"$class": uid(12), "NSEntityName": uid(7), "NSClassNameForEntity": uid(7), "NSProperties": uid(13)},
               {"$classname": "NSSet", "$classes": ["NSSet", "NSObject"]}, "1",
               {"$classname": "NSEntityDescription", "$classes": ["NSEntityDescription", "NSObject"]},
               {"$class": uid(5), "NS.keys": [], "NS.objects": []}]
    archive = {"$version": 100000, "$archiver": "NSKeyedArchiver", "$top": {"root": uid(1)}, "$objects": objects}
    return plistlib.dumps(archive, fmt=plistlib.FMT_BINARY)


def chances(seed, number):
    """Returns the same choices for the same number, whichever others are tried."""
    return randomness.Random(f"{seed}/{number}")
