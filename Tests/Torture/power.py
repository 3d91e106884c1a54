"""Simulates power loss: recovers every state that a crash may leave between two syncs, and asks the oracle."""

import json
import os
import shutil
import tempfile

import stores
from disk import Disk

LIMIT = 4096


def each_state(world, progress, limit=LIMIT, first_kill=None):
    """Records a relocation's calls and judges the states before each sync, equivalent states once.

    With `first_kill`, kills it there first, and records the recovery instead.
    """
    world.reset()
    if first_kill is not None:
        world.step("--changes-only", "--kill", first_kill)
    disk = Disk([world.legacy, world.group])
    with tempfile.NamedTemporaryFile() as record:
        world.step("--record", record.name)
        lines = record.read().splitlines()
    after = "" if first_kill is None else f" killed at {first_kill},"
    where = f"{world.scenario}{after} power lost before"
    syncs, judged = 0, set()
    for line in lines:
        words = line.split()
        if words[0] == b"sync":
            syncs += 1
            _judge_states(world, progress, disk, f"{where} sync {syncs}", limit, judged)
        disk.do(words)
        if progress.is_over:
            return
    _judge_states(world, progress, disk, f"{where} the end", limit, judged)


def _judge_states(world, progress, disk, where, limit, judged):
    total, states = disk.states(16 * limit, progress.random)
    if total > len(states):
        print(f"torture: {where}: {len(states)} of {total} combinations, seed {progress.seed}")
    # Most combinations differ only in nameless files, or occurred before an earlier sync.
    distinct = {}
    for state in states:
        signature = disk.signature(state)
        if signature not in judged:
            distinct.setdefault(signature, state)
    new = list(distinct.items())
    if len(new) > limit:
        print(f"torture: {where}: {limit} of {len(new)} new states, seed {progress.seed}")
        new = progress.random.sample(new, limit)
    judged.update(signature for signature, _ in new)
    for number, (_, state) in progress.choose(enumerate(new)):
        for place in (world.legacy, world.group):
            shutil.rmtree(place, ignore_errors=True)
            os.mkdir(place, 0o755)
        # The next boot's kernel may renumber the devices.
        renumber(world, disk.write_out(state, [world.legacy, world.group]), device=number % 2 * 1000)
        world.own()
        found = world.problems_of_two()
        status, summary, said = world.run_again("command")
        found += world.problems()
        if status != 0:
            found.append(f"recovered with {status}: {summary or said}")
        progress.judge(f"{where}, state {number + 1} of {len(new)}", found)


def renumber(world, made, device=0):
    """Changes the journal's numbers to those of the new files that make up the state, and drops their creation times.

    Adds `device` to the devices'.
    """
    path = os.path.join(world.group, ".groupstore", "journal.json")
    try:
        with open(path, encoding="utf-8") as file:
            journal = json.load(file)
    except (FileNotFoundError, ValueError, UnicodeDecodeError):
        return

    def change(value, name=""):
        if isinstance(value, dict):
            if set(value) == {"device", "inode"}:
                kinds = made.get((value["device"], value["inode"]), {})
                is_directory = "support" in name.lower() or "directory" in name.lower()
                value["inode"] = kinds.get("directory" if is_directory else "file", 0)
                value["device"] += device
            for key, child in value.items():
                change(child, key)

    change(journal)
    journal["transfer"].pop("databaseBirth", None)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(journal, file)
