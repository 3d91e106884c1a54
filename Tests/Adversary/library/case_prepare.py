"""Several processes prepare, or open, a missing store at once."""

import os
import sqlite3
import time

from judge import judge_callbacks
from stage import AMPLE, Over
from words import store_name

HEAD = (
    '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
    '<model type="com.apple.IDECoreDataModeler.DataModel" documentVersion="1.0" lastSavedToolsVersion="1"'
    ' systemVersion="1" minimumToolsVersion="Automatic" sourceLanguage="Swift" userDefinedModelVersionIdentifier="">'
)
CURRENT = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<plist version="1.0"><dict><key>_XCCurrentVersionName</key>'
    "<string>{}.xcdatamodel</string></dict></plist>\n"
)


def run(round):
    story = round.rng.choice([prepared, prepared, prepared, upgraded, pools])
    round.title = story.__name__
    try:
        story(round)
    except Over:
        pass
    judge_callbacks(round)


def bundle(round, name, *columns):
    """Makes a model whose versions add one attribute each; the last is the current version."""
    path = round.path(name + ".xcdatamodeld")
    for number in range(1, len(columns) + 1):
        attributes = "".join(
            f'<attribute name="{column}" optional="YES" attributeType="String"/>' for column in columns[:number])
        version = os.path.join(path, f"Notes {number}.xcdatamodel")
        os.makedirs(version)
        with open(os.path.join(version, "contents"), "w", encoding="utf-8") as file:
            entity = f'<entity name="Note" representedClassName="Note" syncable="YES">{attributes}</entity>'
            file.write(f"{HEAD}{entity}</model>\n")
    with open(os.path.join(path, ".xccurrentversion"), "w", encoding="utf-8") as file:
        file.write(CURRENT.format(f"Notes {len(columns)}"))
    return path


def place_for(round):
    """Returns a place in the group container, or in a directory of its own."""
    directory = round.container if round.rng.random() < 0.5 else round.path("private")
    os.makedirs(directory, exist_ok=True)
    return os.path.join(directory, store_name(round.rng))


def all_prepare(round, place, model, killing=False):
    """Returns their answers; killed processes have none."""
    rng = round.rng
    actors = [round.actor() for _ in range(rng.randint(2, 5))]
    numbers = [(actor, actor.send("prepare", path=place, model=model, deadline=30)) for actor in actors]
    if rng.random() < 0.3:
        actor = rng.choice(actors)
        numbers.append((actor, actor.send("prepare", path=place, model=model, deadline=30)))
    if killing:
        time.sleep(rng.uniform(0, 0.08))  # a random moment of its work
        rng.choice(actors).kill()
    answers = []
    for actor, number in numbers:
        answer = actor.reply(number, 30 + AMPLE)
        if answer is not None:
            answers.append(answer)
        elif actor.is_alive:
            round.problem("hang", "prepareStore has no answer")
            raise Over()
    return answers


def judge_store(round, place, columns):
    try:
        connection = sqlite3.connect(place, timeout=10)
        names = {row[1] for row in connection.execute("PRAGMA table_info(ZNOTE)")}
        wanted = {"Z" + column.upper() for column in columns}
        if not wanted <= names:
            round.problem("half-made", f"{place}: the columns are {sorted(names)}")
        if connection.execute("SELECT count(*) FROM Z_METADATA").fetchone()[0] != 1:
            round.problem("half-made", f"{place}: its metadata")
        if connection.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
            round.problem("corrupt", place)
        connection.close()
    except sqlite3.Error as error:
        round.problem("half-made", f"{place}: {error}")
    directory, name = os.path.split(place)
    allowed = {name, name + "-wal", name + "-shm", ".groupstore"}
    leftovers = [each for each in os.listdir(directory) if each not in allowed]
    if leftovers:
        round.problem("remains", f"beside the store: {leftovers}")


def judge_answers(round, answers, done):
    words = [answer.get("what") if answer["ok"] else "failed" for answer in answers]
    for answer in answers:
        if not answer["ok"]:
            round.problem("prepare-failed", f"{words}: {answer.get('message')}")
            break
    if words.count(done) > 1:
        round.problem("prepared-twice", str(words))
    return words


def prepared(round):
    """One process makes the store; the others find it."""
    columns = ("title", "text")[: round.rng.randint(1, 2)]
    model, place, killing = bundle(round, "Notes", *columns), place_for(round), round.rng.random() < 0.3
    words = judge_answers(round, all_prepare(round, place, model, killing), "created")
    if not killing and words.count("created") != 1:
        round.problem("not-made", str(words))
    if killing:
        judge_answers(round, all_prepare(round, place, model), "created")
    judge_store(round, place, columns)


def upgraded(round):
    """One process migrates the store; the others wait and find it migrated. No row is lost."""
    old, new = bundle(round, "Old", "title"), bundle(round, "New", "title", "text")
    place, rng = place_for(round), round.rng
    answer = round.actor().ask("prepare", path=place, model=old)
    if not answer or not answer["ok"]:
        round.problem("prepare-failed", f"{answer}")
        return
    count = rng.choice([0, 1, 5000])
    connection = sqlite3.connect(place, isolation_level=None)
    connection.execute("BEGIN")
    for number in range(1, count + 1):
        connection.execute("INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTITLE) VALUES (?, 1, 1, ?)", (number, f"n{number}"))
    connection.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = ?", (count,))
    connection.execute("COMMIT")
    connection.close()
    killing = rng.random() < 0.3
    judge_answers(round, all_prepare(round, place, new, killing), "migrated")
    if killing:
        judge_answers(round, all_prepare(round, place, new), "migrated")
    judge_store(round, place, ("title", "text"))
    connection = sqlite3.connect(place)
    found = connection.execute("SELECT count(*) FROM ZNOTE").fetchone()[0]
    connection.close()
    if found != count:
        round.problem("row-lost", f"{count} rows, {found} after the migration")


def pools(round):
    """Pools of several processes make one store, and it holds each process's rows."""
    rng, name = round.rng, store_name(round.rng)
    agent = round.agent()
    agent.configure({round.group: (round.container, {})})
    if rng.random() < 0.5:
        agent.start()
    actors = [round.actor(agent) for _ in range(rng.randint(2, 5))]
    keys = [(actor, f"o{index}") for index, actor in enumerate(actors)]
    numbers = [(actor, key, actor.send("pool", key=key, **round.of_group(name=name))) for actor, key in keys]
    for actor, key, number in numbers:
        answer = actor.reply(number)
        if answer is None or not answer["ok"]:
            round.problem("prepare-failed", f"a pool of a store that isn't there: {(answer or {}).get('message')}")
            return
        actor.must("pool-write", key=key, text=key)
    for actor, key in keys:
        rows = actor.must("pool-read", key=key)["rows"]
        if sorted(rows) != sorted(key for _, key in keys):
            round.problem("row-lost", f"{len(keys)} pools wrote a row each, {key} reads {rows}")
        actor.must("pool-close", key=key)
