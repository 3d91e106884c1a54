"""The manners in which a store arrives with nothing in its way.

Each case is a generator. It yields seconds to wait, or the word "cause": what is in the way is there now, and the round
may look at an idle agent before the remedy follows. After its end the place must come to be what `place.expect` says:

    relocated   in the group with every acknowledged row, and nothing at the legacy path
    kept        no row is lost; where they are is not said
"""
import os
import shutil
import time

from holder import Holder
from places import PARTS, support

# A pause between parts that surely is less than `settle` (1 s). The agent isn't promised to wait for longer ones.
SETTLE = 0.4


def write_slowly(place, data, path, pauses, again=False):
    """Writes a file in pieces; with `again`, closing it between them. Yields between the pieces."""
    step = 1 + len(data) // (pauses + 1)
    place.beat()
    file = open(path, "wb")
    place.give(path)
    for start in range(0, len(data), step):
        if again and start:
            file.close()
            file = open(path, "ab")
        file.write(data[start:start + step])
        file.flush()
        place.beat()
        yield SETTLE * place.rng.random() if not again else place.rng.random() * 2.5
    file.close()


def move_parts(place, source, target, gap=SETTLE, order=None):
    """Moves a set's parts one by one."""
    place.last = None
    parts = [p for p in PARTS if os.path.exists(source + p)]
    for part in order or place.rng.sample(parts, len(parts)):
        if part in parts:
            place.beat()
            os.rename(source + part, target + part)
            place.beat()
            yield gap * place.rng.random()


def made_in_place(place):
    """A program makes the store there, writes for a while, and closes it or is killed."""
    holder = Holder(place.world.user)
    place.holders.append(holder)
    rng = place.rng
    mode = rng.choice(["wal", "wal", "delete", "persist", "truncate"])
    exclusive = rng.random() < 0.2
    holder.call("open", path=place.legacy, create=mode, exclusive=exclusive)
    end = time.monotonic() + rng.random() * 6
    while True:
        tags = place.new_tags(rng.choice([1, 5]))
        if holder.call("insert", tags=tags):
            place.tags |= set(tags)
        yield rng.choice([0.01, 0.05, rng.random()])
        if time.monotonic() > end:
            break
    how = rng.choice(["closed", "killed", "killed in a transaction"])
    if how == "killed in a transaction":
        holder.call("unfinished")
    holder.end(kill=how != "closed")
    place.note("made in place", mode, "exclusive" if exclusive else "", how)


def slow_copy(place):
    """The database, and while there is no pause of a second, its log, however long that takes."""
    source = place.scratch + "/source"
    log = place.rng.random() < 0.5
    place.build(source, log=log)
    for part in PARTS[:2]:
        if os.path.exists(source + part):
            yield from write_slowly(place, open(source + part, "rb").read(), place.legacy + part, place.rng.choice([0, 3, 10]))
    place.note("slow copy", "with a log" if log else "")
    shutil.rmtree(place.scratch)
    os.mkdir(place.scratch)


def created_and_closed_later(place):
    """A copy that closes the file between its pieces, for longer than `settle`: half a database is no database yet."""
    source = place.scratch + "/source"
    place.build(source, rows=400)
    yield from write_slowly(place, open(source, "rb").read(), place.legacy, 3, again=True)
    place.note("written in pieces")


def temporary_name(place):
    """As scp, rsync and browsers do: another name, then a rename."""
    source = place.scratch + "/source"
    log = place.rng.random() < 0.5
    place.build(source, log=log)
    hidden = os.path.join(place.folder, place.rng.choice([".%s.Ab12Cd", "%s.part", "%s~", "%s-copy"]) % place.name)
    parts = [p for p in PARTS[:2] if os.path.exists(source + p)]
    for part in parts:
        yield from write_slowly(place, open(source + part, "rb").read(), hidden + part, place.rng.choice([0, 5]))
    yield from move_parts(place, hidden, place.legacy)
    place.note("temporary name", os.path.basename(hidden), "with a log" if log else "")


def moved_in(place):
    source = place.scratch + "/source"
    log, folder = place.rng.random() < 0.6, place.rng.random() < 0.3
    place.build(source, log=log, folder=folder)
    if folder:
        os.rename(support(source), support(place.legacy))
    yield from move_parts(place, source, place.legacy)
    place.note("moved in", "with a log" if log else "", "with a folder" if folder else "")


def folder_comes(place):
    """The legacy directory itself comes later: moved, as a symbolic link, or made."""
    shutil.rmtree(place.folder)
    away = place.scratch + "/data"
    os.mkdir(away)
    place.give(away)
    place.build(away + "/" + place.name, log=place.rng.random() < 0.5)
    how = place.rng.choice(["moved", "link", "parent moved"])
    yield place.rng.random() * 3
    if how == "moved":
        os.rename(away, place.folder)
    elif how == "link":
        place.expect = "kept"      # through a link of another user it may be refused
        os.symlink(away, place.folder)
        place.give(place.folder)
    else:
        os.rmdir(os.path.dirname(place.folder))
        yield 1
        os.mkdir(place.scratch + "/parent")
        place.give(place.scratch + "/parent")
        os.rename(away, place.scratch + "/parent/data")
        os.rename(place.scratch + "/parent", os.path.dirname(place.folder))
    place.note("the folder comes:", how)


def comes_again(place):
    """After the relocation an old program is started once more."""
    yield from moved_in(place)
    for _ in range(100):
        if place.fulfilled():
            break
        yield 0.3
    holder = Holder(place.world.user)
    place.holders.append(holder)
    holder.call("open", path=place.legacy, create=place.rng.choice(["wal", "delete"]))
    rows = place.rng.random() < 0.5
    if rows:
        tags = place.new_tags(3)
        if holder.call("insert", tags=tags):
            place.tags |= set(tags)
        place.expect = "kept"
    yield place.rng.random() * 3
    holder.end(kill=place.rng.random() < 0.5)
    place.note("an old program came again,", "with rows" if rows else "with none")
    if rows:
        yield "cause"


def with_a_command(place):
    """`groupstore relocate` by hand at the same time."""
    place.build(place.scratch + "/source", log=True)
    yield from move_parts(place, place.scratch + "/source", place.legacy, gap=0.05)
    yield place.rng.random() * 1.5
    result = yield from place.world.command("relocate", place.legacy, os.path.dirname(place.group))
    place.note("a command beside it exits with", result)
