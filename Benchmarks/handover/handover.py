"""Measures the time from a legacy store's last close to the agent's `relocated` event.

usage: handover.py GROUPSTORE [--rounds N] [--require-milliseconds M]

A connection holds the legacy store open while the agent waits, commits once more and closes it. Prints a Markdown table.
"""

import argparse
import json
import os
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

GROUP = "group.example.bench"
NAME = "Bench.sqlite"


def connect(path, agent):
    deadline = time.monotonic() + 20
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
            return connection.makefile("rwb")
        except OSError:
            connection.close()
            if agent.poll() is not None or time.monotonic() > deadline:
                sys.exit("handover: the agent doesn't answer")
            time.sleep(0.01)


def await_message(lines, wanted):
    for line in lines:
        message = json.loads(line)
        if wanted(message):
            return message
    sys.exit("handover: the agent went away")


def measure(groupstore, mode):
    """Returns the seconds from close to `relocated`."""
    with tempfile.TemporaryDirectory(prefix="groupstore-bench-") as place:
        legacy, group, path = (os.path.join(place, name) for name in ("legacy", "group", "socket"))
        os.mkdir(legacy)
        os.mkdir(group)
        store = os.path.join(legacy, NAME)
        holder = sqlite3.connect(store, isolation_level=None)
        holder.execute(f"PRAGMA journal_mode = {mode}")
        holder.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)")
        agent = subprocess.Popen(
            [groupstore, "agent", "--group", f"{GROUP}={group}", "--legacy", store],
            env=dict(os.environ, GROUPSTORE_SOCKET=path), stderr=subprocess.DEVNULL)
        try:
            lines = connect(path, agent)
            request = {"id": 1, "op": "subscribe", "store": f"{GROUP}/{NAME}"}
            lines.write(json.dumps(request).encode() + b"\n")
            lines.flush()
            await_message(lines, lambda message: message.get("ok"))
            # The loop outlasts the time in which a new store counts as arriving.
            for number in range(15):
                holder.execute("INSERT INTO note (text) VALUES ('held')")
                time.sleep(0.1)
            holder.close()
            closed = time.monotonic()
            await_message(lines, lambda message: message.get("type") == "relocated")
            elapsed = time.monotonic() - closed
        finally:
            agent.terminate()
            agent.wait()
        rows = sqlite3.connect(os.path.join(group, NAME)).execute("SELECT count(*) FROM note").fetchone()[0]
        if rows != 15:
            sys.exit(f"handover: {rows} of 15 rows")
        return elapsed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("groupstore")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--require-milliseconds", type=float, help="fail when the longest took more")
    options = parser.parse_args()
    seconds = {"WAL": [], "DELETE": []}
    for round in range(options.rounds):
        for mode, values in seconds.items():
            values.append(measure(options.groupstore, mode))
            print(f"round {round + 1}: {mode}: {values[-1] * 1000:.1f} ms", file=sys.stderr)
    print(f"Last close of the legacy store to `relocated`, {options.rounds} interleaved rounds.\n")
    print("| journal mode | median ms | longest ms |")
    print("| --- | --: | --: |")
    for mode, values in seconds.items():
        print(f"| {mode} | {statistics.median(values) * 1000:.1f} | {max(values) * 1000:.1f} |")
    longest = max(max(values) for values in seconds.values()) * 1000
    if options.require_milliseconds and longest > options.require_milliseconds:
        sys.exit(f"handover: {longest:.1f} ms, more than {options.require_milliseconds}")


if __name__ == "__main__":
    main()
