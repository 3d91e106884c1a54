"""Kills at each change; then the places differ from the journal's record: devices have new numbers, as after a
boot; both places come out of a backup; or the old place has another store by then.
"""

import json
import os
import shutil

import stores
import walk


def each_kill(world, progress):
    world.reset()
    total = len(walk.calls(world, "--changes-only"))
    for point in progress.choose(range(1, total + 1)):
        for change, judge in ((_renumber_devices, _whole), (_copy_places, _nothing_lost)):
            _kill(world, point)
            change(world)
            status, summary, said = world.run_again("command")
            found = [] if status == 0 else [f"recovered with {status}: {summary or said}"]
            where = f"{world.scenario} killed at {point} of {total},{change.__name__.replace('_', ' ')}"
            progress.judge(where, found + judge(world))
        progress.judge(
            f"{world.scenario} killed at {point} of {total}, another store at the old place", _replaced(world, point))


def _kill(world, point):
    world.reset()
    world.step("--changes-only", "--kill", point)


def _renumber_devices(world):
    path = os.path.join(world.group, ".groupstore", "journal.json")
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        journal = json.load(file)

    def change(value):
        if isinstance(value, dict):
            if set(value) == {"device", "inode"}:
                value["device"] += 1000
            for child in value.values():
                change(child)

    change(journal)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(journal, file)


def _copy_places(world):
    for place in (world.legacy, world.group):
        os.rename(place, place + ".was")
        shutil.copytree(place + ".was", place, symlinks=True)
        shutil.rmtree(place + ".was")
    world.own()


def _whole(world):
    return world.problems()


def _nothing_lost(world):
    """Checks that nothing is lost. Needless copies may remain."""
    kept = ("an archive that nobody wanted", "left at the old place", "the old place has no link alone")
    return [problem for problem in world.problems() if not problem.startswith(kept)]


def _replaced(world, point):
    """Checks that the group still holds, somewhere, all that it held of the store, published or copied."""
    _kill(world, point)
    shutil.rmtree(world.legacy)
    os.mkdir(world.legacy)
    stores.make("plain", world.legacy, support=False)
    world.own()
    before = _stores_below(world.group)
    status, summary, said = world.run_again("command")
    lost = [content for content in before if content not in _stores_below(world.group)]
    found = [f"{len(content['rows'])} rows that the group held are gone" for content in lost if content.get("rows")]
    return found if status in (0, 65, 73, 74) else found + [f"status {status}: {summary or said}"]


def _stores_below(group):
    """Returns the content of every whole store in the group and in its archive, without external data."""
    found = []
    for directory, _, files in os.walk(group):
        for name in files:
            if name == stores.NAME and (content := stores.content(directory, name)) and "broken" not in content:
                found.append({key: content[key] for key in ("rows", "schema")})
    return found
