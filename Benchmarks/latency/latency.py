"""Measures the time from COMMIT's return in one process to the line read in another: groupstore and alternatives.

usage: latency.py PROGRAMS GROUPSTORE [--rounds N] [--commits N] [--pace MICROSECONDS] [--require] [--require-ratio R]

Rounds are interleaved, so other load on the machine affects all ways alike. Prints a Markdown table. --require fails when a
ratio to the C program exceeds its bound: 1.5 for `watch --direct`, 1.6 for the agent with the tables at p50.
"""

import argparse
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

GROUP = "group.example.bench"
NAME = "Bench.sqlite"


class Round:
    """A fresh store with one connection that stays open, so that its wal-index exists throughout."""

    def __init__(self, place, programs, groupstore):
        self.place, self.programs, self.groupstore = place, programs, groupstore
        self.directory = os.path.join(place, "group")
        os.mkdir(self.directory)
        self.store = os.path.join(self.directory, NAME)
        self.socket = os.path.join(place, "socket")
        self.keeper = sqlite3.connect(self.store, isolation_level=None)
        self.keeper.execute("PRAGMA journal_mode = WAL")
        self.keeper.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)")
        self.keeper.execute("INSERT INTO note (text) VALUES ('the first')")

    def program(self, name):
        return os.path.join(self.programs, name)


def await_socket(path, process):
    deadline = time.monotonic() + 20
    while not os.path.exists(path):
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"latency: no socket at {path}")
        time.sleep(0.01)


def start_reader(round, stack, *arguments, stdin=None):
    times = stack.enter_context(open(os.path.join(round.place, "times"), "w+"))
    reader = subprocess.Popen(
        [round.program("reader"), *arguments], stdin=stdin, stdout=times, stderr=subprocess.PIPE, text=True)
    stack.callback(reader.kill)
    said = reader.stderr.readline().strip()
    if said != "ready":
        sys.exit(f"latency: the reader was refused: {said}")
    return reader, times


def start(stack, command, **options):
    process = subprocess.Popen(command, **options)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def agent(round, stack, **wishes):
    configuration = os.path.join(round.place, "config.yaml")
    with open(configuration, "w") as file:
        file.write(f"socket: {{ path: {round.socket} }}\n"
                   f"groups:\n  - id: {GROUP}\n    directory: {round.directory}\n"
                   f"    stores:\n      - name: {NAME}\n")
    log = stack.enter_context(open(os.path.join(round.place, "agent.log"), "w"))
    process = start(stack, [round.groupstore, "agent", "--config", configuration], stdout=log, stderr=log)
    await_socket(round.socket, process)
    return start_reader(
        round, stack, '"change"', round.socket,
        json.dumps({"id": 1, "op": "subscribe", "store": f"{GROUP}/{NAME}", **wishes}))


def agent_without_tables(round, stack):
    return agent(round, stack, detail=False)


def direct(round, stack, *words):
    """Watches without an agent. Its changes always name their tables."""
    process = start(
        stack, [round.groupstore, "watch", "--direct", "--json", *words, round.store], stdout=subprocess.PIPE, bufsize=0,
        env={**os.environ, "XDG_STATE_HOME": os.path.join(round.place, "state")})
    if b'"watching"' not in process.stdout.readline():
        sys.exit("latency: the store isn't watched")
    return start_reader(round, stack, '"change"', stdin=process.stdout)


def direct_with_rows(round, stack):
    """Also prints the row, with its values. It keeps a copy of the store's pages for that."""
    return direct(round, stack, "--values")


def baseline_with_pipe(round, stack):
    """Writes to a pipe, as `watch --direct` does."""
    process = start(stack, [round.program("baseline"), round.directory, NAME, "-"], stdout=subprocess.PIPE, bufsize=0)
    process.stdout.readline()
    return start_reader(round, stack, "change", stdin=process.stdout)


def baseline(round, stack):
    process = start(stack, [round.program("baseline"), round.directory, NAME, round.socket])
    await_socket(round.socket, process)
    return start_reader(round, stack, "change", round.socket)


def poll(round, stack):
    process = start(stack, [round.program("poll"), round.store, round.socket])
    await_socket(round.socket, process)
    return start_reader(round, stack, "change", round.socket)


def inotifywait(round, stack):
    """Reports that a file was written, not that anything was committed."""
    process = start(
        stack, ["inotifywait", "-m", "-e", "modify", round.directory], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)
    while "Watches established" not in process.stderr.readline():
        pass
    return start_reader(round, stack, "-wal", stdin=process.stdout)


SUBJECTS = {
    "groupstore agent": agent,
    "groupstore agent, `detail` false": agent_without_tables,
    "`groupstore watch --direct`": direct,
    "`groupstore watch --direct --values`": direct_with_rows,
    "C program, the least possible": baseline,
    "C program, to a pipe": baseline_with_pipe,
    "`data_version` every 1 ms": poll,
    "`inotifywait -m`": inotifywait,
}


C_PROGRAM = "C program, the least possible"
# The ways that are compared with another one than that.
REFERENCES = {
    "`groupstore watch --direct`": "C program, to a pipe", "C program, to a pipe": "C program, to a pipe",
    "`groupstore watch --direct --values`": "`groupstore watch --direct`",
}
# The most that the ratios of p50 and p99 may be.
BOUNDS = {
    "groupstore agent": (1.6, None), "`groupstore watch --direct`": (1.5, 1.5),
    "`groupstore watch --direct --values`": (2, None),
}


def measure(subject, options):
    """Returns the nanoseconds for each commit of a round, and the number of lines read."""
    with tempfile.TemporaryDirectory(prefix="groupstore-bench-") as place, contextlib.ExitStack() as stack:
        round = Round(place, options.programs, options.groupstore)
        stack.callback(round.keeper.close)
        reader, times = SUBJECTS[subject](round, stack)
        output = subprocess.run(
            [round.program("writer"), round.store, str(options.commits), str(options.pace)],
            check=True, capture_output=True, text=True).stdout
        time.sleep(0.2)  # a notification that has not arrived by now counts as missed
        reader.send_signal(signal.SIGTERM)
        reader.wait(10)
        times.seek(0)
        lines = [int(line) for line in times]
    commits = [tuple(map(int, line.split())) for line in output.splitlines()]
    return latencies(commits, lines), len(lines)


def latencies(commits, lines):
    """Returns each commit's latency.

    The first line read after the call of COMMIT reports the commit; without one, it is None.
    """
    found, at = [], 0
    for began, returned in commits:
        while at < len(lines) and lines[at] < began:
            at += 1
        found.append(lines[at] - returned if at < len(lines) else None)
    return found


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs")
    parser.add_argument("groupstore")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--pace", type=int, default=3000, help="microseconds between two commits, on average")
    parser.add_argument("--require", action="store_true", help="fail when a bound is not kept")
    parser.add_argument("--require-ratio", type=float, help="fail when the agent's p50 is above R times the C program's")
    options = parser.parse_args()

    results = {subject: ([], 0) for subject in SUBJECTS}
    for round in range(options.rounds):
        for subject in SUBJECTS:
            found, lines = measure(subject, options)
            results[subject] = (results[subject][0] + found, results[subject][1] + lines)
            print(f"round {round + 1}: {subject}", file=sys.stderr)

    total = options.rounds * options.commits
    print(f"Commit to subscriber: {total} commits each, one every {options.pace / 1000:g} ms, WAL, synchronous=NORMAL, "
          f"{options.rounds} interleaved rounds, page cache warm.\n")
    print("| | p50 µs | p99 µs | p50 ratio | p99 ratio | commits missed | lines |")
    print("| --- | --: | --: | --: | --: | --: | --: |")
    ratio, failures = None, []
    for subject, (found, lines) in results.items():
        values = [value for value in found if value is not None]
        if not values:
            print(f"| {subject} | - | - | - | - | {total} | 0 |")
            continue
        reference = [value for value in results[REFERENCES.get(subject, C_PROGRAM)][0] if value is not None]
        times = [percentile(values, share) for share in (0.5, 0.99)]
        ratios = [time / max(percentile(reference, share), 1) for time, share in zip(times, (0.5, 0.99))]
        if subject == "groupstore agent":
            ratio = ratios[0]
        for name, found_ratio, most in zip(("p50", "p99"), ratios, BOUNDS.get(subject, (None, None))):
            if most and found_ratio > most:
                failures.append(f"{subject}: {name} is {found_ratio:.2f} times the C program's, more than {most}")
        print(f"| {subject} | {times[0] / 1000:.1f} | {times[1] / 1000:.1f} | {ratios[0]:.2f} | {ratios[1]:.2f} "
              f"| {len(found) - len(values)} | {lines} |")
    print("\n`inotifywait` tells that the WAL was written, before the commit can be read, and can't tell a rollback or a "
          "checkpoint from a commit.")
    if failures:
        print("latency: " + "; ".join(failures), file=sys.stderr)
        if options.require:
            sys.exit(1)
    if options.require_ratio and (ratio is None or ratio > options.require_ratio):
        sys.exit(f"latency: p50 is {ratio} times the C program's, more than {options.require_ratio}")


if __name__ == "__main__":
    main()
