#!/usr/bin/env python3
"""Random, hostile use of the client libraries, judged by an oracle of its own. See README.md.

usage: adversary.py GROUPSTORE ACTOR [--seconds S] [--seed N] [--rounds N] [--only CLASS[,CLASS]] [--keep DIR]
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
from judge import judge_lives  # noqa: E402
from stage import Round  # noqa: E402

CLASSES = ["presenters", "late", "deadlines", "nested", "prepare", "python", "leaks"]
SHOWN = 5  # of each kind of problem; all are counted
# A busy machine may be the reason: it is one when the same round shows it again.
TIMED = {
    "slow-deadline", "slow-present", "slow-end", "slow-cancel", "slow-nested", "slow-close", "hang", "deaf",
    "deaf-watch", "deaf-observation", "not-registered", "not-granted", "not-coordinated", "threads", "descriptors",
}


def play(case, options, directory, seed, name, number):
    """One round. What it means to do depends on its class, the run's seed and its number in the class alone."""
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    round = Round(options.groupstore, options.actor, directory, random.Random(f"{seed}/{name}/{number}"))
    try:
        case.run(round)
    except Exception:  # the adversary's own fault, or an actor that is gone: never silent
        round.problem("exception", traceback.format_exc()[-900:])
    finally:  # a run that is ended leaves no process behind either
        round.end()
    judge_lives(round)
    return round


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groupstore", help="the program under test")
    parser.add_argument("actor", help="LibraryActor, built with the library under test")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=10**9, help="at most so many rounds in all")
    parser.add_argument("--only", default=",".join(CLASSES), help="classes, with :NUMBER for one round of a class")
    parser.add_argument("--keep", help="keep each problem's files and what was said in this directory")
    parser.add_argument("--verbose", action="store_true", help="a line for each round")
    parser.add_argument("--ignore", default="", help="kinds of problems, or CLASS/KIND, that aren't counted")
    options = parser.parse_args()
    wanted = [(each.partition(":")[0], each.partition(":")[2]) for each in options.only.split(",")]
    for name, _ in wanted:
        if name not in CLASSES:
            parser.error(f"no class {name}; there are {', '.join(CLASSES)}")
    options.groupstore, options.actor = os.path.abspath(options.groupstore), os.path.abspath(options.actor)
    needed = [options.groupstore] + ([] if [name for name, _ in wanted] == ["python"] else [options.actor])
    for program in needed:
        if not os.access(program, os.X_OK):
            parser.error(f"{program} is no program")
    seed = options.seed if options.seed is not None else random.randrange(10**6, 10**8)
    cases = {name: importlib.import_module("case_" + name) for name, _ in wanted}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the directory goes
    base = tempfile.mkdtemp(prefix="adv-")  # short: a socket's path has 107 bytes
    try:
        return run(options, wanted, cases, base, seed)
    finally:
        shutil.rmtree(base, ignore_errors=True)


def run(options, wanted, cases, base, seed):
    ignored, counts, rounds = set(options.ignore.split(",")), Counter(), 0
    end, number = time.monotonic() + options.seconds, 0
    directory = os.path.join(base, "r")

    def counted(name, round):
        return [p for p in round.problems if p[0] not in ignored and f"{name}/{p[0]}" not in ignored]

    while rounds < options.rounds and time.monotonic() < end:
        for name, only in wanted:
            if rounds >= options.rounds or time.monotonic() >= end:
                break
            this = int(only) if only else number
            start = time.monotonic()
            round = play(cases[name], options, directory, seed, name, this)
            rounds += 1
            problems = counted(name, round)
            if problems and all(kind in TIMED for kind, _ in problems):
                if options.verbose:
                    print(f"{name}:{this} [{round.title}] again for {problems[0]}", flush=True)
                again = play(cases[name], options, directory, seed, name, this)
                kinds = {kind for kind, _ in problems}
                round, problems = again, [p for p in counted(name, again) if p[0] in kinds or p[0] not in TIMED]
            if options.verbose:
                print(f"{name}:{this} [{round.title}] {time.monotonic() - start:.1f} s", flush=True)
            for kind in dict.fromkeys(kind for kind, _ in problems):
                counts[f"{name}/{kind}"] += 1
                if counts[f"{name}/{kind}"] <= SHOWN:
                    text = next(text for each, text in problems if each == kind).replace("\n", " ")
                    text = text[-420:] if kind == "exception" else text[:420]
                    print(f"{name}/{kind} --seed {seed} --only {name}:{this} [{round.title}] {text}", flush=True)
            if problems and options.keep:
                round.keep(os.path.join(options.keep, f"{name}-{seed}-{this}"))
        number += 1
        if all(only for _, only in wanted):
            break
    if not counts:
        print(f"adversary: {rounds} rounds from seed {seed}: no problem")
        return 0
    found = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    print(f"adversary: {rounds} rounds from seed {seed}: {found}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
