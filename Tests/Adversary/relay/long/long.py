#!/usr/bin/env python3
"""Does harm to a relay until it has done all that was asked for, and checks each state that the replica shows.

The invariant: each state that the replica showed is one that the home had at a commit, and none is older than one shown
before. Precisely: each commit at home adds its number, and the count and the digest of the rows of each table and of the
schema, to a row of its own and to a log outside of the store. Whenever the replica's data has changed, a watcher reads all
of its rows in one transaction. They must have the counts and digests that the replica's own row says (the large table's
once a second), that row must be what the log has under its number, and the number must not be lower than the last one. A
home that was restored from a backup begins another line of numbers, after all of the line before. A replica that was moved
away, because somebody wrote to it, begins with its own first snapshot.

Again and again all harm and all writing end. The replica must then catch up, and be equal in every row, in the history and
in the database's numbers. In the end memory must be flat: from the second quarter to the last one of each program's longest
life, and from the first half of the run to the second. Kills end after 60 % of the run, so that there is a long life.

A commit is made when the harm that comes before it has been done, and the other way round. So the run ends when all counts
are reached. It ends with 1 at the first broken promise, and prints where the files are.

usage: long.py GROUPSTORE GROUPSTORE_RELAY [--commits 20000] [--cuts 10] [--kills 2] [--setbacks 2] [--flips 1] …
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import checkpoint
import stories
from broker import NATS_SERVER
from control import FULL, STATES
from hosts import Failure, Hosts
from trouble import Trouble

# Each option, with the kinds of harm that it counts.
KINDS = {
    "cuts": ["cut"], "kills": ["kill publisher", "kill follower", "kill broker"], "setbacks": ["set back"], "flips": ["flip"],
    "pauses": ["pause"], "partitions": ["partition"], "schema_changes": ["change schema"], "vacuums": ["vacuum"], "purges": ["purge"],
    "retentions": ["retention"], "purged": ["purged"], "two_relays": ["two relays"], "restored": ["restored"], "handwritten": ["handwritten"],
}
DEFAULTS = dict(cuts=10, kills=2, setbacks=2, flips=1, pauses=1, partitions=0, schema_changes=2, vacuums=1, purges=1, retentions=0, purged=1,
                two_relays=1, restored=1, handwritten=1)
# After these, a program is another process.
ENDING = {"kill publisher", "kill follower", "retention", "purged", "restored", "handwritten"}


def plan(options, chance):
    """Returns all harm in random order, but what ends a program in the first 60 %."""
    counted = [(kind, getattr(options, name)) for name, kinds in KINDS.items() for kind in kinds]
    found = [kind for kind, count in counted for _ in range(count)] + ["copy"] * ((options.setbacks + 1) // 2)
    places = [(chance.random() * (0.6 if kind in ENDING else 1), number, kind) for number, kind in enumerate(found)]
    return [kind for *_, kind in sorted(places)]


def run(options, hosts):
    trouble, todo = Trouble(hosts), plan(options, hosts.chance)
    every = max(1, len(todo) // options.comparisons)
    hosts.limit = options.commits // max(1, len(todo)) + 1
    hosts.start()
    stories.reach(trouble)
    failed_in_a_row, said = 0, time.monotonic()
    place = 0
    while place < len(todo):
        # Writers go on while harm is done; some kinds of it last for many commits.
        done = hosts.control.commits()
        step = max(1, (options.commits - done) // (len(todo) - place))
        hosts.limit = min(options.commits, done + 4 * step)
        while hosts.control.commits() < min(options.commits, done + step):
            hosts.check()
            trouble.look()
            time.sleep(0.01)
        if not trouble.do(todo[place]):
            failed_in_a_row += 1
            if failed_in_a_row > 200:
                raise SystemExit(f"long: {todo[place]} can't be done")
            todo.insert(min(len(todo), place + 1 + hosts.chance.randrange(8)), todo[place])
        else:
            failed_in_a_row = 0
        hosts.check()
        trouble.look()
        if place % every == every - 1:
            checkpoint.compare(trouble)
            calm(hosts)
        if time.monotonic() > said + 60:
            said = time.monotonic()
            print(f"long: {hosts.control.commits()} commits, {place + 1} of {len(todo)}, {hosts.control[STATES]} states", flush=True)
        place += 1
    hosts.limit = options.commits
    while hosts.control.commits() < options.commits:
        hosts.check()
        trouble.look()
        time.sleep(0.01)
    checkpoint.compare(trouble)
    for program in (hosts.publisher, hosts.follower):
        code = program.stop()
        if code != 0:
            raise Failure(f"{program.name} ends with {code} after SIGTERM")
        growth = hosts.memory.growth(program.name)
        if growth:
            raise Failure(f"memory isn't flat: {growth}")


def calm(hosts):
    """Lets the writers go on for a while without harm, so that the replica shows many states."""
    end, hosts.limit = time.monotonic() + hosts.options.calm, max(hosts.limit, hosts.options.commits)
    while time.monotonic() < end:
        hosts.check()
        time.sleep(0.01)


def report(options, hosts, started):
    resets = 0
    with open(hosts.follower.out) as file:
        resets = sum('"type":"reset"' in line for line in file)
    counts = ", ".join(f"{count} × {kind}" for kind, count in sorted(hosts.counts.items()))
    print(f"long: {hosts.control.commits()} commits of {options.writers} writers, seed {options.seed}"
          f"{', a cluster of three brokers' if options.cluster else ''}: {counts}")
    print(f"long: {hosts.control[STATES]} states seen, {hosts.control[FULL]} with the large table; {resets} snapshots; {time.monotonic() - started:.0f} s")
    for program in (hosts.publisher, hosts.follower):
        print(f"long: memory: {hosts.memory.summary(program.name)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groupstore")
    parser.add_argument("relay")
    parser.add_argument("--commits", type=int, default=20_000)
    for name in KINDS:
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=DEFAULTS[name])
    parser.add_argument("--comparisons", type=int, default=40, help="complete comparisons, at most")
    parser.add_argument("--calm", type=float, default=1, help="seconds without harm after each of them")
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--rate", type=int, default=800, help="commits a second, at most")
    parser.add_argument("--archive", type=int, default=10_000, help="rows of the large table")
    parser.add_argument("--max-bytes", type=int, default=8 << 20, help="of the stream")
    parser.add_argument("--cluster", action="store_true", help="three brokers, and a stream with three copies")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broker", default=NATS_SERVER, metavar="PROGRAM")
    parser.add_argument("--keep", metavar="DIRECTORY", help="an empty directory for all files, which stay")
    options = parser.parse_args()
    options.groupstore, options.relay = os.path.abspath(options.groupstore), os.path.abspath(options.relay)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    directory, started, hosts, failure = options.keep or tempfile.mkdtemp(prefix="relay-"), time.monotonic(), None, True
    os.makedirs(directory, exist_ok=True)
    try:
        hosts = Hosts(options, directory)
        run(options, hosts)
        report(options, hosts, started)
        print("long: every state was the home's, in order; equal in the end")
        failure = False
    except Failure as error:
        print(f"long: seed {options.seed}, after {hosts.control.commits()} commits and {hosts.counts}: {error}", flush=True)
        print(f"long: the files are in {directory}", flush=True)
    finally:
        if hosts:
            hosts.close()
        if not failure and not options.keep:
            shutil.rmtree(directory, ignore_errors=True)
    return 1 if failure else 0


if __name__ == "__main__":
    sys.exit(main())
