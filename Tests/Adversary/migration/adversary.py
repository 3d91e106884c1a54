#!/usr/bin/env python3
"""Random and hand-picked migrations of Core Data stores, judged by an oracle of its own. See README.md.

usage: adversary.py GROUPSTORE [--seconds S] [--seed N] [--rounds N] [--only CLASS[,CLASS]] [--keep DIR]
"""

import argparse
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from program import Round  # noqa: E402

CLASSES = ["names", "hierarchy", "mapping", "chain", "doors", "data", "kill"]
SHOWN = 5  # of each kind of problem; all are counted


def play(case, program, directory, seed, name, number):
    """One round. What it does depends on its class, the run's seed and its number in the class alone."""
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    round = Round(program, directory, random.Random(f"{seed}/{name}/{number}"), number)
    round.title = round.outcome = ""
    try:
        case.run(round)
    except Exception:  # the adversary's own fault, or a store that nobody can read any more: never silent
        round.problem("exception", traceback.format_exc()[-900:])
    return round


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groupstore", help="the program under test")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=10**9, help="at most so many rounds in all")
    parser.add_argument("--only", default=",".join(CLASSES), help="classes, with :NUMBER for one round of a class")
    parser.add_argument("--keep", help="keep each problem's files and commands in this directory")
    parser.add_argument("--verbose", action="store_true", help="a line for each round")
    parser.add_argument("--ignore", default="", help="kinds of problems that aren't counted, separated by commas")
    options = parser.parse_args()
    program = os.path.abspath(options.groupstore)
    if not os.access(program, os.X_OK):
        parser.error(f"{program} is no program")
    seed = options.seed if options.seed is not None else random.randrange(10**6, 10**8)
    wanted = [(o.partition(":")[0], o.partition(":")[2]) for o in options.only.split(",")]
    for name, _ in wanted:
        if name not in CLASSES:
            parser.error(f"no class {name}; there are {', '.join(CLASSES)}")
    cases = {name: importlib.import_module("case_" + name) for name, _ in wanted}
    ignored, counts, rounds = set(options.ignore.split(",")), Counter(), 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the directory goes
    base = tempfile.mkdtemp(prefix="adversary-migration-")
    end, number = time.monotonic() + options.seconds, 0
    try:
        while rounds < options.rounds and time.monotonic() < end:
            for name, only in wanted:
                if rounds >= options.rounds or time.monotonic() >= end:
                    break
                this = int(only) if only else number
                round = play(cases[name], program, os.path.join(base, "round"), seed, name, this)
                rounds += 1
                if options.verbose:
                    print(f"{name}:{this} [{round.title}] {round.outcome}", flush=True)
                problems = [p for p in round.problems if p[0] not in ignored]
                for kind in dict.fromkeys(k for k, _ in problems):
                    counts[f"{name}/{kind}"] += 1
                    if counts[f"{name}/{kind}"] <= SHOWN:
                        text = next(t for k, t in problems if k == kind).replace("\n", " ")
                        text = text[-420:] if kind == "exception" else text[:420]
                        print(f"{name}/{kind} --seed {seed} --only {name}:{this} [{round.title}] {text}", flush=True)
                if problems and options.keep:
                    round.keep(os.path.join(options.keep, f"{name}-{this}"))
            number += 1
            if all(only for _, only in wanted):
                break
    finally:
        shutil.rmtree(base, ignore_errors=True)
    if not counts:
        print(f"adversary: {rounds} rounds from seed {seed}: no problem")
        return 0
    found = ", ".join(f"{kind} {n}" for kind, n in sorted(counts.items()))
    print(f"adversary: {rounds} rounds from seed {seed}: {found}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
