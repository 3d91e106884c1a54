"""Undoes a relocation, and kills it at each change: the store is at one of its two places, whole."""

import os

import stores
import walk


def each_kill(world, progress):
    _prepare(world)
    total = len(walk.calls(world, "--changes-only", undo=True))
    progress.judge(f"undo of {world.scenario} undisturbed", _problems(world, undone=True))
    for point in progress.choose(range(1, total + 1)):
        _prepare(world)
        status, _, said = world.step("--kill", point, "--changes-only", undo=True)
        found = world.problems_of_two()
        if status not in (137, 0):
            found.append(f"status {status}: {said}")
        status, summary, said = world.recover()
        if status != 0:
            found.append(f"recovered with {status}: {summary or said}")
        undone = not os.path.lexists(os.path.join(world.group, stores.NAME))
        progress.judge(f"undo of {world.scenario} killed at {point} of {total}", found + _problems(world, undone))


def _prepare(world):
    world.reset()
    world.run_again("command")


def _problems(world, undone):
    """Checks that the legacy store is unchanged after an undo; without one, all is as the relocation left it."""
    if not undone:
        # An incomplete journal is replaced by the next.
        return [problem for problem in world.problems() if problem != "left: journal.json.new"]
    found = []
    if stores.content(world.legacy) != world.wanted[0]:
        found.append("the legacy store is not what it was")
    if stores.uses_log(world.legacy) != world.uses_log:
        found.append("write-ahead logging is not as it was")
    side_files = {stores.NAME + suffix for suffix in ("-wal", "-shm")}
    if not set(os.listdir(world.legacy)) <= {stores.NAME, stores.SUPPORT} | side_files:
        found.append(f"the legacy directory has {os.listdir(world.legacy)}")
    if os.listdir(world.group) != [".groupstore"]:
        found.append(f"left in the group: {os.listdir(world.group)}")
    bookkeeping = os.path.join(world.group, ".groupstore")
    if os.path.lexists(os.path.join(bookkeeping, "journal.json")):
        found.append("a journal is left")
    if os.listdir(os.path.join(bookkeeping, "receipts")):
        found.append("a receipt is left")
    return found
