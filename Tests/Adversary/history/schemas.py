"""Makes random schemas. Each round draws its own features, so that rare ones meet and common ones sometimes stay away."""

from triggers import trigger_statements
from words import COLLATIONS, COLUMN_NAMES, CONFLICTS, STRICT_TYPES, TABLE_NAMES, TYPES, VALUES, identifier

FEATURES = [
    "odd_names", "without_rowid", "strict", "generated", "check", "default", "foreign_keys", "unique", "conflict_clauses",
    "unique_indexes", "partial_indexes", "expression_indexes", "collations", "descending", "views", "triggers",
    "before_triggers", "raise", "temp_triggers", "trigger_writes_own_table", "before_trigger_writes", "autoincrement",
    "numbers", "case", "blobs", "nul", "extremes", "quotes", "long", "utf16", "small_pages", "alter", "rebuild", "vacuum",
    "drop", "new_tables", "indexes_change", "savepoints", "rollbacks", "upsert", "returning", "update_from", "insert_select", "many",
    "pragmas", "reconnect", "attach", "rowid_names", "enable_again", "temp_tables", "wide", "deferred", "ctes", "later_triggers", "json",
]

# Features that a document names as unrecorded, or that need care in the oracle, are rare.
SELDOM = {"json", "later_triggers", "utf16", "attach", "wide", "before_trigger_writes", "temp_triggers", "rebuild", "drop", "long", "rowid_names", "enable_again"}


def draw_features(random, without=()):
    features = {f for f in FEATURES if random.random() < (0.12 if f in SELDOM else 0.4)}
    return features - set(without)


class SchemaWriter:
    """Writes the statements that make one random schema, before the history is enabled."""

    def __init__(self, random, features):
        self.random = random
        self.features = features
        self.names = {}
        self.keys = []  # (table, columns) that a foreign key may name

    def chance(self, feature, probability):
        return feature in self.features and self.random.random() < probability

    def value(self):
        pools = [VALUES["plain"]] * 3 + [VALUES[k] for k in sorted(VALUES) if k != "plain" and k in self.features]
        return self.random.choice(self.random.choice(pools))

    def fresh(self, pool, taken):
        usable = [n for n in pool if n.lower() not in taken]
        if "odd_names" not in self.features:
            usable = [n for n in usable if n in ("t", "tt", "t_", "T2", "note", "a", "b", "c", "d", "e", "f", "key", "number", "name")] or usable
        if "rowid_names" not in self.features:
            usable = [n for n in usable if n not in ("rowid", "oid", "_rowid_")]
        name = self.random.choice(usable)
        taken.add(name.lower())
        return name

    def conflict(self, probability=0.3):
        if self.chance("conflict_clauses", probability):
            return " ON CONFLICT " + self.random.choice(CONFLICTS + ["REPLACE"] * 3)
        return ""

    def collate(self, probability=0.3):
        return " COLLATE " + self.random.choice(COLLATIONS) if self.chance("collations", probability) else ""

    def direction(self):
        return self.random.choice([" DESC", " ASC"]) if self.chance("descending", 0.4) else ""

    def expression(self, columns):
        r = self.random
        c, d = identifier(r.choice(columns)), identifier(r.choice(columns))
        if self.chance("json", 0.4):
            return r.choice([f"json_extract({c},'$.e')", f"{c}->>'e'", f"json_type({c})", f"json_valid({c})"])
        return r.choice([
            f"lower({c})", f"{c}||{d}", f"abs({c})", f"{c}+{d}", f"typeof({c})", f"coalesce({c},0)", f"quote({c})", f"{c} COLLATE NOCASE",
            f"substr({c},1,1)", f"({c}=1)", f"({c}>'2')", f"ifnull({c},{d})", f"length({c})", f"CAST({c} AS INTEGER)", f"CAST({c} AS TEXT)",
            f"({c} IS {d})", f"CASE WHEN {c}>2 THEN {d} END", f"min({c},{d})", f"hex({c})", f"-{c}", f"({c} LIKE 'a%')", f"{c}",
        ])

    def condition(self, columns):
        r = self.random
        c, d = identifier(r.choice(columns)), identifier(r.choice(columns))
        return r.choice([
            f"{c} IS NOT NULL", f"{c} IS NULL", f"{c}>2", f"{c}='1'", f"{c}<>0", f"{c}='a'", f"typeof({c})='text'", f"{c} IN (1,2,'a')",
            f"{c} BETWEEN 1 AND 3", f"{c} GLOB 'a*'", f"{c}={d}", f"{c} IS NOT 1", f"NOT {c}", f"{c}", f"{c}||'' >'1'", "1",
            f"{c}>2 AND {d} IS NOT NULL", f"{c} IS TRUE", f"({c},{d})>(1,2)", f"{c}='A' COLLATE NOCASE",
        ])

    def indexed(self, columns, most=3):
        """Returns a list of columns, as an index or a constraint names them."""
        r = self.random
        chosen = [r.choice(columns) for _ in range(r.choice([1, 1, 2, most]))]
        return ", ".join(identifier(c) + self.collate(0.3) + self.direction() for c in chosen)

    def column(self, name, strict, others):
        r = self.random
        parts = [identifier(name), r.choice(STRICT_TYPES if strict else TYPES)]
        parts.append(self.collate().strip())
        if self.chance("generated", 0.2) and others:
            parts.append(f"GENERATED ALWAYS AS ({self.expression(others)}) " + r.choice(["VIRTUAL", "STORED"]))
            if r.random() < 0.4 and "unique" in self.features:
                parts.append("UNIQUE" + self.conflict())
            return " ".join(p for p in parts if p), True
        if r.random() < 0.15:
            parts.append("NOT NULL" + self.conflict(0.5))
        if self.chance("default", 0.3):
            parts.append("DEFAULT " + r.choice(["7", "'D'", "NULL", "(1+1)", "2.0", "X'61'", "(lower('Q'))"]))
        if self.chance("unique", 0.3):
            parts.append("UNIQUE" + self.conflict())
        if self.chance("check", 0.15):
            parts.append(f"CHECK ({identifier(name)} IS NOT 5)")
        if self.chance("foreign_keys", 0.3) and self.keys:
            parts.append(self.reference([k for k in self.keys if len(k[1]) == 1]))
        return " ".join(p for p in parts if p), False

    def reference(self, keys):
        if not keys:
            return ""
        r = self.random
        table, columns = r.choice(keys)
        actions = "".join(
            f" ON {event} {r.choice(['CASCADE', 'SET NULL', 'SET DEFAULT', 'RESTRICT', 'NO ACTION', 'CASCADE'])}"
            for event in ("DELETE", "UPDATE") if r.random() < 0.75)
        late = " DEFERRABLE INITIALLY DEFERRED" if self.chance("deferred", 0.4) else ""
        return f"REFERENCES {identifier(table)}({', '.join(map(identifier, columns))}){actions}{late}"

    def table(self, taken, name=None):
        """Returns one CREATE TABLE."""
        r = self.random
        name = self.fresh(TABLE_NAMES, taken) if name is None else name
        strict, bare = self.chance("strict", 0.4), self.chance("without_rowid", 0.5)
        used, plain, defs, constraints = set(), [], [], []
        kind = r.choice(["integer", "integer", "integer", "text", "composite", "none"])
        if bare and kind == "none":
            kind = "composite"
        self.names[name] = plain
        if kind == "integer":
            key = r.choice(["id", "id", self.fresh(COLUMN_NAMES, used)])
            used.add(key.lower())
            auto = " AUTOINCREMENT" if self.chance("autoincrement", 0.5) and not bare else ""
            desc = " DESC" if self.chance("descending", 0.2) and not auto else ""
            if r.random() < 0.8 or auto:
                defs.append(f"{identifier(key)} INTEGER PRIMARY KEY{desc}{self.conflict(0.4)}{auto}")
            else:
                defs.append(f"{identifier(key)} INTEGER{' NOT NULL' if r.random() < .3 else ''}")
                constraints.append(f"PRIMARY KEY({identifier(key)}{desc}){self.conflict(0.4)}")
            self.keys.append((name, [key]))
            self.names[name + "\0key"] = key
            plain.append(key)
        elif kind == "text":
            key = self.fresh(COLUMN_NAMES, used)
            type_ = r.choice(["TEXT", "INT", "REAL", "BLOB", "ANY" if strict else ""]) 
            defs.append(f"{identifier(key)} {type_}{self.collate(0.5)} PRIMARY KEY{self.conflict(0.4)}")
            self.keys.append((name, [key]))
            plain.append(key)
        for _ in range(r.choice([1, 2, 3, 3, 4, 5])):
            c = self.fresh(COLUMN_NAMES, used)
            text, generated = self.column(c, strict, plain)
            defs.append(text)
            if not generated:
                plain.append(c)
            else:
                self.names.setdefault(name + "\0generated", []).append(c)
        everything = plain + self.names.get(name + "\0generated", [])
        if kind == "composite" and plain:
            chosen = r.sample(plain, min(len(plain), r.choice([1, 2, 2, 3])))
            if r.random() < 0.08:
                chosen.append(chosen[0])
            listed = ", ".join(identifier(c) + self.collate(0.3) + self.direction() for c in chosen)
            constraints.append(f"PRIMARY KEY({listed}){self.conflict(0.4)}")
        if self.chance("unique", 0.5):
            constraints.append(f"UNIQUE({self.indexed(everything)}){self.conflict(0.4)}")
        if self.chance("check", 0.3):
            if self.chance("json", 0.5):
                constraints.append(f"CHECK (json_valid({identifier(plain[-1])}))")
            constraints.append(f"CHECK ({self.condition(plain)} OR {r.choice(['1', identifier(plain[-1]) + ' IS NOT 4'])})")
        if self.chance("foreign_keys", 0.2) and self.keys:
            keys = [k for k in self.keys if len(k[1]) <= len(plain)]
            if keys:
                target = r.choice(keys)
                own = r.sample(plain, len(target[1]))
                constraints.append(f"FOREIGN KEY({', '.join(map(identifier, own))}) " + self.reference([target]))
        options = ", ".join((["STRICT"] if strict else []) + (["WITHOUT ROWID"] if bare else []))
        return f"CREATE TABLE {identifier(name)}({', '.join(defs + constraints)}) {options}".strip()

    def index(self, number, tables):
        r = self.random
        name = r.choice(tables)
        columns = self.names[name]
        if not columns:
            return "SELECT 1"
        everything = columns + self.names.get(name + "\0generated", [])
        unique = "UNIQUE " if "unique_indexes" in self.features and r.random() < 0.7 else ""
        listed = self.indexed(everything)
        if self.chance("expression_indexes", 0.5):
            listed = self.expression(everything) + self.direction() + (", " + self.indexed(everything, 1) if r.random() < 0.4 else "")
        where = f" WHERE {self.condition(everything)}" if self.chance("partial_indexes", 0.5) else ""
        return f"CREATE {unique}INDEX {identifier(f'i{number}')} ON {identifier(name)}({listed}){where}"

    def statements(self):
        r, taken, out = self.random, set(), []
        if "utf16" in self.features:
            out.append(f"PRAGMA encoding='{r.choice(['UTF-16le', 'UTF-16be'])}'")
        if "small_pages" in self.features:
            out.append("PRAGMA page_size=512")
        out.append(f"PRAGMA journal_mode={r.choice(['WAL', 'DELETE', 'WAL', 'TRUNCATE'])}")
        tables = []
        for _ in range(r.choice([1, 2, 2, 3, 4])):
            out.append(self.table(taken))
            tables = [n for n in self.names if "\0" not in n]
        if "wide" in self.features:
            count = r.choice([61, 62, 63, 64, 65, 100, 400])
            self.names["wide"] = [f"w{i}" for i in range(count)]
            out.append(f"CREATE TABLE wide(id INTEGER PRIMARY KEY, {', '.join(self.names['wide'])}, UNIQUE(w{count - 1}))")
            tables.append("wide")
        if {"unique_indexes", "partial_indexes", "expression_indexes"} & self.features:
            out += [self.index(n, tables) for n in range(r.choice([1, 2, 3]))]
        out.append("CREATE TABLE trail(n INTEGER PRIMARY KEY, what, k, x)")
        self.names["trail"] = ["what", "k", "x"]
        out += trigger_statements(self, tables)
        return out
