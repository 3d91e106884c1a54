"""Random schemas and pairs of stores of programs without Core Data."""

import math
import sqlite3

import stores
from oracle import GROUP, LEGACY, Column, Table
from words import MALFORMED, NAMES, Text, folded, quoted, value

DECLARED = ["", "INTEGER", "TEXT", "REAL", "NUMERIC", "BLOB", "VARCHAR(20)", "TIMESTAMP", "INT", "FLOATING POINT"]
COLLATIONS = ["BINARY", "BINARY", "BINARY", "NOCASE", "RTRIM"]
ACTIONS = ["", "", "ON DELETE CASCADE", "ON DELETE SET NULL ON UPDATE CASCADE", "DEFERRABLE INITIALLY DEFERRED"]


def distinct(chance, number, names=NAMES, but=()):
    """Returns names that SQLite takes for different ones."""
    chosen, taken = [], {folded(b) for b in but}
    for name in chance.sample(names, len(names)):
        if folded(name) not in taken and len(chosen) < number:
            chosen.append(name)
            taken.add(folded(name))
    return chosen


def random_table(chance, name):
    """Returns a table without references."""
    names = distinct(chance, chance.randint(1, 6))
    columns = [Column(n, chance.choice(DECLARED), chance.choice(COLLATIONS)) for n in names]
    kind = chance.choice(
        ["number", "automatic", "text", "several", "without", "int", "desc", "none", "named", "named", "star"]
    )
    first = columns[0]
    if kind in ("number", "automatic") or (kind in ("named", "star") and chance.random() < 0.5):
        first.declared, first.collation = "INTEGER", "BINARY"
        table = Table(
            name, columns, [first.name], number=first.name, automatic=kind == "automatic" or chance.random() < 0.2
        )
    elif kind == "desc":
        first.declared, first.extra, first.collation = "INTEGER", "PRIMARY KEY DESC", "BINARY"
        table = Table(name, columns)
        table.key = [first.name]
    elif kind in ("text", "int"):
        first.declared = "TEXT" if kind == "text" else "INT"
        table = Table(name, columns, [first.name])
    elif kind in ("several", "without"):
        table = Table(name, columns, names[: chance.randint(1, min(3, len(names)))], rowid=kind == "several")
        if table.primary == [first.name] and first.declared == "INTEGER" and table.rowid:
            table.number, first.collation = first.name, "BINARY"
    else:
        table = Table(name, columns)
    give_key(chance, table, kind)
    return table


def give_key(chance, table, kind):
    """Gives a table that needs it, or some others, a key by --merge-key."""
    free = [
        c.name
        for c in table.columns
        if c.name != table.number and "," not in c.name and c.name != "*" and c.name.strip() == c.name
    ]
    if "=" in table.name or table.name.strip() != table.name:
        return
    if kind == "star" or (kind in ("none", "named") and (not free or chance.random() < 0.2)):
        table.key, table.flag = "*", True
    elif kind in ("named", "none"):
        table.key, table.flag = chance.sample(free, chance.randint(1, min(2, len(free)))), True


def flags(tables, prefer):
    """Returns the options of a run."""
    given = []
    for table in tables:
        if table.flag:
            given += ["--merge-key", table.name + "=" + (table.key if table.key == "*" else ",".join(table.key))]
    return given + [word for way in prefer for word in ("--prefer", way)]


def preferences(chance, tables):
    ways = []
    for _ in range(chance.choice([0, 0, 0, 1, 1, 2])):
        column = chance.choice(chance.choice(tables).stored).name
        ways.append("newer:" + column)
    if chance.random() < 0.85:
        ways.append(chance.choice([GROUP, LEGACY]))
    return ways


def insert(connection, table, row):
    """Inserts a row if the table accepts it."""
    listed = [c.name for c in table.stored if c.name in row]
    given = ", ".join("CAST(? AS TEXT)" if isinstance(row[n], Text) else "?" for n in listed)
    values = [spoken(row[n]) for n in listed]
    try:
        connection.execute(
            f"INSERT INTO {quoted(table.name)} ({', '.join(quoted(n) for n in listed)}) VALUES ({given})", values
        )
    except (sqlite3.IntegrityError, OverflowError):
        return False
    return True


def spoken(value):
    if isinstance(value, Text):
        return bytes(value) if bytes(value) in MALFORMED else bytes(value).decode()
    return None if isinstance(value, float) and math.isnan(value) else value


def fill(chance, connections, tables, most, wellformed=False, references=0.8):
    """Fills both stores: some rows are in both, some in both with other values, some in one."""
    for table in tables:
        style = chance.random()
        for _ in range(chance.choice([0, 1, 3, most, most])):
            row = {c.name: value(chance, wellformed) for c in table.stored}
            if table.number:
                row[table.number] = chance.choice(
                    [chance.randint(-3, 2 * most), chance.choice([1, 2, 3, 2**40, -(2**63)])]
                )
            sides = (
                chance.choice([(GROUP,), (LEGACY,), (GROUP, LEGACY), (GROUP, LEGACY)])
                if style < 0.8
                else (chance.choice([GROUP, LEGACY]),)
            )
            for side in sides:
                own = dict(row)
                if len(sides) == 2 and side == LEGACY and chance.random() < 0.5:
                    for column in chance.sample(table.stored, chance.randint(0, len(table.stored))):
                        if column.name not in (table.key or []):
                            own[column.name] = value(chance, wellformed)
                    if table.number:
                        own[table.number] = chance.choice([row[table.number], chance.randint(1, 2 * most)])
                insert(connections[side], table, own)
    link(chance, connections, tables, references)


def link(chance, connections, tables, share):
    """Lets references lead to rows that are there, or nowhere."""
    for connection in connections.values():
        for table in tables:
            for column in table.columns:
                if not column.refers:
                    continue
                there = [
                    r[0]
                    for r in connection.execute(f"SELECT {quoted(column.refers[1])} FROM {quoted(column.refers[0])}")
                ]
                there = [t for t in there if t is not None]
                key = "rowid" if table.rowid else quoted(table.primary[0])
                rows = connection.execute(f"SELECT {key} FROM {quoted(table.name)}").fetchall()
                update = f"UPDATE {quoted(table.name)} SET {quoted(column.name)} = ? WHERE {key} IS ?"
                for (row,) in rows:
                    to = chance.choice(there) if there and chance.random() < share else None
                    try:
                        connection.execute(update, (to, row))
                    except sqlite3.IntegrityError:
                        continue


def made(chance, stage, tables, most, more=(), utf16=0.1, filler=None):
    """Makes both stores; returns the rows of each."""
    wide = chance.random() < utf16
    page = chance.choice([512, 4096, 4096, 65536])
    connections = {}
    for side, path in ((GROUP, stage.group_store), (LEGACY, stage.legacy_store)):
        connection = connections[side] = stores.connected(path)
        connection.execute(f"PRAGMA page_size = {page}")
        if wide:
            connection.execute("PRAGMA encoding = 'UTF-16le'")
        for table in tables if side == GROUP or chance.random() < 0.6 else chance.sample(tables, len(tables)):
            connection.execute(table.sql())
        for statement in more:
            connection.execute(statement)
    states = {}
    paths = {GROUP: stage.group_store, LEGACY: stage.legacy_store}
    early = chance.random() < 0.5
    (filler or fill)(chance, connections, tables, most, wide) if early else None
    for side, connection in connections.items():
        states[side] = stores.finish(connection, chance)
        if isinstance(states[side], str):
            connections[side] = stores.connected(paths[side])
    if not early:
        (filler or fill)(chance, connections, tables, most, wide)
    rows, sequences = {}, {}
    for side, connection in connections.items():
        rows[side] = {t.name: t.rows(connection) for t in tables}
        if any(t.automatic for t in tables):
            sequences[side] = {n.decode(): s for n, s in connection.execute("SELECT name, seq FROM sqlite_sequence")}
        if isinstance(states[side], str):
            connection.close()
        else:
            stores.leave(connection, paths[side])
    stage.remember()
    return rows, sequences
