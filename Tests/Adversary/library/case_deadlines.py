"""Checks that deadlines hold beside a stopped agent, a stopped presenter and a stopped claimer. `0` is a try-lock."""

import os
import time

from judge import judge_callbacks, judge_times
from stage import AMPLE, SLACK, Over, commit, wait
from words import store_name

PRESENTING = 5.0  # `present` has no deadline: it opens the store with or without an agent


def run(round):
    rng = round.rng
    story = rng.choice([
        stopped_agent, stopped_presenter, stopped_claimer, held, try_lock, cancelled, slow_presenter, slow_store,
        failing_close, failing_open])
    round.title = story.__name__
    agent = round.agent()
    name = store_name(rng)
    agent.configure({round.group: (round.container, {name: []})})
    agent.start()
    path = os.path.join(round.container, name)
    commit(path, "first")
    try:
        story(round, agent, path)
    except Over:
        pass
    for process in round.actors + [agent]:
        process.go_on()
    judge_callbacks(round)
    # An agent doesn't ask presenters that it doesn't know: those that came while it was stopped.
    if story is not stopped_agent:
        judge_times(round, time.monotonic())


def access(round, path, deadline, **members):
    rng = round.rng
    kind = members.pop("access", "write")
    options = members.pop("options", [])
    return round.of_group(
        action=members.pop("action", "none"), deadline=deadline, isBlocking=rng.random() < 0.5,
        intents=[{"path": path, "access": kind, "options": options}], **members)


def timed(round, actor, deadline, why, members):
    """Returns the answer; records a problem if it exceeded the deadline plus slack."""
    start = time.monotonic()
    answer = actor.ask("coordinate", timeout=deadline + AMPLE, **members)
    took = (answer["at"] if answer else time.monotonic()) - start
    if took > deadline + SLACK:
        round.problem("slow-deadline", f"{why}: a deadline of {deadline} s was answered after {took:.1f} s: {answer}")
    return answer


def must_fail(round, answer, why, pid=None):
    if answer is None:
        return
    if answer["ok"]:
        round.problem("granted", f"{why}: the access was granted")
    elif answer.get("kind") != "FileCoordinationError":
        round.problem("wrong-error", f"{why}: {answer}")
    elif pid and pid not in (answer.get("holders") or []):
        round.problem("not-named", f"{why}: the error doesn't name {pid}: {answer}")


def must_succeed(round, answer, why):
    if answer is not None and not answer["ok"]:
        round.problem("not-granted", f"{why}: {answer.get('message')}")


def present(round, actor, path, key="p", **members):
    return actor.send("present", key=key, name=os.path.basename(path), **round.of_group(**members))


def stopped_agent(round, agent, path):
    """Checks that accesses end in time; presentations still open their store, and end."""
    rng = round.rng
    actors = [round.actor(agent) for _ in range(2)]
    # Some have a connection already, others have none.
    if rng.random() < 0.7:
        actors[0].reply(present(round, actors[0], path, "early"))
        actors[1].ask("coordinate", **access(round, path, 10))
    agent.stop()
    for _ in range(rng.randint(1, 3)):
        deadline = rng.choice([0, 0.2, 1, 3])
        timed(round, rng.choice(actors), deadline, "the agent is stopped", access(round, path, deadline))
    start = time.monotonic()
    actor = rng.choice(actors)
    number = present(round, actor, path, "late")
    answer = actor.reply(number)
    took = (answer["at"] if answer else time.monotonic()) - start
    if took > PRESENTING + SLACK:
        round.problem("slow-present", f"present() beside a stopped agent takes {took:.1f} s: {answer}")
    elif answer and not answer["ok"]:
        round.problem("refused", f"present() beside a stopped agent: {answer.get('message')}")
    else:
        start = time.monotonic()
        answer = actor.ask("end", key="late")
        took = (answer["at"] if answer else time.monotonic()) - start
        if took > PRESENTING + SLACK:
            round.problem("slow-end", f"end() beside a stopped agent takes {took:.1f} s: {answer}")
    agent.go_on()
    answer = timed(round, actors[1], 10, "the agent goes on", access(round, path, 10))
    must_succeed(round, answer, "the agent goes on")


def stopped_presenter(round, agent, path):
    app, writer = round.actor(agent), round.actor(agent)
    answer = app.reply(present(round, app, path))
    if not answer or not answer["ok"]:
        round.problem("refused", f"present: {answer}")
        return
    if not wait(lambda: app.pid in agent.presenters(f"{round.group}/{os.path.basename(path)}"), AMPLE):
        return
    app.stop()
    for deadline in round.rng.sample([0, 0.3, 1, 2], 2):
        why = "a presenter is stopped"
        options = [round.rng.choice(["replacing", "merging"])]
        answer = timed(round, writer, deadline, why, access(round, path, deadline, options=options))
        must_fail(round, answer, why, app.pid if deadline else None)
    app.go_on()
    must_succeed(round, timed(round, writer, 20, "it goes on", access(round, path, 20)), "it goes on")
    answer = app.ask("write", key="p", text="after")
    if not wait(lambda: (app.ask("write", key="p", text="after") or {}).get("ok"), AMPLE):
        round.problem("not-reopened", f"the presenter that was stopped doesn't write again: {answer}")


def stopped_claimer(round, agent, path):
    holder, writer = round.actor(agent), round.actor(agent)
    number = holder.send("coordinate", key="h", **access(round, path, 20, action="hold"))
    if not holder.wait_for(lambda e: e.get("event") == "granted"):
        round.problem("not-granted", f"nobody holds it: {holder.reply(number, 0)}")
        return
    holder.stop()
    for deadline in round.rng.sample([0, 0.3, 1, 2], 2):
        why = "a claimer is stopped"
        must_fail(round, timed(round, writer, deadline, why, access(round, path, deadline)), why, holder.pid)
    holder.kill()
    why = "the claimer was killed"
    must_succeed(round, timed(round, writer, 20, why, access(round, path, 20)), why)


def held(round, agent, path):
    """Checks that readers wait for a writer and a writer for readers, but readers not for readers."""
    rng = round.rng
    if rng.random() < 0.5:
        agent.end()
    actors = [round.actor(agent) for _ in range(2)]
    kinds = rng.choice([("write", "read"), ("read", "write"), ("write", "write"), ("read", "read")])
    actors[0].send("coordinate", key="h", **access(round, path, 20, action="hold", access=kinds[0]))
    if not actors[0].wait_for(lambda e: e.get("event") == "granted"):
        round.problem("not-granted", "nobody holds it")
        return
    deadline = rng.choice([0, 0.2, 1])
    other = rng.choice(actors)
    why = f"{kinds[1]} beside {kinds[0]}"
    answer = timed(round, other, deadline, why, access(round, path, deadline, access=kinds[1]))
    if kinds == ("read", "read"):
        # At a deadline of zero, the busy answer may take longer.
        if deadline:
            must_succeed(round, answer, "two readers")
    else:
        must_fail(round, answer, why, actors[0].pid)
    number = other.send("coordinate", **access(round, path, 20, access=kinds[1]))
    actors[0].must("release", key="h")
    must_succeed(round, other.reply(number), "after the release")


def try_lock(round, agent, path):
    """Checks that a free store is granted with no time at all."""
    rng = round.rng
    has_agent = rng.random() < 0.5
    if not has_agent:
        agent.end()
    actor = round.actor(agent)
    for _ in range(rng.randint(2, 6)):
        kind = rng.choice(["read", "write"])
        why = f"a try-lock to {kind} what is free, {'with' if has_agent else 'without'} an agent"
        must_succeed(round, timed(round, actor, 0, why, access(round, path, 0, access=kind)), why)


def cancelled(round, agent, path):
    """Checks that `cancel` ends a pending access at once."""
    holder, waiter = round.actor(agent), round.actor(agent)
    holder.send("coordinate", key="h", **access(round, path, 20, action="hold"))
    if not holder.wait_for(lambda e: e.get("event") == "granted"):
        round.problem("not-granted", "nobody holds it")
        return
    count = round.rng.randint(1, 3)
    numbers = [waiter.send("coordinate", coordinator="c", **access(round, path, 30)) for _ in range(count)]
    # The request has begun: its name is among those that wait.
    wait(lambda: (waiter.ask("where", key="?") or {}).get("ok"), AMPLE)
    records = os.path.join(round.container, ".groupstore", "claims", "holders")
    wait(lambda: len(os.listdir(records)) > len(numbers), 5)
    start = time.monotonic()
    waiter.must("cancel", key="c")
    for number in numbers:
        answer = waiter.reply(number, 35)
        took = (answer["at"] if answer else time.monotonic()) - start
        if took > SLACK:
            round.problem("slow-cancel", f"a cancelled access ends after {took:.1f} s: {answer}")
        elif answer["ok"] or answer.get("code") != "cancelled":
            round.problem("wrong-error", f"a cancelled access: {answer}")
    holder.must("release", key="h")
    answer = timed(round, waiter, 20, "a later access", access(round, path, 20, coordinator="c"))
    must_succeed(round, answer, "a later access")


def slow_presenter(round, agent, path):
    """A slow presenter misses the deadline, and goes on."""
    app, writer = round.actor(agent), round.actor(agent)
    app.must("add", key="r", path=path, milliseconds=2500, **round.of_group())
    if not wait(lambda: app.pid in agent.presenters(f"{round.group}/{os.path.basename(path)}"), 5):
        pass  # status may name stores alone
    deadline = round.rng.choice([0, 0.2, 1])
    why = "a presenter takes 2.5 s"
    answer = timed(round, writer, deadline, why, access(round, path, deadline))
    must_fail(round, answer, why)
    must_succeed(round, timed(round, writer, 30, why, access(round, path, 30)), why + ", with 30 s")


def slow_store(round, agent, path):
    """Checks a store that takes a second to close and to open: the deadline holds, and the store is written again
    afterwards."""
    app, writer = round.actor(agent), round.actor(agent)
    if not (app.reply(present(round, app, path, milliseconds=600)) or {}).get("ok"):
        round.problem("refused", "present")
        return
    known = f"{round.group}/{os.path.basename(path)}"
    if not wait(lambda: app.pid in agent.presenters(known), AMPLE):
        return
    for deadline in round.rng.sample([0, 0.1, 0.4, 1], 2):
        why = "a store takes 1.2 s to close"
        answer = timed(round, writer, deadline, why, access(round, path, deadline, options=["replacing"]))
        # An abandoned access cuts its close short: the next access may find the store closed.
        states = [each for each in app.events if each.get("event") in ("opened", "closed")]
        before = [each["event"] for each in states if answer and each["at"] <= answer["at"]]
        if not (answer and answer["ok"] and before[-1:] == ["closed"]):
            must_fail(round, answer, why, app.pid if deadline else None)
    number = app.send("end", key="p") if round.rng.random() < 0.4 else None
    answer = timed(round, writer, 20, "the same with 20 s", access(round, path, 20, action="replace", text="r"))
    must_succeed(round, answer, "the same with 20 s")
    if number is None:
        if not wait(lambda: (app.ask("write", key="p", text="after") or {}).get("ok"), AMPLE):
            round.problem("not-reopened", "the store isn't opened again after accesses that were given up")
        number = app.send("end", key="p")
    answer = app.reply(number)
    if answer is None or not answer["ok"] or answer["what"] != "closed":
        round.problem("open-after-end", f"end(): {answer}")


def failing_close(round, agent, path):
    """Checks a store that can't close: the access doesn't take place, and the store stays open."""
    app, writer = round.actor(agent), round.actor(agent)
    if not (app.reply(present(round, app, path, fails=["close"])) or {}).get("ok"):
        round.problem("refused", "present")
        return
    known = f"{round.group}/{os.path.basename(path)}"
    if not wait(lambda: app.pid in agent.presenters(known), AMPLE):
        return
    for _ in range(2):
        why = "the presenter can't close its store"
        answer = timed(round, writer, 10, why, access(round, path, 10, options=["replacing"]))
        must_fail(round, answer, why)
        if not wait(lambda: (app.ask("write", key="p", text="after") or {}).get("ok"), 10):
            round.problem("not-reopened", "a store that could not be closed isn't open any more")
    start = time.monotonic()
    answer = app.ask("end", key="p")
    if answer is None or answer["at"] - start > PRESENTING + SLACK:
        round.problem("slow-end", f"end() of a store that can't be closed: {answer}")


def failing_open(round, agent, path):
    """Checks a store that can't open: `present` throws, and the agent asks and awaits nobody."""
    app, writer = round.actor(agent), round.actor(agent)
    for number in range(round.rng.randint(1, 3)):
        answer = app.reply(present(round, app, path, f"p{number}", fails=["open"]))
        if answer is None or answer["ok"]:
            round.problem("wrong-answer", f"present() of what can't be opened: {answer}")
    known = f"{round.group}/{os.path.basename(path)}"
    if not wait(lambda: app.pid not in agent.presenters(known), 10):
        round.problem("presented-after-end", "who could not open the store presents it")
    why = "nobody could open the store"
    must_succeed(round, timed(round, writer, 5, why, access(round, path, 5)), why)
