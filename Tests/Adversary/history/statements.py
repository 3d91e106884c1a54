"""Makes random statements for the tables that a store has at the moment."""

import json

from schemas import SchemaWriter
from triggers import trigger
from words import COLUMN_NAMES, CONFLICTS, TABLE_NAMES, TYPES, identifier


class Table:
    """A table as the store's schema describes it now."""

    def __init__(self, connection, name):
        self.name = name
        rows = connection.execute(f"PRAGMA main.table_xinfo({identifier(name)})").fetchall()
        self.columns = [text(r[1]) for r in rows if r[6] == 0]
        self.generated = [text(r[1]) for r in rows if r[6] in (2, 3)]
        self.key = [text(r[1]) for r in sorted(rows, key=lambda r: r[5]) if r[5]]


def text(value):
    return bytes(value).decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else value


class StatementWriter:
    """Draws the next statement. It reads the twin without a history, so both get the same statements."""

    def __init__(self, random, features, connection):
        self.random = random
        self.features = features
        self.writer = SchemaWriter(random, features)
        self.connection = connection
        self.version = None
        self.made = 0
        self.savepoints = []

    def refresh(self):
        version = self.connection.execute("PRAGMA main.schema_version").fetchone()[0]
        if version == self.version:
            return
        self.version = version
        names = [text(r[0]) for r in self.connection.execute(
            "SELECT name FROM main.sqlite_schema WHERE type='table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name")]
        self.tables = [t for t in (Table(self.connection, n) for n in names if n != "trail") if t.columns]
        self.views = [text(r[0]) for r in self.connection.execute("SELECT name FROM main.sqlite_schema WHERE type='view' ORDER BY name")]
        self.indexes = [text(r[0]) for r in self.connection.execute(
            "SELECT name FROM main.sqlite_schema WHERE type='index' AND sql IS NOT NULL ORDER BY name")]

    def value(self):
        return self.writer.value()

    def key_value(self):
        return self.random.choice([str(self.random.randint(1, 6))] * 4 + [self.value()])

    def chance(self, feature, probability):
        return feature in self.features and self.random.random() < probability

    def next(self):
        self.refresh()
        r = self.random
        if not self.tables:
            return self.new_table()
        rare = r.random()
        if rare < 0.10:
            return self.transaction()
        if rare < 0.15:
            special = self.special()
            if special:
                return special
        t = r.choice(self.tables)
        return r.choice([self.insert, self.insert, self.insert, self.update, self.update, self.delete])(t)

    # Rows

    def conflict(self):
        return self.random.choice(["", "", " OR " + self.random.choice(CONFLICTS), " OR REPLACE", " OR REPLACE"])

    def values_for(self, t, columns):
        return ", ".join(self.key_value() if c in t.key or c.lower() in ("rowid", "oid", "_rowid_") else self.value() for c in columns)

    def columns_for(self, t):
        r = self.random
        columns = list(t.columns) if r.random() < 0.7 else r.sample(t.columns, r.randint(1, len(t.columns)))
        if len(columns) > 12:
            columns = t.key + r.sample([c for c in columns if c not in t.key], 3) + t.columns[-1:]
            columns = list(dict.fromkeys(columns))
        if r.random() < 0.1 and "rowid" not in [c.lower() for c in t.columns]:
            columns = ["rowid"] + [c for c in columns if c not in t.key or len(t.key) > 1]
        return columns

    def target(self, t):
        r = self.random
        if self.views and r.random() < 0.12:
            view = r.choice(self.views)
            try:
                return view, Table(self.connection, view)
            except Exception:
                pass
        return t.name, t

    def insert(self, t):
        r = self.random
        name, t = self.target(t)
        if not t.columns:
            return f"DELETE FROM {identifier(name)}"
        columns = self.columns_for(t)
        listed = ", ".join(map(identifier, columns))
        conflict = self.conflict()
        if self.chance("many", 0.1):
            rows = [[self.plain_value() for _ in columns] for _ in range(r.randint(1, 4))]
            return f"!many INSERT{conflict} INTO {identifier(name)}({listed}) VALUES ({', '.join('?' * len(columns))}) ;; {json.dumps(rows)}"
        if self.chance("insert_select", 0.15):
            source = r.choice(self.tables)
            picked = ", ".join(r.choice([identifier(r.choice(source.columns)), self.value()]) for _ in columns)
            sql = f"INSERT{conflict} INTO {identifier(name)}({listed}) SELECT {picked} FROM {identifier(source.name)} WHERE true LIMIT 5"
        elif r.random() < 0.04:
            sql = f"INSERT{conflict} INTO {identifier(name)} DEFAULT VALUES"
            return sql + self.returning(t)
        else:
            rows = ", ".join(f"({self.values_for(t, columns)})" for _ in range(r.choice([1, 1, 1, 2, 4])))
            sql = f"INSERT{conflict} INTO {identifier(name)}({listed}) VALUES {rows}"
        if not conflict and self.chance("upsert", 0.5) and name not in self.views:
            sql += self.upsert(t, columns)
        return sql + self.returning(t)

    def plain_value(self):
        return self.random.choice([None, 1, 2, 3, 4, "a", "b", "A", 2.5, 1.0, "1"])

    def upsert(self, t, columns):
        r = self.random
        a, b = r.choice(t.columns), r.choice(columns)
        target = f"({', '.join(map(identifier, t.key))})" if t.key and r.random() < 0.5 else ""
        if not target and r.random() < 0.3:
            target = f"({identifier(r.choice(t.columns))})"
        return f" ON CONFLICT{target} " + r.choice([
            "DO NOTHING",
            f"DO UPDATE SET {identifier(a)}=excluded.{identifier(b)}",
            f"DO UPDATE SET {identifier(a)}={self.value()} WHERE {identifier(b)} IS NOT {self.value()}",
            f"DO UPDATE SET ({identifier(a)}, {identifier(b)})=({self.value()}, excluded.{identifier(b)})",
        ])

    def returning(self, t):
        if self.chance("returning", 0.2):
            return " RETURNING " + self.random.choice(["*", identifier(self.random.choice(t.columns)), "*, rowid", "1"])
        return ""

    def where(self, t):
        r = self.random
        columns = t.columns + t.generated
        c, d = identifier(r.choice(t.key or columns)), identifier(r.choice(columns))
        return r.choice([
            "", f" WHERE {c}={self.key_value()}", f" WHERE {c}={self.key_value()}", f" WHERE {d}={self.value()}", f" WHERE {d} IS {self.value()}",
            f" WHERE {c}>{self.key_value()}", f" WHERE {d} IN ({self.value()}, {self.value()})", f" WHERE rowid={r.randint(1, 5)}",
            f" WHERE {c} IN (SELECT {c} FROM {identifier(t.name)} ORDER BY 1 LIMIT 2)",
        ])

    def update(self, t):
        r = self.random
        name, t = self.target(t)
        if not t.columns:
            return f"DELETE FROM {identifier(name)}"
        chosen = r.sample(t.columns, min(len(t.columns), r.choice([1, 1, 1, 2, 3])))
        if r.random() < 0.1 and "rowid" not in [c.lower() for c in t.columns]:
            chosen = ["rowid"] + [c for c in chosen if c not in t.key]
        sets = []
        for c in chosen:
            key = c in t.key or c == "rowid"
            other = identifier(r.choice(t.columns))
            sets.append(f"{identifier(c)}=" + r.choice(
                [self.key_value() if key else self.value()] * 3 + [identifier(c), f"{identifier(c)}+1", f"-{identifier(c)}", other]
                + [f"(SELECT {identifier(r.choice(t.columns))} FROM {identifier(name)} ORDER BY 1 LIMIT 1)"]))
        sql = f"UPDATE{self.conflict()} {identifier(name)} SET {', '.join(sets)}"
        if self.chance("update_from", 0.15):
            other = r.choice(self.tables)
            sql += (f" FROM (SELECT {identifier(r.choice(other.columns))} AS z FROM {identifier(other.name)} LIMIT 3) AS s "
                    f"WHERE s.z={identifier(name)}.{identifier(r.choice(t.columns))}")
            return sql
        if self.chance("ctes", 0.1):
            sql = f"WITH q(z) AS (VALUES ({self.value()}), ({self.value()})) " + sql + f" WHERE {identifier(r.choice(t.columns))} IN q"
            return sql
        return sql + self.where(t) + self.returning(t)

    def delete(self, t):
        r = self.random
        name, t = self.target(t)
        if not t.columns:
            return "SELECT 1"
        where = self.where(t)
        if not where and r.random() < 0.6:
            where = f" WHERE {identifier(r.choice(t.columns))}={self.value()}"
        return f"DELETE FROM {identifier(name)}{where}{self.returning(t)}"

    # Transactions, pragmas and the schema

    def transaction(self):
        r = self.random
        choices = ["BEGIN", "COMMIT", "COMMIT", "BEGIN IMMEDIATE"]
        if "rollbacks" in self.features:
            choices += ["ROLLBACK"]
        if "savepoints" in self.features:
            s = r.choice(["p", "q"])
            choices += [f"SAVEPOINT {s}", f"ROLLBACK TO {s}", f"RELEASE {s}", f"SAVEPOINT {s}", f"ROLLBACK TO {s}"]
        return r.choice(choices)

    def special(self):
        r = self.random
        choices = []
        for feature, make in [
            ("alter", self.alter), ("rebuild", self.rebuild), ("vacuum", lambda: "VACUUM"), ("drop", self.drop), ("pragmas", self.pragma),
            ("new_tables", self.new_table), ("indexes_change", self.change_index), ("reconnect", lambda: "!reconnect"),
            ("enable_again", lambda: "!enable"), ("temp_tables", self.temp_table), ("temp_triggers", lambda: self.new_trigger(True)), ("later_triggers", lambda: self.new_trigger(False)),
        ]:
            if feature in self.features:
                choices.append(make)
        return r.choice(choices)() if choices else None

    def pragma(self):
        r = self.random
        return r.choice([
            f"PRAGMA recursive_triggers={r.choice(['ON', 'OFF'])}", f"PRAGMA foreign_keys={r.choice(['ON', 'OFF'])}",
            f"PRAGMA trusted_schema={r.choice(['ON', 'OFF'])}", f"PRAGMA ignore_check_constraints={r.choice(['ON', 'OFF'])}",
            f"PRAGMA legacy_alter_table={r.choice(['ON', 'OFF'])}", "PRAGMA defer_foreign_keys=ON", "REINDEX", "PRAGMA integrity_check",
            "PRAGMA foreign_key_check", f"PRAGMA reverse_unordered_selects={r.choice(['ON', 'OFF'])}", "ANALYZE trail",
            f"PRAGMA count_changes={r.choice(['ON', 'OFF'])}", f"PRAGMA query_only={r.choice(['ON', 'OFF', 'OFF', 'OFF'])}",
            f"PRAGMA automatic_index={r.choice(['ON', 'OFF'])}", f"PRAGMA cell_size_check={r.choice(['ON', 'OFF'])}",
            f"PRAGMA case_sensitive_like={r.choice(['ON', 'OFF'])}", f"PRAGMA full_column_names={r.choice(['ON', 'OFF'])}",
        ])

    def alter(self):
        r = self.random
        t = r.choice(self.tables)
        c = r.choice(t.columns + t.generated)
        self.made += 1
        hidden = set() if "rowid_names" in self.features else {"rowid", "oid", "_rowid_"}
        new = r.choice([n for n in COLUMN_NAMES if "odd_names" in self.features and n not in hidden] + [f"n{self.made}"])
        name = r.choice([n for n in TABLE_NAMES if "odd_names" in self.features] + [f"m{self.made}"])
        return f"ALTER TABLE {identifier(t.name)} " + r.choice([
            f"RENAME TO {identifier(name)}",
            f"RENAME COLUMN {identifier(c)} TO {identifier(new)}",
            f"ADD COLUMN {identifier(new)} {r.choice(TYPES)}{r.choice(['', ' DEFAULT 7', ' NOT NULL DEFAULT 8', ' CHECK (1)', ' AS (1)'])}",
            f"DROP COLUMN {identifier(c)}",
            f"DROP COLUMN {identifier(c)}",
        ])

    def rebuild(self):
        """Returns the twelve steps that rebuild a table, without those that turn things off and on."""
        t = self.random.choice(self.tables)
        self.made += 1
        temporary = f"_new_{self.made}"
        columns = ", ".join(map(identifier, t.columns))
        key = f", PRIMARY KEY({', '.join(map(identifier, t.key))})" if t.key else ""
        return "\n".join([
            f"CREATE TABLE {temporary}({columns}{key})",
            f"INSERT INTO {temporary}({columns}) SELECT {columns} FROM {identifier(t.name)}",
            f"DROP TABLE {identifier(t.name)}", f"ALTER TABLE {temporary} RENAME TO {identifier(t.name)}",
        ])

    def drop(self):
        return f"DROP TABLE {identifier(self.random.choice(self.tables).name)}"

    def new_table(self):
        taken = {t.name.lower() for t in self.tables} | {v.lower() for v in self.views}
        self.writer.keys, self.writer.names = [(t.name, t.key) for t in self.tables if t.key], {}
        return self.writer.table(taken)

    def change_index(self):
        r = self.random
        if self.indexes and r.random() < 0.5:
            return f"DROP INDEX {identifier(r.choice(self.indexes))}"
        t = r.choice(self.tables)
        self.writer.names = {t.name: t.columns, t.name + "\0generated": t.generated}
        self.made += 1
        return self.writer.index(100 + self.made, [t.name])

    def temp_table(self):
        name = self.random.choice([self.random.choice(self.tables).name, "GS_CHANGE", "GS_REPLACED", "GS_AUTHOR"])
        return self.random.choice([f"CREATE TEMP TABLE {identifier(name)}(a, b, number, key)", f"DROP TABLE IF EXISTS temp.{identifier(name)}"])

    def new_trigger(self, temporary):
        t = self.random.choice(self.tables)
        self.writer.names = {t.name: t.columns, "trail": ["what", "k", "x"]}
        self.made += 1
        return trigger(self.writer, 100 + self.made, t.name, [t.name], temporary)
