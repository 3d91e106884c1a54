"""Class data: tests rows that no Core Data app wrote, and foreign content in the same file.

Section 4.3, invariant 1: every value of every kept column is unchanged. Formats, "A migrated store": rows of unknown
entities stay; foreign tables, triggers, views and indexes stay or are named as dropped; history is the new model's.
"""

import os
import shutil

import oracle
from doors import copy_store, try_doors
from history import History
from model import NUMBERS, TYPES, Attribute, Entity, Layout, Model, Relationship
from pairs import make_store
from program import connect, plain
from store import DERIVING, quoted, read, same

ODD_TEXTS = [
    b"",
    b"abc",
    b"12abc",
    b" 12",
    b"a\0b",
    b"\0",
    b"\xff\xfe",
    b"\xc3\x28",
    "e\u0301\u00e9\u2603".encode(),
    b"0x10",
    b"1e999",
    b"nan",
    b"inf",
    b"-0.0",
    b"NULL",
    b"'); DROP TABLE ZITEM; --",
    b"9223372036854775808",
]
ODD_NUMBERS = [
    0,
    1,
    -1,
    2**31,
    2**53 + 1,
    2**63 - 1,
    -(2**63),
    0.0,
    -0.0,
    0.1,
    1e308,
    5e-324,
    float("inf"),
    float("-inf"),
    700000000.0,
    1.5,
    9007199254740993.0,
    123456789012345680.0,
]
ODD_BLOBS = [b"", b"\0", b"\1", b"\1abc", b"\2", b"\3abc", b"bplist00", b"12", b"\2not-a-uuid\0", bytes(range(256))]


def odd(rng, connection):
    """Returns SQL and parameters for a value of any storage class."""
    what = rng.randrange(4)
    if what == 0:
        return "CAST(? AS TEXT)", rng.choice(ODD_TEXTS) if rng.random() < 0.97 else b"x" * 300_000
    if what == 1:
        return "?", rng.choice(ODD_NUMBERS)
    return "?", rng.choice(ODD_BLOBS) if what == 2 else None


def base_model(rng, derived=False):
    kinds = [k for k in TYPES if k != "Composite"]
    attributes = [Attribute("a" + k.replace(" ", ""), k) for k in rng.sample(kinds, rng.randint(4, len(kinds)))]
    attributes.append(Attribute("title"))
    attributes += [Attribute("ext", "Binary", external=True)] if rng.random() < 0.5 else []
    item = Entity(
        "Item",
        *attributes,
        Relationship("tags", "Tag", "items", True, rng.random() < 0.5),
        Relationship("owner", "Owner", "owned"),
    )
    tag = Entity("Tag", Attribute("name"), Relationship("items", "Item", "tags", True))
    owner = Entity(
        "Owner",
        Attribute("name"),
        Attribute("size", "Double"),
        Attribute("gone"),
        Relationship("owned", "Item", "owner", True, rng.random() < 0.5),
    )
    special = Entity("Special", Attribute("extra"), Attribute("title1", "Integer 32"), parent="Item")
    model = Model(item, tag, owner, special)
    for name in ("title", "name", "gone", "extra"):  # history keeps some of them when an object is deleted
        for e in model.entities.values():
            for a in e.attributes():
                a.preserved = a.preserved or (a.name == name and rng.random() < 0.5)
    if derived:
        owner.properties.append(Attribute("counted", "Integer 64", derived="owned.@count"))
    return model


def next_model(rng, old):
    """Draws a change by its effect on the tables: nothing, a column appended, renamed, or the table rebuilt."""
    new, steps = old.copy(), []
    for what in rng.sample(
        [
            "append",
            "append-default",
            "rename",
            "drop",
            "renumber",
            "rename-entity",
            "order",
            "child",
            "hash",
            "reuse",
            "drop-child",
            "number",
        ],
        rng.randint(1, 3),
    ):
        item, owner = next(e for e in new.entities.values() if e.identity == "Item"), new["Owner"]
        if what == "append":
            item.properties.append(Attribute("added"))
        elif what == "append-default":
            item.properties.append(Attribute("filled", "Integer 32", default="7"))
        elif what == "rename":
            a = rng.choice([a for a in item.attributes() if not a.ident])
            a.ident, a.name = a.name, "renamed"
        elif what == "drop":
            item.properties.remove(rng.choice([a for a in item.attributes() if a.name != "title"]))
        elif what == "renumber":
            new.add(Entity("Aaa", Attribute("n")))
        elif what == "rename-entity":
            item.ident, item.name = "Item", "Thing"
            new.entities = {e.name: e for e in new.entities.values()}
            for e in new.entities.values():
                e.parent = "Thing" if e.parent == "Item" else e.parent
                for r in e.relationships():
                    r.dest = "Thing" if r.dest == "Item" else r.dest
        elif what == "order":
            r = next(p for p in owner.relationships() if p.name == "owned")
            r.ordered = not r.ordered
        elif what == "child":
            new.add(Entity("Sub", Attribute("extra2", default="x"), parent="Owner"))
        elif what == "hash":
            owner.modifier = "2"
        elif what == "reuse":
            owner.properties = [p for p in owner.properties if p.name != "gone"]
            owner.properties.append(Attribute("gone", "String", ident="other", default="fresh"))
        elif what == "number":  # any number may become any other: 4.2
            numbers = [a for e in new.entities.values() for a in e.attributes() if a.type in NUMBERS]
            if numbers:
                rng.choice(numbers).type = rng.choice(NUMBERS)
        elif what == "drop-child" and "Special" in new.entities:
            del new.entities["Special"]
        steps.append(what)
    return new, steps


# Changes to the store before the migration. Each returns a check of the migrated store. ----------------------------


def odd_values(round, connection, model, layout):
    rng = round.rng
    for name in model.entities:
        for a in model[name].attributes():
            if a.transient or a.derived or a.external and rng.random() < 0.5:
                continue
            column = layout.column[(name, (a.name,))]
            family = ",".join(str(layout.ids[x]) for x in model.family(name))
            rows = connection.execute(f"SELECT Z_PK FROM {layout.table(name)} WHERE Z_ENT IN ({family})").fetchall()
            for (key,) in rows:
                if rng.random() < 0.6:
                    sql, parameter = odd(rng, connection)
                    connection.execute(
                        f"UPDATE {layout.table(name)} SET {column} = {sql} WHERE Z_PK = ?", (parameter, key)
                    )


def odd_keys(round, connection, model, layout):
    """Makes NULL and huge Z_OPT, gaps in Z_PK, and a Z_MAX that is too low."""
    rng = round.rng
    for table in sorted({layout.table(n) for n in model.entities}):
        connection.execute(f"UPDATE {table} SET Z_OPT = NULL WHERE Z_PK % 2 = ?", (rng.randrange(2),))
    if rng.random() < 0.5:
        connection.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = ? WHERE Z_SUPER = 0", (rng.choice([0, 1, None]),))
    top = rng.choice([10**6, 2**31 + 1, 2**53 + 2, 2**63 - 2])
    connection.execute("INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (?, ?, 1, 'far')", (top, layout.ids["Tag"]))
    connection.execute("UPDATE ZITEM SET ZOWNER = NULL WHERE Z_PK = 1")


def unknown_rows(round, connection, model, layout):
    """Adds rows whose Z_ENT is no entity's, or NULL."""
    rng = round.rng
    for table, name in (("ZITEM", "ZTITLE"), ("ZOWNER", "ZNAME")):
        for key, number in ((5001, rng.choice([0, 99, -1, 16001])), (5002, None), (5003, "text")):
            connection.execute(
                f"INSERT INTO {table} (Z_PK, Z_ENT, Z_OPT, {name}) VALUES (?, ?, 3, 'stray')", (key, number)
            )


def check_unknown(round, source, target, expected, answer):
    """Checks Formats: "Rows whose entity number is none of the model's stay as they are"."""
    old, new, layout, later = expected.old, expected.new, Layout(expected.old), Layout(expected.new)
    b = connect(target)
    for (root, key), row in read(round.path("look", "S.sqlite"), old, layout).unknown.items():
        if root not in expected.later:
            continue
        there = b.execute(f"SELECT * FROM {quoted(later.table(expected.later[root]))} WHERE Z_PK = ?", (key,))
        names, got = [d[0] for d in there.description], there.fetchone()
        if got is None:
            round.problem("unknown-row-lost", f"{root} {key} of Z_ENT {row['Z_ENT']}; notes {answer.notes}")
            continue
        got = dict(zip(names, got))
        for column in ("Z_ENT", "Z_OPT", "ZTITLE" if root == "Item" else "ZNAME"):
            if column in got and not same(got[column], row[column]):
                round.problem("unknown-row-changed", f"{root} {key}: {column} {row[column]!r} became {got[column]!r}")
    b.close()


FOREIGN = [
    (
        "table",
        "mine",
        ["CREATE TABLE mine (a, b TEXT)", "INSERT INTO mine(rowid, a, b) VALUES (7, 1, 'x'), (9, x'00', NULL)"],
    ),
    (
        "table",
        "auto",
        [
            "CREATE TABLE auto (id INTEGER PRIMARY KEY AUTOINCREMENT, t)",
            "INSERT INTO auto VALUES (41, 'x')",
            "DELETE FROM auto",
            "INSERT INTO auto(t) VALUES ('y')",
        ],
    ),
    (
        "table",
        "norow",
        ["CREATE TABLE norow (k TEXT PRIMARY KEY, v) WITHOUT ROWID", "INSERT INTO norow VALUES ('a', 1), ('b', 2.5)"],
    ),
    (
        "table",
        "gen",
        ["CREATE TABLE gen (a, b AS (a * 2) STORED, c AS (a || 'x'))", "INSERT INTO gen(a) VALUES (4), ('t')"],
    ),
    (
        "table",
        "od d'\"t",
        ['CREATE TABLE "od d\'""t" ("a b" INTEGER DEFAULT 7, "se""lect")', 'INSERT INTO "od d\'""t" VALUES (1, 2)'],
    ),
    ("table", "Z_LOG", ["CREATE TABLE Z_LOG (a)", "INSERT INTO Z_LOG VALUES (1)"]),
    (
        "table",
        "Z_9THINGS",
        [
            "CREATE TABLE Z_9THINGS (Z_9A INTEGER, Z_1B INTEGER, PRIMARY KEY (Z_9A, Z_1B))",
            "INSERT INTO Z_9THINGS VALUES (1, 2)",
        ],
    ),
    (
        "table",
        "ZOTHER",
        [
            "CREATE TABLE ZOTHER (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZA)",
            "INSERT INTO ZOTHER VALUES (1, 1, 1, 'x')",
        ],
    ),
    ("table", "_T_ZITEM", ["CREATE TABLE _T_ZITEM (a)", "INSERT INTO _T_ZITEM VALUES ('theirs')"]),
    (
        "table",
        "_T_ZOWNER",
        ["CREATE TABLE _T_ZOWNER (Z_PK INTEGER PRIMARY KEY, ZNAME)", "INSERT INTO _T_ZOWNER VALUES (1, 'theirs')"],
    ),
    ("table", "_T_ZTHING", ["CREATE TABLE _T_ZTHING (a)", "INSERT INTO _T_ZTHING VALUES ('theirs')"]),
    ("table", "ZAAA", ["CREATE TABLE ZAAA (a)", "INSERT INTO ZAAA VALUES ('theirs')"]),
    ("table", "ZTHING", ["CREATE TABLE ZTHING (a)", "INSERT INTO ZTHING VALUES ('theirs')"]),
    (
        "table",
        "child",
        [
            "CREATE TABLE child (id INTEGER PRIMARY KEY,"
            " item REFERENCES ZITEM(Z_PK) ON DELETE CASCADE ON UPDATE SET NULL)",
            "INSERT INTO child SELECT Z_PK, Z_PK FROM ZITEM",
        ],
    ),
    ("table", "strict", ["CREATE TABLE strict (a INT, b BLOB) STRICT", "INSERT INTO strict VALUES (1, x'0102')"]),
    (
        "table",
        "fts",
        ["CREATE VIRTUAL TABLE fts USING fts5(body)", "INSERT INTO fts(rowid, body) VALUES (3, 'hello world')"],
    ),
    ("view", "seen", ["CREATE VIEW seen AS SELECT Z_PK, ZTITLE FROM ZITEM"]),
    ("view", "all", ['CREATE VIEW "all" AS SELECT * FROM ZITEM JOIN ZOWNER ON ZITEM.ZOWNER = ZOWNER.Z_PK']),
    ("view", "ZAAA", ["CREATE VIEW ZAAA AS SELECT 1"]),
    ("index", "theirs", ["CREATE INDEX theirs ON ZITEM (ZTITLE)"]),
    ("index", "Z_Item_byTitle", ["CREATE INDEX Z_Item_byTitle ON ZITEM (ZTITLE, Z_PK)"]),
    ("index", "ZITEM_ZTITLE_INDEX", ["CREATE INDEX ZITEM_ZTITLE_INDEX ON ZITEM (ZTITLE DESC)"]),
    ("index", "partial", ["CREATE INDEX partial ON ZOWNER (ZNAME) WHERE ZNAME IS NOT NULL"]),
    ("index", "expr", ["CREATE INDEX expr ON ZOWNER (lower(ZNAME))"]),
    ("index", "ZAAA", ["CREATE INDEX ZAAA ON ZOWNER (ZNAME)"]),
    (
        "trigger",
        "logit",
        [
            "CREATE TABLE logged (t)",
            "CREATE TRIGGER logit AFTER UPDATE ON ZITEM BEGIN INSERT INTO logged VALUES ('u'); END",
        ],
    ),
    (
        "trigger",
        "onins",
        [
            "CREATE TABLE logged (t)",
            "CREATE TRIGGER onins AFTER INSERT ON ZITEM BEGIN INSERT INTO logged VALUES (new.Z_PK); END",
        ],
    ),
    (
        "trigger",
        "ondel",
        [
            "CREATE TABLE logged (t)",
            "CREATE TRIGGER ondel AFTER DELETE ON ZITEM BEGIN INSERT INTO logged VALUES (old.Z_PK); END",
        ],
    ),
    ("trigger", "guard", ["CREATE TRIGGER guard BEFORE UPDATE ON ZOWNER BEGIN SELECT RAISE(ABORT, 'read only'); END"]),
    ("trigger", "ignore", ["CREATE TRIGGER ignore BEFORE UPDATE ON ZITEM BEGIN SELECT RAISE(IGNORE); END"]),
    ("trigger", "noinsert", ["CREATE TRIGGER noinsert BEFORE INSERT ON ZITEM BEGIN SELECT RAISE(IGNORE); END"]),
    (
        "trigger",
        "unknown",
        ["CREATE TRIGGER unknown AFTER UPDATE OF ZTITLE ON ZITEM BEGIN SELECT nosuchfunction(new.ZTITLE); END"],
    ),
    ("trigger", "joined", ["CREATE TRIGGER joined AFTER INSERT ON Z_2TAGS BEGIN SELECT RAISE(ABORT, 'no'); END"]),
    (
        "trigger",
        "Z_DA_mine",
        [
            "CREATE TABLE logged (t)",
            "CREATE TRIGGER Z_DA_mine AFTER UPDATE ON ZITEM BEGIN INSERT INTO logged VALUES ('da'); END",
        ],
    ),
]


def foreign_rows(connection):
    """Returns the rows of tables that aren't Core Data's, with their row numbers if they have any."""
    found = {}
    names = [
        plain(r[0])
        for r in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        ).fetchall()
    ]
    for name in names + ["sqlite_sequence"]:
        try:
            found[name] = sorted(map(repr, connection.execute(f"SELECT rowid, * FROM {quoted(name)}").fetchall()))
        except Exception:
            try:
                found[name] = sorted(map(repr, connection.execute(f"SELECT * FROM {quoted(name)}").fetchall()))
            except Exception:
                pass
    return found


def schema(connection):
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    return {(plain(t), plain(n)): plain(s) for t, n, s in rows}


def others(round, connection, model, layout):
    """Adds foreign content to the file; returns the foreign tables and what was made."""
    before = set(schema(connection))
    chosen = round.rng.sample(FOREIGN, round.rng.choice([1, 1, 2, 3]))
    if len(round.hand) > 0:
        chosen = round.hand
    for _, name, statements in chosen:
        for statement in statements:
            try:
                connection.execute(statement)
            except Exception as error:
                if "already" not in str(error) and "no such table" not in str(error):
                    raise
    round.title += " +" + "+".join(n for _, n, _ in chosen)
    return {k: v for k, v in schema(connection).items() if k not in before}


def check_others(round, source, target, made, rows, expected, answer):
    connection = connect(target)
    try:
        after, now = schema(connection), foreign_rows(connection)
    finally:
        connection.close()
    for (kind, name), sql in made.items():
        if kind == "table":
            if (kind, name) not in after:
                round.problem("foreign-table-lost", f"{name}; notes {answer.notes}")
            elif now.get(name) != rows.get(name):
                round.problem("foreign-rows-changed", f"{name}: {rows.get(name)} became {now.get(name)}")
        elif (kind, name) not in after and not any(name in n for n in answer.notes):
            round.problem(f"foreign-{kind}-lost", f"{name} is gone, and no note names it: {sql}; notes {answer.notes}")
    if "sqlite_sequence" in rows and rows["sqlite_sequence"] != now.get("sqlite_sequence"):
        round.problem(
            "foreign-rows-changed", f"sqlite_sequence: {rows['sqlite_sequence']} became {now.get('sqlite_sequence')}"
        )


def needs_name_of(new, made):
    """Returns whether the new model's tables need a name that foreign content has: that may be refused."""
    layout = Layout(new)
    wanted = {t.upper() for t in [*layout.tables, *layout.joins]}
    return any(name.upper() in wanted for _, name in made)


def leave_log(round, path):
    """Leaves the store as a killed program does: committed transactions in the -wal alone (section 1.1)."""
    connection = connect(path, "rw")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute(
        "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT, ZNAME) SELECT 900, Z_ENT, 1, 'in the log' FROM ZTAG LIMIT 1"
    )
    connection.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = max(Z_MAX, 900) WHERE Z_NAME = 'Tag'")
    parts = [path, path + "-wal"]
    for part in parts:
        shutil.copy(part, part + "_")
    connection.close()
    for part in parts:
        os.replace(part + "_", part)
    round.commands.append("# S.sqlite-wal holds committed transactions")


def run(round):
    rng = round.rng
    kinds = {
        "values": rng.random() < 0.75,
        "keys": rng.random() < 0.3,
        "unknown": rng.random() < 0.25,
        "others": rng.random() < 0.5,
        "history": rng.random() < 0.3,
    }
    round.hand = []
    if round.number < len(FOREIGN):
        kinds, round.hand = {"values": False, "keys": False, "unknown": False, "others": True, "history": False}, [
            FOREIGN[round.number]
        ]
    old = base_model(rng, derived=rng.random() < 0.15)
    new, steps = next_model(rng, old)
    while old.hashes() == new.hashes() or new.fault():
        new, steps = next_model(rng, old)
    round.title = "+".join(k for k, v in kinds.items() if v) + ": " + ",".join(steps)
    round.described = old.xml() + "\n\n" + new.xml()
    if make_store(round, old) is None:
        return
    layout, path = Layout(old), round.path("S.sqlite")
    connection = connect(path, "rw")
    for function in DERIVING:
        connection.create_function(function, 5, lambda *arguments: None)
    history, made = None, {}
    if kinds["values"]:
        odd_values(round, connection, old, layout)
    if kinds["keys"]:
        odd_keys(round, connection, old, layout)
    if kinds["unknown"]:
        unknown_rows(round, connection, old, layout)
    if kinds["history"]:
        history = History(rng, connection, old, layout)
    if kinds["others"]:
        made = others(round, connection, old, layout)
    rows = foreign_rows(connection)
    connection.close()
    if not round.hand and rng.random() < 0.25:
        round.title += ", with a log that nobody checkpointed"
        leave_log(round, path)
    state = read(copy_store(round, "look"), old, layout)  # opening the store itself would touch side files
    expected = oracle.Expected(state, old, new)
    why = oracle.refusals(old, new)
    must = False if why or expected.certain else None if expected.doubtful or needs_name_of(new, made) else True
    options = []
    if history and history.loses(new):
        if rng.random() < 0.5:
            options = ["--allow-partial-history"]
        else:
            must = False  # 4.3: an entity with history isn't removed
    if kinds["keys"] or "guard" in round.title:
        must = None if must else must  # a key near the highest number leaves none for the next object
    foreign = {n for k, n in made if k == "table"} | (history.tables if history else set())
    foreign |= {n for n in rows if n.startswith(("fts_", "sqlite_"))} | {"logged", "fts"}
    round.foreign_ids = history.ids if history else set()
    target = round.path("T.sqlite")
    check = not (history and history.loses(new))  # `model check` has no --allow-partial-history
    answer = try_doors(
        round,
        round.write_model("B", new),
        None if why else expected,
        options,
        foreign,
        must,
        check=check or not options,
    )
    round.outcome = f"{must}, exit {answer.code}"
    if answer.code or why:
        return
    if kinds["unknown"]:
        check_unknown(round, path, target, expected, answer)
    if made:
        check_others(round, path, target, made, rows, expected, answer)
    if history:
        history.check(round, target, expected)
