"""Makes the application's own views and triggers: they write other tables and their own, raise errors and change rows."""

from words import CONFLICTS, identifier


def body(writer, table, event, tables):
    """Returns the statements of one trigger on `table`."""
    r = writer.random
    row = "old" if event == "DELETE" else "new"
    columns = writer.names[table]
    column = identifier(r.choice(columns))
    out = []
    for _ in range(r.choice([1, 1, 2])):
        kind = r.random()
        if "raise" in writer.features and kind < 0.25:
            action = r.choice(["IGNORE", "ABORT, 'no'", "FAIL, 'no'", "ROLLBACK, 'no'", "IGNORE"])
            out.append(f"SELECT RAISE({action}) WHERE {row}.{column}={r.choice(['3', 'NULL', chr(39) + 'a' + chr(39)])}")
        elif "trigger_writes_own_table" in writer.features and kind < 0.6:
            out.append(own_write(writer, table, columns))
        elif kind < 0.75:
            other = r.choice(tables)
            theirs = writer.names[other]
            conflict = r.choice(["", " OR REPLACE", " OR IGNORE", " OR REPLACE"])
            chosen = r.sample(theirs, min(len(theirs), 2))
            values = [r.choice([f"{row}.{column}", writer.value()]) for _ in chosen]
            out.append(f"INSERT{conflict} INTO {identifier(other)}({', '.join(map(identifier, chosen))}) VALUES ({', '.join(values)})")
        else:
            out.append(f"INSERT INTO trail(what, k, x) VALUES ('{event}', {row}.{column}, {r.choice(['changes()', 'last_insert_rowid()', '1'])})")
    return "; ".join(out)


def own_write(writer, table, columns):
    r = writer.random
    a, b = identifier(r.choice(columns)), identifier(r.choice(columns))
    name = identifier(table)
    return r.choice([
        f"UPDATE {name} SET {a}={writer.value()} WHERE {b}={writer.value()}",
        f"UPDATE OR {r.choice(CONFLICTS)} {name} SET {a}={writer.value()} WHERE {b} IS {writer.value()}",
        f"DELETE FROM {name} WHERE {a}={writer.value()}",
        f"INSERT OR REPLACE INTO {name}({a}) SELECT {writer.value()} WHERE (SELECT count(*) FROM {name})<9",
        f"INSERT OR IGNORE INTO {name}({a}) SELECT {writer.value()} WHERE (SELECT count(*) FROM {name})<9",
    ])


def trigger(writer, number, table, tables, temporary=False):
    r = writer.random
    event = r.choice(["INSERT", "UPDATE", "DELETE"])
    before = "before_triggers" in writer.features and r.random() < 0.5
    of = f" OF {identifier(r.choice(writer.names[table]))}" if event == "UPDATE" and r.random() < 0.4 else ""
    row = "old" if event == "DELETE" else "new"
    test = r.choice(["IS NOT NULL", "=1", ">2", "<>'a'"])
    when = f" WHEN {row}.{identifier(r.choice(writer.names[table]))} {test}" if r.random() < 0.5 else ""
    if before and "before_trigger_writes" not in writer.features:
        # A row that a BEFORE trigger writes into its own table may be replaced unrecorded: see Guarantees, "Not recorded".
        kept = set(writer.features)
        writer.features = (writer.features - {"trigger_writes_own_table"})
        text = body(writer, table, event, ["trail"])
        writer.features = kept
    else:
        text = body(writer, table, event, tables)
    return (f"CREATE {'TEMP ' if temporary else ''}TRIGGER {identifier(f'r{number}')} {'BEFORE' if before else 'AFTER'} {event}{of} "
            f"ON {'main.' if temporary else ''}{identifier(table)}{when} BEGIN {text}; END")


def view(writer, number, table):
    columns = writer.names[table]
    chosen = writer.random.sample(columns, min(len(columns), 2))
    listed = ", ".join(map(identifier, chosen))
    assignments = ", ".join(f"{identifier(c)}=new.{identifier(c)}" for c in chosen)
    first = identifier(chosen[0])
    name, v = identifier(table), identifier(f"v{number}")
    return [
        f"CREATE VIEW {v} AS SELECT {listed} FROM {name}",
        f"CREATE TRIGGER {identifier(f'vi{number}')} INSTEAD OF INSERT ON {v} BEGIN "
        f"INSERT OR REPLACE INTO {name}({listed}) VALUES ({', '.join('new.' + identifier(c) for c in chosen)}); END",
        f"CREATE TRIGGER {identifier(f'vu{number}')} INSTEAD OF UPDATE ON {v} BEGIN "
        f"UPDATE {name} SET {assignments} WHERE {first} IS old.{first}; END",
        f"CREATE TRIGGER {identifier(f'vd{number}')} INSTEAD OF DELETE ON {v} BEGIN DELETE FROM {name} WHERE {first} IS old.{first}; END",
    ]


def trigger_statements(writer, tables):
    r, out = writer.random, []
    usable = [t for t in tables if writer.names[t]]
    if not usable:
        return out
    if "triggers" in writer.features:
        out += [trigger(writer, n, r.choice(usable), usable) for n in range(r.choice([1, 2, 3]))]
    if "views" in writer.features:
        for n in range(r.choice([1, 2])):
            out += view(writer, n, r.choice(usable))
    return out
