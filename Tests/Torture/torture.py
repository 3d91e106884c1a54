"""Does harm to relocations and migrations, and judges by one oracle what became of the store.

usage: torture.py GROUPSTORE PART... [--seed N] [--sample N] [--seconds S] [--only TEXT] [--rounds N] [--openers N]
       [--mutations N] [--sanitized] [--every-call] [--here DIR] [--other DIR]

Parts: kill (killed at each change of every case), again (killed again while it recovers), fail (each error at each
call), fail-for-good (the call goes on failing), power (each state that a power failure may leave between two syncs),
restored (after a kill the places differ from the journal's record), undo (a relocation is undone, and killed at each
change of that), archive (an archived store is restored, and that is killed at each change), full (disks with too little room), holders (programs that are hard to see hold the store), storm (programs
that don't cooperate use it throughout, for N rounds), mutate (N stores with changed bytes), plant (links, devices and
giants at every name that is used), swap (names are swapped for links to another user's files meanwhile, for N rounds); or
all. GROUPSTORE is the program.

--only takes the cases whose names have TEXT in them (command/wal/same/delete, using/WAL or creating/DELETE of storm, a
mutation's number). --sample tries only so many points of each walk, and --seconds those that fit in the time, chosen by the
printed seed. Without them, all are tried: of again, that is thousands for each case, since each kill is followed by a kill at
each change of the recovery. Exits with 1 if a row was lost, or anything else was wrong.
"""

import argparse
import dataclasses
import itertools
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time

import archive
import fail
import full
import holders
import kill
import mutate
import power
import restored
import storm
import surroundings
import swap
import undo
import walk
from migrations import MigrationWorld
from world import Scenario, World


@dataclasses.dataclass(frozen=True)
class Programs:
    groupstore: str
    stepper: str
    opener: str
    swapper: str


def scenarios(by=("command", "agent")):
    for who, file_system, kind, retire in itertools.product(
            by, ("same", "another"), ("wal", "journal", "plain"), ("delete", "archive", "symlink")):
        yield Scenario(kind, file_system, who, retire)
    for who, file_system in itertools.product(by, ("same", "another")):
        yield Scenario("wal", file_system, who, "delete", "empty")
        yield Scenario("wal", file_system, who, "delete", "same")
        yield Scenario("wal", file_system, who, "delete", "other", "keep-group")
        yield Scenario("closed-wal", file_system, who, "archive", "other", "keep-legacy")
        if who == "command":
            yield Scenario("wal", file_system, who, "delete", "other", "merge")
            yield Scenario("journal", file_system, who, "symlink", "other", "merge")
    if "command" in by and os.geteuid() == 0:
        for file_system, retire in itertools.product(("same", "another"), ("delete", "archive")):
            yield Scenario("wal", file_system, "command", retire, closed=True)
    if "command" in by:
        yield from migrations_of("wal", closed=False)
        yield from migrations_of("journal", closed=False)
        if os.geteuid() == 0:
            yield from migrations_of("wal", closed=True)


def migrations_of(kind, closed):
    for change in ("inferred", "mapped"):
        yield Scenario(kind, closed=closed, change=change, at_its_place=True)
        for file_system in ("same", "another"):
            yield Scenario(kind, file_system, closed=closed, change=change)


def kill_part(world, progress, options):
    kill.first_kills(world, progress, options.every_call)


def again_part(world, progress, options):
    if progress.sample is not None or progress.deadline is not None:
        world.reset()
        first_points = range(1, len(walk.calls(world, "--changes-only")) + 1)
    else:
        # Kills that leave the same names, sizes and records behind lead to the same recovery.
        quiet = walk.Walk(progress.seed)
        quiet.judge = lambda where, problems: None
        first_points = kill.first_kills(world, quiet)
    kill.second_kills(world, progress, first_points)


def fail_part(world, progress, options):
    if world.scenario.by == "command":
        fail.each_call(world, progress)


def fail_for_good_part(world, progress, options):
    if world.scenario.by == "command":
        fail.each_call(world, progress, for_good=True)


def power_part(world, progress, options):
    if world.scenario.by == "command":
        power.each_state(world, progress)


def restored_part(world, progress, options):
    if world.scenario.by == "command" and not world.scenario.change:
        restored.each_kill(world, progress)


def undo_part(world, progress, options):
    if world.scenario.by == "command" and world.scenario.group == "nothing" and not world.scenario.change:
        undo.each_kill(world, progress)


def archive_part(world, progress, options):
    scenario = world.scenario
    if scenario.by == "command" and scenario.retire == "archive" and scenario.group == "nothing" and not scenario.change:
        archive.each_kill(world, progress)


PARTS = {
    "kill": kill_part, "again": again_part, "fail": fail_part, "fail-for-good": fail_for_good_part,
    "power": power_part, "restored": restored_part, "undo": undo_part, "archive": archive_part}


def storm_part(programs, progress, options):
    for create in (False, True):
        for mode in ("WAL", "DELETE"):
            if options.only not in f"{'creating' if create else 'using'}/{mode}":
                continue
            seconds = None if options.seconds is None else options.seconds / 4
            storm.storm(programs, progress, mode, options.rounds, create, options.here, options.openers, seconds)


def holders_part(programs, progress, options):
    holders.each_holder(programs, progress, options.here, options.other)


def full_part(programs, progress, options):
    full.each_size(programs, progress, options.here)


def mutate_part(programs, progress, options):
    mutate.each_mutation(
        programs, progress, options.mutations, options.other, os.environ.get("GROUPSTORE_REAL_STORES"), options.only,
        options.sanitized)


def plant_part(programs, progress, options):
    surroundings.each_plant(programs, progress, options.here, options.other)


def swap_part(programs, progress, options):
    swap.each_round(programs, progress, options.rounds, options.here, options.other)


WHOLE = {
    "full": full_part, "holders": holders_part, "storm": storm_part, "mutate": mutate_part, "plant": plant_part,
    "swap": swap_part}


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("groupstore")
    parser.add_argument("parts", nargs="+", choices=["all", *PARTS, *WHOLE])
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--openers", type=int, default=8)
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("--every-call", action="store_true")
    parser.add_argument("--here", default=os.environ.get("TMPDIR", "/var/tmp"))
    parser.add_argument("--other", default="/dev/shm")
    return parser.parse_args()


def main():
    options = arguments()
    print(f"torture: seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        stepper = compiled(directory, "stepper", "stepper.c", "calls.c")
        opener = compiled(directory, "opener", "opener.c", "-lsqlite3")
        swapper = compiled(directory, "swapper", "swapper.c")
        # The second user must be able to run it.
        os.chmod(directory, 0o755)
        return torture(Programs(os.path.abspath(options.groupstore), stepper, opener, swapper), options)


def compiled(directory, name, *words):
    """Builds a C program."""
    program = os.path.join(directory, name)
    compiler = shutil.which("cc") or "clang"
    sources = os.path.dirname(os.path.abspath(__file__))
    subprocess.run([compiler, "-O2", "-Wall", "-o", program, *words], check=True, cwd=sources)
    return program


def torture(programs, options):
    losses = 0
    for part in [*PARTS, *WHOLE] if "all" in options.parts else options.parts:
        progress = walk.Walk(options.seed, options.sample, options.seconds)
        started = time.monotonic()
        if part in WHOLE:
            WHOLE[part](programs, progress, options)
            print_result(part, progress, started)
            losses += progress.losses
            continue
        # With a time limit, the seed orders the cases, and each gets an equal part of the time that is left.
        cases = [case for case in scenarios() if options.only in str(case)]
        if options.seconds is not None:
            progress.random.shuffle(cases)
        done = 0
        end = progress.deadline
        for case in cases:
            if end is not None:
                now = time.monotonic()
                if now > end:
                    break
                progress.deadline = now + (end - now) / (len(cases) - done)
            kind = MigrationWorld if case.change else World
            with kind(programs, case, options.here, options.other) as world:
                PARTS[part](world, progress, options)
            done += 1
        print_result(part, progress, started, f"{done} of {len(cases)} cases, ")
        losses += progress.losses
    return 1 if losses else 0


def print_result(part, progress, started, cases=""):
    print(
        f"torture: {part}: {cases}{progress.points} points, {progress.losses} losses, "
        f"{time.monotonic() - started:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
