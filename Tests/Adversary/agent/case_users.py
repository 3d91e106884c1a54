"""Sends other users' requests, with each role and with none: they must reveal or move nothing out of the users' own reach."""

import hashlib
import json
import os
import socket
import sqlite3
import threading
import time

import store as stores
from program import LATE, acting_as, exchange, quoted, wait_until
from wire import Client, Closed, requires_reread

OWNER, ASKER = 54324, 54325  # nobody uses these numbers; neither needs an entry anywhere
OPEN, SHUT, ABSENT, MINE = "group.open", "group.shut", "group.absent", "group.mine"
ROLES = [None, ["subscribe"], ["present"], ["relocate"], ["subscribe", "present"], ["subscribe", "present", "relocate"], "short"]


def asking(round, agent, groups=()):
    """Makes a connection of the asker's. Its process lives on, since the agent may inspect it."""
    connection = socket.socket(socket.AF_UNIX)
    ends, ready = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(ends[1])
            os.close(ready[0])
            os.setgroups(list(groups))
            os.setresgid(ASKER, ASKER, ASKER)
            os.setresuid(ASKER, ASKER, ASKER)
            connection.connect(agent.socket_path)
            os.write(ready[1], b"y")
            os.read(ends[0], 1)
        finally:
            os._exit(0)
    os.close(ends[0])
    os.close(ready[1])
    connected = os.read(ready[0], 1)
    os.close(ready[0])

    def close_and_reap():
        os.close(ends[1])
        os.waitpid(child, 0)

    round.closers.append(close_and_reap)
    if not connected:
        raise ConnectionError("the socket can't be reached by the other user")
    return Client(None, connection)


class Scene:
    """An owner's files, some of them open to others. Each private file has a marker in its name or content."""

    def __init__(self, round, agent_user):
        self.round, self.r = round, round.rng
        self.secret = "Secret%08x" % self.r.randrange(1 << 32)
        self.open, self.shut, self.home = round.path("open"), round.path("shut"), round.path("home-of-owner")
        self.theirs = round.path("asker")
        for path, mode in ((self.open, 0o755), (self.shut, 0o700), (self.home, 0o700), (self.theirs, 0o755)):
            os.mkdir(path)
            os.chmod(path, mode)
        for path in (f"{self.open}/Public.sqlite", f"{self.open}/Private.sqlite", f"{self.shut}/Kept.sqlite", f"{self.home}/Old.sqlite"):
            stores.make(path, self.r.choice(["wal", "delete"]), self.r.randrange(3, 40), note=self.secret)
            connection = stores.connect(path)
            connection.execute(f"CREATE TABLE {self.secret} (a)")
            connection.close()
            os.chmod(path, 0o644 if "Public" in path else 0o600)
        stores.make(f"{self.theirs}/Own.sqlite", "delete", 2, note="asker's own")
        os.chmod(f"{self.theirs}/Own.sqlite", 0o600)
        os.mkdir(f"{self.theirs}/group")
        with open(f"{self.home}/model.xcdatamodel", "w", encoding="ascii") as file:
            file.write(f"<{self.secret}>")
        os.chmod(f"{self.home}/model.xcdatamodel", 0o600)
        os.symlink(f"{self.shut}/Kept.sqlite", f"{self.open}/Link.sqlite")
        os.symlink(self.shut, f"{self.open}/Shut")
        owner = agent_user if agent_user else OWNER
        for top in (self.open, self.shut, self.home, self.theirs):
            for place, _, files in os.walk(top):
                for path in [place] + [os.path.join(place, f) for f in files]:
                    os.lchown(path, ASKER if top == self.theirs else owner, ASKER if top == self.theirs else owner)

    def config(self, role, agent_user):
        if role == "short":
            who = f"  allow-uids: [{ASKER}]\n"
        elif role is None:
            who = f"  allow: [{{ uid: {ASKER + 1000}, may: [subscribe, present, relocate] }}]\n"
        else:
            who = f"  allow: [{{ uid: {ASKER}, may: [{', '.join(role)}] }}]\n"
        return (
            f"socket:\n  path: {quoted(self.round.path('run', 'agent.sock'))}\n{who}groups:\n"
            f"  - id: {OPEN}\n    directory: {quoted(self.open)}\n    stores:\n      - name: Public.sqlite\n      - name: Private.sqlite\n"
            f"      - name: Arrived.sqlite\n"
            f"  - id: {SHUT}\n    directory: {quoted(self.shut)}\n    stores:\n      - name: Kept.sqlite\n"
            f"        legacy: [{quoted(self.home + '/Never.sqlite')}]\n"
            + (f"  - id: {MINE}\n    directory: {quoted(self.theirs + '/group')}\n    stores:\n      - name: Mine.sqlite\n" if not agent_user else "")
        )

    def snapshot(self):
        """Returns all that isn't the asker's: names, modes and owners; contents and modification times of kept files."""
        found = {}
        for top in (self.open, self.shut, self.home):
            for place, directories, files in os.walk(top):
                for name in directories + files:
                    path = os.path.join(place, name)
                    s = os.lstat(path)
                    content = os.readlink(path) if os.path.islink(path) else ""
                    if os.path.isfile(path) and not os.path.islink(path):
                        with open(path, "rb") as file:
                            content = hashlib.sha256(file.read()).hexdigest()
                    found[path] = (oct(s.st_mode), s.st_uid, content)
        return found


def identity(path):
    try:
        s = os.stat(path)
        return {"dev": str(s.st_dev), "ino": str(s.st_ino)}
    except OSError:
        return {"dev": "1", "ino": "1"}


def attacks(scene, r):
    """Returns pairs of requests that differ only in one name, present or missing: (request, (there, not there), descriptor)."""
    pairs = []
    names = [
        (f"{SHUT}/Kept.sqlite", f"{SHUT}/Miss.sqlite"), (f"{SHUT}/Kept.sqlite", f"{ABSENT}/Kept.sqlite"), (f"{OPEN}/Private.sqlite", f"{ABSENT}/Private.sqlite"),
        (f"{OPEN}/../shut/Kept.sqlite", f"{OPEN}/../shut/Miss.sqlite"), (f"{OPEN}/Shut/Kept.sqlite", f"{OPEN}/Shut/Miss.sqlite"),
        (f"{OPEN}/Link.sqlite", f"{ABSENT}/Link.sqlite"),
    ]  # fmt: skip
    for there, absent in names:
        for message in (
            {"op": "subscribe"}, {"op": "subscribe", "detail": False}, {"op": "subscribe", "durable": True, "rows": True}, {"op": "subscribe", "since": "x"},
            {"op": "changes"}, {"op": "ack", "subscriber": "me", "token": "h1.00.1.00"}, {"op": "sync"}, {"op": "present"}, {"op": "unsubscribe"},
            {"op": "claim", "access": "read", "deadline": 1}, {"op": "claim", "access": "write", "options": ["for_moving"], "deadline": 1},
        ):  # fmt: skip
            pairs.append((message, {"store": there}, {"store": absent}, None))
    for there, absent in ((SHUT, ABSENT), (OPEN, OPEN)):
        pairs.append(({"op": "status"}, {"group": there}, {"group": absent}, None))
    places = [
        (f"{scene.home}/Old.sqlite", f"{scene.home}/Omd.sqlite"), (f"{scene.shut}/Kept.sqlite", f"{scene.shut}/Miss.sqlite"),
        (f"{scene.home}/model.xcdatamodel", f"{scene.home}/nodel.xcdatamodel"), (scene.home, scene.home + "x"), (scene.shut, scene.shut + "x"),
    ]  # fmt: skip
    for there, absent in places:
        for _ in range(3):
            group = r.choice([scene.theirs, scene.open, scene.shut])
            message = {"op": "relocate", "group": group, "deadline": 1, "dry_run": r.random() < 0.5, "name": r.choice(["Arrived.sqlite", "Private.sqlite", "../x", "Kept.sqlite"])}
            if r.random() < 0.5:
                message["group_file"] = identity(group)
            message |= r.choice([{}, {"opaque": True}, {"assume_closed": True}, {"retire": "symlink"}, {"on_conflict": "keep-legacy"}, {"journal_mode": "wal"}])
            theirs = r.choice([None, None, f"{scene.theirs}/Own.sqlite"])
            exact = r.random() < 0.5
            pairs.append((message, *({"source": p} | ({"source_file": identity(p)} if exact else {}) for p in (there, absent)), theirs))
            own = {"op": "relocate", "source": f"{scene.theirs}/Own.sqlite", "source_file": identity(f"{scene.theirs}/Own.sqlite"), "deadline": 1, "dry_run": True}
            pairs.append((own, *({"group": p} for p in (there, absent)), theirs))
            file = {"path": there, "file": identity(there)}, {"path": absent, "file": identity(absent)}
            key = r.choice(["model", "default_store", "mappings"])
            wrapped = [{key: [f] if key == "mappings" else f} for f in file]
            pairs.append((own | {"group": scene.open, "name": "Arrived.sqlite"}, *wrapped, theirs))
    r.shuffle(pairs)
    return pairs


def normal(scene, messages, names):
    """Returns an answer without what the asker sent and without numbers that always differ."""
    text = json.dumps(messages, sort_keys=True)
    for name in names:
        for part in {name, name.rpartition("/")[2], name.partition("/")[0]}:
            if len(part) > 3:
                text = text.replace(json.dumps(part)[1:-1], "NAME")
    cut = json.loads(text)
    for message in cut:
        for key in ("id", "seconds", "token", "presenter", "claim", "pid", "epoch"):
            message.pop(key, None)
    return cut


def ask(client, message, descriptor):
    """Sends a request.

    `descriptor` is an open file or a path; it is closed at once, because the agent waits for whoever has it open.
    """
    passed = [os.open(descriptor, os.O_RDWR) if isinstance(descriptor, str) else descriptor] if descriptor else []
    try:
        id = client.post(message, passed)
    finally:
        for number in passed:
            os.close(number)
    reply = client.reply(id, LATE)
    rows = [m for _, m in client.events if m.get("id") == id]
    client.events.clear()
    return rows + [reply if reply is not None else {"silence": True}]


def run(round):
    r = round.rng
    agent_user = r.choice([None, OWNER])
    role = r.choice(ROLES)
    round.title = f"agent of {'root' if agent_user is None else 'another user'}, roles {role}"
    scene = Scene(round, agent_user)
    agent = round.agent(scene.config(role, agent_user), user=agent_user)
    if not agent.start():
        if b"unknown" not in agent.text() and b"allow" not in agent.text():
            round.problem("no-start", agent.tail())
            return
        agent.process = None
        role = "short"  # a program without roles
        round.title += " (as allow-uids)"
        agent = round.agent(scene.config(role, agent_user), user=agent_user)
        if not agent.start():
            round.problem("no-start", agent.tail())
            return
    client = asking(round, agent)
    if role is None:
        return unnamed_user(round, scene, client)
    may = ["subscribe"] if role == "short" else role
    before = scene.snapshot()
    answers = compared(round, scene, agent, client, attacks(scene, r)[: r.choice([30, 80, 200])])
    after = scene.snapshot()
    changed = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k) and "/.groupstore" not in k)
    if changed:
        round.problem("moved", f"{changed[:3]} changed: {before.get(changed[0])} became {after.get(changed[0])}")
    if not os.path.isfile(f"{scene.theirs}/Own.sqlite"):
        round.problem("moved", "the asker's own store is gone, and nothing could rightly be done with it")
    round.outcome = f"{answers} pairs"
    granted(round, scene, agent, may)
    if agent_user is None and "allow-uids" not in round.title and not round.problems:
        relocations(round, scene, agent, may)
    if "subscribe" in may and r.random() < 0.35:
        closed_later(round, scene, agent)


def unnamed_user(round, scene, client):
    try:
        client.send(b'{"id":1,"op":"status"}\n{"id":2,"op":"subscribe","store":"group.open/Public.sqlite"}\n')
    except OSError:
        pass
    wait_until(lambda: client.read(0.2) or client.closed, LATE)
    wait_until(lambda: client.closed or client.read(0.2) is None, 5)
    if not client.closed:
        round.problem("stranger", "the connection of a user who isn't named goes on")
    codes = [m.get("error", {}).get("code") for m in client.replies]
    if codes != ["not_permitted"] or client.events:
        round.problem("stranger", f"a user who isn't named gets {client.raw}")
    leaks(round, scene, client, "a stranger")


def leaks(round, scene, client, what):
    for line in client.raw:
        if scene.secret.encode() in line:
            round.problem("leak", f"{what}: {line[:300].decode(errors='replace')}")
            return


def compared(round, scene, agent, client, pairs):
    """Sends each pair. The answers must not differ, nor contain anything from the private files."""
    for number, (message, there, absent, descriptor) in enumerate(pairs):
        answers = []
        for part in (there, absent):
            names = [v if isinstance(v, str) else json.dumps(v) for v in (*there.values(), *absent.values())]
            names += [p["path"] for v in (*there.values(), *absent.values()) for p in (v if isinstance(v, list) else [v]) if isinstance(p, dict) and "path" in p]
            try:
                client.raw.clear()
                began = time.monotonic()
                answers.append(normal(scene, ask(client, {**message, **part}, descriptor), names))
                took = time.monotonic() - began
            except Closed:
                answers.append("closed")
                client = asking(round, agent)
                took = 0
            leaks(round, scene, client, f"{message} {part}")
            if took > 30:
                round.problem("slow", f"{took:.0f} s: {message} {part}")
        if answers[0] != answers[1]:
            round.problem("oracle", f"{json.dumps(message)} with {there} is answered {answers[0]}, with {absent} {answers[1]}"[:900])
        for answer, part in zip(answers, (there, absent)):
            last = answer[-1] if isinstance(answer, list) else {}
            expected = message["op"] in ("unsubscribe", "status") or part.get("store", "").startswith(OPEN + "/Miss")
            if last.get("ok") is True and last.get("outcome") not in ("refused", "busy", "failed", "conflict") and not expected:
                if not (message["op"] == "sync" and last.get("token")):
                    round.problem("granted", f"{json.dumps(message)} with {part} is answered {last}"[:700])
        if len([p for p in round.problems if p[0] in ("oracle", "granted", "leak")]) > 4:
            return number + 1
        if any(os.path.exists(p) for p in (f"{scene.theirs}/Old.sqlite",)):
            round.problem("moved", "a private store has come to the asker")
            return number + 1
    return len(pairs)


def granted(round, scene, agent, may):
    """Checks that what a role allows works; otherwise a program that refuses everything would pass."""
    client = asking(round, agent)
    reply = client.ask({"op": "subscribe", "store": f"{OPEN}/Public.sqlite"}, LATE) or {}
    if "subscribe" in may:
        if not reply.get("ok"):
            round.problem("withheld", f"a subscription to what the user may read: {reply}")
            return
        for n in range(2):
            client.drain()
            moment, _ = stores.commit(f"{scene.open}/Public.sqlite", f"public {n}")
            if client.wait_event(requires_reread, moment, LATE) is None:
                round.problem("missed", "a commit to what the user may read")
                return
        stores.commit(f"{scene.shut}/Kept.sqlite", "hidden")
        client.ask({"op": "sync", "store": f"{OPEN}/Public.sqlite"}, LATE)
    elif reply.get("ok"):
        round.problem("granted", f"subscribe without the role: {reply}")
    presented = client.ask({"op": "present", "store": f"{OPEN}/Public.sqlite"}, LATE) or {}
    if presented.get("ok") and "present" not in may:
        round.problem("granted", f"present without the role: {presented}")
    for op in ({"op": "claim", "store": f"{OPEN}/Public.sqlite", "access": "write", "deadline": 1},):
        answer = client.ask(op, LATE) or {}
        if answer.get("ok") and "present" not in may:
            round.problem("granted", f"{op} without the role: {answer}")
    _, rows = client.status()
    text = json.dumps(rows)
    if SHUT in text or scene.shut in text or scene.home in text:
        round.problem("leak", f"status shows what the user may not see: {text[:600]}")
    client.drain()
    for line in client.raw:
        if SHUT.encode() in line or b"/shut" in line or b"home-of-owner" in line:
            round.problem("leak", f"a line names what is private: {line[:300]!r}")
            break


def own_relocation(scene, client):
    """Asks for what a user with the role may have, with that user's rights; returns the answer."""
    source, group = f"{scene.theirs}/from/Mine.sqlite", f"{scene.theirs}/group"
    with acting_as(ASKER):
        stores.remove(f"{group}/Mine.sqlite")
        if not os.path.exists(source):
            stores.make(source, "delete", 2, note="asker's own")
        message = {"op": "relocate", "source": source, "source_file": identity(source), "group": group, "group_file": identity(group), "deadline": 5}
        descriptor = os.open(source, os.O_RDWR)
    return ask(client, message, descriptor)[-1]


def relocations(round, scene, agent, may):
    """Relocates the user's own files if they have the role. Whatever they swap meanwhile, no other user's files move."""
    client = asking(round, agent)
    os.mkdir(f"{scene.theirs}/from")
    os.chown(f"{scene.theirs}/from", ASKER, ASKER)
    answer = own_relocation(scene, client)
    if "relocate" not in may:
        if answer.get("outcome") == "relocated":
            round.problem("granted", f"relocate without the role: {answer}")
        return
    if answer.get("outcome") != "relocated":
        round.problem("withheld", f"a relocation of the user's own files: {answer}")
        return
    stores.make(f"{scene.home}/Mine.sqlite", "delete", 9, owner=OWNER, note=scene.secret)
    os.chmod(f"{scene.home}/Mine.sqlite", 0o600)
    before = scene.snapshot()
    which = round.rng.choice(["from", "group"])
    trap = f"{scene.theirs}/trap"
    os.symlink(scene.home if which == "from" else scene.shut, trap)
    os.lchown(trap, ASKER, ASKER)
    over = threading.Event()

    def swap():
        while not over.is_set():
            exchange(trap, f"{scene.theirs}/{which}")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(60):
            try:
                own_relocation(scene, client)
            except (OSError, sqlite3.Error):
                pass
            except Closed:
                client = asking(round, agent)
    finally:
        over.set()
        thread.join()
    after = scene.snapshot()
    changed = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
    if changed:
        round.problem("moved", f"while {which} was swapped for a link: {changed[:3]}: {before.get(changed[0])} became {after.get(changed[0])}")
    for place, _, files in os.walk(scene.theirs):
        for name in files:
            path = os.path.join(place, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    if scene.secret.encode() in file.read():
                        round.problem("moved", f"{path} holds what was private")


def closed_later(round, scene, agent):
    """Closes a store to a subscribed user: they get no more of its events, and a notice that says so."""
    client = asking(round, agent)
    store, path = f"{OPEN}/Public.sqlite", f"{scene.open}/Public.sqlite"
    if not (client.ask({"op": "subscribe", "store": store}, LATE) or {}).get("ok"):
        round.problem("withheld", "a second subscription")
        return
    os.chmod(round.rng.choice([path, scene.open]), 0o600 if round.rng.random() < 0.5 else 0)
    began = time.monotonic()
    heard = 0.0

    def ended():
        nonlocal heard
        stores.commit(path, "closed")
        client.read(0.5)
        for t, message in client.events:
            if requires_reread(message) and message.get("type") == "change":
                heard = t - began
        return client.closed

    over = wait_until(ended, 40, 0.5)
    if heard > 20:
        round.problem("heard", f"{heard:.0f} s after it was closed to the user they still hear of the store")
    if not over:
        round.problem("unended", f"40 s after the store was closed to the user, and changing, the connection goes on; events {client.events[-1:]}")
