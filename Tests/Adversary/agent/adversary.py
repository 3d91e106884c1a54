#!/usr/bin/env python3
"""A random, hostile tester of the agent with an oracle of its own. See README.md.

usage: adversary.py GROUPSTORE [--seconds S] [--seed N] [--rounds N] [--only CLASS[:ROUND][,CLASS]] [--keep DIR] [--ignore KIND,…]
"""

import argparse
import importlib
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from mounts import private_namespace  # noqa: E402
from program import Round, remove  # noqa: E402

CLASSES = ["paths", "users", "mounts", "limits", "requests", "states"]
ROOT_ONLY = {"users", "mounts"}
TIMED = {"late", "late-status", "processor", "wakeups", "slow"}  # looked at once more, since another program may have been busy
SHOWN = 5  # of each kind of problem; all are counted


def play(case, program, base, seed, name, number):
    """One round. What it does depends on its class, the run's seed and its number in the class alone."""
    directory = os.path.join(base, "r")
    remove(directory)
    os.makedirs(directory)
    os.chmod(directory, 0o755)
    round = Round(program, directory, random.Random(f"{seed}/{name}/{number}"), number)
    try:
        case.run(round)
    except Exception:  # the adversary's own fault, or an agent that no longer answers: never silent
        if ended := round.ended_agent():
            round.problem("died", f"with {ended.process.returncode}: {ended.tail()} | {'; '.join(x[9:] for x in round.steps[-4:])}")
        else:
            round.problem("exception", traceback.format_exc()[-900:])
    finally:
        round.end()
    return round


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groupstore", help="the program under test")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=10**9, help="at most so many rounds in all")
    parser.add_argument("--only", default=",".join(CLASSES), help="classes, with :NUMBER for one round of a class")
    parser.add_argument("--keep", metavar="DIR", help="keep each problem's steps, log and configuration there")
    parser.add_argument("--ignore", default="", help="kinds of problems that aren't counted, separated by commas")
    parser.add_argument("--verbose", action="store_true", help="a line for each round")
    options = parser.parse_args()
    program = os.path.abspath(options.groupstore)
    if not os.access(program, os.X_OK):
        parser.error(f"{program} is no program")
    seed = options.seed if options.seed is not None else random.randrange(10**6, 10**8)
    wanted = [(o.partition(":")[0], o.partition(":")[2]) for o in options.only.split(",")]
    for name, _ in wanted:
        if name not in CLASSES:
            parser.error(f"no class {name}; there are {', '.join(CLASSES)}")
    is_root = os.geteuid() == 0
    for name, _ in wanted:
        if name in ROOT_ONLY and not is_root:
            print(f"adversary: {name} needs root and is left out", flush=True)
    wanted = [w for w in wanted if is_root or w[0] not in ROOT_ONLY]
    if any(name == "mounts" for name, _ in wanted):
        try:
            private_namespace()
        except OSError as error:
            print(f"adversary: mounts is left out: {error}", flush=True)
            wanted = [w for w in wanted if w[0] != "mounts"]
    cases = {name: importlib.import_module("case_" + name) for name, _ in wanted}
    ignored, counts, rounds = set(options.ignore.split(",")), Counter(), 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the directory goes
    base = tempfile.mkdtemp(prefix="adv-")
    os.chmod(base, 0o755)
    end, number = time.monotonic() + options.seconds, 0
    try:
        while wanted and rounds < options.rounds and time.monotonic() < end:
            for name, only in wanted:
                if rounds >= options.rounds or time.monotonic() >= end:
                    break
                this = int(only) if only else number
                round = play(cases[name], program, base, seed, name, this)
                problems = [p for p in round.problems if p[0] not in ignored]
                if problems and all(kind in TIMED for kind, _ in problems):
                    again = play(cases[name], program, base, seed, name, this)
                    both = {kind for kind, _ in again.problems}
                    problems = [p for p in problems if p[0] in both] + [p for p in again.problems if p[0] not in TIMED]
                    if problems:
                        round = again
                rounds += 1
                if options.verbose:
                    print(f"{name}:{this} [{round.title}] {round.outcome}", flush=True)
                for kind in dict.fromkeys(k for k, _ in problems):
                    counts[f"{name}/{kind}"] += 1
                    if counts[f"{name}/{kind}"] <= SHOWN:
                        text = next(t for k, t in problems if k == kind).replace("\n", " ")
                        text = text[-500:] if kind == "exception" else text[:500]
                        text = text.encode("utf-8", "backslashreplace").decode()
                        print(f"{name}/{kind} --seed {seed} --only {name}:{this} [{round.title}] {text}", flush=True)
                if problems and options.keep:
                    round.keep(os.path.join(options.keep, f"{name}-{this}"))
            number += 1
            if all(only for _, only in wanted):
                break
    finally:
        remove(base)
    if not counts:
        print(f"adversary: {rounds} rounds from seed {seed}: no problem")
        return 0
    print(f"adversary: {rounds} rounds from seed {seed}: " + ", ".join(f"{kind} {n}" for kind, n in sorted(counts.items())))
    return 1


if __name__ == "__main__":
    sys.exit(main())
