#!/usr/bin/env python3
"""Prints every change of a shared store, with Python's standard library alone.

usage: listener.py GROUP_ID/NAME

It shows what a client in any language does; a Python program uses the package in Clients/python instead.

Stays subscribed across restarts of the agent: it sends the last token that it received, and the agent sends a "reset" if
it can't tell what happened in between.
"""

import base64
import json
import os
import socket
import sys
import time


MAX_LINE_LENGTH = 32768


class Refused(Exception):
    """The agent replied with an error; repeating the request won't help."""


class NotUnderstood(Exception):
    """The program that answers isn't an agent."""


def socket_path():
    explicit = os.environ.get("GROUPSTORE_SOCKET")
    if not explicit and not os.environ.get("XDG_RUNTIME_DIR"):
        sys.exit("set GROUPSTORE_SOCKET or XDG_RUNTIME_DIR")
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
        lines = connection.makefile("rb")
        while True:
            line = lines.readline(MAX_LINE_LENGTH)
            if not line.endswith(b"\n"):
                if len(line) == MAX_LINE_LENGTH:
                    raise NotUnderstood("a line is too long")
                return  # the agent has ended, perhaps within a line
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                raise NotUnderstood("a line is no JSON") from None
            if not isinstance(message, dict):
                raise NotUnderstood("a line is no JSON object")
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
    has_met_agent = False
    while True:
        try:
            for message in events(store, token):
                token = message.get("token", token)
                pause = 0.1
                has_met_agent = True
                text = describe(message)
                if text:
                    print(text, flush=True)
        except OSError as error:
            # An agent that was there once comes back. One that never was is a wrong path, or isn't started.
            if not has_met_agent:
                sys.exit(f"no agent at {socket_path()}: {error}")
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
    except NotUnderstood as error:
        sys.exit(f"the program at {socket_path()} isn't an agent: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
