"""What is in the way of a store that arrives, and how it goes away again. Generators like those of manners.py."""
import os
import shutil
import subprocess

from agent import mount, unmount
from holder import Holder
from manners import move_parts, moved_in, slow_copy


def while_held(place):
    """Something has the store open when it arrives, without SQLite or with it, and lets go later."""
    source = place.scratch + "/source"
    place.build(source)
    how = place.rng.choice(["descriptor", "mapping", "sqlite", "another user's"])
    holder = Holder(None if how == "another user's" else place.world.user)
    place.holders.append(holder)
    if how in ("descriptor", "mapping"):
        holder.call("hold", path=source, how=how)
    else:
        holder.call("open", path=source, exclusive=place.rng.random() < 0.3)
        holder.call("insert", tags=["of no account"])
        place.give(source)
    yield from move_parts(place, source, place.legacy)
    place.note("held by", how)
    yield "cause"
    kill = place.rng.random() < 0.5
    holder.end(kill=kill)
    place.note("the holder is", "killed" if kill else "closed")


def hard_link(place):
    place.build(place.scratch + "/source")
    other = place.rng.choice([place.scratch + "/other", place.folder + "/other"])
    os.link(place.scratch + "/source", other)
    os.rename(place.scratch + "/source", place.legacy)
    place.note("a hard link at", other)
    yield "cause"
    if place.rng.random() < 0.5:
        os.unlink(other)
    else:
        os.rename(other, place.scratch + "/x")
        os.unlink(place.scratch + "/x")
    place.note("the other link is gone")


def rights(place):
    """Something can't be read or written by the agent's user, and is given later."""
    if not place.world.user:
        return (yield from moved_in(place))
    log = place.rng.random() < 0.3
    place.build(place.scratch + "/source", log=log)
    what = place.rng.choice(["file", "file's owner", "folder", "folder's owner", "parent", "group", "log"])
    if what == "log" and not log:
        what = "file"
    path = {"folder": place.folder, "folder's owner": place.folder, "parent": os.path.dirname(place.folder),
            "group": os.path.dirname(place.group)}.get(what, place.scratch + "/source" + ("-wal" if what == "log" else ""))
    if what == "group" and place.world.rights_taken:
        what, path = "file", place.scratch + "/source"
    mode = os.stat(path).st_mode & 0o7777
    if what == "group":
        place.world.rights_taken = True
        os.chmod(path, 0o555)
    elif what.endswith("owner"):
        place.give(path, (0, 0))
        os.chmod(path, place.rng.choice([0o700, 0o755]) if "folder" in what else place.rng.choice([0o600, 0o644]))
    else:
        os.chmod(path, 0)
    yield from move_parts(place, place.scratch + "/source", place.legacy, gap=0.05)
    place.note("no rights:", what)
    yield "cause"
    path = path.replace(place.scratch + "/source", place.legacy)
    if what.endswith("owner") and place.rng.random() < 0.5:
        os.chmod(path, mode)
        yield place.rng.random() * 3
    place.give(path)
    os.chmod(path, mode)
    place.note("rights given")


def no_database(place):
    """Something else has the name; then a store takes its place."""
    what = place.rng.choice(["text", "zeros", "half", "folder", "fifo", "empty", "key", "dangling link"])
    place.build(place.scratch + "/source")
    data = open(place.scratch + "/source", "rb").read()
    content = {"text": b"no database\n" * 400, "zeros": bytes(8192), "half": data[:len(data) // 2], "empty": b"",
               "key": os.urandom(8192)}.get(what)
    if content is not None:
        with open(place.legacy, "wb") as file:
            file.write(content)
    else:
        {"folder": os.mkdir, "fifo": os.mkfifo, "dangling link": lambda p: os.symlink("/nowhere", p)}[what](place.legacy)
    place.give(place.legacy)
    place.note("no database:", what)
    yield "cause"
    how = place.rng.choice(["over", "renamed", "removed first"])
    if how == "removed first" or content is None:
        os.rmdir(place.legacy) if what == "folder" else os.unlink(place.legacy)
        yield place.rng.choice([0, 2])
    if how == "over" and content is not None:
        with open(place.legacy, "r+b") as file:
            file.write(data)
            file.truncate()
    else:
        os.rename(place.scratch + "/source", place.legacy)
    place.note("a store takes its place:", how)


def half_a_store(place):
    place.build(place.scratch + "/source", log=True)
    os.rename(place.scratch + "/source-wal", place.legacy + "-wal")
    place.note("a log alone")
    yield "cause"
    yield from move_parts(place, place.scratch + "/source", place.legacy)
    place.note("its store comes")


def conflict(place):
    """Both places hold rows; then one of them gives way."""
    place.build(place.scratch + "/source")
    place.build(place.scratch + "/other")
    shutil.move(place.scratch + "/other", place.group)
    place.give(place.group)
    os.rename(place.scratch + "/source", place.legacy)
    place.note("a conflict")
    yield "cause"
    how = place.rng.choice(["group away", "legacy away", "keep-group", "keep-legacy"])
    place.note("remedy:", how)
    if how == "group away":
        place.tags -= place.read(place.group)
        shutil.move(place.group, os.path.join(place.world.base, "away%d" % place.number))
    elif how == "legacy away":
        place.expect = "kept"
        place.tags -= place.read(place.legacy)
        os.rename(place.legacy, place.scratch + "/away")
    else:
        place.expect = "kept"
        result = yield from place.world.command("relocate", "--on-conflict", how, place.legacy, os.path.dirname(place.group))
        if result:
            place.note("the command exits with", result)


def group_name_taken(place):
    """Something that is no store has the name in the group, or one of the side files' names."""
    what = place.rng.choice(["folder", "fifo", "dangling link", "text", "stale log", "stale journal", "folder for log"])
    path = place.group + {"stale log": "-wal", "stale journal": "-journal", "folder for log": "-wal"}.get(what, "")
    if "folder" in what:
        os.mkdir(path)
    elif what == "fifo":
        os.mkfifo(path)
    elif "link" in what:
        os.symlink("/nowhere", path)
    else:
        with open(path, "wb") as file:
            file.write(b"not what you think" * 500)
    place.give(path)
    place.build(place.scratch + "/source")
    os.rename(place.scratch + "/source", place.legacy)
    place.note("the group's name is taken:", what)
    yield "cause"
    if os.path.lexists(path) and not what.startswith("stale"):
        os.rmdir(path) if "folder" in what else os.unlink(path)
        place.note("removed")


def mounted(place):
    """A mount over the store's name or its folder; then it goes."""
    place.build(place.scratch + "/source")
    os.rename(place.scratch + "/source", place.legacy)
    target = place.rng.choice([place.legacy, place.folder])
    if not place.world.mounts or not mount(place.scratch if target == place.folder else place.legacy, target, bind=True):
        return
    place.world.mounted.append(target)
    place.note("mounted over", "the folder" if target == place.folder else "the file")
    if os.path.lexists(place.legacy):
        yield "cause"
    else:
        yield 3
    unmount(target)
    place.note("unmounted")


def immutable(place):
    place.build(place.scratch + "/source")
    os.rename(place.scratch + "/source", place.legacy)
    if subprocess.run(["chattr", "+i", place.legacy], capture_output=True).returncode:
        return
    place.world.immutable.append(place.legacy)
    place.note("immutable, if it was in time")
    yield "cause"
    if os.path.exists(place.legacy):
        subprocess.run(["chattr", "-i", place.legacy], capture_output=True)
    place.note("not immutable any more")


def locked(place):
    """Another program holds the group's lock, or a claim on the store, and lets go or dies."""
    what = place.rng.choice(["lock", "claims/%s.lock" % place.name])
    folder = os.path.join(os.path.dirname(place.group), ".groupstore")
    if "/" in what and not all(c.isalnum() or c in "._" for c in place.name) or not os.path.isdir(folder):
        return (yield from moved_in(place))
    path = os.path.join(folder, what)
    if "/" in what and not os.path.isdir(os.path.dirname(path)):
        os.mkdir(os.path.dirname(path), 0o700)
        place.give(os.path.dirname(path))
    holder = place.world.lock(path)
    place.build(place.scratch + "/source")
    os.rename(place.scratch + "/source", place.legacy)
    place.note("locked:", what)
    place.retries = True
    yield 1 + place.rng.random() * 5
    holder.kill()
    holder.wait()
    place.note("lock released")


def away_and_back(place):
    """The store goes while the agent waits for its holder, and comes back."""
    place.build(place.scratch + "/source")
    holder = Holder(place.world.user)
    place.holders.append(holder)
    os.rename(place.scratch + "/source", place.legacy)
    holder.call("open", path=place.legacy)
    yield place.rng.random() * 2
    if os.path.exists(place.legacy):
        os.rename(place.legacy, place.scratch + "/away")
        yield place.rng.random() * 3
        os.rename(place.scratch + "/away", place.legacy)
    yield "cause"
    holder.end(kill=place.rng.random() < 0.5)
    place.note("away and back")


def no_room(place):
    """The group's file system is full; then there is room."""
    if place.kind != "far" or not place.world.mounts:
        return (yield from slow_copy(place))
    place.build(place.scratch + "/source", rows=400)
    filler = place.world.fill(os.path.dirname(place.group))
    place.retries = True
    os.rename(place.scratch + "/source", place.legacy)
    place.note("no room")
    yield 1 + place.rng.random() * 5
    os.unlink(filler)
    place.note("room again")
