"""One transaction at a time over tables with odd names; the tables named must be all that differ, as SQL shows it."""

import time

from store import connect

NAMES = ["note", "notes", "note_", "Note2", "select", "table", "group", "a,b", "a\"b", "a'b", "x y", "Ключ", "表", "e\u0301", "%s", "[br]",
         "-- c", "\\n", "A", "AA", "\U0001f4a9", "new\nline", ";", "tab\tle", "sqlite", "without"]  # fmt: skip


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def picture(connection):
    """Returns each table's rows, and the schema, as SQL shows them."""
    connection.execute("BEGIN")
    schema = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY 1, 2").fetchall()
    seen = {"sqlite_schema": schema}
    for kind, name, _, sql in schema:
        if kind == "table" and not sql.upper().startswith("CREATE VIRTUAL"):
            seen[name] = connection.execute(f"SELECT * FROM {quoted(name)}").fetchall()
    connection.execute("COMMIT")
    return seen


def statement(r, connection, tables, number):
    name = r.choice(tables)
    table, value = quoted(name), "v" * r.choice([1, 3, 900, 9000]) + str(number)
    kind = r.choice(["insert"] * 5 + ["update"] * 4 + ["delete", "create", "index", "drop index", "column", "rename", "fts", "trigger", "version"])
    if kind == "insert":
        connection.execute(f"INSERT INTO {table} (k, v) VALUES (?, ?)", (f"{number} {r.random()}", value))
    elif kind == "update":
        connection.execute(f"UPDATE {table} SET v = ? WHERE k IN (SELECT k FROM {table} ORDER BY random() LIMIT ?)", (value, r.choice([1, 20])))
    elif kind == "delete":
        connection.execute(f"DELETE FROM {table} WHERE k IN (SELECT k FROM {table} ORDER BY random() LIMIT ?)", (r.choice([1, 50]),))
    elif kind == "create":
        create(r, connection, tables)
    elif kind == "index":
        connection.execute(f"CREATE INDEX IF NOT EXISTS {quoted('index of ' + name)} ON {table} (v, k)")
    elif kind == "drop index":
        connection.execute(f"DROP INDEX IF EXISTS {quoted('index of ' + name)}")
    elif kind == "column":
        connection.execute(f"ALTER TABLE {table} ADD COLUMN c{number} DEFAULT 7")
    elif kind == "rename":
        new = r.choice(NAMES) + str(number)
        connection.execute(f"ALTER TABLE {table} RENAME TO {quoted(new)}")
        tables[tables.index(name)] = new
    elif kind == "fts":
        connection.execute("INSERT INTO words (text) VALUES (?)", (" ".join(r.choices(NAMES, k=5)),))
    elif kind == "trigger":
        other = r.choice(tables)
        connection.execute(f"CREATE TRIGGER IF NOT EXISTS {quoted('t' + str(number))} AFTER INSERT ON {table} WHEN new.k NOT LIKE 'trig%' BEGIN "
                           f"INSERT OR IGNORE INTO {quoted(other)} (k, v) VALUES ('trig' || random(), 'x'); END")  # fmt: skip
    else:
        connection.execute(f"PRAGMA user_version={number}")


def create(r, connection, tables):
    name = next((each for each in r.sample(NAMES, len(NAMES)) if each.lower() not in [other.lower() for other in tables]), None)
    if name:
        kind = r.choice(["(k TEXT PRIMARY KEY, v) WITHOUT ROWID", "(k TEXT, v)", "(id INTEGER PRIMARY KEY AUTOINCREMENT, k, v UNIQUE)"])
        connection.execute(f"CREATE TABLE {quoted(name)} {kind}")
        tables.append(name)


def run(round):
    r = round.chance
    mode = r.choice(["wal"] * 5 + ["delete", "persist"])
    round.title = mode
    path = round.path("s.db")
    writer = connect(path)
    writer.execute(f"PRAGMA page_size={r.choice([512, 1024, 4096, 65536])}")
    writer.execute(f"PRAGMA auto_vacuum={r.choice(['none', 'full', 'incremental'])}")
    writer.execute(f"PRAGMA journal_mode={mode}")
    writer.execute("PRAGMA recursive_triggers=off")
    tables = []
    for _ in range(r.randrange(2, 12)):
        create(r, writer, tables)
    writer.execute("CREATE VIRTUAL TABLE words USING fts5(text)")
    keep = r.random() < 0.7  # the store stays open
    watch = round.watch(path)
    if not watch.ready():
        return
    reader = connect(path) if keep else None
    for number in range(r.randrange(10, 30)):
        judge_reader = reader or connect(path)
        before = picture(judge_reader)
        watch.settle(0.25)
        seen, names = len(watch.lines), list(tables)
        writer.execute("BEGIN IMMEDIATE")
        try:
            for _ in range(r.choice([1, 1, 2, 4])):
                statement(r, writer, tables, number)
        except Exception as error:
            round.step(f"rolled back: {error}")
            writer.execute("ROLLBACK")
            tables[:] = names
            continue
        moment = time.monotonic()
        writer.execute("COMMIT")
        done = time.monotonic()
        after = picture(judge_reader)
        changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        round.step(f"commit {number} changed {sorted(changed)}", done)
        if changed and watch.covers(moment, done, path, f"commit {number}") is None:
            return
        watch.settle(0.25)
        judge(round, watch.lines[seen:], changed, before, number, mode)
        if reader is None:
            judge_reader.close()
    writer.close()


def judge(round, lines, changed, before, number, mode):
    news = [line for line in lines if line.news]
    if not news:
        return
    round.figures[f"commits in {mode}"] += 1
    if any(line.named is None for line in news):
        round.figures[f"commits in {mode} whose tables are not all named"] += 1
        return
    named = set().union(*(line.named for line in news))
    if not changed <= named:
        text = f"commit {number}: {sorted(changed - named)} changed as well; {[line.text for line in news]}"
        round.problem("tables", text)
