#!/usr/bin/env python3
"""Tries subjects with somebody's credentials, and prints the permitted ones.

usage: permissions.py PORT USER PASSWORD publish|subscribe SUBJECT...
"""

import sys

from nats_client import Client


def is_permitted(client, verb, subject):
    client.send((f"PUB {subject} 0\r\n\r\n" if verb == "publish" else f"SUB {subject} 99\r\nUNSUB 99\r\n").encode() + b"PING\r\n")
    permitted = True
    while True:
        line = client.file.readline()
        if line.startswith(b"-ERR") and b"Permissions Violation" in line:
            permitted = False
        elif line.startswith(b"-ERR") or not line:
            raise SystemExit(f"{subject}: {line.decode()}")
        elif line.startswith(b"PONG"):
            return permitted


port, user, password, verb, *subjects = sys.argv[1:]
client = Client(int(port), user=(user, password), inbox=f"_INBOX.gs.Notes.{'home' if user == 'home' else 'follower.other'}")
print("\n".join(subject for subject in subjects if is_permitted(client, verb, subject)))
