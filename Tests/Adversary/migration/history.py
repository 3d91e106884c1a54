"""Persistent history (format notes, 1.8): creates it in a store, and works out what a migration must make of it."""

from model import Layout
from store import same

TABLES = [
    "CREATE TABLE ATRANSACTION (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZAUTHORTS INTEGER,"
    " ZBUNDLEIDTS INTEGER, ZCONTEXTNAMETS INTEGER, ZPROCESSIDTS INTEGER, ZTIMESTAMP FLOAT, ZAUTHOR VARCHAR,"
    " ZBUNDLEID VARCHAR, ZCONTEXTNAME VARCHAR, ZPROCESSID VARCHAR, ZQUERYGEN BLOB )",
    "CREATE TABLE ATRANSACTIONSTRING (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZNAME VARCHAR )",
    "CREATE INDEX ACHANGE_ZTRANSACTIONID_INDEX ON ACHANGE (ZTRANSACTIONID)",
    "CREATE UNIQUE INDEX Z_TRANSACTIONSTRING_UNIQUE_NAME ON ATRANSACTIONSTRING (ZNAME COLLATE BINARY ASC)",
]


def inherited_first(model, entity, wanted):
    """Returns an entity's properties of a group: ancestors' first, then by name; transient properties have no place."""
    return [
        p
        for e in model.line(entity)
        for p in sorted(model[e].properties, key=lambda p: p.name)
        if not p.transient and wanted(p)
    ]


def slots(model, layout, entity):
    """Returns what each bit of ZCOLUMNS stands for: a property, or None for the slot of a reference's number column."""
    found = []
    for r in inherited_first(model, entity, lambda p: p.kind == "relationship" and not p.many):
        found.append(r)
        if model.children(r.dest):
            found.append(None)
    found += inherited_first(model, entity, lambda p: p.kind == "attribute")
    return found + inherited_first(model, entity, lambda p: p.kind == "relationship" and p.many)


def bits(count, chosen):
    data = bytearray((count + 7) // 8)
    for i in chosen:
        data[i // 8] |= 0x80 >> i % 8
    return bytes(data)


def chosen_bits(data):
    return {i * 8 + j for i, byte in enumerate(data or b"") for j in range(8) if byte & 0x80 >> j}


def preserved(model, entity):
    return inherited_first(model, entity, lambda p: p.kind == "attribute" and p.preserved)


class History:
    ids = {16001, 16002, 16003}
    tables = {"ACHANGE", "ATRANSACTION", "ATRANSACTIONSTRING"}

    def __init__(self, rng, connection, model, layout):
        self.model, self.layout = model, layout
        most = max([len(preserved(model, n)) for n in model.entities])
        columns = "".join(f", ZTOMBSTONE{i} BLOB" for i in range(most))
        connection.execute(
            "CREATE TABLE ACHANGE (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCHANGETYPE"
            " INTEGER, ZENTITY INTEGER, ZENTITYPK INTEGER, ZTRANSACTIONID INTEGER, ZCOLUMNS BLOB"
            f"{columns} )"
        )
        for statement in TABLES:
            connection.execute(statement)
        connection.execute("INSERT INTO ATRANSACTIONSTRING VALUES (1, 16003, 1, 'app'), (2, 16003, 1, NULL)")
        self.rows = {}
        with_history = [n for n in model.entities if rng.random() < 0.8] or list(model.entities)
        for key in range(1, rng.randint(4, 14)):
            entity, kind = rng.choice(with_history), rng.randrange(3)
            places = slots(model, layout, entity)
            data = bits(len(places), [i for i in range(len(places)) if rng.random() < 0.3]) if kind == 1 else None
            tombstones = [
                rng.choice([None, "kept", b"\1\2", 7]) if kind == 2 and i < len(preserved(model, entity)) else None
                for i in range(most)
            ]
            row = (key, 16001, None, kind, layout.ids[entity], rng.randint(1, 9), (key + 1) // 2, data, *tombstones)
            connection.execute(f"INSERT INTO ACHANGE VALUES ({','.join('?' * len(row))})", row)
            self.rows[key] = (entity, row)
            connection.execute(
                "INSERT OR IGNORE INTO ATRANSACTION VALUES (?, 16002, 1, 1, NULL, 2, NULL, 7.5, NULL, NULL,"
                " NULL, NULL, x'00')",
                ((key + 1) // 2,),
            )
        for number, name, top in (
            (16001, "CHANGE", len(self.rows)),
            (16002, "TRANSACTION", 9),
            (16003, "TRANSACTIONSTRING", 2),
        ):
            connection.execute("INSERT INTO Z_PRIMARYKEY VALUES (?, ?, 0, ?)", (number, name, top))
        self.transactions = connection.execute("SELECT * FROM ATRANSACTION").fetchall()

    def loses(self, new):
        """Returns whether the new model lacks an entity with history."""
        kept = {e.identity for e in new.entities.values()}
        return any(self.model[entity].identity not in kept for entity, _ in self.rows.values())

    def check(self, round, target, expected):
        from program import connect

        new, layout = expected.new, Layout(expected.new)
        connection = connect(target)
        try:
            cursor = connection.execute("SELECT * FROM ACHANGE")
            names = [d[0] for d in cursor.description]
            rows = {r[0]: dict(zip(names, r)) for r in cursor.fetchall()}
            if connection.execute("SELECT * FROM ATRANSACTION").fetchall() != self.transactions and not self.loses(new):
                round.problem("history-transactions", "ATRANSACTION's rows changed")
        finally:
            connection.close()
        for key, (entity, row) in self.rows.items():
            later = expected.later.get(entity)
            if later is None:
                continue
            if key not in rows:
                round.problem("history-lost", f"change {key} of {entity}")
                continue
            got = rows[key]
            if got["ZENTITY"] != layout.ids[later] or (got["ZCHANGETYPE"], got["ZENTITYPK"], got["ZTRANSACTIONID"]) != (
                row[3],
                row[5],
                row[6],
            ):
                round.problem("history-entity", f"change {key} of {entity}: {got}, entity is {layout.ids[later]}")
            self._columns(round, expected, entity, later, row, got, layout)
            self._tombstones(round, expected, entity, later, row, got)

    def _columns(self, round, expected, entity, later, row, got, layout):
        if row[7] is None:
            if got["ZCOLUMNS"] is not None:
                round.problem("history-columns", f"{entity}: none became {got['ZCOLUMNS']!r}")
            return
        before, after = slots(self.model, self.layout, entity), slots(expected.new, layout, later)
        changed = {before[i].name for i in chosen_bits(row[7]) if i < len(before) and before[i]}
        former = expected.before(entity)
        want = {p.name for p in after if p and p.name in former and former[p.name].name in changed}
        found = {after[i].name for i in chosen_bits(got["ZCOLUMNS"]) if i < len(after) and after[i]}
        if found != want or len(got["ZCOLUMNS"] or b"") != (len(after) + 7) // 8:
            round.problem(
                "history-columns",
                f"{entity} to {later}: {row[7]!r} of {sorted(changed)} became "
                f"{got['ZCOLUMNS']!r}: {sorted(found)}, not {sorted(want)} of {len(after)}",
            )

    def _tombstones(self, round, expected, entity, later, row, got):
        before, after = preserved(self.model, entity), preserved(expected.new, later)
        if row[3] != 2:
            return
        by, former = {p.name: row[8 + i] for i, p in enumerate(before)}, expected.before(entity)
        for i, p in enumerate(after):
            want = by.get(former[p.name].name) if p.name in former else None
            want = ("text", want.encode()) if isinstance(want, str) else want
            if not same(got.get(f"ZTOMBSTONE{i}"), want):
                round.problem("history-tombstone", f"{entity}.{p.name}: {want!r} became {got.get(f'ZTOMBSTONE{i}')!r}")
