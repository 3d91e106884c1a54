"""Restores an archived store, and kills that at each change: the store stays in the archive, is at its place, or both."""

import os

import stores
import walk


def each_kill(world, progress):
    for move in (False, True):
        where = f"{'move' if move else 'copy'} from the archive of {world.scenario}"
        words = _prepare(world, move)
        total = len(walk.calls(world, "--changes-only", words=words))
        progress.judge(f"{where} undisturbed", _problems(world, move, restored=True))
        for point in progress.choose(range(1, total + 1)):
            words = _prepare(world, move)
            status, _, said = world.step("--kill", point, "--changes-only", words=words)
            found = [] if status in (137, 0) else [f"status {status}: {said}"]
            if stores.content(world.legacy) not in (None, world.wanted[0]):
                found.append("half a store at the destination")
            found += _recover(world, words, by_command=point % 2 == 1)
            restored = os.path.lexists(os.path.join(world.legacy, stores.NAME))
            progress.judge(f"{where} killed at {point} of {total}", found + _problems(world, move, restored))


def _prepare(world, move):
    """Relocates the store with an archive. Returns the words of the command that restores it to its old place."""
    world.reset()
    world.run_again("command")
    archive, = os.listdir(os.path.join(world.group, ".groupstore", "archive"))
    return world.program() + [
        "archive", "restore", world.group, archive, "--json", "--deadline", "10s"] + ["--move"] * move


def _recover(world, words, by_command):
    """Runs the restoration again, or the recovery, and judges how it ends."""
    was_restored = os.path.lexists(os.path.join(world.legacy, stores.NAME))
    status, summary, said = world.run(words) if by_command else world.recover()
    # What is complete can't be done a second time: the place is taken, or the archive gone.
    code = summary.get("error", {}).get("code")
    if status != 0 and not (was_restored and code in ("destination_taken", "no_archive")):
        return [f"ended with {status}: {summary or said}"]
    if by_command and not os.path.lexists(os.path.join(world.legacy, stores.NAME)):
        return ["the second run has not restored it"]
    return []


def _problems(world, move, restored):
    wanted = world.wanted[0]
    found = []
    if stores.content(world.group) != wanted:
        found.append("the group's store is not what it was")
    if restored and stores.content(world.legacy) != wanted:
        found.append("the restored store is not the archived one")
    if restored and stores.uses_log(world.legacy) != world.uses_log:
        found.append("write-ahead logging is not as it was")
    side_files = {stores.NAME + suffix for suffix in ("-wal", "-shm")}
    allowed = {stores.NAME, stores.SUPPORT} | side_files if restored else set()
    if not set(os.listdir(world.legacy)) <= allowed:
        found.append(f"the destination has {os.listdir(world.legacy)}")
    bookkeeping = os.path.join(world.group, ".groupstore")
    archive = os.path.join(bookkeeping, "archive")
    sets = os.listdir(archive)
    if sets != [] if move and restored else len(sets) != 1:
        found.append(f"the archive holds {sets}")
    for name in sets:
        place = os.path.join(archive, name)
        if stores.content(place) != wanted:
            found.append("the archived store is not what it was")
        # An incomplete note is replaced by the next.
        if not set(os.listdir(place)) <= {stores.NAME, stores.SUPPORT, "about.json", "about.json.new"}:
            found.append(f"the archive has {os.listdir(place)}")
    if os.path.lexists(os.path.join(bookkeeping, "journal.json")):
        found.append("a journal is left")
    if len(os.listdir(os.path.join(bookkeeping, "receipts"))) != 1:
        found.append("the relocation's receipt is gone")
    if left := os.listdir(os.path.join(bookkeeping, "staging")):
        found.append(f"left in staging: {left}")
    return found
