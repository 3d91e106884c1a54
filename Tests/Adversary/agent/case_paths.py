"""Changes the components of a group's or a legacy place's path."""

import os
import shutil
import time

import store as stores
from follow import Follower
from names import fits_yaml, store_name
from program import LATE, quoted, wait_until
from tree import Tree
GROUP = "group.adversary"


def run(round):
    r = round.rng
    user = 54321 if os.geteuid() == 0 and r.random() < 0.5 else None
    tree = Tree(round, round.path("tree"), user)
    if r.random() < 0.7:
        group_round(round, tree, user)
    else:
        legacy_round(round, tree, user)


def configured(round, directory, name, legacy, user):
    """Makes an agent for one store. Its paths go in a configuration if YAML can express them, else on the command line."""
    parts = [os.fsencode(p) for p in (directory, name, legacy or b"")]
    if all(fits_yaml(p) for p in parts) and round.rng.random() < 0.7:
        directory, name, legacy = (p.decode() for p in parts)
        text = f"groups:\n  - id: {GROUP}\n    directory: {quoted(directory)}\n    stores:\n      - name: {quoted(name)}\n        settle: 200ms\n"
        if legacy:
            text += f"        legacy: [{quoted(legacy)}]\n"
        return round.agent(text, user=user)
    options = [b"--group", os.fsencode(GROUP) + b"=" + parts[0]]
    return round.agent(None, options + ([b"--legacy=" + parts[2]] if legacy else []), user=user)


def group_round(round, tree, user):
    r, name = round.rng, store_name(round.rng)
    round.title = f"group {name[:12]!r}"
    path = os.path.join(tree.path, name)
    if r.random() < 0.8:
        stores.make(path, r.choice(["wal", "delete"]), 3)
        tree.own(tree.top)
    agent = configured(round, tree.path, name, None, user)
    if not agent.start():
        round.problem("no-start", agent.tail())
        return
    follower = Follower(round, agent, GROUP, name, tree.path, user)
    follower.commits()
    told = 0
    for n in range(r.randint(3, 8)):
        if follower.failed:
            return
        if n == 0 or told:
            follower.begin()
        at_store = os.path.isfile(path) and not os.path.islink(path) and r.random() < 0.3
        if at_store:
            follower.close_connection()
        elif not follower.kept and r.random() < 0.06:
            work_beside(round, agent, tree)
        round.step(at_the_store(round, tree, path) if at_store else tree.happen())
        if r.random() < 0.05:
            round.step("SIGHUP")
            agent.reload()
        told = r.random() < 0.75
        if told:
            follower.soon = 15 if any("111" in s or "mode 444" in s for s in round.steps) else 5
            follower.judge()
    if not follower.failed:
        tree.put_all_back()
        if not tree.leads():
            round.step(tree.rebuild())
        follower.soon = 15
        follower.judge()
    round.outcome = f"{follower.marks} marks"


def work_beside(round, agent, tree):
    """Makes and removes files in the directories above the group's.

    The agent must not wake, or at most once a second while it awaits a name.
    """
    above = sorted({os.path.dirname(os.path.realpath(p)) for p, kind in tree.steps()} - {os.path.realpath(tree.path)})
    if not above:
        return
    place, awaited = round.rng.choice(above), not tree.leads()
    used, woken, began = agent.seconds(), agent.wakeups(), time.monotonic()
    for n in range(3000):
        name = os.path.join(place, b"busy-%d" % (n % 7))
        with open(name, "wb") as file:
            file.write(b"x")
        os.unlink(name)
    used, woken, took = agent.seconds() - used, agent.wakeups() - woken, time.monotonic() - began
    round.step(f"3000 files came and went in {place!r} in {took:.1f} s: {woken} wake-ups, {used:.2f} s")
    if woken > 60 + 30 * took or used > 0.3 + 0.05 * took:
        round.problem("wakeups", f"{round.steps[-1]}, {'awaited' if awaited else 'nothing is awaited there'}")


def at_the_store(round, tree, path):
    """Changes the file itself while nobody has it open."""
    r, other = round.rng, tree.aside(os.path.join(tree.top, b"x"))
    what = r.choice(["cp", "cp", "mv", "unlinked", "linked", "hard link", "restored", "away", "shorter"])
    if what in ("cp", "mv"):
        stores.make(other, r.choice(["wal", "delete", "persist"]), r.randint(0, 9), note="another")
        tree.own(other)
        (shutil.copyfile if what == "cp" else os.rename)(other, path)
    elif what == "unlinked":
        stores.remove(os.fsdecode(path))
    elif what == "linked":
        stores.remove(other)
        os.rename(path, other)
        os.symlink(other, path)
        tree.own(path)

        def back():
            os.unlink(path)
            os.rename(other, path)

        tree.undo.append(("the store a link", back))
    elif what == "hard link":
        os.link(path, other)
    elif what == "restored":
        shutil.copyfile(path, other)
        stores.commit(path, "is not in the backup")
        shutil.copyfile(other, path)
    elif what == "away":
        os.rename(path, other)
        tree.undo.append(("the store away", lambda: os.rename(other, path)))
    else:
        os.truncate(path, 0)
    tree.own(tree.top)
    return f"the store: {what}"


def legacy_round(round, tree, user):
    r, name = round.rng, store_name(round.rng)
    round.title = f"legacy {name[:12]!r}"
    directory = os.fsencode(round.path("group"))
    os.makedirs(directory)
    if user is not None:
        os.chown(directory, user, user)
    legacy = os.path.join(tree.path, name)
    agent = configured(round, directory, name, legacy, user)
    if not agent.start():
        round.problem("no-start", agent.tail())
        return
    follower = Follower(round, agent, GROUP, name, directory, user)
    for n in range(r.randint(2, 5)):
        for _ in range(r.randint(0 if n == 0 else 1, 3)):
            round.step(tree.happen())
        tree.put_all_back()
        if not tree.leads():
            round.step(tree.rebuild())
        tree.own(tree.top)
        if not relocated(round, tree, follower, legacy, n, user):
            return
    round.outcome = f"{n + 1} relocations"


def relocated(round, tree, follower, legacy, number, user):
    """Empties the group, puts a store at the legacy place, and expects it to be relocated."""
    r, text = round.rng, f"legacy {number}"
    stores.remove(os.fsdecode(follower.path))
    for side in stores.SIDES:
        if os.path.lexists(legacy + os.fsencode(side)):
            os.unlink(legacy + os.fsencode(side))
    begun = os.path.join(tree.top, b"coming-%d" % number)
    stores.make(begun, r.choice(["wal", "delete"]), number + 1, note=text)
    tree.own(begun)
    follower.begin()
    if r.random() < 0.5:
        os.rename(begun, legacy)
        round.step("a store is moved to the legacy place")
    else:
        shutil.copyfile(begun, legacy)
        tree.own(legacy)
        round.step("a store is copied to the legacy place")
    arrived = follower.expect_event(follower.moment, "a legacy store", accept=lambda m: m.get("type") == "relocated")
    if arrived and not wait_until(lambda: stores.has(os.fsdecode(follower.path), text + " 0"), LATE):
        follower.fail("lost", "relocated is told, and the row isn't there")
    return not follower.failed
