"""Sends random and mutated requests: the agent survives, its memory is bounded, and it serves other clients meanwhile."""

import json
import os
import select
import socket
import time

import store as stores
from program import LATE, SOON, quoted
from wire import Client, Closed, requires_reread

GROUP = "group.requests"
OPS = ["subscribe", "unsubscribe", "sync", "changes", "ack", "present", "unpresent", "saved", "relinquished", "accommodated", "claim",
       "release", "relocate", "status", "fly", "", "hello"]  # fmt: skip
MEMBERS = ["store", "since", "tables", "detail", "bookmarks", "entities", "operations", "authors", "except_authors", "rows", "durable",
           "limit", "subscriber", "token", "pid", "program", "models", "presenter", "claim", "error", "intents", "access", "options",
           "deadline", "took_place", "moves", "group", "source", "source_file", "group_file", "name", "on_conflict", "retire", "dry_run",
           "opaque", "assume_closed", "journal_mode", "model", "default_store", "mappings", "model_version", "renamings",
           "allow_partial_history", "on_incompatible", "store_b64", "source_b64", "id"]  # fmt: skip


def value(r, round, depth=0):
    """Returns a value that some member might have, or none should."""
    kind = r.randrange(16)
    if kind < 5:
        return text(r, round)
    if kind == 5:
        return r.choice([0, -1, 1, 2**31, 2**53, 2**63, -(2**63), 2**64, 10**400, 0.5, -0.0, 1e308, 5e-324])
    if kind == 6:
        return r.choice([True, False, None])
    if kind in (7, 8) and depth < 4:
        return [value(r, round, depth + 1) for _ in range(r.randrange(5))]
    if kind in (9, 10) and depth < 4:
        return {r.choice(MEMBERS + ["dev", "ino", "path", "from", "to"]): value(r, round, depth + 1) for _ in range(r.randrange(4))}
    if kind == 11:
        return {"store": f"{GROUP}/{r.choice(['N', 'M'])}.sqlite", "access": r.choice(["read", "write", "both"])}
    if kind == 12:
        return r.choice(["read", "write", "refuse", "keep-group", "wal", "delete", "insert", "symlink"])
    return text(r, round)


def text(r, round):
    return r.choice([
        f"{GROUP}/N.sqlite", f"{GROUP}/N.sqlite", f"{GROUP}/M.sqlite", f"{GROUP}/none", f"{GROUP}/", "/", "", GROUP, f"{GROUP}/../N.sqlite",
        f"{GROUP}/.groupstore/lock", f"{GROUP}/{'x' * 300}", f"{GROUP}/a\0b", f"{GROUP}/N.sqlite-wal", "\ud800", "\u202e", "p1", "c1", "h1.00.1.00",
        round.path("group"), round.path("legacy", "N.sqlite"), round.path("nowhere"), "relative", "x" * r.choice([100, 5000, 30000]), "MARK", "1",
    ])  # fmt: skip


def line(r, round):
    """Returns a line that may be a request."""
    kind = r.randrange(20)
    if kind == 0:
        return r.randbytes(r.choice([1, 10, 1000, 20000])).replace(b"\n", b"")
    if kind == 1:
        return b"[" * r.choice([10, 1000, 16000]) + b"]" * r.choice([0, 1000])
    if kind == 2:
        return b'{"id":1,"op":"status","x":' + b'{"a":' * r.choice([5, 500, 5000]) + b"1" + b"}" * r.choice([5, 500, 5000]) + b"}"
    if kind == 3:
        return b'{"id":1,"op":"status",' + b",".join(b'"m%d":%d' % (n, n) for n in range(r.choice([10, 2000]))) + b"}"
    if kind == 4:
        return r.choice([b"", b" ", b"\r", b"null", b"1", b'"x"', b"\xef\xbb\xbf{}", b"{}", b"[]", b'{"op":"status","op":"fly"}', b'{"op":null}'])
    if kind == 5:
        return b"x" * r.choice([32766, 32767, 32768, 40000, 200000])
    message = {"id": r.choice([1, 2, "x", "x" * 256, None, value(r, round)]), "op": r.choice(OPS)}
    for _ in range(r.randrange(6)):
        message[r.choice(MEMBERS)] = value(r, round)
    if r.random() < 0.7 and "store" not in message:
        message["store"] = r.choice([f"{GROUP}/N.sqlite", f"{GROUP}/M.sqlite", text(r, round)])
    if r.random() < 0.1:
        message.pop("id")
    try:
        data = bytearray(json.dumps(message, ensure_ascii=r.random() < 0.5).encode("utf-8", "surrogatepass"))
    except (ValueError, OverflowError):
        return b"{}"
    for _ in range(r.choice([0, 0, 0, 1, 1, 3, 20])):
        place = r.randrange(len(data))
        what = r.randrange(3)
        if what == 0:
            data[place] = r.randrange(256)
        elif what == 1:
            del data[place : place + r.randrange(1, 9)]
            if not data:
                data = bytearray(b"{")
        else:
            data[place:place] = data[place : place + r.randrange(40)]
    return bytes(data).replace(b"\n", b" ")


class Witness:
    """A well-behaved subscriber, notified of each commit in time whatever others send."""

    def __init__(self, round, agent):
        self.round, self.agent, self.client, self.marks, self.slowest = round, agent, agent.connect(), 0, 0.0
        reply = self.client.ask({"op": "subscribe", "store": f"{GROUP}/W.sqlite"})
        if not (reply or {}).get("ok"):
            round.problem("refused", f"the witness' subscription: {reply}")

    def check(self, what):
        """Returns False if something is wrong."""
        if not self.agent.lives():
            self.round.problem("died", f"{what}: {self.agent.tail()}")
            return False
        self.marks += 1
        try:
            self.client.drain()
            before, _ = stores.commit(self.round.path("group", "W.sqlite"), f"mark {self.marks}")
            delay = self.client.wait_event(requires_reread, before, LATE)
            began = time.monotonic()
            status = self.client.ask({"op": "status"}, LATE)
        except Closed:
            self.round.problem("died" if not self.agent.lives() else "witness-closed", f"{what}: {self.agent.tail()}")
            return False
        if delay is None or status is None:
            self.round.problem("missed", f"{what}: the witness is told {'nothing' if delay is None else 'no status'} in {LATE:.0f} s")
            return False
        delay = max(delay, time.monotonic() - began)
        self.slowest = max(self.slowest, delay)
        if delay > SOON:
            self.round.problem("late", f"{what}: the witness waits {delay:.1f} s")
        self.client.events.clear()
        self.client.raw.clear()
        return True


def run(round):
    r = round.rng
    user = 54323 if os.geteuid() == 0 else None  # nobody owns files by this user, whatever the requests ask for
    for name in ("group", "legacy"):
        os.mkdir(round.path(name))
    for path in ("group/N.sqlite", "group/W.sqlite", "legacy/Old.sqlite"):
        stores.make(round.path(path), r.choice(["wal", "delete"]), 3, owner=user)
    for name in ("group", "legacy"):
        if user is not None:
            os.chown(round.path(name), user, user)
    text = f"groups:\n  - id: {GROUP}\n    directory: {quoted(round.path('group'))}\n    stores:\n      - name: N.sqlite\n"
    text += f"        legacy: [{quoted(round.path('legacy', 'N.sqlite'))}]\n"
    agent = round.agent(text, user=user)
    if not agent.start():
        round.problem("no-start", agent.tail())
        return
    witness = Witness(round, agent)
    start = agent.memory()
    attacks = [garbage, garbage, slow_bytes, connections, no_reader, half_closed, one_byte_lines, presenters]
    for attack in r.sample(attacks, r.randint(1, 3)):
        round.step(attack.__name__)
        round.title += (", " if round.title else "") + attack.__name__
        attack(round, agent, witness)
        if not witness.check("after " + attack.__name__):
            return
    peak = agent.memory("VmHWM") - start
    round.outcome = f"peak {peak} KiB more, the witness waited {witness.slowest:.2f} s at most"
    # 1100 connections with 64 KiB of answers each take 70 MiB; the documents allow nothing near twice that.
    if peak > 140 * 1024:
        round.problem("memory", round.outcome)


def garbage(round, agent, witness):
    """Sends lines of all kinds. The agent must then answer a request with its own id, unless the connection had to end."""
    r = round.rng
    for n in range(r.choice([5, 20, 60])):
        client, sent = agent.connect(), []
        for _ in range(r.choice([1, 20, 200])):
            sent.append(line(r, round))
        client.send(b"\n".join(sent) + b"\n", LATE)
        last = json.dumps({"id": "the end", "op": "status", "group": GROUP}).encode() + b"\n"
        client.send(last, LATE)
        try:
            answer = client.reply("the end", LATE)
        except Closed:
            answer = True
            if not any(len(x) >= 32768 for x in sent) and agent.lives():
                round.problem("closed", f"the connection ended without a line that is too long; last reply {client.raw[-1:]}; last line {sent[-1][:200]!r}")
                return
        if answer is None:
            waits = [x for x in sent if b'"claim"' in x or b"relocate" in x]
            round.problem("no-answer", f"after {len(sent)} lines, {len(waits)} of which may wait, nothing more is answered")
            return
        if client.faults:
            round.problem("wire", client.faults[0])
        for reply in client.replies:
            if reply.get("ok") is False and not isinstance(reply.get("error", {}).get("code", reply.get("outcome")), str):
                round.problem("wire", f"an error without a code: {reply}")
                return
        client.close()
        if n % 10 == 0 and not witness.check("among garbage"):
            return


def slow_bytes(round, agent, witness):
    """Sends a request byte by byte, and many unfinished requests."""
    halves = [agent.connect() for _ in range(50)]
    for n, client in enumerate(halves):
        client.send(b'{"id":1,"op":"status","x":"' + b"x" * (600 * n))
    slow = agent.connect()
    data = b'{"id":"slow","op":"status"}\n'
    for n, byte in enumerate(data):
        slow.send(bytes([byte]))
        if n % 9 == 0 and not witness.check("among slow bytes"):
            return
    if slow.reply("slow", LATE) is None:
        round.problem("no-answer", "a request that came byte by byte")
    for client in halves:
        client.close()


def connections(round, agent, witness):
    """Opens some thousands of connections. The agent reports the excess to those clients and serves the others."""
    r, kept, refused = round.rng, [], 0
    for n in range(r.choice([300, 1500, 3000])):
        try:
            client = agent.connect()
        except (OSError, TimeoutError):
            refused += 1
            continue
        if r.random() < 0.5:
            try:
                client.socket.send(r.choice([b"{", b"\n", b'{"id":1,"op":"status"}\n', b'{"op":"subscribe","store":"group.requests/N.sqlite"}\n']))
            except OSError:
                pass
        if r.random() < 0.7 and len(kept) < 1500:
            kept.append(client)
        else:
            client.close()
    if not witness.check(f"beside {len(kept)} connections"):
        return
    for client in kept:
        client.close()


def no_reader(round, agent, witness):
    """Runs clients that ask and never read."""
    deaf = []
    for _ in range(round.rng.choice([1, 20, 100])):
        s = agent.connect().socket
        s.setblocking(False)
        deaf.append(s)
    request = b'{"id":1,"op":"subscribe","store":"group.requests/N.sqlite"}\n{"id":2,"op":"status"}\n' * 100
    for _ in range(20):
        for s in deaf:
            try:
                s.send(request)
            except (BlockingIOError, OSError):
                pass
        stores.commit(round.path("group", "N.sqlite"), "unread")
    witness.check(f"beside {len(deaf)} that don't read")
    for s in deaf:
        s.close()


def half_closed(round, agent, witness):
    """Checks that the agent answers a client that has closed its sending side."""
    for _ in range(20):
        client = agent.connect()
        client.send(b'{"id":"last","op":"status"}\n' * 1)
        client.socket.shutdown(socket.SHUT_WR)
        try:
            if client.reply("last", LATE) is None:
                round.problem("no-answer", "a client that shut down its sending side")
                return
        except Closed:
            round.problem("closed", "a client that sends no more gets no answer to what it had sent")
            return
        client.close()
        other = agent.connect()
        other.send(b'{"id":1,"op":"sta')
        other.close()


def one_byte_lines(round, agent, witness):
    """Floods the agent with the shortest possible lines from several clients at once."""
    clients, data = [agent.connect() for _ in range(8)], round.rng.choice([b"\n", b"{}\n", b"1\n"]) * 20000
    left = {c.fileno(): (c, data) for c in clients}
    end = time.monotonic() + LATE
    poll = select.poll()
    for c in clients:
        poll.register(c.fileno(), select.POLLIN | select.POLLOUT)
    while left and time.monotonic() < end:
        for number, what in poll.poll(1000):
            client, rest = left.get(number, (None, b""))
            if client is None:
                continue
            if what & select.POLLIN:
                try:
                    if not client.socket.recv(1 << 18):
                        rest = b""
                except OSError:
                    rest = b""
            if what & select.POLLOUT and rest:
                try:
                    rest = rest[client.socket.send(rest) :]
                except OSError:
                    rest = b""
            left[number] = (client, rest)
            if not rest:
                poll.unregister(number)
                del left[number]
    if left:
        round.problem("no-answer", f"{len(left)} floods of {data[:3]!r} were not read in {LATE:.0f} s")
    witness.check("after a flood")
    for c in clients:
        c.close()


def presenters(round, agent, witness):
    """Runs silent presenters, unfinished claims and unsolicited answers; then all clients leave at once."""
    r, clients = round.rng, [agent.connect() for _ in range(r_count(round))]
    store = f"{GROUP}/N.sqlite"
    for client in clients:
        for _ in range(r.randrange(1, 30)):
            client.post(r.choice([
                {"op": "present", "store": store}, {"op": "present", "store": f"{GROUP}/D"}, {"op": "unpresent", "presenter": "p1"},
                {"op": "claim", "store": store, "access": "write", "deadline": r.choice([0, 0.01, 1, 1e9, -1])},
                {"op": "claim", "intents": [{"store": store, "access": "read"}] * r.randrange(9)},
                {"op": "relinquished", "claim": f"c{r.randrange(9)}"}, {"op": "release", "claim": f"c{r.randrange(9)}"},
                {"op": "saved", "claim": "c1", "presenter": "p1"}, {"op": "release", "claim": "c1", "moves": [{"from": store, "to": "x"}]},
            ]))  # fmt: skip
    witness.check("among presenters")
    for client in clients:
        client.close()


def r_count(round):
    return round.rng.choice([2, 20])


__all__ = ["Client", "run"]
