"""Somebody with a follower's credentials who is no follower: a raw client's requests, confirmations and consumers."""

import json
import os
import threading
import time

import checks
import digests
import wire
from nats_client import Client, NATSError
from round import Problem
from special import steady

PROMISE = "The home answers inboxes of followers, and nothing else"
REASONS = ["first", "gap", "schema_changed", "other_history", "damaged", "set_back"]


class Raw(Client):
    """A client that reads all the time, so that nothing waits for it."""

    def __init__(self, play, **arguments):
        super().__init__(play.broker.port, **arguments)
        self.play, self.stream = play, "GS_" + play.stream
        self.key = wire.read_key(play.key) if play.key else None
        self.received, self.errors = [], []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            while True:
                try:
                    self.received.append(self.next())
                except NATSError as error:
                    if "ERR" not in str(error):
                        raise
                    self.errors.append(str(error))
        except (NATSError, OSError, ValueError) as error:
            self.errors.append(str(error))

    def ask(self, members, reply, signed):
        body = json.dumps(members).encode()
        headers = {"Gs-Mac": wire.request_mac(self.key, self.stream, reply, body)} if signed and self.key else None
        self.publish(f"gs.{self.play.stream}.snapshot", body, headers, reply)

    def confirm(self, name, token, signed):
        fields, body = [self.stream, "ack", name], token.encode()
        headers = {"Gs-Mac": wire.mac(self.key, fields, body)} if signed and self.key else None
        self.publish(f"gs.{self.play.stream}.ack.{name}", body, headers)


def replies(self, chance):
    stream, name = "GS_" + self.stream, self.stream
    return [f"$JS.API.STREAM.DELETE.{stream}", f"$JS.API.STREAM.PURGE.{stream}", f"$JS.API.STREAM.INFO.{stream}", f"gs.{name}.changes",
            f"gs.{name}.snapshot", f"gs.{name}.ack.ghost", f"_INBOX.gs.{name}.home.x", f"_INBOX.gs.{name}.home.x.1", "_INBOX", "_inbox.a.b", "deputy",
            "_INBOX.a b"[:8], "_INBOX.ä", "_INBOX." + "a" * 300, "$SYS.REQ.SERVER.PING", f"_R_.{chance.random()}"]


def snapshots(self):
    found = []
    for directory, _, names in os.walk(os.path.join(self.directory, "snapshots")):
        for name in names:
            if name.endswith("-journal"):
                continue
            path = os.path.join(directory, name)
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                continue
            if mode & 0o077 or os.lstat(directory).st_mode & 0o077:
                raise Problem("modes", f"{path} has the mode {mode:o}", "only the home's user may read a snapshot")
            # SQLite's side files of a snapshot that is being made.
            if name.endswith(("-wal", "-shm")):
                continue
            found.append(name)
    return found


def hostile(self, seconds):
    steady(self, 1)
    control = Client(self.broker.port)
    stream = "GS_" + self.stream
    created = control.api("STREAM.INFO." + stream)["created"]
    deputy, raw = Raw(self), Raw(self)
    for number, subject in enumerate(["deputy", f"gs.{self.stream}.ack.ghost", f"_INBOX.gs.{self.stream}.home.>"]):
        deputy.send(f"SUB {subject} {number + 5}\r\n".encode())
    end, most, challenges = time.monotonic() + seconds, 0, []
    while time.monotonic() < end:
        signed = self.chance.random() < 0.7
        token = self.token()
        for reply in replies(self, self.chance):
            if " " in reply:
                continue
            for members in ({"op": "chunk", "id": "0123456789abcdef", "index": 0, "size": 524288}, {"op": "begin", "nonce": "abcd", "follower": "f1"}):
                raw.ask(members, reply, signed)
        for _, _, body in raw.received[-20:]:
            try:
                challenges = challenges[-3:] + [json.loads(body)["challenge"]]
            except (ValueError, KeyError, TypeError):
                pass
        for number in range(40):
            members = {"op": "begin", "nonce": os.urandom(6).hex(), "follower": f"g{number % 7}", "have": token, "reason": self.chance.choice(REASONS)}
            raw.ask(dict(members, challenges=challenges), f"{raw.inbox}.{number}", signed)
        history = wire.history_of(token)
        for number in (2**63 - 1, 2**63, 10**30, wire.number_of(token) + 5):
            raw.confirm("f1", f"h1.{history}.{number}.1", signed)
        raw.confirm("x" * 64, f"h1.{history}\x1b[2J.5.5", signed)
        for number in range(200):
            raw.confirm(f"ghost{number}", f"h1.{os.urandom(4).hex()}.{number}.1", signed)
        for _ in range(5):
            time.sleep(0.05)
            most = max(most, len(snapshots(self)))
        self.look_after()
        self.tokens.append(token)
    self.count("answers to a raw client", len(raw.received))
    self.count("snapshots at a time", most)
    if most > 2:
        raise Problem("snapshots", f"{most} at a time", "at most two snapshots at a time")
    info = control.api("STREAM.INFO." + stream)
    if info["created"] != created:
        raise Problem("stream", f"{info}", "nobody deletes it through the home")
    foreign = [number for number, headers, _ in control.messages(stream) if "Gs-From" not in headers]
    if foreign:
        raise Problem("foreign messages", f"{foreign}", PROMISE)
    strange = [(subject, headers) for subject, headers, body in deputy.received
               if subject == "deputy" or "Gs-Error" in headers or b'"state":"' in body]
    if strange:
        raise Problem("deputy", f"{strange[:3]}", PROMISE)
    empty = [(subject, headers) for subject, headers, body in raw.received if not body and "Status" not in headers]
    if empty:
        raise Problem("empty answer", f"{empty[:3]}", "no answer is empty")
    for client in (control, deputy, raw):
        client.close()
    self.stop_writers()
    self.execute("UPDATE tick SET n=n+1")
    limit = time.monotonic() + 20
    while True:  # the home writes what was confirmed every few seconds
        connection = digests.opened(self.home)
        known = {digests.text(name): number for name, number in connection.execute("SELECT name, number FROM GS_SUBSCRIBER")}
        (last,) = connection.execute("SELECT max(number) FROM GS_CHANGE").fetchone()
        connection.close()
        if known.get(f"relay:{self.stream}:f1") == last or last is None:
            break
        if time.monotonic() > limit:
            raise Problem("confirmations", f"{known} instead of {last}", "a lie holds back nothing that a follower confirms later")
        time.sleep(0.3)
    if any("ghost" in name or "x" * 64 in name for name in known):
        raise Problem("subscribers", f"{list(known)[:5]}", "a token that the history doesn't have makes no subscriber")
    checks.end(self)
