"""Measures how soon the program answers beside sqlite3(1), and how large it is on disk and in memory.

usage: startup.py PROGRAMS GROUPSTORE [--rounds N] [--require]

Rounds are interleaved, so other load on the machine affects all commands alike. Prints Markdown tables. --require fails when
a result exceeds its bound: `--version` in 15 ms; 30 MB stripped; 12 MB resident, idle with 20 stores.
"""

import argparse
import contextlib
import os
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

GROUP = "group.example.bench"
STORES = 20
FAILURES = []


def bound(name, value, most):
    if value > most:
        FAILURES.append(f"{name}: {value:.2f} is more than {most}")


def make_store(path):
    store = sqlite3.connect(path, isolation_level=None)
    store.execute("PRAGMA journal_mode = WAL")
    store.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)")
    store.execute("INSERT INTO note (text) VALUES ('the first')")
    store.close()


def commands(options, store):
    """Returns the commands by the words that name them. All ends with its first line, or with its end."""
    program = options.groupstore
    return {
        "`sqlite3 :memory: .quit`": ["sqlite3", ":memory:", ".quit"],
        "`groupstore --version`": [program, "--version"],
        "`groupstore inspect` of a small store": [program, "inspect", store],
        "`groupstore watch --direct --once --json`, until it watches":
            [program, "watch", "--direct", "--once", "--json", store],
    }


def starts(options, place):
    store = os.path.join(place, "Bench.sqlite")
    make_store(store)
    launch = os.path.join(options.programs, "launch")
    times = {name: [] for name in commands(options, store)}
    for number in range(options.rounds):
        for name, command in commands(options, store).items():
            found = subprocess.run([launch, *command], check=True, capture_output=True, text=True).stdout
            # The first round reads the program from the disk.
            if number > 0:
                times[name].append(int(found) / 1e6)
    reference = statistics.median(times["`sqlite3 :memory: .quit`"])
    print(f"From the start to the first line, or to the end of a program that prints none; {options.rounds - 1} interleaved "
          "rounds, page cache warm:\n")
    print("| | p50 ms | p95 ms | ratio |\n| --- | --: | --: | --: |")
    for name, values in times.items():
        p50, p95 = statistics.median(values), sorted(values)[int(len(values) * 0.95)]
        print(f"| {name} | {p50:.1f} | {p95:.1f} | {p50 / reference:.1f} |")
    bound("ms until the version", statistics.median(times["`groupstore --version`"]), 15)
    print()


def status(process, key):
    """Returns a field of the process's status in KiB."""
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(key + ":"))


def stripped_size(program, place):
    copy = os.path.join(place, "stripped")
    subprocess.run(["strip", "--strip-all", "-o", copy, program], check=True)
    return os.path.getsize(copy)


def idle_agent(options, place, stack):
    group = os.path.join(place, "group")
    os.mkdir(group)
    names = [f"{number}.sqlite" for number in range(STORES)]
    make_store(os.path.join(place, "first.sqlite"))
    for name in names:
        shutil.copy(os.path.join(place, "first.sqlite"), os.path.join(group, name))
    path = os.path.join(place, "socket")
    configuration = os.path.join(place, "config.yaml")
    with open(configuration, "w", encoding="utf-8") as file:
        file.write(f"socket: {{ path: {path} }}\ngroups:\n  - id: {GROUP}\n    directory: {group}\n    stores:\n")
        file.writelines(f"      - name: {name}\n" for name in names)
    process = subprocess.Popen([options.groupstore, "agent", "--config", configuration], stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.kill)
    deadline = time.monotonic() + 20
    while True:
        with socket.socket(socket.AF_UNIX) as connection:
            with contextlib.suppress(OSError):
                connection.connect(path)
                return process
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit("startup: the agent doesn't answer")
        time.sleep(0.01)


def sizes(options, place):
    size = stripped_size(options.groupstore, place) / 1e6
    with contextlib.ExitStack() as stack:
        process = idle_agent(options, place, stack)
        time.sleep(2)
        resident, own = status(process, "VmRSS") / 1000, status(process, "RssAnon") / 1000
    print("| | MB |\n| --- | --: |")
    print(f"| the program, stripped | {size:.1f} |")
    print(f"| resident memory of an idle agent with {STORES} stores | {resident:.1f} |")
    print(f"| of it not shared with other programs or the page cache | {own:.1f} |")
    bound("MB stripped", size, 30)
    bound("MB resident", resident, 12)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("groupstore")
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--require", action="store_true", help="fail when a bound is not kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="groupstore-bench-") as place:
        starts(options, place)
        sizes(options, place)
    if FAILURES:
        print("startup: " + "; ".join(FAILURES), file=sys.stderr)
        if options.require:
            sys.exit(1)


if __name__ == "__main__":
    main()
