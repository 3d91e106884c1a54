"""Nests accesses; varies purposes, presenters added twice, paths and names."""

import os
import time

from judge import judge_callbacks, judge_times
from stage import AMPLE, Over, commit, wait
from words import TWINS, item_name

SOON = 1.0  # the deadline of a request that must be refused


def run(round):
    rng = round.rng
    story = rng.choice([
        in_itself, purposes, own_presenter, twice, dots, twins, long_names, directories, in_pool, outside])
    round.title = story.__name__
    agent = round.agent()
    agent.configure({round.group: (round.container, {"Notes.sqlite": []})})
    if rng.random() < 0.7:
        agent.start()
    try:
        story(round, agent)
    except Over:
        pass
    judge_callbacks(round)
    judge_times(round, time.monotonic())


def intent(path, access="write", *options):
    return {"path": path, "access": access, "options": list(options)}


def file(round, *parts):
    path = os.path.join(round.container, *parts)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w"):
        pass
    return path


def hold(round, actor, intents, key="h", **members):
    number = actor.send(
        "coordinate", key=key, action="hold", deadline=20, isBlocking=round.rng.random() < 0.5, intents=intents,
        **round.of_group(**members))
    if not actor.wait_for(lambda e: e.get("event") == "granted" and e.get("key") == key, 30):
        answer = actor.reply(number, 0)
        round.problem("not-granted", f"{intents}: {(answer or {}).get('message', 'no answer')}")
        raise Over()


def attempt(round, actor, intents, deadline, **members):
    answer = actor.ask(
        "coordinate", action="none", deadline=deadline, isBlocking=round.rng.random() < 0.5, intents=intents,
        **round.of_group(**members))
    if answer is None:
        round.problem("hang", f"no answer to {intents} with {deadline} s")
        raise Over()
    return answer


def judge(round, answer, is_allowed, why):
    if answer["ok"] != is_allowed:
        word = "is granted" if answer["ok"] else f"is refused: {answer.get('message')}"
        round.problem("granted" if answer["ok"] else "not-granted", f"{why} {word}")
    elif not is_allowed and answer.get("kind") != "FileCoordinationError":
        round.problem("wrong-error", f"{why}: {answer}")


def in_itself(round, agent):
    """Checks that a coordinator never blocks itself."""
    rng = round.rng
    path = file(round, item_name(rng))
    actor = round.actor(agent)
    kinds = [rng.choice(["read", "write"]) for _ in range(rng.randint(2, 4))]
    is_blocking = rng.random() < 0.5
    inner = []
    for kind in reversed(kinds[1:]):
        inner = [round.of_group(
            coordinator="c", action="none", deadline=5, isBlocking=is_blocking, intents=[intent(path, kind)],
            inner=inner)]
    number = actor.send(
        "coordinate", coordinator="c", action="none", deadline=5, isBlocking=is_blocking,
        intents=[intent(path, kinds[0])], inner=inner, **round.of_group())
    answers = [actor.reply(number)] + [actor.reply(n) for n in sorted(actor.asked) if n > number]
    for kind, answer in zip(kinds, answers):
        if answer is None:
            round.problem("hang", f"{kinds} in each other")
        else:
            judge(round, answer, True, f"{kind} of {kinds} in one coordinator's own access")


def purposes(round, agent):
    """Checks that equal purposes don't wait for each other, in one process and in two; unequal purposes do."""
    rng = round.rng
    path = file(round, item_name(rng))
    first = round.actor(agent)
    second = rng.choice([first, round.actor(agent)])
    purpose = rng.choice(["p", "a purpose \u00e9", "x" * 300, "", "\n"])
    hold(round, first, [intent(path)], purpose=purpose)
    answer = attempt(round, second, [intent(path, rng.choice(["read", "write"]))], 5, purpose=purpose)
    judge(round, answer, True, f"an access of the same purpose {purpose[:20]!r}")
    answer = attempt(round, second, [intent(path)], SOON, purpose=purpose + "'")
    judge(round, answer, False, "an access of another purpose")
    judge(round, attempt(round, second, [intent(path)], SOON), False, "an access without a purpose")
    first.must("release", key="h")


def own_presenter(round, agent):
    """Checks that coordinators of one presenter share a purpose, and don't ask it."""
    rng = round.rng
    path = file(round, item_name(rng))
    actor = round.actor(agent)
    actor.must("add", key="r", path=path, **round.of_group())
    actor.must("add", key="s", path=path, **round.of_group())
    since = actor.event_count()
    hold(round, actor, [intent(path)], presenter="r")
    answer = attempt(round, actor, [intent(path)], 5, presenter="r")
    judge(round, answer, True, "another coordinator of the same presenter")
    answer = attempt(round, actor, [intent(path)], SOON, presenter="s")
    judge(round, answer, False, "a coordinator of another presenter")
    actor.must("release", key="h")
    asked = [e["key"] for e in actor.events[since:] if e.get("event") == "asked" and "relinquish" in e["what"]]
    if "r" in asked and asked.count("r") > 1:
        round.problem("asked-itself", f"its own coordinators ask a presenter: {asked}")
    if "s" not in asked:
        round.problem("not-asked", f"the other presenter isn't asked: {asked}")


def twice(round, agent):
    """Checks that a presenter added twice never gets two callbacks at once."""
    rng = round.rng
    path = file(round, item_name(rng))
    app, writers = round.actor(agent), [round.actor(agent) for _ in range(2)]
    for _ in range(rng.randint(2, 3)):
        app.must("add", key="r", path=path, milliseconds=rng.choice([0, 5, 30]), **round.of_group())
    numbers = []
    for _ in range(rng.randint(3, 8)):
        writer = rng.choice(writers + [app])
        numbers.append((writer, writer.send(
            "coordinate", action=rng.choice(["none", "touch"]), text="x", deadline=20, isBlocking=rng.random() < 0.5,
            intents=[intent(path, rng.choice(["read", "write"]), *rng.choice([[], ["merging"]]))], **round.of_group())))
        if rng.random() < 0.3:
            app.send("add", key="r", path=path, **round.of_group())
    for writer, number in numbers:
        answer = writer.reply(number)
        if answer is None:
            round.problem("hang", "an access beside a presenter that was added twice")
        elif not answer["ok"]:
            round.problem("not-granted", f"beside a presenter that was added twice: {answer.get('message')}")
    for _ in range(6):
        app.must("remove", key="r", **round.of_group())
    since = app.event_count()
    judge(round, attempt(round, app, [intent(path)], 20), True, "an access after the presenter was removed")
    if any(e.get("event") == "asked" and "relinquish" in e.get("what", "") for e in app.events[since:]):
        round.problem("asked-removed", "a presenter that was removed is asked")


def dots(round, agent):
    """Checks that `..` behind a symbolic link resolves as in the kernel; so do `.`, `//` and links on the way."""
    rng = round.rng
    name = rng.choice(["Notes", "a b", "\u00e9", "x.sqlite"])
    deep, near = file(round, "a", "b", "c", name), file(round, name)
    middle = file(round, "a", "b", name)
    os.symlink(os.path.join(round.container, "a", "b", "c"), os.path.join(round.container, "link"))
    spelled = os.path.join(round.container, "link", "..", name)  # a/b/NAME, and not NAME
    assert os.path.samefile(spelled, middle)
    if rng.random() < 0.4:
        spelled = rng.choice([
            os.path.join(round.container, "link", ".", "..", name), os.path.join(round.container, "link//..//" + name),
            os.path.join(round.container, "a", "..", "link", "..", name)])
    first = round.actor(agent)
    second = rng.choice([first, round.actor(agent)])
    pair = [spelled, middle]
    rng.shuffle(pair)
    hold(round, first, [intent(pair[0])])
    judge(round, attempt(round, second, [intent(pair[1])], SOON), False, f"a write of {middle} beside one of {spelled}")
    judge(round, attempt(round, second, [intent(near)], 10), True, f"a write of {near} beside one of {spelled}")
    judge(round, attempt(round, second, [intent(deep)], 10), True, f"a write of {deep} beside one of {spelled}")
    first.must("release", key="h")


def twins(round, agent):
    """Checks that names that look alike are two items, and the same name is one."""
    names = list(round.rng.choice(TWINS))
    round.rng.shuffle(names)
    paths = [file(round, name) for name in names]
    first, second = round.actor(agent), round.actor(agent)
    hold(round, first, [intent(paths[0])])
    judge(round, attempt(round, second, [intent(paths[1])], 10), True, f"{names[1]!r} beside {names[0]!r}")
    judge(round, attempt(round, second, [intent(paths[0])], SOON), False, f"{names[0]!r} beside itself")
    first.must("release", key="h")


def long_names(round, agent):
    """Checks that a name may be any that the file system takes."""
    path = file(round, item_name(round.rng))
    first, second = round.actor(agent), round.actor(agent)
    hold(round, first, [intent(path)])
    judge(round, attempt(round, second, [intent(path)], SOON), False, f"a write of {path!r} beside another one")
    first.must("release", key="h")
    judge(round, attempt(round, second, [intent(path)], 20), True, f"a write of {path!r} after another one")


def directories(round, agent):
    """Checks that deleting, moving or replacing a directory waits for accesses to its contents."""
    rng = round.rng
    inside = file(round, "d", *rng.choice([["x"], ["e", "x"]]))
    directory = os.path.join(round.container, "d")
    first, second = round.actor(agent), round.actor(agent)
    option = rng.choice(["deleting", "moving", "replacing"])
    if rng.random() < 0.5:
        hold(round, first, [intent(inside, rng.choice(["read", "write"]))])
        answer = attempt(round, second, [intent(directory, "write", option)], SOON)
        judge(round, answer, False, f"{option} a directory in which somebody is at work")
    else:
        hold(round, first, [intent(directory, "write", option)])
        answer = attempt(round, second, [intent(inside, rng.choice(["read", "write"]))], SOON)
        judge(round, answer, False, f"an access in a directory, {option} which somebody is")
    sibling = file(round, "dd", "x")
    judge(round, attempt(round, second, [intent(sibling)], 10), True, "an access in another directory")
    first.must("release", key="h")


def in_pool(round, agent):
    """Checks that an access inside `withPool` succeeds or fails at once; it never hangs."""
    rng = round.rng
    name = "Notes.sqlite"  # the configured store: the agent reports who presents it
    path = os.path.join(round.container, name)
    actor, writer = round.actor(agent), round.actor(agent)
    actor.must("pool", key="o", deadline=30, **round.of_group(name=name))
    is_disturbed = agent.process is not None and rng.random() < 0.6
    if is_disturbed and not wait(lambda: actor.pid in agent.presenters(f"{round.group}/{name}"), AMPLE):
        is_disturbed = False
    since, action = actor.event_count(), rng.choice(["write", "read", "with"])
    start = time.monotonic()
    number = actor.send("pool-nested", key="o", action=action, text="n", milliseconds=rng.choice([300, 1500]))
    access = None
    if is_disturbed and actor.wait_for(lambda e: e.get("event") == "inside", since=since):
        access = writer.send(
            "coordinate", action="replace", text="c", deadline=20, isBlocking=True,
            intents=[intent(path, "write", "replacing")], **round.of_group())
    answer = actor.reply(number, 30)
    took = (answer["at"] if answer else time.monotonic()) - start
    if took > 10:
        beside = "beside a write " if access else ""
        round.problem("slow-nested", f"{action} in withPool {beside}takes {took:.1f} s: {answer}")
    elif not answer["ok"] and not is_disturbed:
        round.title += " (refused)"
    if access is not None:
        answer = writer.reply(access)
        if answer is None or not answer["ok"]:
            round.problem("not-granted", f"a replacement beside {action} in withPool: {answer}")
    if not wait(lambda: (actor.ask("pool-write", key="o", text="later") or {}).get("ok"), AMPLE):
        round.problem("not-reopened", "the pool can't be written any more")
    actor.must("pool-close", key="o")


def outside(round, agent):
    """Checks that items outside the group container are refused, however they are spelled."""
    rng = round.rng
    away = round.path("away")
    os.makedirs(away)
    for place in (os.path.join(away, "x"), os.path.join(round.directory, "x")):
        with open(place, "w"):
            pass
    os.symlink(away, os.path.join(round.container, "link"))
    spelled = rng.choice([
        os.path.join(away, "x"), os.path.join(round.container, "link", "x"),
        os.path.join(round.container, "..", "..", "x"), os.path.join(round.container, "link", "..", "x"),
        round.container + "-beside/x"])
    answer = attempt(round, round.actor(agent), [intent(spelled)], 5)
    judge(round, answer, False, f"a write of {spelled}")
