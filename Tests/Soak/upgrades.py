"""Real upgrades of a schema beside `groupstore watch`, and under `groupstore guard`: Django's migrations, and Alembic's.

Each runs twice, with a watch and without. The stores must be the same, neither tool may propose another migration, nothing
of groupstore's may be beside the store, and what the watch told must give the store. `guard` must count what SQL counts,
refuse the loss of a table, and find a store whole after its command was killed.

usage: upgrades.py GROUPSTORE [--python PYTHON] [--seed N] [--kills N] [--keep]
PYTHON must have Django, Alembic and SQLAlchemy (default: the one that runs this).
"""
import argparse
import base64
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing

MANAGE = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "site_settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
SETTINGS = """
import os
SECRET_KEY, USE_TZ, DEFAULT_AUTO_FIELD = "x", True, "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions", "notes"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["STORE"], "OPTIONS": {
    "init_command": "PRAGMA journal_mode=" + os.environ["MODE"]}}}
"""
MODELS = """
from django.db import models
class Folder(models.Model):
    name = models.CharField(max_length=80, unique=True)
class Memo(models.Model):
    heading = models.CharField(max_length=200, db_index=True)
    text = models.TextField(default="empty")
    rank = models.IntegerField(null=True)
    price = models.DecimalField(max_digits=8, decimal_places=2, default=1)
    folder = models.ForeignKey(Folder, models.CASCADE, null=True)
    tags = models.ManyToManyField("Tag")
    class Meta:
        constraints = [models.UniqueConstraint(fields=["heading", "folder"], name="once")]
class Tag(models.Model):
    word = models.CharField(max_length=30, primary_key=True)
"""
MIGRATIONS = {
    "0001_initial": """[
    migrations.CreateModel("Note", [("id", models.BigAutoField(primary_key=True, serialize=False, auto_created=True,
        verbose_name="ID")), ("title", models.CharField(max_length=100)), ("body", models.TextField(null=True)),
        ("rank", models.TextField(null=True)), ("unused", models.BinaryField(null=True))]),
    migrations.CreateModel("Old", [("id", models.BigAutoField(primary_key=True, serialize=False, auto_created=True,
        verbose_name="ID")), ("x", models.IntegerField())]),
    migrations.RunPython(fill, migrations.RunPython.noop)]""",
    "0002_fields": """[
    migrations.AddField("Note", "price", models.DecimalField(max_digits=8, decimal_places=2, default=1)),
    migrations.AddField("Note", "extra", models.IntegerField(null=True)),
    migrations.RenameField("Note", "body", "text"),
    migrations.RunSQL("UPDATE notes_note SET rank = id * 2 WHERE id % 3 = 0", ""),
    migrations.AlterField("Note", "rank", models.IntegerField(null=True)),
    migrations.RemoveField("Note", "unused")]""",
    "0003_tables": """[
    migrations.CreateModel("Folder", [("id", models.BigAutoField(primary_key=True, serialize=False, auto_created=True,
        verbose_name="ID")), ("name", models.CharField(max_length=80, unique=True))]),
    migrations.CreateModel("Tag", [("word", models.CharField(max_length=30, primary_key=True, serialize=False))]),
    migrations.AddField("Note", "folder", models.ForeignKey("notes.Folder", models.CASCADE, null=True)),
    migrations.AddField("Note", "tags", models.ManyToManyField("notes.Tag")),
    migrations.RunPython(sort, migrations.RunPython.noop)]""",
    "0004_names": """[
    migrations.RenameModel("Note", "Memo"), migrations.RenameField("Memo", "title", "heading"),
    migrations.AlterField("Memo", "heading", models.CharField(max_length=200, db_index=True)),
    migrations.RunSQL("UPDATE notes_memo SET text = 'none' WHERE text IS NULL", ""),
    migrations.AlterField("Memo", "text", models.TextField(default="empty")),
    migrations.RemoveField("Memo", "extra"), migrations.DeleteModel("Old"),
    migrations.AddConstraint("Memo", models.UniqueConstraint(fields=["heading", "folder"], name="once"))]""",
}
STEPS = """
from django.db import migrations, models
def fill(apps, editor):
    for i in range(300):
        apps.get_model("notes", "Note").objects.create(title=f"n{i}", body=None if i % 7 else "b" * i, rank=str(i),
            unused=bytes([i % 256]) * 9)
    apps.get_model("notes", "Old").objects.bulk_create([apps.get_model("notes", "Old")(x=i) for i in range(50)])
def sort(apps, editor):
    folder = apps.get_model("notes", "Folder").objects.create(name="all")
    tag = apps.get_model("notes", "Tag").objects.create(word="t")
    for note in apps.get_model("notes", "Note").objects.filter(id__lt=100):
        note.folder = folder
        note.save()
        note.tags.add(tag)
class Migration(migrations.Migration):
    dependencies = DEPENDENCIES
    operations = OPERATIONS
"""
ALEMBIC_ENV = """
import os
from alembic import context
from sqlalchemy import Column, Integer, MetaData, Numeric, String, Table, create_engine
schema = MetaData()
Table("note", schema, Column("id", Integer, primary_key=True), Column("heading", String(80), nullable=False),
    Column("price", Numeric(8, 2)))
Table("word", schema, Column("text", String, primary_key=True), Column("n", Integer, server_default="7"))
with create_engine("sqlite:///" + os.environ["STORE"]).connect() as db:
    db.exec_driver_sql("PRAGMA journal_mode = " + os.environ["MODE"])
    db.commit()
    context.configure(connection=db, target_metadata=schema, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
"""
ALEMBIC_STEPS = [
    ("""
    op.create_table("note", sa.Column("id", sa.Integer, primary_key=True), sa.Column("title", sa.String(40)),
        sa.Column("unused", sa.Integer))
    op.execute("WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 500) "
        "INSERT INTO note SELECT i, 'note ' || i, i % 5 FROM c")""", """
    op.drop_table("note")"""),
    ("""
    op.add_column("note", sa.Column("price", sa.Integer))
    op.execute("UPDATE note SET price = id * 3 WHERE id % 2")""", """
    op.drop_column("note", "price")"""),
    ("""
    with op.batch_alter_table("note") as b:
        b.alter_column("title", new_column_name="heading", type_=sa.String(80), nullable=False)
        b.alter_column("price", type_=sa.Numeric(8, 2))
        b.drop_column("unused")
    op.execute("DELETE FROM note WHERE id > 450")""", """
    with op.batch_alter_table("note") as b:
        b.add_column(sa.Column("unused", sa.Integer))
        b.alter_column("heading", new_column_name="title", nullable=True)"""),
    ("""
    op.create_table("word", sa.Column("text", sa.String, primary_key=True))
    op.execute("INSERT INTO word SELECT heading FROM note WHERE id < 90")
    op.add_column("word", sa.Column("n", sa.Integer, server_default="7"))""", """
    op.drop_table("word")"""),
]


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


class Django:
    name = "django"

    def __init__(self, home, python):
        self.home, self.python = home, python
        write(f"{home}/manage.py", MANAGE)
        write(f"{home}/site_settings.py", SETTINGS)
        write(f"{home}/notes/__init__.py", "")
        write(f"{home}/notes/models.py", MODELS)
        write(f"{home}/notes/migrations/__init__.py", "")
        former = None
        for name, operations in MIGRATIONS.items():
            dependencies = f"[('notes', '{former}')]" if former else "[]"
            steps = STEPS.replace("DEPENDENCIES", dependencies).replace("OPERATIONS", operations)
            write(f"{home}/notes/migrations/{name}.py", steps)
            former = name

    upgrades = [["migrate", "notes", n] for n in ("0001", "0002")] + [["migrate"]]
    proposal = ["makemigrations", "--check", "--dry-run"]
    # Loses the table of tags, and what the third migration made.
    downgrade, lost = ["migrate", "notes", "0002"], "notes_tag"

    def command(self, arguments):
        return [self.python, f"{self.home}/manage.py", *arguments]


class Alembic:
    name = "alembic"

    def __init__(self, home, python):
        self.home, self.python = home, python
        write(f"{home}/alembic.ini", "[alembic]\nscript_location = %(here)s\n")
        write(f"{home}/env.py", ALEMBIC_ENV)
        for i, (up, down) in enumerate(ALEMBIC_STEPS):
            write(f"{home}/versions/v{i}.py", "\n".join((
                "import sqlalchemy as sa", "from alembic import op", f"revision = 'v{i}'",
                f"down_revision = {repr(f'v{i - 1}') if i else None}", f"def upgrade():{up}", f"def downgrade():{down}", "")))

    upgrades = [["upgrade", "v0"], ["upgrade", "v1"], ["downgrade", "v0"], ["upgrade", "head"], ["downgrade", "v2"],
                ["upgrade", "head"]]
    proposal = ["check"]
    downgrade, lost = ["downgrade", "v2"], "word"

    def command(self, arguments):
        return [self.python, "-m", "alembic", "-c", f"{self.home}/alembic.ini", *arguments]


def stored(value):
    """A value as the program prints it."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and value.is_integer():
        return {"real": repr(value)}
    return value


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def tables(db):
    return [name for name, in db.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]


def primary_key(db, table):
    key = [quoted(c[1]) for c in sorted(db.execute(f"PRAGMA table_info({quoted(table)})"), key=lambda c: c[5]) if c[5]]
    return f"json_array({', '.join(key)})" if key else "rowid"


def told_key(db, table):
    key = [c[1] for c in sorted(db.execute(f"PRAGMA table_info({quoted(table)})"), key=lambda c: c[5]) if c[5]]
    integer = [c for c in db.execute(f"PRAGMA table_info({quoted(table)})") if c[5] and c[2].upper() == "INTEGER"]
    return key[0] if len(key) == 1 and integer else "rowid"


def content(path, key=primary_key):
    """Each table's rows by their key, as a dictionary of columns."""
    result = {}
    with closing(sqlite3.connect(path)) as db:
        for table in tables(db):
            cursor = db.execute(f"SELECT {key(db, table)}, * FROM {quoted(table)}")
            names = [c[0] for c in cursor.description][1:]
            result[table] = {json.dumps(stored(row[0])): dict(zip(names, map(stored, row[1:]))) for row in cursor}
    return result


def definitions(path):
    with closing(sqlite3.connect(path)) as db:
        return sorted(db.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema"), key=repr)


class Receiver:
    """What somebody has who knows only the lines."""

    def __init__(self, defaults):
        self.tables, self.defaults, self.problems, self.step, self.dropped = {}, defaults, [], [], set()

    def take(self, line):
        if line["type"] in ("table", "row"):
            self.step.append(line)
        elif line["type"] == "reset":
            self.problems.append(f"a reset: {line}")
        elif line["type"] == "change":
            self.advance(self.step)
            self.step = []

    def advance(self, lines):
        """A step: what was dropped comes first and what was created last; what has another name gets it at once."""
        changed = [l for l in lines if l["type"] == "table" and "schema" in l]
        former = None
        for line in lines:
            if line["type"] == "table":
                table = line
                if former is None and line.get("schema") != "dropped":
                    altered = [l for l in changed if l["schema"] == "altered"]
                    former = {l["table"]: self.tables.pop(l["before"]["table"]) for l in altered}
                    for l in altered:
                        self.tables[l["table"]] = {key: self.altered(l, row) for key, row in former[l["table"]].items()}
                if line.get("schema") == "created":
                    self.tables[line["table"]] = {}
                elif line.get("schema") == "dropped":
                    self.dropped = set(self.tables.pop(line["table"]))
            else:
                self.row(table, line)

    def row(self, table, line):
        if table.get("schema") == "dropped":
            if line["op"] != "delete" or json.dumps(line["key"]) not in self.dropped:
                self.problems.append(f"{line['op']} of the dropped {line['table']} {line['key']}")
            return
        rows, key = self.tables.setdefault(line["table"], {}), json.dumps(line["key"])
        if (line["op"] == "insert") == (key in rows):
            self.problems.append(f"{line['op']} of {line['table']} {key}, which is {'there' if key in rows else 'absent'}")
        if line["op"] == "delete":
            rows.pop(key, None)
        else:
            rows[key] = dict(zip(table["columns"], line["values"]))

    def altered(self, line, row):
        old, new, result = line["before"]["columns"], line["columns"], {}
        for place, name in enumerate(new):
            if name in old:
                result[name] = row[name]
            elif place < len(old) and old[place] not in new:
                result[name] = row[old[place]]
            else:
                result[name] = self.defaults.get((line["table"], name))
        return result


class Trial:
    def __init__(self, arguments, home):
        self.program, self.arguments, self.home = arguments.groupstore, arguments, home
        self.environment = dict(os.environ, XDG_STATE_HOME=f"{home}/state", PYTHONDONTWRITEBYTECODE="1")
        self.problems = []

    def check(self, is_right, problem):
        if not is_right:
            self.problems.append(problem)
            print("PROBLEM", problem, flush=True)

    def run(self, tool, store, mode, arguments, *prefix):
        environment = dict(self.environment, STORE=store, MODE=mode)
        return subprocess.run([*prefix, *tool.command(arguments)], env=environment, cwd=tool.home, capture_output=True, text=True)

    def upgrade(self, tool, mode):
        """Runs all upgrades alone, and beside a watch from the empty store on."""
        label = f"{tool.name} {mode}"
        stores = {}
        for kind in ("alone", "watched"):
            directory = f"{self.home}/{tool.name}-{mode}-{kind}"
            os.mkdir(directory)
            store = stores[kind] = f"{directory}/app.db"
            with closing(sqlite3.connect(store)) as db:
                db.execute(f"PRAGMA journal_mode = {mode}")
                db.execute("CREATE TABLE before_all (x)")
                db.execute("DROP TABLE before_all")
            if kind == "watched":
                watch = subprocess.Popen(
                    [self.program, "watch", "--direct", store, "--json", "--values"], env=self.environment,
                    stdout=open(f"{directory}.out", "w"), stderr=subprocess.PIPE)
                self.wait(f"{directory}.out", '"watching"')
            for step in tool.upgrades:
                done = self.run(tool, store, mode, step)
                self.check(done.returncode == 0, f"{label} {kind} {step}: {done.stderr[-600:]}")
            done = self.run(tool, store, mode, tool.proposal)
            self.check(done.returncode == 0, f"{label} {kind} proposes {done.stdout[-400:]} {done.stderr[-400:]}")
        self.check(definitions(stores["alone"]) == definitions(stores["watched"]), f"{label}: the schemas differ")
        rest = {n for n in os.listdir(os.path.dirname(stores["watched"])) if not n.startswith("app.db")}
        self.check(not rest, f"{label}: beside the store: {rest}")
        with closing(sqlite3.connect(stores["watched"])) as db:
            db.execute("CREATE TABLE end_of_all (x)")
        self.wait(f"{self.home}/{tool.name}-{mode}-watched.out", "end_of_all", '"change"')
        watch.terminate()
        watch.communicate()
        with closing(sqlite3.connect(stores["watched"])) as db:
            defaults = {
                (t, c[1]): stored(db.execute(f"SELECT {c[4]}").fetchone()[0])
                for t in tables(db) for c in db.execute(f"PRAGMA table_info({quoted(t)})") if c[4]}
        receiver = Receiver(defaults)
        with open(f"{self.home}/{tool.name}-{mode}-watched.out") as lines:
            for line in lines:
                receiver.take(json.loads(line))
        for problem in receiver.problems:
            self.check(False, f"{label}: {problem}")
        expected = content(stores["watched"], told_key)
        for table in sorted(expected.keys() | receiver.tables.keys()):
            told, true = receiver.tables.get(table), expected.get(table)
            self.check(told == true, f"{label}: {table}: {differing(told, true)}")
        rows = sum(map(len, expected.values()))
        print(f"{label}: {len(expected)} tables and {rows} rows as told", flush=True)
        return stores["alone"]

    def wait(self, path, *texts):
        for _ in range(600):
            with open(path) as file:
                said = file.read()
            if all(t in said for t in texts) and said.rfind(texts[-1]) > said.find(texts[0]) - 30:
                return
            time.sleep(0.1)
        self.check(False, f"{path} lacks {texts} after 60 s")

    def guard(self, tool, mode, store):
        """A downgrade that loses a table, with and without --fail-on-loss, and one that is killed."""
        label = f"guard {tool.name} {mode}"
        with closing(sqlite3.connect(store)) as db:
            self.check(db.execute(f"SELECT count(*) FROM {tool.lost}").fetchone()[0] > 0, f"{label}: {tool.lost} is empty")
        before = content(store)
        for options, expected in ([], 0), (["--fail-on-loss", tool.lost], 65):
            copy = f"{self.home}/{tool.name}-{mode}-guard{expected}/app.db"
            os.mkdir(os.path.dirname(copy))
            with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)
            done = self.run(tool, copy, mode, tool.downgrade, self.program, "guard", copy, "--json", *options, "--")
            self.check(done.returncode == expected, f"{label} {options}: {done.returncode} {done.stderr[-600:]}")
            self.compare(label, before, content(copy), done.stdout)
        rng = random.Random(self.arguments.seed)
        kept = 0
        for i in range(self.arguments.kills):
            copy = f"{self.home}/{tool.name}-{mode}-kill{i}/app.db"
            os.mkdir(os.path.dirname(copy))
            with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)
            killed = ["timeout", "-s", "KILL", f"{rng.uniform(0.2, 3):.3f}", *tool.command(tool.downgrade)]
            done = subprocess.run(
                [self.program, "guard", copy, "--json", "--", *killed], cwd=tool.home, capture_output=True, text=True,
                env=dict(self.environment, STORE=copy, MODE=mode))
            self.check(done.returncode in (0, 137), f"{label} killed: {done.returncode} {done.stderr[-600:]}")
            kept += done.returncode == 137
            self.compare(f"{label} killed", before, content(copy), done.stdout)
        print(f"{label}: {kept} of {self.arguments.kills} downgrades were killed", flush=True)

    def compare(self, label, before, after, output):
        """What guard counted, and what SQL counts."""
        said = {}
        for line in map(json.loads, output.splitlines()):
            if line.get("type") == "table":
                said[line["table"]] = line
        for table in before.keys() | after.keys():
            if table not in before or table not in after:
                continue
            old, new = before[table], after[table]
            gone, come = len(old.keys() - new.keys()), len(new.keys() - old.keys())
            line = said.get(table, {})
            found = line.get("went", 0), line.get("came", 0)
            self.check(found == (gone, come), f"{label}: {table}: {found} said, {(gone, come)} true: {line}")


def differing(told, true):
    if told is None or true is None:
        return f"told {told is not None}, there {true is not None}"
    keys = [k for k in told.keys() | true.keys() if told.get(k) != true.get(k)]
    return f"{len(keys)} rows, as {keys[0]}: told {told.get(keys[0])}, there {true.get(keys[0])}" if keys else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groupstore", type=os.path.abspath)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    home = tempfile.mkdtemp(prefix="upgrades-", dir="/var/tmp")
    trial = Trial(arguments, home)
    for tool in Django(f"{home}/django", arguments.python), Alembic(f"{home}/alembic", arguments.python):
        for mode in "WAL", "DELETE":
            store = trial.upgrade(tool, mode)
            trial.guard(tool, mode, store)
    if not arguments.keep:
        shutil.rmtree(home)
    print(f"upgrades: {len(trial.problems)} problems")
    return 1 if trial.problems else 0


if __name__ == "__main__":
    sys.exit(main())
