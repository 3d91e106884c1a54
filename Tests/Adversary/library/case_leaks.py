"""Makes dozens of groups, presentations, subscriptions and accesses: descriptors and threads stay bounded."""

import os
import shutil
from collections import Counter

from stage import Over, commit, wait
from words import store_name

MORE_DESCRIPTORS, MORE_THREADS = 8, 10


def run(round):
    rng = round.rng
    story = rng.choice([recreated_group, presented, watched, coordinated, pooled, restarted])
    round.title = story.__name__
    agent = round.agent()
    agent.configure({round.group: (round.container, {})})
    if story is restarted or rng.random() < 0.7:
        agent.start()
    else:
        round.title += " without an agent"
    actor = round.actor(agent)
    try:
        turns = 12
        for number in range(5):
            story(round, agent, actor, f"warm{number}")
        before = settled_counts(actor)
        for number in range(turns):
            story(round, agent, actor, f"t{number}")
        after = settled_counts(actor)
        # Growth after so many turns is measured again after as many more.
        if after[0] > before[0] + MORE_DESCRIPTORS or after[1] > before[1] + MORE_THREADS:
            for number in range(turns):
                story(round, agent, actor, f"u{number}")
            later = settled_counts(actor)
            if later[0] > after[0] + 3 and after[0] > before[0] + 3:
                text = f"{before[0]}, after {turns} turns {after[0]}, then {later[0]}: {sample(actor)}"
                round.problem("descriptors", text)
            if later[1] > after[1] + 3 and after[1] > before[1] + 3:
                round.problem("threads", f"{before[1]}, after {turns} turns {after[1]}, then {later[1]}")
    except Over:
        pass


def settled_counts(actor):
    """Returns the actor's descriptors and threads once they have settled."""
    seen = []

    def has_settled():
        seen.append((len(actor.open_files()), actor.threads()))
        return len(seen) > 4 and len(set(seen[-4:])) == 1

    wait(has_settled, 8)
    return min(descriptors for descriptors, _ in seen[-4:]), min(threads for _, threads in seen[-4:])


def sample(actor):
    """Returns the most frequent descriptors."""
    return Counter(path.partition(":[")[0] for path in actor.open_files()).most_common(3)


def recreate_group(round):
    shutil.rmtree(round.container)
    os.makedirs(round.container)


def recreated_group(round, agent, actor, key):
    """Does everything at once in a group directory that is removed under it."""
    rng, of_group = round.rng, round.of_group
    recreate_group(round)
    path = os.path.join(round.container, "item")
    with open(path, "w"):
        pass
    actor.must("add", key=key + "r", path=path, **of_group())
    actor.must("watch", key=key + "w", **of_group(name="Notes.sqlite"))
    actor.must("present", key=key + "p", **of_group(name="Notes.sqlite"))
    actor.ask("coordinate", action="none", deadline=20, isBlocking=rng.random() < 0.5,
              intents=[{"path": path, "access": "write"}], **of_group())
    is_early = rng.random() < 0.5
    if is_early:
        recreate_group(round)
    actor.ask("remove", key=key + "r", action="forget", **of_group())
    actor.ask("end", key=key + "p")
    actor.must("unwatch", key=key + "w")


def presented(round, agent, actor, key):
    count = 6
    members = round.of_group(name=store_name(round.rng))
    numbers = [actor.send("present", key=f"{key}-{n}", **members) for n in range(count)]
    for n, number in enumerate(numbers):
        answer = actor.reply(number)
        if answer and answer["ok"]:
            actor.must("end", key=f"{key}-{n}")


def watched(round, agent, actor, key):
    keys = [f"{key}-{n}" for n in range(6)]
    for each in keys:
        actor.must("watch", key=each, **round.of_group(name=store_name(round.rng)))
    if round.rng.random() < 0.5:
        commit(os.path.join(round.container, "Notes.sqlite"), key)
    for each in keys:
        actor.must("unwatch", key=each)


def coordinated(round, agent, actor, key):
    rng = round.rng
    path = os.path.join(round.container, "item" + key)
    with open(path, "w"):
        pass
    numbers = [
        actor.send("coordinate", action=rng.choice(["none", "touch"]), text="x", deadline=rng.choice([0, 0.01, 5]),
                   isBlocking=rng.random() < 0.5, intents=[{"path": path, "access": rng.choice(["read", "write"])}],
                   **round.of_group())
        for _ in range(8)]
    for number in numbers:
        actor.reply(number)


def pooled(round, agent, actor, key):
    members = round.of_group(name=store_name(round.rng))
    actor.must("pool", key=key, **members)
    actor.must("observe", key=key)
    actor.must("pool-write", key=key, text=key)
    actor.must("pool-close", key=key)
    actor.ask("unwatch", key=key + "/observe")


def restarted(round, agent, actor, key):
    """Stops and starts the agent while something is presented and watched."""
    actor.must("present", key=key + "p", **round.of_group(name="Notes.sqlite"))
    actor.must("watch", key=key + "w", **round.of_group(name="Notes.sqlite"))
    since = actor.event_count()
    agent.end()
    agent.start()
    if round.rng.random() < 0.5:
        actor.wait_for(lambda e: e.get("event") == "received" and e.get("key") == key + "w", 10, since)
    actor.must("end", key=key + "p")
    actor.must("unwatch", key=key + "w")
