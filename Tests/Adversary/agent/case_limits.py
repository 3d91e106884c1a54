"""Uses few descriptors, few watches, many subscriptions and long rests: the agent reports everything that it can't follow."""

import os
import resource
import time

import store as stores
from program import LATE, SOON, quoted, wait_until
from wire import Closed, requires_reread

GROUP = "group.limits"


def run(round):
    kind = round.rng.choice(["descriptors", "descriptors", "watches", "subscriptions", "idle"])
    round.title = kind
    {"descriptors": descriptors, "watches": watches, "subscriptions": subscriptions, "idle": idle}[kind](round)


def make_stores(round, count, directories):
    """Makes stores in some groups; returns [(wire name, path)] and the configuration."""
    r, made, text = round.rng, [], "groups:\n"
    for d in range(directories):
        directory = round.path(f"group{d}")
        os.mkdir(directory)
        text += f"  - id: {GROUP}{d}\n    directory: {quoted(directory)}\n    stores: []\n"
    template = round.path("template.sqlite")
    for mode in ("wal", "delete"):
        stores.make(f"{template}.{mode}", mode, 1)
    for n in range(count):
        d, name = n % directories, f"{n}.sqlite"
        path = os.path.join(round.path(f"group{d}"), name)
        with open(f"{template}.{r.choice(['wal', 'delete'])}", "rb") as file, open(path, "wb") as copy:
            copy.write(file.read())
        made.append((f"{GROUP}{d}/{name}", path))
    return made, text


def subscribe_all(round, agent, made):
    """Subscribes to each store over some connections; returns {store: client} and the refusals."""
    clients = [agent.connect() for _ in range(round.rng.randint(1, 4))]
    following, refused, asked = {}, {}, []
    for n, (store, _) in enumerate(made):
        client = clients[n % len(clients)]
        asked.append((store, client, client.post({"op": "subscribe", "store": store})))
    for store, client, id in asked:
        try:
            reply = client.reply(id, LATE)
        except Closed:
            # With few descriptors the agent may refuse the whole connection, which it says instead of its greeting.
            reply = next((m for m in client.replies if m.get("id") is None and not m.get("ok")), None)
        if reply is None:
            round.problem("no-answer", f"subscribe to {store} isn't answered within {LATE:.0f} s: {agent.tail()}")
        elif reply.get("ok"):
            following[store] = client
        else:
            refused[store] = reply.get("error", {})
    return clients, following, refused


def commit_all(round, agent, made, following, title):
    """Commits to each subscribed store in random order, holding some of them open. Each commit must be reported."""
    r, held, moments = round.rng, [], {}
    for client in set(following.values()):
        client.drain()
    order = [m for m in made if m[0] in following]
    r.shuffle(order)
    for store, path in order:
        connection = stores.connect(path)
        moments[store] = time.monotonic()
        connection.execute("INSERT INTO mark (text) VALUES (?)", (title,))
        if r.random() < 0.3 and len(held) < 100:
            held.append(connection)
        else:
            connection.close()
    pending = set(moments)

    def all_received():
        for store in list(pending):
            if any(requires_reread(m) for m in following[store].since(moments[store], store)):
                pending.discard(store)
        return not pending

    began = time.monotonic()
    wait_until(all_received, LATE, 0.2)
    took = time.monotonic() - began
    for connection in held:
        connection.close()
    if pending:
        rows = {x["store"]: x for x in agent.connect().status()[1] if x.get("type") == "store"}
        silent = [s for s in pending if not blind(following[s], s, rows.get(s))]
        if silent:
            states = sorted({str(rows.get(s, {}).get("state")) for s in silent})
            round.problem(
                "missed", f"{title}: {len(silent)} of {len(moments)} stores not told in {LATE:.0f} s, said to be {states}: {sorted(silent)[:3]}; {agent.tail()}")
    elif took > SOON + len(moments) / 50:
        round.problem("late", f"{title}: all of {len(moments)} told after {took:.1f} s only")


def blind(client, store, row):
    """Returns whether the subscriber knows that it gets no events for this store, and status agrees."""
    events = client.since(0, store)
    return bool(events) and events[-1].get("reason") == "unreadable" and (row or {}).get("state") != "following"


def check_refusals(round, agent, refused, word):
    for store, error in list(refused.items())[:1]:
        if error.get("code") not in ("not_watchable", "too_many_subscriptions", "system"):
            round.problem("refusal", f"{store} is refused with {error}")
    # The log has a thread of its own.
    if refused and word and not wait_until(lambda: any(w in agent.text() for w in word), SOON):
        round.problem("unsaid", f"{len(refused)} subscriptions refused, and the log doesn't name {word[0].decode()}: {agent.tail()}")


def descriptors(round):
    r = round.rng
    if r.random() < 0.5:
        soft, hard = r.choice([20, 32, 64, 256, 1024]), r.choice([4096, 20000])
    else:
        soft = hard = r.choice([24, 32, 40, 64, 100, 200, 400])
    count, directories = r.choice([10, 60, 150, 400, 700]), r.choice([1, 3, 20])
    round.title = f"{count} stores in {directories} groups, {soft} descriptors of {hard}"
    made, text = make_stores(round, count, min(directories, count))
    agent = round.agent(text, limits=[(resource.RLIMIT_NOFILE, soft, hard)])
    if not agent.start():
        if soft == hard and soft < 64 and agent.lines():
            agent.process = None
            round.outcome = f"doesn't start, and says {agent.tail(120)}"
            return
        round.problem("no-start", agent.tail())
        return
    try:
        clients, following, refused = subscribe_all(round, agent, made)
    except Closed:
        if soft != hard or soft >= 64 or b"too_many_connections" not in agent.text():
            raise
        round.outcome = "has room for no connection, and says so"
        return
    round.outcome = f"{len(following)} follow, {len(refused)} are refused"
    if refused and hard >= 4096:
        round.problem("refused", f"{len(refused)} of {count} refused, though {hard} descriptors are to be had: {list(refused.values())[0]}")
    check_refusals(round, agent, refused, [b"EMFILE", b"oo many open files", b"descriptors", b"NOFILE"])
    for n in range(r.randint(1, 2)):
        commit_all(round, agent, made, following, f"commit {n}")
    try:
        is_answered = agent.connect().status()[0]
    except Closed:
        is_answered = b"too_many_connections" in agent.text()  # refused, and logged
    if not is_answered:
        round.problem("no-answer", "status isn't answered: " + agent.tail())


def watches(round):
    """Runs the agent in a user namespace, which has limits of its own."""
    r = round.rng
    most, count, directories = r.choice([1, 4, 10, 30]), r.choice([5, 20, 60]), r.choice([1, 5, 20, 60])
    round.title = f"{count} stores in {directories} groups, {most} watches"
    made, text = make_stores(round, count, min(directories, count))
    script = f'echo {most} > /proc/sys/user/max_inotify_watches && exec "$@"'
    agent = round.agent(text, wrap=["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh"])
    if not agent.start():
        said = agent.text()
        agent.process = None
        if b"unshare" in said or b"sysctl" in said or b"max_inotify_watches:" in said or b"cannot create" in said:
            round.outcome = "no user namespaces here"
        elif not said:
            round.problem("no-start", "the agent ends without a word")
        return
    clients, following, refused = subscribe_all(round, agent, made)
    round.outcome = f"{len(following)} follow, {len(refused)} are refused"
    check_refusals(round, agent, refused, [b"ENOSPC", b"max_user_watches", b"max_inotify_watches", b"No space left", b"inotify"])
    commit_all(round, agent, made, following, "commit")
    rows = {x["store"]: x for x in clients[0].status()[1] if x.get("type") == "store"}
    for store in refused:
        if rows.get(store, {}).get("state") == "following":
            round.problem("status-lies", f"{store} was refused ({refused[store]}), and is said to be followed")
            break


def subscriptions(round):
    r = round.rng
    count, connections = r.choice([100, 1024, 3000, 12000, 30000]), r.choice([1, 5, 30])
    exists = r.random() < 0.3 and count <= 3000
    round.title = f"{count} subscriptions of {connections} connections to stores that are {'' if exists else 'not '}there"
    made, text = make_stores(round, count if exists else 1, 1)
    agent = round.agent(text)
    if not agent.start():
        round.problem("no-start", agent.tail())
        return
    before = agent.memory()
    clients, accepted, refused = [agent.connect() for _ in range(connections)], 0, {}
    same = r.random() < 0.2
    for client in clients:
        ids = []
        for n in range(count // connections + 1):
            client.number += 1
            store = f"{GROUP}0/{0 if same else n}.sqlite"
            ids.append(client.number)
            client.send(b'{"id":%d,"op":"subscribe","store":"%s"}\n' % (client.number, store.encode()))
        last = client.ask({"op": "status", "group": "nothing"}, LATE)
        if last is None and not client.closed:
            round.problem("no-answer", f"a connection of {len(ids)} subscriptions isn't answered: {agent.tail()}")
            return

        def answered(client=client, ids=ids):
            client.read(0.1)
            return len([x for x in client.replies if x.get("id") in set(ids)]) >= len(ids) or client.closed

        if not wait_until(answered, LATE):
            round.problem("no-answer", f"{len(ids)} subscriptions, {len(client.replies)} answers")
            return
        for reply in client.replies:
            if reply.get("ok"):
                accepted += 1
            else:
                refused[reply["error"]["code"]] = refused.get(reply["error"]["code"], 0) + 1
        client.replies.clear()
    grown = agent.memory() - before
    round.outcome = f"{accepted} accepted, refused {refused}, {grown} KiB more"
    if set(refused) - {"too_many_subscriptions"}:
        round.problem("refusal", round.outcome)
    # The documents allow 1 KB a subscription and 10 KB for the first of a store; this allows twice that.
    if grown > 16384 + min(accepted, 10000) * 20:
        round.problem("memory", f"{round.outcome}: {grown / max(accepted, 1):.1f} KiB each")
    # A connection's next subscription to the same store replaces its former one.
    if accepted > 10000 and not same:
        round.problem("unbounded", f"{accepted} subscriptions are accepted, and 10000 are the most")
    moment, path = time.monotonic(), made[0][1]
    stores.commit(path, "after all")
    store = made[0][0]
    if accepted and clients[0].wait_event(lambda m: requires_reread(m) and m.get("store") == store, moment, LATE) is None:
        round.problem("missed", f"a commit beside {accepted} subscriptions isn't told")
    for client in clients:
        client.close()
    again = agent.connect()
    if not (again.ask({"op": "subscribe", "store": store}) or {}).get("ok"):
        round.problem("refused", "all have gone, and a subscription is refused")


def idle(round):
    r = round.rng
    count, seconds = r.choice([1, 20, 200]), r.choice([10, 20, 40])
    round.title = f"{count} idle stores for {seconds} s"
    made, text = make_stores(round, count, r.choice([1, min(5, count)]))
    agent = round.agent(text)
    if not agent.start():
        round.problem("no-start", agent.tail())
        return
    clients, following, refused = subscribe_all(round, agent, made)
    commit_all(round, agent, made, following, "before")
    commit_all(round, agent, made, following, "before, again")
    quiet = time.monotonic() + 3  # work that follows the commits may finish
    while time.monotonic() < quiet:
        clients[0].read(quiet - time.monotonic())
    used, woken, began = agent.seconds(), agent.wakeups(), time.monotonic()
    while time.monotonic() - began < seconds:
        clients[0].read(seconds - (time.monotonic() - began))
    used, woken = agent.seconds() - used, agent.wakeups() - woken
    round.outcome = f"{used:.2f} s of processor time, {woken} wake-ups"
    events = [m for c in clients for m in c.since(began)]
    if events:
        round.problem("noise", f"{len(events)} events while nobody did anything: {events[0]}")
    if used > 0.1:
        round.problem("processor", round.outcome)
    if woken > 20:
        round.problem("wakeups", round.outcome)
    commit_all(round, agent, made, following, "after the idle time")


__all__ = ["run"]
