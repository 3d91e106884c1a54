"""Measures what the agent and direct watching cost: with many subscribers, with many stores, and to a writer that never
rests.

usage: feed.py PROGRAMS GROUPSTORE [--part PART] [--rounds N] [--subscribers N] [--stores N] [--commits N] [--require]

Rounds are interleaved, so other load on the machine affects all ways alike. Prints Markdown tables. --require fails when a
result exceeds its bound: the last subscriber is notified within 2 times the C program's time; 32 KiB a subscriber; 10,000
stores ready in 2 s, 80 MB, 1,000 stores of `watch --direct` in 0.3 s, 20 MB, no system call while idle; 0.1 % of a core
while idle with 50 programs that have stores open; a writer's speed at least 0.95 of its speed without the agent, and 0.99 if
nobody subscribes.
"""

import argparse
import contextlib
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
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


def allow_descriptors(count):
    """Raises this process's limit on open files, and so its children's, as far as that is permitted. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted, most in ((count, max(count, hard)), (hard, hard)):
        with contextlib.suppress(OSError, ValueError):
            if soft < wanted:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
            break
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def make_stores(place, count):
    names = [f"{number}.sqlite" for number in range(count)]
    place.keeper.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for name in names:
        shutil.copy(place.store, os.path.join(place.group, name))
    return names


# The most subscriptions that the agent allows on a connection.
CONNECTION_SUBSCRIPTIONS = 1024


def subscribe(place, names):
    """Returns connections with a subscription to each store, once all are answered."""
    parts = range(0, len(names), CONNECTION_SUBSCRIPTIONS)
    return [subscribe_on_one(place, names[start:start + CONNECTION_SUBSCRIPTIONS]) for start in parts]


def subscribe_on_one(place, names):
    connection = socket.socket(socket.AF_UNIX)
    place.stack.callback(connection.close)
    connection.connect(place.socket)
    requests = [json.dumps({"id": name, "op": "subscribe", "store": f"{GROUP}/{name}"}) for name in names]
    sender = threading.Thread(target=connection.sendall, args=("\n".join([*requests, ""]).encode(),))
    sender.start()
    answers = 0
    for line in connection.makefile("rb"):
        if b'"ok":false' in line:
            sys.exit(f"feed: a subscription was refused: {line}")
        answers += b'"ok"' in line
        if answers == len(names):
            break
    sender.join()
    return connection


def status(process, key):
    """Returns a field of the process's status in MB."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key + ":")) / 1000


def watched_directly(options, count):
    """Returns what `watch --direct` of as many stores costs."""
    with contextlib.ExitStack() as stack:
        place = Place(stack, options)
        paths = [os.path.join(place.group, name) for name in make_stores(place, count)]
        began = time.monotonic()
        process = place.start(
            [options.groupstore, "watch", "--direct", "--json", *paths], stdout=subprocess.PIPE, bufsize=1 << 20)
        for _ in paths:
            if b'"watching"' not in process.stdout.readline():
                sys.exit("feed: a store isn't watched")
        ready = time.monotonic() - began
        time.sleep(1)
        return ready, status(process, "VmRSS"), status(process, "RssAnon"), calls_while_idle(process)


def served(options, count, is_subscribed):
    """Returns what an agent with as many stores costs."""
    with contextlib.ExitStack() as stack:
        place = Place(stack, options)
        names = make_stores(place, count)
        process, ready = place.agent(names)
        if is_subscribed:
            began = time.monotonic()
            subscribe(place, names)
            ready = time.monotonic() - began
            time.sleep(2)
        time.sleep(1)
        return ready, status(process, "VmRSS"), status(process, "RssAnon"), calls_while_idle(process)


def stores(options):
    few, wanted = options.stores, options.stores * 10
    # The agent reserves four descriptors a store, and three quarters of its limit are for stores at most.
    many = min(wanted, (allow_descriptors(wanted * 6) - 200) * 3 // 16)
    # Fewer stores than wanted prove nothing.
    most = (2, 80) if many == wanted else (None, None)
    ways = [
        (f"`watch --direct` of {few} stores", lambda: watched_directly(options, few), (0.3, 20)),
        (f"the agent with {few} stores, just started", lambda: served(options, few, False), (2, 100)),
        (f"one subscriber to each of the {few}", lambda: served(options, few, True), (2, 100)),
        (f"the agent with {wanted} stores, just started", lambda: served(options, wanted, False), (2, 80)),
        (f"one subscriber to each of the {many}", lambda: served(options, many, True), most),
    ]
    found = {name: [] for name, _, _ in ways}
    for number in range(options.rounds):
        for name, measure, _ in ways:
            found[name].append(measure())
        print(f"stores: round {number + 1}", file=sys.stderr)
    print(f"Many stores, medians of {options.rounds} rounds:\n")
    print("| | ready after s | resident MB | its own MB | system calls in 5 s |\n| --- | --: | --: | --: | --: |")
    for name, _, (most_seconds, most_memory) in ways:
        ready, resident, own = (statistics.median(row[column] for row in found[name]) for column in range(3))
        calls = [row[3] for row in found[name]]
        known = [call for call in calls if call is not None]
        print(f"| {name} | {ready:.2f} | {resident:.1f} | {own:.1f} | {max(known) if known else '-'} |")
        if most_seconds:
            bound(f"{name}: seconds until ready", ready, most_seconds)
            bound(f"{name}: MB resident", resident, most_memory)
        bound(f"{name}: system calls while idle", max(known, default=0), 0)
    print()


def processor_time(process):
    """Returns the nanoseconds that the process has spent on processors."""
    total = 0
    for thread in os.listdir(f"/proc/{process.pid}/task"):
        with contextlib.suppress(FileNotFoundError):
            with open(f"/proc/{process.pid}/task/{thread}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
    return total


HOLDER = """
import sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None)
store.execute("INSERT INTO note (text) VALUES ('of a program that stays')")
print(flush=True)
sys.stdin.read()
"""


def idle(options):
    """Measures an agent with a subscriber to each store, while programs have some of them open and nobody commits."""
    allow_descriptors(options.stores * 6)
    seconds = 30
    found = {"none": [], "one that lost its log": []}
    for number in range(options.rounds):
        with contextlib.ExitStack() as stack:
            place = Place(stack, options)
            names = make_stores(place, options.stores)
            for name in names[:options.holders]:
                holder = place.start(
                    [sys.executable, "-c", HOLDER, os.path.join(place.group, name)], stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE)
                holder.stdout.readline()
            process, _ = place.agent(names)
            drain_later = drain(subscribe(place, names))
            stack.callback(drain_later)
            # The looks that follow the subscriptions.
            used, deadline = None, time.monotonic() + 120
            while used != processor_time(process) and time.monotonic() < deadline:
                used = processor_time(process)
                time.sleep(3)
            for danger, values in found.items():
                if danger != "none":
                    for side in ("-wal", "-shm"):
                        os.unlink(os.path.join(place.group, names[0] + side))
                    time.sleep(5)
                before = processor_time(process)
                time.sleep(seconds)
                values.append((processor_time(process) - before) / seconds / 1e7)
        print(f"idle: round {number + 1}", file=sys.stderr)
    print(f"An agent with a subscriber to each of {options.stores} stores, of which {options.holders} programs have one open "
          f"each, while nobody commits. Medians of {options.rounds} rounds of {seconds} s:\n")
    print("| programs in danger | % of a core |\n| --- | --: |")
    for danger, values in found.items():
        print(f"| {danger} | {statistics.median(values):.3f} |")
    print()
    bound("% of a core while idle", statistics.median(found["none"]), 0.1)


def drain(connections):
    """Reads what comes on the connections until `stop` is set, on a thread of its own."""
    stop = threading.Event()

    def read():
        while not stop.is_set():
            for connection in select.select(connections, [], [], 0.1)[0]:
                connection.recv(1 << 16)

    thread = threading.Thread(target=read)
    thread.start()
    return lambda: (stop.set(), thread.join())


def time_per_commit(options, count, subscribers, is_direct=False):
    """Returns the microseconds of processor time that a commit costs, with commits to as many stores in turn."""
    commits = max(options.commits * 40, count)
    with contextlib.ExitStack() as stack:
        place = Place(stack, options)
        names = make_stores(place, count)
        paths = [os.path.join(place.group, name) for name in names]
        if is_direct:
            process = place.start(
                [options.groupstore, "watch", "--direct", "--json", *paths], stdout=subprocess.PIPE, bufsize=1 << 20)
            for _ in paths:
                process.stdout.readline()
            connections = []
            reader = threading.Thread(target=process.stdout.read)
            reader.start()
            stack.callback(reader.join)
            stack.callback(process.kill)
        else:
            process, _ = place.agent(names)
            connections = [one for _ in range(subscribers) for one in subscribe(place, names)]
        writer = place.program(
            "paced", commits, 1000, *paths, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        writer.stdout.readline()
        stop = drain(connections) if connections else lambda: None
        time.sleep(1)
        before = processor_time(process)
        writer.stdin.write("\n")
        writer.stdin.flush()
        writer.stdout.readline()
        time.sleep(0.1)
        used = processor_time(process) - before
        stop()
        return used / commits / 1000


def processor(options):
    """Measures each round with all numbers of stores and subscribers."""
    allow_descriptors(options.stores * 6)
    counts = (1, options.stores // 10, options.stores)
    ways = {f"the agent with {number} subscriber{'s' * (number != 1)}": (number, False) for number in (0, 1, 10)}
    ways["`watch --direct`"] = (0, True)
    found = {(name, count): [] for name in ways for count in counts}
    for number in range(options.rounds):
        for name, (subscribers, is_direct) in ways.items():
            for count in counts:
                found[name, count].append(time_per_commit(options, count, subscribers, is_direct))
        print(f"processor: round {number + 1}", file=sys.stderr)
    print(f"Processor time for a commit, in µs, and its ratio to that with one store. One commit a millisecond, to all stores "
          f"in turn; medians of {options.rounds} rounds:\n")
    print("| | " + " | ".join(f"{count} store{'s' * (count != 1)}" for count in counts) + " |")
    print("| --- |" + " --: |" * len(counts))
    for name in ways:
        times = [statistics.median(found[name, count]) for count in counts]
        cells = " | ".join(f"{time:.1f} ({time / max(times[0], 0.1):.2f})" for time in times)
        print(f"| {name} | {cells} |")
    print()


def writer(options):
    """Runs each round without and with the agent in turn, so that a machine that slows down favours neither."""
    commits = options.commits * 1000
    ways = {"the agent and 10 subscribers": 10, "the agent and no subscriber": 0}
    ratios, speeds = {name: [] for name in ways}, {name: [] for name in ways}
    for number in range(options.rounds * 3):
        with contextlib.ExitStack() as stack:
            place = Place(stack, options)
            tight = [os.path.join(options.programs, "tight"), place.store, str(commits)]
            run = lambda: int(subprocess.run(tight, check=True, capture_output=True, text=True).stdout)
            run()
            before = run()
            for name, count in ways.items():
                process, _ = place.agent()
                crowds = [place.crowd(1, SUBSCRIBE) for _ in range(count)]
                during = run()
                for child in [*crowds, process]:
                    child.kill()
                    child.wait()
                after = run()
                ratios[name].append((before + after) / 2 / during)
                speeds[name].append(commits / during * 1e9)
                before = after
        found = ", ".join(f"{values[-1]:.3f}" for values in ratios.values())
        print(f"writer: round {number + 1}: {found}", file=sys.stderr)
    print(f"A writer that commits single rows without rest, medians of {options.rounds * 3} rounds of {commits} commits:\n")
    print("| beside it | its speed | commits a second |\n| --- | --: | --: |")
    for name, least in zip(ways, (0.95, 0.99)):
        ratio = statistics.median(ratios[name])
        bound(f"a writer's time with {name}, times that without", 1 / ratio, 1 / least)
        print(f"| {name} | {ratio:.3f} | {statistics.median(speeds[name]):.0f} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("groupstore")
    parser.add_argument("--part", choices=["subscribers", "stores", "idle", "processor", "writer"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--subscribers", type=int, default=1000)
    parser.add_argument("--stores", type=int, default=1000)
    parser.add_argument("--holders", type=int, default=50, help="the programs that have a store open while all are idle")
    parser.add_argument("--commits", type=int, default=50)
    parser.add_argument("--require", action="store_true", help="fail when a bound is not kept")
    options = parser.parse_args()
    for part in (subscribers, stores, idle, processor, writer):
        if options.part in (None, part.__name__):
            part(options)
    if FAILURES:
        print("feed: " + "; ".join(FAILURES), file=sys.stderr)
        if options.require:
            sys.exit(1)


if __name__ == "__main__":
    main()
