"""What else lies in a store and refers to its objects: histories, CloudKit's tables, other programs' tables."""

import sqlite3
from coredata import *

HISTORY = """
CREATE TABLE ACHANGE ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCHANGETYPE INTEGER, ZENTITY INTEGER, ZENTITYPK INTEGER, ZTRANSACTIONID INTEGER, ZCOLUMNS BLOB%s );
CREATE TABLE ATRANSACTION ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZAUTHORTS INTEGER, ZBUNDLEIDTS INTEGER, ZCONTEXTNAMETS INTEGER, ZPROCESSIDTS INTEGER, ZTIMESTAMP FLOAT, ZAUTHOR VARCHAR, ZBUNDLEID VARCHAR, ZCONTEXTNAME VARCHAR, ZPROCESSID VARCHAR, ZQUERYGEN BLOB );
CREATE TABLE ATRANSACTIONSTRING ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZNAME VARCHAR );
CREATE INDEX ACHANGE_ZTRANSACTIONID_INDEX ON ACHANGE (ZTRANSACTIONID);
INSERT INTO Z_PRIMARYKEY VALUES (16001, 'CHANGE', 0, %d), (16002, 'TRANSACTION', 0, 1), (16003, 'TRANSACTIONSTRING', 0, 1);
INSERT INTO ATRANSACTION (Z_PK, Z_ENT, ZTIMESTAMP, ZAUTHORTS) VALUES (1, 16002, 7e8, 1);
INSERT INTO ATRANSACTIONSTRING VALUES (1, 16003, NULL, 'me');
"""
CLOUDKIT = """
CREATE TABLE ANSCKRECORDMETADATA ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZENTITYID INTEGER, ZENTITYPK INTEGER, ZNEEDSUPLOAD INTEGER, ZRECORDZONE INTEGER, ZCKRECORDNAME VARCHAR, ZENCODEDRECORD BLOB );
CREATE UNIQUE INDEX Z_NSCKRecordMetadata_UNIQUE_entityId_entityPK ON ANSCKRECORDMETADATA (ZENTITYID COLLATE BINARY ASC, ZENTITYPK COLLATE BINARY ASC);
CREATE TABLE ANSCKHISTORYANALYZERSTATE ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZENTITYID INTEGER, ZENTITYPK INTEGER, ZFINALCHANGETYPENUM INTEGER );
CREATE TABLE ANSCKRECORDZONEMETADATA ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCKRECORDZONENAME VARCHAR );
INSERT INTO ANSCKRECORDZONEMETADATA VALUES (1, 17006, 1, 'zone');
"""


def slots(m, L, e):
    """The properties of ZCOLUMNS' bits: (kind, name), in order."""
    chain, out = m.chain(e), []
    for c in chain:
        for n, r in sorted(m.ents[c].rels.items()):
            if not r.many and not r.trans:
                out.append(("rel", r.rid))
                if (c, n) in L.entcol:
                    out.append(("rel+", r.rid))
    for c in chain:
        out += [("attr", a.rid) for n, a in sorted(m.ents[c].attrs.items()) if not a.trans]
    for c in chain:
        out += [("many", r.rid) for n, r in sorted(m.ents[c].rels.items()) if r.many and not r.trans]
    return out


def tombs(m, e):
    """The attributes of ZTOMBSTONE0, 1 …"""
    return [a for c in m.chain(e) for n, a in sorted(m.ents[c].attrs.items()) if a.pres and not a.trans]


def add(r, m, store, tables=True):
    """Puts histories and tables into the store; what was put, to be compared afterwards."""
    rng, db, x = r.rng, r.db, {"history": [], "cloud": [], "tables": {}, "objects": []}
    L = Layout(m)
    objs = [
        (e, pk) for e in m.ents for (pk,) in db.execute('SELECT Z_PK FROM "%s" WHERE Z_ENT=?' % L.table[e], (L.id[e],))
    ]
    if objs and rng.random() < 0.3:
        n = rng.randint(1, 12)
        most = max(len(tombs(m, e)) for e in m.ents)
        db.executescript(HISTORY % ("".join(f", ZTOMBSTONE{i} BLOB" for i in range(most)), n))
        for i in range(1, n + 1):
            e, pk = rng.choice(objs)
            kind = rng.randint(0, 2)
            bits, stones = None, [None] * most
            if kind == 1:
                s = slots(m, L, e)
                on = {k for k in {y[1] for y in s} if rng.random() < 0.4}
                b = "".join("1" if y[1] in on else "0" for y in s)
                b += "0" * (-len(b) % 8)
                bits = bytes(int(b[j : j + 8], 2) for j in range(0, len(b), 8))
                x["history"].append((i, e, pk, kind, {(y[0], y[1]) for y in s if y[1] in on}, None))
            elif kind == 2:
                t = tombs(m, e)
                for j, a in enumerate(t):
                    stones[j] = f"tomb{i}.{j}"
                x["history"].append((i, e, pk, kind, None, {a.rid: f"tomb{i}.{j}" for j, a in enumerate(t)}))
            else:
                x["history"].append((i, e, pk, kind, None, None))
            db.execute(
                f"INSERT INTO ACHANGE VALUES (?,16001,NULL,?,?,?,1,?{',?' * most})",
                [i, kind, L.id[e], pk if kind < 2 else 9000 + i, bits] + stones,
            )
        r.count("with Core Data's history")
    if objs and rng.random() < 0.3:
        db.executescript(CLOUDKIT)
        for i, (e, pk) in enumerate(rng.sample(objs, min(len(objs), 8)), 1):
            db.execute(
                "INSERT INTO ANSCKRECORDMETADATA VALUES (?,17005,1,?,?,0,1,?,NULL)", (i, L.id[e], pk, f"record {i}")
            )
            db.execute("INSERT INTO ANSCKHISTORYANALYZERSTATE VALUES (?,17001,1,?,?,1)", (i, L.id[e], pk))
            x["cloud"].append((i, e, pk))
        db.execute(
            "INSERT INTO Z_PRIMARYKEY VALUES (17005,'NSCKRecordMetadata',0,8),(17001,'NSCKHistoryAnalyzerState',0,8),(17006,'NSCKRecordZoneMetadata',0,1)"
        )
        r.count("with CloudKit's tables")
    if tables and rng.random() < 0.3:
        t = rng.choice(["mine", 'my "table"', "Zmine", "_T_mine", "ZOLD", "x'y"])
        q = '"' + t.replace('"', '""') + '"'
        db.execute(f"CREATE TABLE {q} (a, b TEXT, c INTEGER)")
        db.executemany(
            f"INSERT INTO {q} (rowid,a,b,c) VALUES (?,?,?,?)", [(i * 3, b"x", f"t{i}", i) for i in range(1, 5)]
        )
        x["tables"][t] = db.execute(f"SELECT rowid, * FROM {q}").fetchall()
        db.execute(f'CREATE INDEX "mine\'s index" ON {q} (b)')
        x["objects"] += ["mine's index"]
        root = rng.choice(m.kids(None))
        db.execute(f'CREATE VIEW "my view" AS SELECT * FROM "{L.table[root]}"')
        x["objects"] += ["my view"]
        c = rng.choice([c for (e, _), c in L.col.items() if L.table[e] == L.table[root]] or ["Z_OPT"])
        db.execute(
            f'CREATE TRIGGER "my trigger" AFTER UPDATE OF "{c}" ON "{L.table[root]}" BEGIN INSERT INTO {q} (a) VALUES (new."{c}"); END'
        )
        x["objects"] += ["my trigger"]
        db.execute(f'CREATE INDEX "my other index" ON "{L.table[root]}" ("{c}", Z_OPT)')
        x["objects"] += ["my other index"]
        r.count("with other programs' tables")
    return x


def check(r, x, before, after, d, notes, mapping):
    db = sqlite3.connect(after.copy)
    names = {n for (n,) in db.execute("SELECT name FROM sqlite_master")}
    said = " ".join(notes)
    L, m, n = after.lay, before.m, after.m
    byid = {i: e for e, i in L.id.items()}
    for t, rows in x["tables"].items():
        if t not in names:
            r.problem("other tables", f"{t} is gone; notes {notes}")
            continue
        q = '"' + t.replace('"', '""') + '"'
        db.text_factory = bytes
        now = sorted(db.execute(f"SELECT * FROM {q}").fetchall(), key=repr)
        db.text_factory = str
        if now != before.dump[t] or (
            len(now) == len(rows) and db.execute(f"SELECT rowid, * FROM {q}").fetchall() != rows
        ):
            r.problem("other tables", f"{t} has other rows")
    for o in x["objects"]:
        if o not in names and o not in said:
            r.problem("other tables", f"{o} is gone, and no note says so: {notes}")
    if x["cloud"] and not mapping:
        for t in ("ANSCKRECORDMETADATA", "ANSCKHISTORYANALYZERSTATE"):
            if t not in names:
                if t not in said:
                    r.problem("cloudkit", f"{t} is gone, and no note says so")
                continue
            now = {p: (e, k) for p, e, k in db.execute(f"SELECT Z_PK, ZENTITYID, ZENTITYPK FROM {t}")}
            for p, e, k in x["cloud"]:
                want = d.ent[e]
                if want is None:
                    if p in now and now[p][0] in byid:
                        r.problem(
                            "cloudkit", f"{t} {p} was of the removed {e} {k}, is of {byid[now[p][0]]} {now[p][1]}"
                        )
                elif p not in now:
                    r.problem("cloudkit", f"{t} {p} of {e} {k} is gone; notes {notes}")
                elif now[p] != (L.id[want], k):
                    r.problem("cloudkit", f"{t} {p} of {e} {k} is now of {byid.get(now[p][0], now[p][0])} {now[p][1]}")
        for i in (17001, 17005, 17006):
            if before.pk[i] != after.pk.get(i):
                r.problem("cloudkit", f"Z_PRIMARYKEY {i}: {before.pk[i]} became {after.pk.get(i)}")
    elif x["cloud"]:
        if "ANSCKRECORDMETADATA" in names or "ANSCKRECORDMETADATA" not in said:
            r.problem(
                "cloudkit",
                f"after a mapping model: {'there' if 'ANSCKRECORDMETADATA' in names else 'dropped'}; notes {notes}",
            )
    if x["history"] and not mapping:
        if "ACHANGE" not in names:
            r.problem("history", "ACHANGE is gone")
            return
        cur = db.execute("SELECT * FROM ACHANGE")
        col = [c[0] for c in cur.description]
        now = {row[0]: dict(zip(col, row)) for row in cur}
        for i, e, pk, kind, bits, stones in x["history"]:
            row, want = now.get(i), d.ent[e]
            if want is None:
                if row and row["ZENTITY"] in byid:
                    r.problem("history", f"change {i} was of the removed {e}, is of {byid[row['ZENTITY']]}")
                continue
            if not row:
                r.problem("history", f"change {i} of {e} {pk} is gone; notes {notes}")
                continue
            if byid.get(row["ZENTITY"]) != want or row["ZCHANGETYPE"] != kind or (kind < 2 and row["ZENTITYPK"] != pk):
                r.problem(
                    "history",
                    f"change {i} of {e} {pk} is now {byid.get(row['ZENTITY'])} {row['ZENTITYPK']} {row['ZCHANGETYPE']}",
                )
            if bits is not None:
                s = slots(n, L, want)
                b = row["ZCOLUMNS"] or b""
                if len(b) != (len(s) + 7) // 8:
                    r.problem("history", f"change {i}: ZCOLUMNS of {want} has {len(b)} bytes for {len(s)} properties")
                    continue
                on = {y for j, y in enumerate(s) if b[j // 8] >> (7 - j % 8) & 1}
                base = {y[1] for y in bits}
                new = {y[1] for y in on}
                there = {y[1] for y in s}
                kept = {k for k in base if k in there}
                if new - base:
                    r.problem("history", f"change {i} of {want}: bits of {new - base} that nobody set; was {base}")
                lost = {k for k in kept if k not in new}
                same = {k for k in lost if {y[0] for y in bits if y[1] == k} & {y[0] for y in s if y[1] == k}}
                if same:
                    r.problem("history", f"change {i} of {want}: the bits of {same} are gone")
            if stones:
                t = tombs(n, want)
                for j, a in enumerate(t):
                    v, w = row.get(f"ZTOMBSTONE{j}"), stones.get(a.rid)
                    if v != w and not (
                        w and v is None and not any(b.rid == a.rid and b.type == a.type for b in tombs(m, e))
                    ):
                        r.problem("history", f"change {i} of {want}: tombstone of {a.name} is {v!r}, was {w!r}")
    db.close()
