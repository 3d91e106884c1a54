#!/usr/bin/env python3
"""Prints every change of a shared store, with Python's standard library alone.

usage: listener.py GROUP_ID/NAME

Stays subscribed across restarts of the agent: it sends the last token that it received, and the agent sends a "reset" if
it can't tell what happened in between.
"""

import base64
import json
import os
import socket
import sys
import time


class Refused(Exception):
    """The agent replied with an error; repeating the request won't help."""


def socket_path():
    explicit = os.environ.get("GROUPSTORE_SOCKET")
    return explicit or os.path.join(os.environ["XDG_RUNTIME_DIR"], "groupstore", "agent.sock")


def subscribe_request(store, token):
    request = {"id": 1, "op": "subscribe"}
    try:
        request["store"] = store.decode("utf-8")
    except UnicodeDecodeError:
        # JSON is UTF-8: a name that isn't is sent in base64.
        request["store_b64"] = base64.b64encode(store).decode("ascii")
    if token:
        request["since"] = token
    return json.dumps(request).encode() + b"\n"


def events(store, token):
    """Yields each line about the store; ends when the agent goes away."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(socket_path())
        connection.sendall(subscribe_request(store, token))
        # A line is at most 32 KiB long, and makefile() reads any length.
        for line in connection.makefile("rb"):
            message = json.loads(line)
            if message.get("ok") is False:
                raise Refused(message["error"]["message"])
            yield message


def describe(message):
    if message.get("ok"):
        return "listening"
    kind = message.get("type")
    if kind == "change":
        return "changed: read the store again"
    if kind == "reset":
        return f"forget what you know and read the store again ({message['reason']})"
    if kind == "relocated":
        return f"moved to {message.get('to', 'its group container')}"
    if kind == "relocating":
        programs = ", ".join(holder["program"] for holder in message.get("waiting_for", []))
        return f"moving; waiting for {programs}" if programs else "moving"
    return None


def listen(store):
    token = None
    pause = 0.1
    while True:
        try:
            for message in events(store, token):
                token = message.get("token", token)
                pause = 0.1
                text = describe(message)
                if text:
                    print(text, flush=True)
        except (ConnectionError, FileNotFoundError) as error:
            print(f"no agent: {error}", file=sys.stderr, flush=True)
        # No event announces a new agent, so retry with increasing pauses.
        time.sleep(pause)
        pause = min(pause * 2, 10)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: listener.py GROUP_ID/NAME")
    try:
        listen(os.fsencode(sys.argv[1]))
    except Refused as refusal:
        sys.exit(f"refused: {refusal}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
