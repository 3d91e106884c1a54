"""Class kill: sends SIGKILL at a random time. CoreData.md: the store is then "as it was, or migrated"."""

import os
import shutil
import signal
import subprocess
import time

import oracle
from doors import copy_store
from model import Attribute, Entity, Layout, Model, Relationship
from pairs import make_store
from program import connect, dump
from store import read

ROWS = 4000


def models(rng):
    old = Model(
        Entity(
            "Item",
            Attribute("name"),
            Attribute("n", "Integer 32"),
            Attribute("gone"),
            Attribute("ext", "Binary", external=True),
            Relationship("tags", "Tag", "items", True),
        ),
        Entity("Tag", Attribute("t"), Relationship("items", "Item", "tags", True)),
    )
    new = old.copy()
    if rng.random() < 0.7:
        new["Item"].properties = [p for p in new["Item"].properties if p.name != "gone"]
    new["Item"].properties.append(Attribute("added", "Integer 32", default="5"))
    if rng.random() < 0.5:
        new.add(Entity("Aaa", Attribute("n")))
    return old, new


def stores(place):
    """Returns every database below a directory, except staged and archived copies and their side files."""
    return sorted(
        os.path.relpath(os.path.join(p, f), place)
        for p, _, files in os.walk(place)
        for f in files
        if not f.endswith((".json", ".lock", "-wal", "-shm", "-journal"))
        and "staging" not in p
        and "_EXTERNAL_DATA" not in p
        and f != "lock"
    )


def run(round):
    rng = round.rng
    old, new = models(rng)
    if make_store(round, old) is None:
        return
    source, wal = round.path("S.sqlite"), rng.random() < 0.5
    connection = connect(source, "rw")
    top = connection.execute("SELECT max(Z_PK) FROM ZITEM").fetchone()[0]
    connection.execute(
        f"WITH RECURSIVE c(i) AS (SELECT {top + 1} UNION ALL SELECT i + 1 FROM c LIMIT {ROWS})"
        " INSERT INTO ZITEM (Z_PK, Z_ENT, Z_OPT, ZNAME, ZN, ZGONE) SELECT i, 1, 1, 'name ' || i, i, 'g' FROM c"
    )
    connection.execute("UPDATE Z_PRIMARYKEY SET Z_MAX = ? WHERE Z_NAME = 'Item'", (top + ROWS,))
    if wal:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    state = read(source, old, Layout(old))
    expected = oracle.Expected(state, old, new)
    model, target = round.write_model("B", new), round.path("T.sqlite")
    before = dump(source)
    started = time.monotonic()
    answer = round.run("migrate", source, "--model", model, "--to", target)
    lasted = time.monotonic() - started
    if answer.code:
        round.problem("refused", answer.error[:300])
        return
    oracle.verify(round, target, expected)
    after = dump(target)
    in_place = rng.random() < 0.75
    store = copy_store(round, "killed")
    folder = os.path.dirname(store)
    made = os.path.join(folder, "T.sqlite")
    arguments = ["migrate", store, "--model", model] + ([] if in_place else ["--to", made])
    round.title = f"{'in place' if in_place else '--to'}, {'WAL' if wal else 'DELETE'}"
    round.commands.append("kill -9 of: groupstore " + " ".join(arguments))
    for _ in range(rng.randint(1, 3)):
        process = subprocess.Popen([round.program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        delay = rng.random() * lasted * 1.5
        time.sleep(delay)  # the moment of the kill is random
        process.send_signal(signal.SIGKILL)
        process.wait()
        round.title += f", killed after {delay * 1000:.0f} of {lasted * 1000:.0f} ms"
        _judge(round, folder, store, made, in_place, before, after)
    again = round.run(*arguments)
    final = store if in_place else made
    if again.code not in (0, 73) or again.code and not (not in_place and os.path.exists(made)):
        round.problem("not-run-again", f"{again.code} {again.error[:300]}")
    elif not os.path.isfile(final) or dump(final) != after:
        round.problem("wrong-after-all", f"{final} isn't the migrated store")
    left = [f for f in os.listdir(folder) if f.startswith(".groupstore-")]
    if left:
        round.problem("remains", left)


def _judge(round, folder, store, made, in_place, before, after):
    """Checks that the store is old or new; while it has no name, the journal says so (Formats, `withdrawn`)."""
    if not os.path.isfile(store):
        journal = os.path.join(folder, ".groupstore", "journal.json")
        hidden = [f for f in os.listdir(folder) if f.startswith(".groupstore-")]
        if not (in_place and os.path.exists(journal) and hidden):
            round.problem("store-gone", f"{os.listdir(folder)}")
        return
    copy = round.path("looked-at")  # the inspection must not recover what the next run has to
    shutil.rmtree(copy, ignore_errors=True)
    os.makedirs(copy)
    for part in os.listdir(folder):
        if part.startswith(os.path.basename(store)) and os.path.isfile(os.path.join(folder, part)):
            shutil.copy2(os.path.join(folder, part), os.path.join(copy, part))
    found = dump(os.path.join(copy, "S.sqlite"))
    if found != before and found != after:
        round.problem("between", [k for k in found.keys() | before.keys() if found.get(k) != before.get(k)])
    elif not in_place and found != before:
        round.problem("source-changed", "--to changed the store")
    if not in_place and os.path.exists(made):
        try:
            if dump(made) != after:
                round.problem("half-made", "the new store is there and isn't whole")
        except Exception as error:
            round.problem("half-made", error)
