"""SIGKILL at random moments, several times: the group's store is the original or the whole result, never half of it."""

import os
import time

import schemas
import stores
from oracle import GROUP, LEGACY, Column, Merge, Table
from program import demand, listed


def made(stage, chance):
    tables = [
        Table("page", [Column("id", "INTEGER"), Column("k", "TEXT"), Column("data", "BLOB")], ["id"], number="id"),
        Table(
            "line",
            [Column("page", "INTEGER", refers=("page", "id", "")), Column("n", "INT"), Column("t")],
            ["page", "n"],
            rowid=False,
        ),
    ]
    tables[0].key, tables[0].flag = ["k"], True
    count = chance.choice([20, 300])

    def filler(chance, connections, *_):
        for side, connection in connections.items():
            connection.execute("BEGIN")
            for i in range(count):
                number = i if side == GROUP else i + count // 2
                connection.execute(
                    "INSERT INTO page VALUES(?, ?, ?)",
                    (count - i, f"key {number}", bytes([number % 256]) * chance.choice([10, 5000])),
                )
                connection.execute(
                    "INSERT INTO line VALUES(?, ?, ?)", (count - i, number % 7, number if number % 11 else side)
                )
            connection.execute("COMMIT")

    rows, _ = schemas.made(chance, stage, tables, 0, filler=filler, utf16=0)
    side = chance.choice([GROUP, LEGACY])
    merge = Merge(tables, rows, [side])
    merge.compute()
    return merge, schemas.flags(tables, [side])


def run(stage, chance):
    merge, more = made(stage, chance)
    begun = time.monotonic()
    demand(stage.dry_run(*more).code == 0, "the dry run was refused")
    length = (time.monotonic() - begun) * chance.choice([1, 2, 4])
    for _ in range(chance.randint(1, 6)):
        process = stage.program.start(*stage.arguments(*more))
        time.sleep(chance.random() * length)
        process.kill()
        process.communicate()
        done = judge(stage, merge)
        stage.program.note("killed, " + ("merged" if done else "not merged"))
    finish(stage, chance, more, judge(stage, merge))
    merge.compare(stage.group_store)
    demand(not os.path.lexists(stage.legacy_store), "the legacy store is still at its place")
    stage.in_archives()
    work = os.path.join(stage.group, ".groupstore")
    left = listed(os.path.join(work, "staging")) + listed(os.path.join(work, "postponed")) + listed(stage.old)
    demand(not left and not os.path.exists(os.path.join(work, "journal.json")), f"left over: {left}, or a journal")
    archives = listed(os.path.join(work, "archive"))
    demand(len(archives) == 2, f"{len(archives)} archives, not 2: {archives}")


def judge(stage, merge):
    """Returns whether the group's store is the result; otherwise both stores must be as they were."""
    demand(os.path.exists(stage.group_store), "the group's store is gone after a kill")
    if os.path.isdir(stage.group_store):
        # Killed while the store had left its name.
        demand(not os.listdir(stage.group_store), "a directory has the group store's name, and it isn't empty")
        outcome = stage.program.run("recover", stage.group, "--json")
        stage.program.note("killed, recovered")
        demand(outcome.code == 0, f"nothing puts the group's store back: {outcome}")
        demand(os.path.isfile(stage.group_store), f"the group's store isn't put back: {outcome}")
    if stores.content(stage.group_store) == stage.original:
        demand(os.path.isfile(stage.legacy_store), "nothing is merged, and the legacy store isn't at its place")
        demand(
            stores.content(stage.legacy_store) == stage.legacy, "nothing is merged, and the legacy store has changed"
        )
        return False
    merge.compare(stage.group_store)
    return True


def finish(stage, chance, more, done):
    """Runs the program to the end: after the merge, any relocation or `recover` completes it."""
    ways = [("relocate", stage.legacy_store, stage.group, "--on-conflict", "merge", "--json", *more)]
    if done:
        ways += [
            ("relocate", stage.legacy_store, stage.group, "--json"),
            ("relocate", stage.legacy_store, stage.group, "--json", "--on-conflict", "keep-group"),
            ("recover", stage.group, "--json"),
        ]
    way = chance.choice(ways)
    outcome = stage.program.run(*way)
    stage.program.note(f"finished by {way[0]}: {outcome.summary.get('outcome')}")
    demand(outcome.code == 0, f"the next run didn't finish: {way}: {outcome}")
    if way[0] == "recover" and os.path.lexists(stage.legacy_store):  # it ends only a step that had begun
        outcome = stage.program.run("relocate", stage.legacy_store, stage.group, "--json")
        demand(outcome.code == 0, f"the relocation after `recover` didn't finish: {outcome}")
