"""Messages by somebody else: damaged, forged or repeated ones, acknowledgements and requests."""

import json
import os

import wire
from nats_client import Client, NATSError


def forge(self):
    """Publishes a few messages. Returns how many the stream took."""
    try:
        client = Client(self.broker.port, timeout=3)
    except OSError:
        return 0
    try:
        return sum(_forge(self, client) for _ in range(self.chance.randint(1, 4)))
    except (NATSError, OSError, ValueError, KeyError):
        return 0
    finally:
        client.close()


def _forge(self, client):
    chance, stream, subject = self.chance, "GS_" + self.stream, f"gs.{self.stream}.changes"
    state = client.state(stream)
    if not state["last_seq"]:
        return 0
    headers, body = client.message(stream, chance.randint(max(1, state["first_seq"]), state["last_seq"]))
    headers.pop("Status", None)
    kind = chance.choice(["repeat", "flip", "header", "bare", "garbage", "cut", "lie", "ack", "request", "signed cut"])
    if not self.key and kind not in ("repeat", "cut", "garbage", "request", "signed cut"):
        kind = "repeat"
    if kind == "flip" and body:
        changed = bytearray(body)
        changed[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        body = bytes(changed)
    elif kind == "header":
        name = chance.choice(list(headers))
        headers[name] = chance.choice(["", "x", headers[name][:-1], headers[name] + "0", "9" * 400, "h1.aa.999999999999999999999.zz", "-1 last"])
    elif kind == "bare":
        headers = chance.choice([{}, {"Gs-From": headers.get("Gs-From", "")}, {"Gs-Mac": ""}])
    elif kind == "garbage":
        body = os.urandom(chance.choice([0, 10, 100000]))
    elif kind in ("cut", "signed cut"):
        body = body[:chance.randrange(len(body) + 1)]
        if kind == "signed cut" and self.key:
            headers = wire.signed(wire.read_key(self.key), stream, headers, body)
    elif kind == "lie":
        body = body.replace(b'"values":[', b'"values":["lie",', 1)
        if self.key and chance.random() < 0.5:  # the digest at the end of the batch is wrong
            headers = wire.signed(wire.read_key(self.key), stream, headers, body)
    elif kind == "ack":
        client.publish(f"gs.{self.stream}.ack.ghost", headers.get("Gs-Upto", "").encode(), {"Gs-Mac": chance.choice(["", "0" * 64])})
        return 0
    elif kind == "request":
        asked = chance.choice([
            b"", b"{", b"[]", b'{"op":"begin"}', b'{"op":"begin","nonce":1}', b'{"op":"chunk","id":"../../key","index":0,"size":9}',
            b'{"op":"chunk","id":"","index":-1,"size":-1}', b'{"op":"chunk","index":1e99}', b'{"op":"begin","nonce":"' + b"n" * 90000 + b'"}', os.urandom(500),
            json.dumps({"op": "chunk", "id": "1", "index": 2**63 - 1, "size": 2**63 - 1}).encode(), b"[" * 50000,
        ])
        client.publish(f"gs.{self.stream}.snapshot", asked, None, chance.choice(["", client.inbox + ".9"]))
        return 0
    self.count("forged " + kind)
    answer = client.store(subject, body, headers)
    return 0 if "error" in answer else 1
