"""Measures what the agent costs with a thousand subscribers, with a thousand stores, and to a writer that never rests.

usage: feed.py PROGRAMS GROUPSTORE [--rounds N] [--subscribers N] [--stores N] [--commits N] [--require]

Rounds are interleaved, so other load on the machine affects all ways alike. Prints Markdown tables. --require fails when a
result exceeds its bound: the last subscriber is notified within 2 times the C program's time; 32 KiB a subscriber; stores
ready in 2 s, 100 MB, no system call while idle; a writer's speed at least 0.95 of its speed without the agent.
"""

import argparse
import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

GROUP = "group.example.bench"
NAME = "Bench.sqlite"
FAILURES = []


def bound(name, value, most):
    if value > most:
        FAILURES.append(f"{name}: {value:.2f} is more than {most}")


class Place:
    """A directory with a store that stays open, so that its wal-index exists throughout."""

    def __init__(self, stack, options):
        self.options = options
        self.path = stack.enter_context(tempfile.TemporaryDirectory(prefix="groupstore-bench-"))
        self.stack = stack
        self.group = os.path.join(self.path, "group")
        os.mkdir(self.group)
        self.store = os.path.join(self.group, NAME)
        self.socket = os.path.join(self.path, "socket")
        self.keeper = sqlite3.connect(self.store, isolation_level=None)
        stack.callback(self.keeper.close)
        self.keeper.execute("PRAGMA journal_mode = WAL")
        self.keeper.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)")
        self.keeper.execute("INSERT INTO note (text) VALUES ('the first')")

    def start(self, command, **options):
        process = subprocess.Popen(command, **options)
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)
        return process

    def program(self, name, *words, **options):
        return self.start([os.path.join(self.options.programs, name), *map(str, words)], **options)

    def agent(self, names=(NAME,)):
        """Returns the process and the seconds until it answered."""
        configuration = os.path.join(self.path, "config.yaml")
        with open(configuration, "w", encoding="utf-8") as file:
            file.write(f"socket: {{ path: {self.socket}, connections-per-user: 4000 }}\n")
            file.write(f"groups:\n  - id: {GROUP}\n    directory: {self.group}\n    stores:\n")
            file.writelines(f"      - name: {name}\n" for name in names)
        began = time.monotonic()
        process = self.start(
            [self.options.groupstore, "agent", "--config", configuration], stderr=subprocess.DEVNULL)
        while True:
            try:
                self.ask({"op": "status"})
                return process, time.monotonic() - began
            except OSError:
                if process.poll() is not None:
                    sys.exit(f"feed: the agent ended with {process.returncode}")
                time.sleep(0.002)

    def ask(self, request):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.socket)
            connection.sendall(json.dumps(request).encode() + b"\n")
            for line in connection.makefile("rb"):
                if b'"ok"' in line:
                    return json.loads(line)
        raise ConnectionError("no answer")

    def crowd(self, count, request=None):
        words = [self.socket, count] + ([request] if request else [])
        process = self.program("crowd", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if process.stderr.readline().strip() != "ready":
            sys.exit("feed: the subscribers were refused")
        return process


def memory(process, key):
    """Returns a field of `smaps_rollup` in KiB."""
    with open(f"/proc/{process.pid}/smaps_rollup", encoding="ascii") as file:
        return int(re.search(rf"{key}:\s+(\d+)", file.read())[1])


SUBSCRIBE = f'{{"id":1,"op":"subscribe","store":"{GROUP}/{NAME}"}}'
LINE = f'{{"type":"change","store":"{GROUP}/{NAME}","tables":["note"],"complete":true,"token":"8hs00qo9feq6-1000"}}'


def told(place, crowd, commits):
    """Returns the nanoseconds from each COMMIT's return until the last subscriber has read its notification.

    The next commit follows only then.
    """
    found, lines, output = [], b"", crowd.stdout.fileno()
    for number in range(commits):
        place.keeper.execute("INSERT INTO note (text) VALUES ('a note of some thirty characters')")
        returned = time.monotonic_ns()
        while lines.count(b"\n") <= number:
            if not select.select([output], [], [], 20)[0]:
                sys.exit(f"feed: of {number + 1} commits, not all subscribers were told: {lines.count(10)}")
            lines += os.read(output, 65536)
        found.append(int(lines.split(b"\n")[number]) - returned)
    return found


def subscribers(options):
    count, agent, fan, per = options.subscribers, [], [], []
    for number in range(options.rounds):
        with contextlib.ExitStack() as stack:
            place = Place(stack, options)
            process, _ = place.agent()
            place.ask({"op": "status"})
            before = memory(process, "Anonymous")
            crowd = place.crowd(count, SUBSCRIBE)
            agent += told(place, crowd, options.commits)
            per.append((memory(process, "Anonymous") - before) / count)
        with contextlib.ExitStack() as stack:
            place = Place(stack, options)
            place.program("fan", place.group, NAME, place.socket, count, LINE)
            while not os.path.exists(place.socket):
                time.sleep(0.002)
            fan += told(place, place.crowd(count), options.commits)
        print(f"subscribers: round {number + 1}", file=sys.stderr)
    ratio = statistics.median(agent) / statistics.median(fan)
    bound("the last subscriber told, times the C program's", ratio, 2)
    bound("KiB a subscriber", max(per), 32)
    print(f"From COMMIT to the last of {count} subscribers, {len(agent)} commits each:\n")
    print("| | p50 ms | p99 ms | ratio |\n| --- | --: | --: | --: |")
    for name, values in (("groupstore agent", agent), ("C program that writes the same bytes", fan)):
        late = sorted(values)[int(len(values) * 0.99)]
        share = statistics.median(values) / statistics.median(fan)
        print(f"| {name} | {statistics.median(values) / 1e6:.2f} | {late / 1e6:.2f} | {share:.2f} |")
    print(f"\nMemory of the agent's own a subscriber: {max(per):.1f} KiB.\n")


def calls_while_idle(process):
    """Returns the system calls that strace(1) counts in five seconds."""
    if shutil.which("strace") is None:
        return None
    with tempfile.NamedTemporaryFile("r") as report:
        tracer = subprocess.Popen(
            ["strace", "-f", "-o", report.name, "-p", str(process.pid)], stderr=subprocess.PIPE, text=True)
        tracer.stderr.readline()
        time.sleep(5)
        tracer.send_signal(signal.SIGINT)
        tracer.wait()
        lines = [line for line in report if "resumed" not in line and "+++" not in line and "---" not in line]
    # Excludes two calls per thread: the call in progress when the tracer attached, and the gettid that the tracer injects.
    calls = [line.split(None, 1) for line in lines]
    threads = {thread for thread, _ in calls}
    return len([call for _, call in calls if not call.startswith("gettid(")]) - len(threads)


def stores(options):
    rows = []
    for subscribed in (False, True):
        with contextlib.ExitStack() as stack:
            place = Place(stack, options)
            names = [f"{number}.sqlite" for number in range(options.stores)]
            place.keeper.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for name in names:
                shutil.copy(place.store, os.path.join(place.group, name))
            process, ready = place.agent(names)
            if subscribed:
                began = time.monotonic()
                with_all = socket.socket(socket.AF_UNIX)
                stack.callback(with_all.close)
                with_all.connect(place.socket)
                answers = with_all.makefile("rb")
                for name in names:
                    request = {"id": name, "op": "subscribe", "store": f"{GROUP}/{name}"}
                    with_all.sendall(json.dumps(request).encode() + b"\n")
                for line in answers:
                    if names[-1].encode() in line:
                        break
                ready = time.monotonic() - began
                time.sleep(2)
            time.sleep(1)
            resident = memory(process, "Rss")
            rows.append((subscribed, ready, resident, memory(process, "Anonymous"), calls_while_idle(process)))
            bound("seconds until the stores are ready", ready, 2)
            bound("MB resident", resident / 1000, 100)
            bound("system calls while idle", rows[-1][4] or 0, 0)
    print(f"{options.stores} watched stores:\n")
    print("| | ready after s | resident MB | its own MB | system calls in 5 s |\n| --- | --: | --: | --: | --: |")
    for subscribed, ready, resident, own, calls in rows:
        name = "one subscriber to each, on one connection" if subscribed else "the agent, just started"
        print(f"| {name} | {ready:.2f} | {resident / 1000:.0f} | {own / 1000:.1f} | {calls} |")
    print()


def writer(options):
    """Runs each round without, with and without the agent, so that a machine that slows down favours neither."""
    commits, ratios, speeds = options.commits * 1000, [], []
    for number in range(options.rounds * 3):
        with contextlib.ExitStack() as stack:
            place = Place(stack, options)
            tight = [os.path.join(options.programs, "tight"), place.store, str(commits)]
            run = lambda: int(subprocess.run(tight, check=True, capture_output=True, text=True).stdout)
            run()
            before = run()
            process, _ = place.agent()
            crowds = [place.crowd(1, SUBSCRIBE) for _ in range(10)]
            during = run()
            for crowd in crowds:
                crowd.kill()
            process.kill()
            process.wait()
            after = run()
            ratios.append((before + after) / 2 / during)
            speeds.append(commits / during * 1e9)
        print(f"writer: round {number + 1}: {ratios[-1]:.3f}", file=sys.stderr)
    ratio = statistics.median(ratios)
    bound("a writer's time with the agent, times that without", 1 / ratio, 1 / 0.95)
    print(f"A writer that commits single rows without rest, the agent and 10 subscribers beside it: {ratio:.3f} of its speed")
    print(f"({statistics.median(speeds):.0f} commits a second; median of {len(ratios)} rounds of {commits} commits).")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("groupstore")
    parser.add_argument("--part", choices=["subscribers", "stores", "writer"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--subscribers", type=int, default=1000)
    parser.add_argument("--stores", type=int, default=1000)
    parser.add_argument("--commits", type=int, default=50)
    parser.add_argument("--require", action="store_true", help="fail when a bound is not kept")
    options = parser.parse_args()
    for part in (subscribers, stores, writer):
        if options.part in (None, part.__name__):
            part(options)
    if FAILURES:
        print("feed: " + "; ".join(FAILURES), file=sys.stderr)
        if options.require:
            sys.exit(1)


if __name__ == "__main__":
    main()
