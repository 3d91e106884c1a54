"""Stores and what is in them: reads every place below a directory by SQL and file reading of its own."""
import collections, hashlib, os, re, sqlite3, struct, urllib.parse

TOKEN = re.compile(rb"tok\d+x\d+z", re.I)
MAGIC = b"SQLite format 3\0"
SIDES = ("-wal", "-journal", "-shm")
OTHER_USER = 65534
# groupstore's and Core Data's own tables, by a column: a program's own table of such a name has rows that count.
OWN = {"GS_HISTORY": "identifier", "GS_TABLE": "key_columns", "GS_CHANGE": "table_id", "GS_AUTHOR": "name",
       "GS_REPLACED": "table_id", "GS_SUBSCRIBER": "number", "Z_METADATA": "Z_UUID", "Z_PRIMARYKEY": "Z_MAX",
       "Z_MODELCACHE": "Z_CONTENT"}
TABLES = ['t(id INTEGER PRIMARY KEY, tok TEXT, p)', '"u v"(tok TEXT, p)', 'w(tok TEXT COLLATE NOCASE PRIMARY KEY, p) WITHOUT ROWID',
          'n(tok TEXT UNIQUE, p COLLATE NOCASE)', 'r(tok TEXT, p COLLATE RTRIM)', 'GS_NOTES(tok TEXT, p)', 'f_data(tok TEXT, p)',
          'Z_MODELCACHE(tok TEXT, p)', 'ACHANGE(tok TEXT, p)', 'g(tok TEXT, p, q AS (tok || typeof(p)) STORED)',
          'GS_CHANGE(tok TEXT, p)', 'd(tok TEXT, p REAL)', 'sqlite3_notes(tok TEXT, p)']
NAMES = ["N.sqlite", "N.db", "a b'c\".sqlite", ".notes", "N", "n.SQLITE", "\udcff\udcfe.sqlite", "L" + "ong" * 60 + ".db", "-x.sqlite",
         "N.sqlite.sqlite", "%s*?.db", "Ü.sqlite", "about.json.sqlite", "archive.db"]
MODEL = """<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<model type="com.apple.IDECoreDataModeler.DataModel" documentVersion="1.0" lastSavedToolsVersion="1" systemVersion="1"
 minimumToolsVersion="Automatic" sourceLanguage="Swift" userDefinedModelVersionIdentifier="">
 <entity name="Note" representedClassName="Note" syncable="YES"><attribute name="tok" optional="YES" attributeType="String"/>%s
  <attribute name="photo" optional="YES" attributeType="Binary" allowsExternalBinaryDataStorage="YES"/></entity></model>"""
EXTRA = '<attribute name="extra" optional="YES" attributeType="String"/>'
PAYLOADS = [None, 0, 1, -1, 2**53 + 1, 2**63 - 1, 0.0, -0.0, 1.0, 9007199254740992.0, "a", "A", "a ", "x\0y", "", b"", b"a",
            "ä", "a\u0308", "1", "1.0", "big" * 9000, b"\xff" * 5000]
# Small changes after which a careless comparison finds two stores equal. {} is the table.
TWINS = ["UPDATE {} SET p = CAST(p AS REAL) WHERE typeof(p) = 'integer'", "UPDATE {} SET p = CAST(p AS INTEGER) WHERE typeof(p) = 'real'",
         "UPDATE {} SET p = CAST(p AS BLOB) WHERE typeof(p) = 'text'", "UPDATE {} SET p = CAST(p AS TEXT) WHERE typeof(p) = 'blob'",
         "UPDATE {} SET p = CAST(p AS TEXT) WHERE typeof(p) = 'integer'", "UPDATE {} SET p = p || ' ' WHERE typeof(p) = 'text'",
         "UPDATE {} SET p = upper(p) WHERE typeof(p) = 'text'", "UPDATE {} SET tok = upper(tok)", "UPDATE {} SET p = NULL WHERE p = ''",
         "UPDATE {} SET p = CAST(CAST(p AS BLOB) || x'0041' AS TEXT) WHERE typeof(p) = 'text'", "UPDATE {} SET p = '' WHERE p IS NULL",
         "UPDATE {} SET p = p + 1 WHERE p > 9007199254740000", "UPDATE {} SET p = 0 - p WHERE p = 0 AND typeof(p) = 'real'",
         "DELETE FROM {} WHERE tok = (SELECT min(tok) FROM {})", 'INSERT INTO "u v" (tok, p) SELECT tok, p FROM "u v" LIMIT 1',
         'DELETE FROM "u v" WHERE rowid = (SELECT min(rowid) FROM "u v" AS o GROUP BY tok HAVING count(*) > 1)']
CHANGING = "renameat2,renameat,rename,unlinkat,unlink,rmdir,mkdirat,linkat,symlinkat,fsync,fdatasync,ftruncate"
CALLS = [CHANGING, CHANGING, "unlinkat,unlink,rmdir", "renameat2", "fcntl", "fsync,fdatasync", "openat,openat2", "pwrite64,write",
         "pread64,read", "close", "newfstatat,statx,fstat"]
ACCIDENTS = """drop drop emptied truncate half page twin twin twin replace overwrite support support backup link stray stray note
 clone copy copy copy symlink symlink owner mode times immutable remove lock_file bind bind database_gone""".split()

Content = collections.namedtuple("Content", "items damaged raw")    # rows and files; is it damaged; the tokens in its bytes
# parent: the directory's device and inode; doubled: a database with several names and a log beside one of them
Place = collections.namedtuple("Place", "path kind content inode store parent doubled", defaults=[False])
Result = collections.namedtuple("Result", "code lines error killed stopped")


class Problem(Exception):
    pass


def support(path):
    name = os.path.basename(path)
    dot = name.rfind(".")
    return os.path.join(os.path.dirname(path), ".%s_SUPPORT" % (name if dot <= 0 else name[:dot]))


def tokens_of(items):
    return {token for item in items for token in TOKEN.findall(repr(item).encode())}


def sha(data):
    return hashlib.sha1(data).hexdigest()[:16]


def identity(path):
    status = os.lstat(path)
    return (status.st_dev, status.st_ino)


def files_in(folder):
    return [os.path.join(top, name) for top, _, names in os.walk(folder) for name in names]


def read_file(path):
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
        return file.read()


def put(path, data, times=None):
    """Writes over a file as `cp` does: the same inode, and the given times."""
    with open(path, "wb") as file:
        file.write(data)
    if times:
        os.utime(path, ns=times)


def remove_set(path):
    for name in [path + side for side in ("",) + SIDES]:
        if os.path.lexists(name):
            os.unlink(name)


def connect(path, mode="rw", timeout=1.0):
    uri = "file:%s?mode=%s" % (urllib.parse.quote(os.fsencode(path)), mode)
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=timeout)
    connection.text_factory = bytes
    return connection


def quote(name):
    return '"%s"' % name.replace('"', '""')


def tables(connection):
    """The tables with tokens, with their columns."""
    found = []
    for _, name, kind, *_ in connection.execute("PRAGMA main.table_list").fetchall():
        columns = [c[1].decode() for c in connection.execute("PRAGMA table_xinfo(%s)" % quote(name.decode()))]
        if kind in (b"table", b"virtual") and ("tok" in columns or name == b"ZNOTE"):
            found.append((name.decode(), columns))
    return found


class Reader:
    """Reads places, over copies. What it read is kept for as long as the files' identities, sizes and times are the same."""

    def __init__(self, scratch):
        self.scratch, self.cache, self.last = scratch, {}, {}

    def store(self, path):
        def mark(name):
            try:
                status = os.lstat(name)
                return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            except OSError:
                return None
        key = tuple(mark(path + side) for side in ("", "-wal", "-journal"))
        if key not in self.cache:
            try:
                self.cache[key] = self.read(path)
            except BlockingIOError:     # groupstore has a lease on it: nobody can have changed it since the last look
                return self.last.get(key[0][:2], Content(frozenset(), False, frozenset()))
            self.last[key[0] and key[0][:2]] = self.cache[key]
        return self.cache[key]

    def read(self, path):
        copy, data = self.scratch + "/copy.db", b""
        remove_set(copy)
        for side in ("", "-wal", "-journal"):
            if os.path.isfile(path + side) and not os.path.islink(path + side):
                part = read_file(path + side)
                put(copy + side, part)
                data += part
        rows, damaged = collections.Counter(), False
        # Pages of a log or a journal stand for those of the database, whose tokens then don't count.
        shadowed = any(os.path.exists(copy + side) and os.path.getsize(copy + side) for side in ("-wal", "-journal"))
        try:
            connection = connect(copy)
            for _, name, kind, *_ in connection.execute("PRAGMA main.table_list").fetchall():
                name = name.decode("utf-8", "surrogateescape")
                if kind not in (b"table", b"virtual") or name.startswith("sqlite_"):
                    continue
                columns = [c[1].decode() for c in connection.execute("PRAGMA table_xinfo(%s)" % quote(name)) if c[6] != 1]
                if OWN.get(name) in columns:
                    continue
                try:
                    for row in connection.execute("SELECT %s FROM %s" % (
                            ", ".join("typeof(%s), %s" % (quote(c), quote(c)) for c in columns), quote(name))):
                        rows[(name,) + tuple(self.value(v) for v in row)] += 1
                except sqlite3.Error:
                    damaged = True
            damaged = damaged or connection.execute("PRAGMA integrity_check(1)").fetchone()[0] != b"ok"
            connection.close()
        except sqlite3.Error:
            damaged = True
        items = frozenset(("row", row, n) for row, count in rows.items() for n in range(count))
        return Content(items, damaged, frozenset(TOKEN.findall(data)) if damaged and not shadowed else frozenset())

    @staticmethod
    def value(value):
        if isinstance(value, float):
            return struct.pack(">d", value)
        return (len(value), sha(value), value[:24]) if isinstance(value, bytes) and len(value) > 64 else value

    @staticmethod
    def folder(path):
        return frozenset(("file", os.path.relpath(file, path), sha(data), data[:24]) for file in files_in(path)
                         if os.path.isfile(file) and not os.path.islink(file) for data in [read_file(file)] if data)

    @staticmethod
    def is_database(path):
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
                return file.read(16) == MAGIC
        except BlockingIOError:
            return True
        except OSError:
            return False

    @staticmethod
    def removing(parts):
        """Whether this is below a directory in which `group remove` keeps what it removes, and its record."""
        return any(re.fullmatch(r"\..+\.removing-[^/]+(\.records)?", p) or p == ".groupstore-removal" for p in parts)

    def scan(self, root):
        """All places below a directory: stores with their folders, folders without a store, other files."""
        places = []
        for top, directories, files in os.walk(root):
            parts, kind, record = top[len(root):].split("/"), "plain", None
            if ".groupstore" in parts:
                below = parts[parts.index(".groupstore") + 1:] or [""]
                record = below[0]
                kind = {"archive": "archive", "staging": "staging"}.get(record, "record")
                if kind == "archive" and len(below) > 1 and below[1].endswith(".purged"):
                    kind = "purging"
            elif any(p.startswith(".") and p.endswith(".removed") for p in parts) or self.removing(parts):
                kind = "purging"
            elif any(p.startswith(".groupstore-") for p in parts):
                kind = "hidden"
            folders = {d for d in directories if d.startswith(".") and d.endswith("_SUPPORT")
                       and not os.path.islink(os.path.join(top, d))}
            parent, used = identity(top), set()

            def add(path, items, store=False, damaged=False, raw=frozenset()):
                here = "hidden" if os.path.basename(path).startswith(".groupstore-") else kind
                places.append(Place(path, here, Content(items, damaged, raw), identity(path), store, parent))
            for name in files:
                path = os.path.join(top, name)
                if os.path.islink(path) or not os.path.isfile(path) or not os.path.getsize(path) or name.endswith("-shm"):
                    continue
                if name == "about.json" or (record is not None or self.removing(parts)) and (
                        name.endswith((".json", ".json.new", ".lock")) or name == "lock"):
                    continue        # groupstore's own records
                if name.startswith(".groupstore-") and name.endswith("-rollback"):
                    continue        # a second name of the journal that SQLite rolls back
                if name.endswith("-journal") and not any(read_file(path)[:28]):
                    continue        # its header is zeros: its transaction was committed, and it holds nothing
                base = next((name[:-len(s)] for s in SIDES if name.endswith(s)), None)
                if base in files and self.is_database(os.path.join(top, base)):
                    continue
                if self.is_database(path):
                    content, folder = self.store(path), os.path.basename(support(path))
                    used.add(folder)
                    items = content.items | (self.folder(support(path)) if folder in folders else frozenset())
                    add(path, items, True, content.damaged, content.raw)
                else:
                    data = read_file(path)
                    add(path, frozenset([("blob", sha(data), data[:24])]))
            for name in folders - used:
                items = self.folder(os.path.join(top, name))
                if items:
                    add(os.path.join(top, name), items)
            directories[:] = [d for d in directories if d not in folders]
        # Under a second name of a database, by a link or a mount, a program doesn't see the log or journal that is beside
        # another name: what it shows there isn't what was committed.
        logs = collections.defaultdict(list)
        for place in places:
            if place.store:
                logs[place.inode].append(any(os.path.exists(place.path + side) and os.path.getsize(place.path + side)
                                             for side in ("-wal", "-journal")))
        return [place._replace(doubled=len(logs[place.inode]) > 1 and any(logs[place.inode])) for place in places]
