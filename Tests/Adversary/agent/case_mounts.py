"""Mounts over a group's directory, its ancestors and the store, in a mount namespace of the adversary's own."""

import os

import mounts
import store as stores
from case_paths import GROUP, configured
from follow import Follower
from names import store_name
from tree import Tree


def run(round):
    r, name = round.rng, store_name(round.rng)
    round.title = f"{name[:12]!r}"
    tree = Tree(round, round.path("tree"))
    path = os.path.join(tree.path, name)
    mounted = []
    round.closers.append(lambda: [mounts.unmount(p) for p in reversed(mounted)])
    if r.random() < 0.8:
        stores.make(path, r.choice(["wal", "delete"]), 3)
    agent = configured(round, tree.path, name, None, None)
    if not agent.start():
        round.problem("no-start", agent.tail())
        return
    follower = Follower(round, agent, GROUP, name, tree.path)
    follower.commits()
    for _ in range(r.randint(3, 7)):
        if follower.failed:
            return
        follower.begin()
        for _ in range(r.choice([1, 1, 2])):
            round.step(happen(round, tree, path, mounted))
        follower.judge()
    while mounted and not follower.failed:
        follower.begin()
        round.step("unmount " + repr(mounted[-1]))
        if mounts.unmount(mounted.pop()):
            round.step("it was busy")
        follower.judge()
    round.outcome = f"{follower.marks} marks"


def happen(round, tree, path, mounted):
    r = round.rng
    places = [os.path.realpath(p) for p, kind in tree.steps() if kind == "directory"]
    what = r.choice(["tmpfs", "tmpfs and a store", "directory", "itself", "file", "unmount", "unmount", "tree"])
    if what == "unmount" and mounted:
        place = mounted.pop()
        busy = mounts.unmount(place)
        return f"unmount {place!r}{', busy' if busy else ''}"
    if what == "tree" or not places:
        return tree.happen() if not mounted else "nothing"
    place = r.choice(places)
    if what in ("tmpfs", "tmpfs and a store", "unmount"):
        below = os.path.relpath(os.path.realpath(tree.path), place)
        mounts.tmpfs(place)
        mounted.append(place)
        if what != "tmpfs":
            if not below.startswith(b".."):
                os.makedirs(os.path.join(place, below), exist_ok=True)
            if tree.leads():
                stores.make(path, r.choice(["wal", "delete"]), 1)
        return f"{what} over {place!r}"
    if what == "file":
        if not os.path.isfile(path):
            return "no store to mount over"
        other = tree.aside(os.path.join(os.fsencode(round.path("tree")), b"x"))
        stores.make(other, r.choice(["wal", "delete", "persist"]), 2, note="mounted")
        mounts.bind(other, path)
        mounted.append(path)
        return f"another file over {path!r}"
    source = place if what == "itself" else tree.copied(place)
    mounts.bind(source, place)
    mounted.append(place)
    return f"{what} bound over {place!r}"
