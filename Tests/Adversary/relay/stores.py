"""Random schemas with awkward names, and random statements for whatever tables a store has."""

from digests import OWN, quoted, text

TABLE_NAMES = ["a", "ab", "a b", '"', "select", "order", "\u00e9", "e\u0301", "\u8868", "\U0001f642", "GS_x", "gs_note", "GS_9", "GS_CHANGES",
               "z_", "x%", "x_y", "table's", "\u05e9\u05dc\u05d5\u05dd", "[b]", "values", "T'", "new", "relay,comma", "tab\tle"]
COLUMN_NAMES = ["key", "values", '"', "number", "a", "ab", "\u00e9", "\U0001f642", "GS_", "new", "old", "type", "op", "rowid", "oid", "c'", "[", "\u043a", "excluded"]
VALUES = ["NULL", "''", "X''", "X'00ff'", "CAST(X'ff41' AS TEXT)", "CAST(X'eda080' AS TEXT)", "char(0)||'x'", "'a'||char(0)||'b'", "9223372036854775807",
          "-9223372036854775808", "9007199254740993", "-9007199254740993", "-0.0", "2.0", "1e300", "9e999", "-9e999", "5e-324", "0.1", "1.0/3", "'e'||char(769)",
          "char(233)", "char(10)||char(127)||'\"\\'", "hex(randomblob(300))", "randomblob(3000)", "char(128512)", "'Abc'", "'abc'", "'ABC'", "1", "2", "3",
          "random()", "random()%9", "1e15", "123456789012345678.0", "'12'", "'1e3'", "char(65533)", "char(65279)||'bom'", "CAST(X'c0af' AS TEXT)"]

# Half surrogate pairs in all places, which SQLite's conversion to UTF-8 joins with whatever follows; an odd number of
# bytes; texts that are alike in UTF-8; BLOBs that are text.
UTF16_VALUES = [f"CAST(X'{digits}' AS TEXT)" for digits in (
    "00d84100", "d8000041", "00dc4100", "dc000041", "4100d8", "0041d800", "00d800d8", "d800d800", "00d800dc", "d800dc00", "00dc00d8", "00d80000",
    "d8000000", "fffe4100", "feff0041", "ffff", "610062", "61006200", "00610062")] + [
    "char(65601)", "char(65536)", "char(0)||char(65601)", "X'61006200'", "X'00610062'", "X'4142'", "X'00d84100'", "X'e9'"]
UTF16_TABLES = [
    "CREATE TABLE u1 (t TEXT PRIMARY KEY, v) WITHOUT ROWID", "CREATE TABLE u2 (id INTEGER PRIMARY KEY, t TEXT UNIQUE, v)",
    "CREATE TABLE u3 (id INTEGER PRIMARY KEY, b, c, g AS (lower(b)))", "CREATE INDEX u3a ON u3 (lower(c), g)", "CREATE INDEX u3b ON u3 (b) WHERE c LIKE 'ab%'",
    "CREATE TABLE u4 (id INTEGER PRIMARY KEY, b, g AS (b||'x') STORED)", "CREATE INDEX u4a ON u4 (CAST(b AS TEXT))"]


def new_tables(chance, count):
    """Returns the statements that make tables."""
    statements = []
    names = chance.sample(TABLE_NAMES, count)
    for index, name in enumerate(names):
        columns = [quoted(each) for each in chance.sample(COLUMN_NAMES, chance.randint(2, 4))]
        a, b, rest = columns[0], columns[1], "".join(f", {each}" for each in columns[2:])
        table, ids = quoted(name), quoted(chance.choice(["id", "Z_PK", "k k"]))
        statements.append(chance.choice([
            f"CREATE TABLE {table} ({ids} INTEGER PRIMARY KEY, {a}, {b}{rest})",
            f"CREATE TABLE {table} ({ids} INTEGER PRIMARY KEY AUTOINCREMENT, {a} TEXT, {b}{rest})",
            f"CREATE TABLE {table} ({a}, {b}{rest})",
            f"CREATE TABLE {table} ({a} TEXT PRIMARY KEY, {b} REAL{rest})",
            f"CREATE TABLE {table} ({a}, {b} COLLATE NOCASE, v{rest}, PRIMARY KEY ({a}, {b} DESC)) WITHOUT ROWID",
            f"CREATE TABLE {table} ({a} TEXT COLLATE NOCASE PRIMARY KEY, {b}{rest}) WITHOUT ROWID",
            f"CREATE TABLE {table} ({ids} INTEGER PRIMARY KEY, {a} UNIQUE, {b} UNIQUE{rest})",
            f"CREATE TABLE {table} ({ids} INTEGER PRIMARY KEY, {a} INT, {b} ANY, t TEXT) STRICT",
            f"CREATE TABLE {table} ({ids} INTEGER PRIMARY KEY, {a}, {b} CHECK ({b} IS NOT 3), g AS ({a}||'x') STORED)",
            f"CREATE TABLE {table} ({a} REAL PRIMARY KEY, {b}{rest}) WITHOUT ROWID",
            f"CREATE TABLE {table} ({a} BLOB UNIQUE, {b} TEXT COLLATE RTRIM UNIQUE{rest})",
        ]))
        if chance.random() < 0.2 and index:
            statements.append(f"CREATE TRIGGER {quoted('tr' + name)} AFTER INSERT ON {table} BEGIN INSERT INTO ticks(at) VALUES (1); END")
        if chance.random() < 0.2:
            statements.append(f"CREATE VIEW {quoted('v' + name)} AS SELECT * FROM {table}")
    return statements


def new_store(chance):
    statements = ["CREATE TABLE tick (id INTEGER PRIMARY KEY, n)", "INSERT INTO tick VALUES (1, 0)", "CREATE TABLE ticks (id INTEGER PRIMARY KEY, at)"]
    statements += [f'CREATE TABLE "{name}" (k INTEGER PRIMARY KEY, v, w)' for name in ("twin1", "twin2")]
    statements += new_tables(chance, chance.randint(2, 6))
    statements += ["CREATE TABLE parent (id INTEGER PRIMARY KEY, x)", "CREATE TABLE child (id INTEGER PRIMARY KEY, p REFERENCES parent(id) ON DELETE CASCADE ON UPDATE CASCADE)"]
    return statements


class Statements:
    def __init__(self, chance, connection, words=()):
        self.chance, self.connection, self.version = chance, connection, None
        self.values = VALUES + UTF16_VALUES if "utf16" in words else VALUES

    def refresh(self):
        (version,) = self.connection.execute("PRAGMA schema_version").fetchone()
        if version == self.version:
            return
        self.version, self.tables = version, []
        for (name,) in self.connection.execute("SELECT name FROM sqlite_schema WHERE type='table'").fetchall():
            name = text(name)
            if name.upper() in OWN or name.startswith("sqlite_") or name == "tick":
                continue
            info = self.connection.execute(f"PRAGMA table_xinfo({quoted(name)})").fetchall()
            columns = [text(row[1]) for row in info if not row[6]]
            keys = [text(row[1]) for row in sorted(info, key=lambda row: row[5]) if row[5]]
            self.tables.append((name, columns, keys))

    def value(self):
        return self.chance.choice(self.values)

    def next(self):
        self.refresh()
        chance = self.chance
        name, columns, keys = chance.choice(self.tables)
        table, column = quoted(name), quoted(chance.choice(columns))
        key = quoted(keys[0]) if keys else column
        some = f"{key} IN (SELECT {key} FROM {table} ORDER BY random() LIMIT {chance.randint(1, 3)})"
        all_columns = ", ".join(quoted(each) for each in columns)
        values = ", ".join(self.value() for _ in columns)
        (count,) = self.connection.execute(f"SELECT count(*) FROM {table}").fetchone()
        if count > 40:
            return f"DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM {table} ORDER BY random() LIMIT 25)"
        return chance.choice([
            f"INSERT INTO {table} ({all_columns}) VALUES ({values})", f"INSERT OR REPLACE INTO {table} ({all_columns}) VALUES ({values})",
            f"INSERT OR IGNORE INTO {table} ({all_columns}) VALUES ({values})", f"INSERT OR REPLACE INTO {table} ({column}) VALUES ({self.value()})",
            f"INSERT INTO {table} ({column}) VALUES ({self.value()}), ({self.value()})", f"REPLACE INTO {table} SELECT * FROM {table} LIMIT 2",
            f"UPDATE OR REPLACE {table} SET {column}={self.value()} WHERE {some}", f"UPDATE {table} SET {column}={self.value()} WHERE {some}",
            f"UPDATE OR REPLACE {table} SET {key}={self.value()} WHERE {some}", f"UPDATE OR REPLACE {table} SET {key}={key}+1",
            f"UPDATE OR IGNORE {table} SET {key}=-{key}", f"UPDATE OR REPLACE {table} SET {column}=upper({column})", f"DELETE FROM {table} WHERE {some}",
            f"DELETE FROM {table} WHERE {some}", f"UPDATE {table} SET {column}={column}" if chance.random() < 0.9 else f"DELETE FROM {table}",
        ])

    def schema_change(self):
        self.refresh()
        chance = self.chance
        name, columns, keys = chance.choice(self.tables)
        free = chance.choice(TABLE_NAMES)
        return chance.choice([
            [f"ALTER TABLE {quoted(name)} ADD COLUMN {quoted('n' + str(chance.randrange(99)))} DEFAULT 'd'"],
            new_tables(chance, 1), [f"DROP TABLE {quoted(name)}"] if len(self.tables) > 6 else new_tables(chance, 1),
            [f"CREATE INDEX {quoted('i' + str(chance.randrange(99)))} ON {quoted(name)} ({quoted(chance.choice(columns))})"],
            [f"ALTER TABLE {quoted(name)} RENAME TO {quoted(free)}"], [f"ALTER TABLE {quoted(name)} RENAME COLUMN {quoted(columns[-1])} TO {quoted('r' + str(chance.randrange(99)))}"],
            ["CREATE VIEW v9 AS SELECT 1"], ["DROP VIEW v9"], *self.changes_that_keep_the_text(),
        ])

    def changes_that_keep_the_text(self):
        name, other = self.chance.sample(["twin1", "twin2"], 2)
        return [
            [f"ALTER TABLE {name} DROP COLUMN w", f"ALTER TABLE {name} ADD COLUMN w"],
            [f"ALTER TABLE {name} RENAME TO twin", f"ALTER TABLE {other} RENAME TO {name}", f"ALTER TABLE twin RENAME TO {other}"],
        ]
