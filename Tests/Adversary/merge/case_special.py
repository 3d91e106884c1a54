"""What else is in a store: triggers, generated columns, views, full-text search, constraints that only the union
violates, refusals, names, history, and many rows. Each round takes one."""

import os
import sqlite3

import schemas
import stores
from check import merged
from oracle import GROUP, LEGACY, Column, Table
from program import demand


def pair(stage, chance, schema, group, legacy, settings=("", "")):
    """Makes two stores by statements; `schema` is a text, or one for each side."""
    schema = (schema, schema) if isinstance(schema, str) else schema
    for path, own, statements, setting in zip(
        (stage.group_store, stage.legacy_store), schema, (group, legacy), settings
    ):
        connection = stores.connected(path)
        connection.executescript(setting + own)
        connection.executescript("BEGIN;" + ";".join(statements) + ";COMMIT")
        state = stores.finish(connection, chance)
        if not isinstance(state, str):
            stores.leave(connection, path)
    stage.remember()


def result(stage, sql):
    connection = stores.connected(stage.group_store)
    try:
        return [
            tuple(bytes(v).decode() if isinstance(v, stores.Text) else v for v in row)
            for row in connection.execute(sql)
        ]
    finally:
        connection.close()


def succeeds(stage, *more, members=()):
    dry = stage.dry_run(*more)
    demand(dry.code == 0, f"the dry run was refused: {dry}")
    run = stage.run(*more)
    demand(run.code == 0 and run.summary["outcome"] == "merged", f"not merged: {run}")
    demand(run.plan() == dry.plan(), "the dry run's plan isn't the run's")
    for member, number in members:
        demand(run.summary["merge"][member] == number, f"{member} is not {number}: {run}")
    stage.archived(run)
    demand(result(stage, "PRAGMA integrity_check") == [("ok",)], "integrity_check")
    return run


def same(stage, sql, expected):
    found = sorted(result(stage, sql), key=repr)
    demand(found == sorted(expected, key=repr), f"{sql}: {found}, not {expected}")


def triggers(stage, chance):
    """Triggers don't fire, and are in the result as they were."""
    schema = (
        "CREATE TABLE a(id INTEGER PRIMARY KEY, k UNIQUE, v); CREATE TABLE log(x);"
        "CREATE TRIGGER i AFTER INSERT ON a BEGIN INSERT INTO log VALUES('i'||new.id); END;"
        "CREATE TRIGGER u BEFORE UPDATE ON a BEGIN INSERT INTO log VALUES('u'||old.id); SELECT RAISE(ABORT, 'no'); END;"
        "CREATE TRIGGER d AFTER DELETE ON a BEGIN DELETE FROM log; END;"
        "CREATE VIEW seen AS SELECT * FROM a;"
        "CREATE TRIGGER w INSTEAD OF INSERT ON seen BEGIN SELECT RAISE(ABORT, 'no'); END;"
    )
    pair(
        stage,
        chance,
        schema,
        ["INSERT INTO a VALUES(1,'x',1)", "INSERT INTO a VALUES(2,'y',2)"],
        ["INSERT INTO a VALUES(1,'y',3)", "INSERT INTO a VALUES(9,'z',4)"],
    )
    succeeds(stage, "--merge-key", "a=k", "--merge-key", "log=*", "--prefer", "legacy", members=[("renumbered", 1)])
    same(stage, "SELECT * FROM a", [(1, "x", 1), (2, "y", 3), (9, "z", 4)])
    same(stage, "SELECT * FROM log", [("i1",), ("i2",), ("i9",)])
    demand(stores.content(stage.group_store)["schema"] == stage.original["schema"], "the schema changed")


def generated(stage, chance):
    """Generated columns follow, and aren't compared; a key may be one, or be unique."""
    schema = (
        "CREATE TABLE a(id INTEGER PRIMARY KEY, k TEXT, v INT, g AS (v * 2) STORED, h AS (k || id) VIRTUAL);"
        "CREATE INDEX p ON a(v) WHERE v > 1; CREATE INDEX e ON a(lower(k)); CREATE UNIQUE INDEX q ON a(h);"
    )
    pair(
        stage,
        chance,
        schema,
        ["INSERT INTO a(id,k,v) VALUES(1,'x',1),(2,'y',2)"],
        ["INSERT INTO a(id,k,v) VALUES(5,'x',1),(2,'z',2),(7,'y',8)"],
    )
    succeeds(
        stage, "--merge-key", "a=k", "--prefer", "newer:v", members=[("equal", 1), ("different", 1), ("renumbered", 3)]
    )
    same(stage, "SELECT k, v, g, h = k || id FROM a", [("x", 1, 2, 1), ("y", 8, 16, 1), ("z", 2, 4, 1)])


def search(stage, chance):
    """Full-text search, with external content and with its own."""
    module = chance.choice(
        ["fts5(t, content='a', content_rowid='id')", "fts4(content='a', t)", "fts5(t)", "fts4(t)", "fts3(t)"]
    )
    external = "content" in module
    schema = f"CREATE TABLE a(id INTEGER PRIMARY KEY, k TEXT, t TEXT); CREATE VIRTUAL TABLE f USING {module};"

    def rows(*ids):
        return [f"INSERT INTO a VALUES({i},'k{i}','word{i} common')" for i in ids] + [
            f"INSERT INTO f(rowid, t) VALUES({i},'word{i} common')" for i in ids
        ]

    pair(stage, chance, schema, rows(1, 2, 3), rows(2, 3, 40, 50))
    if external and chance.random() < 0.5:
        succeeds(stage, "--merge-key", "a=k")
    else:
        succeeds(stage)
    same(stage, "SELECT rowid FROM f WHERE f MATCH 'common'", [(i,) for i in (1, 2, 3, 40, 50)])
    same(stage, "SELECT rowid FROM f WHERE f MATCH 'word40'", [(40,)])
    connection = stores.connected(stage.group_store)
    connection.execute("INSERT INTO f(f) VALUES('integrity-check')")
    connection.close()


def search_moved(stage, chance):
    """A search table with its own content is refused if a row of another table is renumbered."""
    schema = "CREATE TABLE a(id INTEGER PRIMARY KEY, k TEXT); CREATE VIRTUAL TABLE f USING fts5(t);"
    pair(
        stage,
        chance,
        schema,
        ["INSERT INTO a VALUES(1,'x')", "INSERT INTO f(rowid,t) VALUES(1,'x')"],
        ["INSERT INTO a VALUES(1,'y')", "INSERT INTO f(rowid,t) VALUES(1,'y')"],
    )
    stage.refused("merge_unsupported", "--merge-key", "a=k", "--prefer", "group")


def contentless(stage, chance):
    schema = "CREATE TABLE a(id INTEGER PRIMARY KEY, k TEXT); CREATE VIRTUAL TABLE f USING fts5(t, content='');"
    pair(
        stage,
        chance,
        schema,
        ["INSERT INTO a VALUES(1,'x')"],
        ["INSERT INTO a VALUES(2,'y')", "INSERT INTO f(rowid,t) VALUES(2,'y')"],
    )
    stage.refused("merge_unsupported")


def other_virtual(stage, chance):
    schema = "CREATE TABLE a(id INTEGER PRIMARY KEY); CREATE VIRTUAL TABLE f USING rtree(id, x, y);"
    pair(
        stage, chance, schema, ["INSERT INTO a VALUES(1)"], ["INSERT INTO a VALUES(2)", "INSERT INTO f VALUES(2, 1, 2)"]
    )
    stage.refused("merge_unsupported")


def union(stage, chance):
    """A constraint that holds on each side, but not in the result."""
    schema, group, legacy, more = chance.choice(
        [
            (
                "CREATE TABLE a(id INTEGER PRIMARY KEY, e UNIQUE);",
                "INSERT INTO a VALUES(1,'x')",
                "INSERT INTO a VALUES(2,'x')",
                [],
            ),
            (
                "CREATE TABLE a(id INTEGER PRIMARY KEY, e); CREATE UNIQUE INDEX q ON a(lower(e));",
                "INSERT INTO a VALUES(1,'x')",
                "INSERT INTO a VALUES(2,'X')",
                [],
            ),
            (
                "CREATE TABLE a(id INTEGER PRIMARY KEY, e UNIQUE ON CONFLICT REPLACE, v);",
                "INSERT INTO a VALUES(1,'x',1)",
                "INSERT INTO a VALUES(2,'x',2)",
                [],
            ),
            (
                "CREATE TABLE a(id INTEGER PRIMARY KEY, e UNIQUE ON CONFLICT IGNORE, v);",
                "INSERT INTO a VALUES(1,'x',1)",
                "INSERT INTO a VALUES(2,'x',2)",
                [],
            ),
            (
                "CREATE TABLE a(id TEXT PRIMARY KEY ON CONFLICT REPLACE, e UNIQUE COLLATE NOCASE, v);",
                "INSERT INTO a VALUES('1','x',1)",
                "INSERT INTO a VALUES('2','X',2)",
                [],
            ),
            (
                "CREATE TABLE a(id INTEGER PRIMARY KEY, k, e UNIQUE ON CONFLICT REPLACE);",
                "INSERT INTO a VALUES(1,'p','x'),(2,'q','y')",
                "INSERT INTO a VALUES(1,'p','y')",
                ["--merge-key", "a=k", "--prefer", "legacy"],
            ),
        ]
    )
    pair(stage, chance, schema, [group], [legacy])
    stage.refused("merge_constraint", *more)


def exchanged(stage, chance):
    """Unique values that are exchanged between two rows hold in the result."""
    schema = "CREATE TABLE a(id INTEGER PRIMARY KEY, e UNIQUE NOT NULL, v);"
    pair(
        stage,
        chance,
        schema,
        ["INSERT INTO a VALUES(1,'x',1),(2,'y',2),(3,'z',3)"],
        ["INSERT INTO a VALUES(1,'y',1),(2,'z',2),(3,'x',4)"],
    )
    succeeds(stage, "--prefer", "legacy", members=[("different", 3)])
    same(stage, "SELECT * FROM a", [(1, "y", 1), (2, "z", 2), (3, "x", 4)])


def cascade(stage, chance):
    """A kept row that replaces another one must not cascade to its children."""
    schema = (
        "PRAGMA foreign_keys = ON; CREATE TABLE p(id INTEGER PRIMARY KEY, k TEXT UNIQUE, v);"
        "CREATE TABLE c(id INTEGER PRIMARY KEY, p INTEGER REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE, u TEXT);"
        "CREATE TABLE s(id INTEGER PRIMARY KEY, up INTEGER REFERENCES s(id) ON DELETE SET NULL, n TEXT UNIQUE);"
    )
    group = [
        "INSERT INTO p VALUES(1,'a',1),(2,'b',2)",
        "INSERT INTO c VALUES(1,1,'c1'),(2,2,'c2')",
        "INSERT INTO s VALUES(1,2,'x'),(2,1,'y')",
    ]
    legacy = [
        "INSERT INTO p VALUES(1,'b',7),(2,'d',8),(9,'a',1)",
        "INSERT INTO c VALUES(1,1,'c3'),(3,2,'c4'),(4,9,'c1')",
        "INSERT INTO s VALUES(1,5,'z'),(5,1,'y')",
    ]
    pair(stage, chance, schema, group, legacy)
    succeeds(stage, "--merge-key", "p=k", "--merge-key", "c=u", "--merge-key", "s=n", "--prefer", "legacy")
    same(stage, "SELECT k, v FROM p", [("a", 1), ("b", 7), ("d", 8)])
    same(stage, "SELECT u, k FROM c LEFT JOIN p ON p.id = c.p", [("c1", "a"), ("c2", "b"), ("c3", "b"), ("c4", "d")])
    same(stage, "SELECT s.n, t.n FROM s LEFT JOIN s AS t ON t.id = s.up", [("x", "y"), ("y", "z"), ("z", "y")])


def by_code(stage, chance):
    """A reference to a unique column that isn't the key: it follows the object, or the merge is refused."""
    schema = (
        "CREATE TABLE p(id INTEGER PRIMARY KEY, k TEXT, code TEXT UNIQUE);"
        "CREATE TABLE c(u TEXT PRIMARY KEY, code TEXT REFERENCES p(code));"
    )
    pair(
        stage,
        chance,
        schema,
        ["INSERT INTO p VALUES(1,'a','g')", "INSERT INTO c VALUES('1','g')"],
        ["INSERT INTO p VALUES(1,'a','l')", "INSERT INTO c VALUES('2','l')"],
    )
    side = chance.choice([GROUP, LEGACY])
    more = ("--merge-key", "p=k", "--prefer", side)
    dry = stage.dry_run(*more)
    if dry.code:
        stage.refused(("merge_foreign_key", "merge_unsupported"), *more)
        return
    succeeds(stage, *more)
    same(stage, "SELECT u, k FROM c LEFT JOIN p USING (code)", [("1", "a"), ("2", "a")])


def composite(stage, chance):
    """A reference of two columns to a row without a rowid, matched by another key."""
    schema = (
        "CREATE TABLE g(id INTEGER PRIMARY KEY, n TEXT);"
        "CREATE TABLE p(g INTEGER REFERENCES g(id), m INT, v, PRIMARY KEY(g, m)) WITHOUT ROWID;"
        "CREATE TABLE c(u TEXT PRIMARY KEY, g INT, m INT, FOREIGN KEY (g, m) REFERENCES p(g, m));"
    )
    pair(
        stage,
        chance,
        schema,
        [
            "INSERT INTO g VALUES(1,'a'),(2,'b')",
            "INSERT INTO p VALUES(1,1,'a1'),(2,1,'b1')",
            "INSERT INTO c VALUES('ca',1,1)",
        ],
        [
            "INSERT INTO g VALUES(1,'b'),(2,'c')",
            "INSERT INTO p VALUES(1,1,'b1'),(1,2,'b2'),(2,1,'c1')",
            "INSERT INTO c VALUES('cb',1,2),('cc',2,1)",
        ],
    )
    more = ("--merge-key", "g=n", "--prefer", "group")
    dry = stage.dry_run(*more)
    if dry.code:
        stage.refused(("merge_foreign_key", "merge_unsupported"), *more)
        return
    succeeds(stage, *more)
    same(
        stage,
        "SELECT n, m, v FROM p JOIN g ON g.id = p.g",
        [("a", 1, "a1"), ("b", 1, "b1"), ("b", 2, "b2"), ("c", 1, "c1")],
    )
    same(stage, "SELECT u, v FROM c LEFT JOIN p USING (g, m)", [("ca", "a1"), ("cb", "b2"), ("cc", "c1")])


def implicit(stage, chance):
    """A reference to a parent without its column's name; in other letters; by a table made before its parent."""
    schema = (
        "CREATE TABLE c(u TEXT PRIMARY KEY, r INTEGER REFERENCES PARENT, q REFERENCES Parent(ID));"
        "CREATE TABLE parent(Id INTEGER PRIMARY KEY, k TEXT);"
    )
    pair(
        stage,
        chance,
        schema,
        ["INSERT INTO parent VALUES(1,'a'),(2,'b')", "INSERT INTO c VALUES('ca',1,2)"],
        ["INSERT INTO parent VALUES(1,'b'),(2,'c')", "INSERT INTO c VALUES('cb',1,2)"],
    )
    succeeds(stage, "--merge-key", "PARENT=K", members=[("renumbered", 2)])
    same(
        stage,
        "SELECT u, p.k, q.k FROM c LEFT JOIN parent p ON p.id = r LEFT JOIN parent q ON q.id = c.q",
        [("ca", "a", "b"), ("cb", "b", "c")],
    )


def adopted(stage, chance):
    """A reference to nothing in the group's store must not lead to an added row."""
    schema = (
        "CREATE TABLE p(id INTEGER PRIMARY KEY, k TEXT);CREATE TABLE c(u TEXT PRIMARY KEY, p INTEGER REFERENCES p(id));"
    )
    pair(
        stage,
        chance,
        schema,
        ["INSERT INTO p VALUES(1,'a')", "INSERT INTO c VALUES('x', 7)"],
        ["INSERT INTO p VALUES(7,'stranger')", "INSERT INTO c VALUES('y', 7)"],
    )
    more = ("--merge-key", "p=k")
    dry = stage.dry_run(*more)
    if dry.code:
        stage.refused(dry.error, *more)
        return
    succeeds(stage, *more)
    same(stage, "SELECT u, k FROM c LEFT JOIN p ON p.id = c.p", [("x", None), ("y", "stranger")])


def refusals(stage, chance):
    """Each error of the document, where it is due."""
    table = "CREATE TABLE a(id INTEGER PRIMARY KEY, k, v);"
    one, two = ["INSERT INTO a VALUES(1,'x',1)"], ["INSERT INTO a VALUES(2,'y',2)"]
    base = dict(schema=table, group=one, legacy=two)
    code, change, more = chance.choice(
        [
            ("no_merge_key", dict(schema="CREATE TABLE a(id, k, v);"), []),
            ("merge_undecided", dict(legacy=["INSERT INTO a VALUES(1,'x',2)"]), []),
            ("merge_undecided", dict(legacy=["INSERT INTO a VALUES(1,'x','1')"]), ["--prefer", "newer:v"]),
            ("merge_undecided", dict(legacy=["INSERT INTO a VALUES(1,'z',1)"]), ["--prefer", "newer:v"]),
            ("merge_undecided", dict(legacy=["INSERT INTO a VALUES(1,'x',NULL)"]), ["--prefer", "newer:v"]),
            ("merge_undecided", dict(legacy=["INSERT INTO a VALUES(1,'x',x'31')"]), ["--prefer", "newer:v"]),
            (
                "merge_key_not_unique",
                dict(legacy=["INSERT INTO a VALUES(1,'x',1),(2,'x',2)"]),
                ["--merge-key", "a=k", "--prefer", "group"],
            ),
            (
                "merge_key_not_unique",
                dict(group=["INSERT INTO a VALUES(1,1,1),(2,1.0,2)"]),
                ["--merge-key", "a=k", "--prefer", "group"],
            ),
            ("unknown_merge_key", {}, ["--merge-key", "b=k"]),
            ("unknown_merge_key", {}, ["--merge-key", "a=nothing"]),
            ("unknown_attribute", {}, ["--prefer", "newer:nothing"]),
            ("usage", {}, ["--merge-key", "a"]),
            ("usage", {}, ["--merge-key", "=k"]),
            ("usage", {}, ["--merge-key", "a=k", "--merge-key", "a=v"]),
            ("usage", {}, ["--prefer", "nobody"]),
            ("usage", {}, ["--opaque"]),
            (
                "schemas_differ",
                dict(
                    schema=(table, "CREATE TABLE a(id INTEGER PRIMARY KEY, k, v, w);"),
                    legacy=["INSERT INTO a VALUES(2,'l',1,NULL)"],
                ),
                [],
            ),
            ("schemas_differ", dict(schema=(table, "CREATE TABLE a(id INTEGER PRIMARY KEY, k TEXT, v);")), []),
            ("schemas_differ", dict(schema=(table, "CREATE TABLE a(id INTEGER PRIMARY KEY, k NOT NULL, v);")), []),
            ("schemas_differ", dict(schema=(table, "CREATE TABLE a(id INTEGER, k, v, PRIMARY KEY(id, k));")), []),
            ("schemas_differ", dict(schema=(table, table + "CREATE TABLE b(x);")), []),
            ("schemas_differ", dict(schema=(table + "CREATE TABLE b(x);", table)), []),
            ("schemas_differ", dict(settings=("", "PRAGMA user_version = 3;")), []),
            ("schemas_differ", dict(settings=("PRAGMA application_id = 3;", "")), []),
            ("schemas_differ", dict(settings=("", "PRAGMA encoding = 'UTF-16be';")), []),
            (
                "merge_foreign_key",
                dict(
                    schema=(
                        "CREATE TABLE p(id TEXT PRIMARY KEY, c TEXT UNIQUE, v);"
                        "CREATE TABLE a(id INTEGER PRIMARY KEY, r TEXT REFERENCES p(c));"
                    ),
                    group=["INSERT INTO p VALUES('1','g','')", "INSERT INTO a VALUES(1,'g')"],
                    legacy=["INSERT INTO p VALUES('1','l','')", "INSERT INTO a VALUES(2,NULL)"],
                ),
                None,
            ),
        ]
    )
    if (
        more is None
    ):  # the group's reference names a value that the kept object hasn't any more: it follows, or is refused
        pair(stage, chance, **{**base, **change})
        if stage.dry_run("--prefer", "legacy").code:
            stage.refused((code, "merge_unsupported"), "--prefer", "legacy")
        else:
            succeeds(stage, "--prefer", "legacy")
            same(stage, "SELECT a.id, p.id FROM a LEFT JOIN p ON p.c = r", [(1, "1"), (2, None)])
        return
    pair(stage, chance, **{**base, **change})
    if code == "usage":
        for arguments in (stage.arguments(*more), stage.arguments("--dry-run", *more)):
            outcome = stage.program.run(*arguments)
            demand(outcome.code == 64, f"a usage error (64) was due: {outcome} {more}")
            stage.unchanged(outcome)
        return
    stage.refused(code, *more)


def reordered(stage, chance):
    """Columns in another order, other indexes, triggers and views: the same schema."""
    pair(
        stage,
        chance,
        (
            "CREATE TABLE a(id INTEGER PRIMARY KEY, k TEXT, v TEXT); CREATE INDEX i ON a(k);",
            "CREATE TABLE a(v TEXT, id INTEGER PRIMARY KEY, k TEXT); CREATE VIEW w AS SELECT v FROM a;",
        ),
        ["INSERT INTO a(id,k,v) VALUES(1,'k','v'),(2,'k2','v2')"],
        ["INSERT INTO a(id,k,v) VALUES(1,'k','v'),(2,'k3','v3'),(4,'k4','v4')"],
    )
    succeeds(stage, "--prefer", "legacy", members=[("equal", 1), ("different", 1), ("only_legacy", 1)])
    same(stage, "SELECT id, k, v FROM a", [(1, "k", "v"), (2, "k3", "v3"), (4, "k4", "v4")])


def many(stage, chance):
    """Many rows, and large ones."""
    tables = [
        Table(
            "big", [Column("id", "INTEGER"), Column("k", "TEXT", "NOCASE"), Column("b", "BLOB")], ["id"], number="id"
        ),
        Table(
            "line",
            [Column("big", "INTEGER", refers=("big", "id", "")), Column("n", "INT"), Column("t")],
            ["big", "n"],
            rowid=False,
        ),
    ]
    tables[0].key, tables[0].flag = ["k"], True
    count = chance.choice([500, 2000])

    def filler(_, connections, *__):
        for side, connection in connections.items():
            begin = 0 if side == GROUP else count // 2
            connection.execute("BEGIN")
            for i in range(count):
                number = begin + i
                text = f"key {number}" if side == GROUP else f"KEY {number}"
                blob = bytes([number % 256]) * (number % 50 if number % 500 else 300_000)
                connection.execute("INSERT INTO big VALUES(?, ?, ?)", (count - i, text, blob))
                connection.execute(
                    "INSERT INTO line VALUES(?, ?, ?)", (count - i, number % 7, number if number % 11 else side)
                )
            connection.execute("COMMIT")

    rows, sequences = schemas.made(chance, stage, tables, 0, filler=filler, utf16=0)
    merged(stage, tables, rows, sequences, [chance.choice([GROUP, LEGACY])])


def again(stage, chance):
    """The merged legacy store comes back: unchanged it is archived, with other rows it is merged once more."""
    schema = "CREATE TABLE a(id INTEGER PRIMARY KEY, k TEXT UNIQUE, v);"
    pair(stage, chance, schema, ["INSERT INTO a VALUES(1,'x',1),(2,'y',2)"], ["INSERT INTO a VALUES(1,'z',1)"])
    run = succeeds(stage, "--merge-key", "a=k")
    legacy = os.path.join(run.summary["merge"]["archives"]["legacy"], "S.sqlite")
    stores.copied(legacy, stage.legacy_store)
    change = chance.random() < 0.5
    if change:
        connection = sqlite3.connect(stage.legacy_store)
        connection.execute("INSERT INTO a VALUES(9, 'later', 1)")
        connection.commit()
        connection.close()
    outcome = stage.run("--merge-key", "a=k")
    demand(outcome.code == 0, f"the second run failed: {outcome}")
    expected = [("x", 1), ("y", 2), ("z", 1)] + ([("later", 1)] if change else [])
    same(stage, "SELECT k, v FROM a", expected)


def lookalikes(stage, chance):
    """Tables and columns whose names differ in the form of a letter only, or are prefixes of each other."""
    one, two = chance.choice(
        [("\u00e9", "e\u0301"), ("\u00c5", "\u212b"), ("\u1e9b\u0323", "\u1e9b\u0323a"), ("Ж", "ж")]
    )
    schema = "".join(f'CREATE TABLE "{t}"("{one}" INTEGER PRIMARY KEY, "{two}", "{two} x");' for t in (one, two))

    def rows(text, *ids):
        return [
            f"INSERT INTO \"{t}\" VALUES({i}, '{text}', '{t}{i}')"
            for t, ids in ((one, ids), (two, ids[1:]))
            for i in ids
        ]

    pair(stage, chance, schema, rows("a", 1, 2, 3), rows("a", 2, 3, 4))
    more = chance.choice([(), ("--merge-key", f"{one}={one},{two}", "--merge-key", f"{two}={two} x")])
    succeeds(stage, *more, members=[("equal", 3), ("only_group", 2), ("only_legacy", 2)])
    same(stage, f'SELECT * FROM "{one}"', [(i, "a", f"{one}{i}") for i in (1, 2, 3, 4)])
    same(stage, f'SELECT * FROM "{two}"', [(i, "a", f"{two}{i}") for i in (2, 3, 4)])


def own_names(stage, chance):
    """A user's tables whose names look like groupstore's or Core Data's own."""
    name = chance.choice(
        [
            "gs_mine",
            "GS_mine",
            "GS_HISTORY_of_mine",
            "ACHANGE",
            "ATRANSACTION",
            "Z_PRIMARYKEY",
            "Z_MODELCACHE",
            "ANSCKMINE",
            "sqlitemine",
        ]
    )
    schema = f"CREATE TABLE {name}(id INTEGER PRIMARY KEY, v); CREATE TABLE t(id INTEGER PRIMARY KEY);"
    pair(
        stage,
        chance,
        schema,
        ["INSERT INTO t VALUES(1)", f"INSERT INTO {name} VALUES(1, 'g')"],
        ["INSERT INTO t VALUES(2)", f"INSERT INTO {name} VALUES(2, 'l')"],
    )
    dry = stage.dry_run()
    if dry.code:
        stage.refused(dry.error)
        return
    succeeds(stage)
    same(stage, f"SELECT * FROM {name}", [(1, "g"), (2, "l")])


def history(stage, chance):
    """groupstore's own history goes on: its rows stay, and each added or changed row is a change."""
    schema = "CREATE TABLE a(id INTEGER PRIMARY KEY, k TEXT, v);"
    pair(
        stage,
        chance,
        schema,
        ["INSERT INTO a VALUES(1,'x',1),(2,'y',2)"],
        ["INSERT INTO a VALUES(1,'y',3),(2,'z',4),(3,'x',1)"],
    )
    enabled = [stage.group_store] + ([stage.legacy_store] if chance.random() < 0.5 else [])
    for path in enabled:
        outcome = stage.program.run("history", "enable", path, "--json")
        demand(outcome.code == 0, f"history enable: {outcome}")
        connection = stores.connected(path)
        connection.execute("INSERT INTO a VALUES(50, 'later', 1)")
        connection.close()
    stage.remember()
    succeeds(stage, "--merge-key", "a=k", "--prefer", "legacy")
    same(stage, "SELECT k, v FROM a", [("x", 1), ("y", 3), ("z", 4), ("later", 1)])
    changes = result(
        stage, "SELECT operation, a.k FROM GS_CHANGE LEFT JOIN a ON a.id = CAST(key AS INTEGER) ORDER BY number"
    )
    demand(changes[:1] == [(0, "later")], f"the history before is gone: {changes}")
    demand(sorted({k for o, k in changes[1:] if o in (0, 1)}) == ["y", "z"], f"the changes aren't y and z: {changes}")


def symlink(stage, chance):
    """`--retire symlink` leaves a link; both originals are in the archive all the same."""
    pair(
        stage,
        chance,
        "CREATE TABLE a(id INTEGER PRIMARY KEY);",
        ["INSERT INTO a VALUES(1)"],
        ["INSERT INTO a VALUES(2)"],
    )
    demand(stage.run("--retire", "symlink").code == 0, "--retire symlink was refused")
    demand(os.path.islink(stage.legacy_store), "there is no link")
    demand(os.path.samefile(stage.legacy_store, stage.group_store), "the link leads elsewhere")
    stage.in_archives()
    same(stage, "SELECT id FROM a", [(1,), (2,)])


def key_order(stage, chance):
    """A primary key whose columns have another order than the table's."""
    tail = chance.choice([" WITHOUT ROWID", ""])
    schema = f"CREATE TABLE a(x TEXT, y, z INTEGER, PRIMARY KEY(z, x)){tail};"
    pair(
        stage,
        chance,
        schema,
        ["INSERT INTO a VALUES('p', 1, 1),('q', NULL, 2)"],
        ["INSERT INTO a VALUES('p', 2, 1),('r', 3, 2)"],
    )
    succeeds(stage, "--prefer", "legacy", members=[("different", 1)])
    same(stage, "SELECT * FROM a", [("p", 2, 1), ("q", None, 2), ("r", 3, 2)])


CASES = [
    lookalikes, own_names, history, symlink, key_order,
    triggers, generated, search, search_moved, contentless, other_virtual, union, exchanged, cascade, by_code,
    composite,
    implicit, adopted, refusals, refusals, refusals, reordered, many, again,
]  # fmt: skip


def run(stage, chance):
    case = chance.choice(CASES)
    stage.program.note(case.__name__)
    case(stage, chance)
