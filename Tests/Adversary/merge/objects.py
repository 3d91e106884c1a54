"""The objects of a Core Data store: writes and reads them by SQL, as the format notes describe."""

import os
import uuid

import stores
from words import Text, comparable, exact, quoted


class Layout:
    """Where a model's objects are in a store, learned from a store that the program made."""

    def __init__(self, model, names, renamed, connection):
        self.model, self.renamed = model, renamed
        self.number = {n.decode(): e for e, n in connection.execute("SELECT Z_ENT, Z_NAME FROM Z_PRIMARYKEY")}
        self.columns = {t: stores.columns(connection, t) for t in stores.tables(connection)}
        note, tag = names["Note"], names["Tag"]
        self.note, self.folder, self.photo = note, names["Folder"], names["Photo"]
        self.tags = next(t for t, c in self.columns.items() if f"Z_{self.number[note]}NOTES" in c)
        self.likes = next(t for t, c in self.columns.items() if f"Z_{self.number[note]}LIKE" in c)
        self.ends = {
            self.tags: {f"Z_{self.number[note]}NOTES": note, f"Z_{self.number[tag]}{renamed('tags').upper()}": tag},
            self.likes: {f"Z_{self.number[note]}LIKE": note, f"Z_{self.number[note]}LIKEDBY": note},
        }
        self.second = max((names["Photo"], names["Movie"]), key=lambda n: self.number[n])

    def column(self, entity, name):
        extra = "1" if entity == self.second and name == self.renamed("title") else ""
        return "Z" + name.upper() + extra

    def entity_column(self, entity, name):
        """Returns the column with the entity's number of a to-one relationship, if there is one."""
        destination = self.model.one(entity)[name][0]
        found = f"Z{self.number[destination]}_{name.upper()}"
        return found if len(self.model.below(destination)) > 1 else None

    def order_column(self, name):
        found = f"Z_FOK_{name.upper()}"
        return found if found in self.columns[self.model.table(self.note)] else None


class Object:
    def __init__(self, entity, number, values, links, row):
        self.entity, self.number, self.values, self.links, self.row = entity, number, values, links, row

    def __repr__(self):
        return f"{self.entity} {self.number} {self.values}"


def read(path, layout):
    """Returns the objects by (table, Z_PK), the links of the join tables, and Z_MAX by table."""
    connection = stores.connected(path)
    try:
        names = {number: name for name, number in layout.number.items()}
        objects = {}
        for table in {layout.model.table(n) for n in layout.number}:
            columns = layout.columns[table]
            for found in connection.execute(
                f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(table)} ORDER BY Z_PK"
            ):
                row = dict(zip(columns, found))
                entity = names[row["Z_ENT"]]
                values = {a: row[layout.column(entity, a)] for a in layout.model.attributes(entity)}
                for name in layout.model.external(entity):
                    values[name] = resolved(path, values[name])
                links = {}
                for name, (destination, _) in layout.model.one(entity).items():
                    target = row[layout.column(entity, name)]
                    links[name] = None if target is None else (layout.model.table(destination), target)
                objects[table, row["Z_PK"]] = Object(entity, row["Z_PK"], values, links, row)
        joined = {}
        for table, ends in layout.ends.items():
            columns = layout.columns[table]
            rows = [
                dict(zip(columns, r))
                for r in connection.execute(f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(table)}")
            ]
            joined[table] = [tuple((layout.model.table(e), r[c]) for c, e in ends.items()) for r in rows]
        most = {
            layout.model.table(n.decode()): m
            for n, m in connection.execute("SELECT Z_NAME, Z_MAX FROM Z_PRIMARYKEY WHERE Z_SUPER = 0 AND Z_ENT < 16000")
        }
        identity = connection.execute("SELECT Z_UUID, Z_PLIST FROM Z_METADATA").fetchall()
        sound = connection.execute("PRAGMA integrity_check").fetchone()[0]
        return objects, joined, most, (identity, sound)
    finally:
        connection.close()


def resolved(path, value):
    """Returns external data as its bytes."""
    if not isinstance(value, bytes):
        return value
    if value[:1] == b"\1":
        return b"data " + value[1:]
    name = value[1:].rstrip(b"\0").decode("utf-8", "replace")
    file = os.path.join(stores.support_folder(path), "_EXTERNAL_DATA", name)
    if not os.path.exists(file):
        return b"missing " + value
    with open(file, "rb") as data:
        return b"data " + data.read()


def write(chance, path, layout, objects, order):
    """Writes objects, [entity, values, links by mark] by mark; `order` gives the numbers. Returns these by mark."""
    connection = stores.connected(path)
    connection.execute("BEGIN")
    numbers, most = {}, {}
    for mark in order:
        table = layout.model.table(objects[mark][0])
        most[table] = most.get(table, 0) + chance.choice([1, 1, 1, 5])
        numbers[mark] = most[table]
    position = 2048
    for mark in order:
        entity, values, links = objects[mark]
        row = {"Z_PK": numbers[mark], "Z_ENT": layout.number[entity], "Z_OPT": chance.randint(1, 4)}
        for name, value in values.items():
            if name in layout.model.external(entity) and value is not None:
                value = outside(chance, path, value)
            row[layout.column(entity, name)] = value
        for name, target in links.items():
            row[layout.column(entity, name)] = numbers.get(target)
            if layout.entity_column(entity, name) and numbers.get(target):
                row[layout.entity_column(entity, name)] = layout.number[objects[target][0]]
        if entity == layout.note and layout.order_column(layout.renamed("folder")) and links[layout.renamed("folder")]:
            row[layout.order_column(layout.renamed("folder"))] = position
            position += chance.choice([1024, 512, 1])
        listed = ", ".join(map(quoted, row))
        values = [spoken(v) for v in row.values()]
        connection.execute(
            f"INSERT INTO {quoted(layout.model.table(entity))} ({listed}) VALUES ({', '.join('?' * len(row))})", values
        )
    for table, number in most.items():
        extra = chance.choice([0, 0, 7])
        for name, entity in layout.number.items():
            if layout.model.table(name) == table and not layout.model.entities[name].parent:
                connection.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = ? WHERE Z_ENT = ?", (number + extra, entity))
    return connection, numbers


def spoken(value):
    return bytes(value).decode() if isinstance(value, Text) else value


def outside(chance, path, data):
    """Returns the column's value for external data: inline, or the name of a file."""
    if chance.random() < 0.4:
        return b"\1" + data
    name = str(uuid.UUID(int=chance.getrandbits(3) if chance.random() < 0.5 else chance.getrandbits(128))).upper()
    folder = os.path.join(stores.support_folder(path), "_EXTERNAL_DATA")
    os.makedirs(folder, exist_ok=True)
    file = os.path.join(folder, name)
    if os.path.exists(file):
        return b"\1" + data
    with open(file, "wb") as out:
        out.write(data)
    return b"\2" + name.encode() + b"\0"


def link(connection, layout, table, pairs):
    """Writes the links of a join table: pairs of numbers, in the order of its ends."""
    columns = layout.columns[table]
    first, second = layout.ends[table]
    for number, (one, other) in enumerate(sorted(set(pairs))):
        row = {c: 2048 + 1024 * number for c in columns if c.startswith("Z_FOK")}
        row.update({first: one, second: other})
        listed = ", ".join(map(quoted, row))
        connection.execute(
            f"INSERT INTO {quoted(table)} ({listed}) VALUES ({', '.join('?' * len(row))})", list(row.values())
        )


def shown(values):
    return {name: exact(value) for name, value in values.items()}


def alike(values):
    return tuple(sorted((name, comparable(value)) for name, value in values.items()))


HISTORY = """
CREATE TABLE ACHANGE (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCHANGETYPE INTEGER, ZENTITY INTEGER,
    ZENTITYPK INTEGER, ZTRANSACTIONID INTEGER, ZCOLUMNS BLOB);
CREATE TABLE ATRANSACTION (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZAUTHORTS INTEGER,
    ZBUNDLEIDTS INTEGER, ZCONTEXTNAMETS INTEGER, ZPROCESSIDTS INTEGER, ZTIMESTAMP FLOAT,
    ZAUTHOR VARCHAR, ZBUNDLEID VARCHAR, ZCONTEXTNAME VARCHAR,
    ZPROCESSID VARCHAR, ZQUERYGEN BLOB);
CREATE TABLE ATRANSACTIONSTRING (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZNAME VARCHAR);
CREATE INDEX ACHANGE_ZTRANSACTIONID_INDEX ON ACHANGE (ZTRANSACTIONID);
CREATE UNIQUE INDEX Z_TRANSACTIONSTRING_UNIQUE_NAME ON ATRANSACTIONSTRING (ZNAME COLLATE BINARY ASC);
INSERT INTO Z_PRIMARYKEY VALUES (16001, 'CHANGE', 0, 2), (16002, 'TRANSACTION', 0, 1),
    (16003, 'TRANSACTIONSTRING', 0, 1);
INSERT INTO ATRANSACTIONSTRING VALUES (1, 16003, 1, 'app');
INSERT INTO ATRANSACTION VALUES (1, 16002, 1, 1, NULL, NULL, NULL, 700000000.5, NULL, NULL, NULL, NULL, NULL);
INSERT INTO ACHANGE VALUES (1, 16001, NULL, 0, 1, 1, 1, NULL), (2, 16001, NULL, 0, 1, 2, 1, NULL);
"""


def enable_history(path):
    """Adds Core Data's persistent history, with a transaction of an app."""
    connection = stores.connected(path)
    connection.executescript("BEGIN;" + HISTORY + "COMMIT;")
    connection.close()


def changes(path):
    """Returns the transactions' authors, and the changes (transaction, kind, entity's number, number)."""
    connection = stores.connected(path)
    try:
        authors = dict(
            connection.execute(
                "SELECT t.Z_PK, s.ZNAME FROM ATRANSACTION t LEFT JOIN ATRANSACTIONSTRING s ON s.Z_PK = t.ZAUTHORTS"
            )
        )
        made = connection.execute(
            "SELECT ZTRANSACTIONID, ZCHANGETYPE, ZENTITY, ZENTITYPK FROM ACHANGE ORDER BY Z_PK"
        ).fetchall()
        most = dict(connection.execute("SELECT Z_ENT, Z_MAX FROM Z_PRIMARYKEY WHERE Z_ENT > 16000"))
        return authors, made, most
    finally:
        connection.close()
