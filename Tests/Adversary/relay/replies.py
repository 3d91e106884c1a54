#!/usr/bin/env python3
"""Has a broker with the sample's accounts answer a follower's requests on subjects that are not the follower's.

usage: replies.py PORT
"""

import json
import sys

from nats_client import Client, NATSError

port = int(sys.argv[1])
home = Client(port, user=("home", "home-secret"), inbox="_INBOX.gs.Notes.home")
follower = Client(port, user=("follower", "follower-secret"), inbox="_INBOX.gs.Notes.follower.other")


def state():
    answer = json.loads(home.request("$JS.API.STREAM.INFO.GS_Notes")[1])
    return [answer.get("error"), answer.get("created"), answer.get("config"), answer.get("state")]


REQUESTS = [("gs.Notes.api.STREAM.INFO.GS_Notes", b""), ("gs.Notes.api.STREAM.MSG.GET.GS_Notes", b'{"seq":1}'),
            ("gs.Notes.api.STREAM.MSG.GET.GS_Notes", b'{"seq":1000}'), ("gs.Notes.api.STREAM.MSG.GET.GS_Notes", b""),
            ("gs.Notes.snapshot", b'{"op":"begin","nonce":"1"}'), ("gs.Notes.snapshot", b""), ("gs.Notes.ack.other", b"")]
API = ["STREAM.DELETE.GS_Notes", "STREAM.PURGE.GS_Notes", "STREAM.UPDATE.GS_Notes", "STREAM.INFO.GS_Notes", "STREAM.MSG.GET.GS_Notes",
       "STREAM.MSG.DELETE.GS_Notes", "CONSUMER.CREATE.GS_Notes", "CONSUMER.MSG.NEXT.GS_Notes.x", "INFO"]
REPLIES = [f"{prefix}.{name}" for prefix in ("$JS.API", "gs.Notes.api") for name in API] + [
    "gs.Notes.changes", "gs.Notes.snapshot", "gs.Notes.ack.other", "gs.Notes.ack.third", "gs.Notes.published",
    "_INBOX.gs.Notes.home.x", "_INBOX.gs.Notes.home.x.1", "$JS.ACK.GS_Notes.x.1.1.1.1.1", "$SYS.REQ.SERVER.PING"]


def settle(subject, body):
    while True:
        try:
            return follower.request(subject, body)
        except NATSError as error:
            # It refuses some reply subjects itself, such as that of an acknowledgement.
            if "ERR" not in str(error):
                raise


before = state()
for reply in REPLIES:
    for subject, body in REQUESTS:
        follower.publish(subject, body, None, reply)
# The broker handles the requests of one connection in their order.
settle("gs.Notes.api.STREAM.INFO.GS_Notes", b"")
settle("gs.Notes.api.STREAM.MSG.GET.GS_Notes", b'{"seq":1}')
after = state()
print("unchanged" if after == before else f"{before}\n{after}")
