"""Tester of merging: random pairs of stores that both have rows, judged by the document alone."""

import argparse
import importlib
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter

from program import Problem, Program, Stage

CASES = ["plain", "links", "special", "coredata", "kill", "writers"]
OUTCOMES = Counter()  # how the rounds ended


def one_round(options, name, number):
    """Runs a round; returns its problem, None if there is none."""
    directory = tempfile.mkdtemp(prefix="merge-adversary-")
    program = Program(os.path.abspath(options.groupstore), directory)
    problem = None
    try:
        stage = Stage(directory, program)
        importlib.import_module("case_" + name).run(stage, random.Random(f"{options.seed}/{name}/{number}"))
    except Problem as found:
        problem = (program.log[0] + ": " if name == "special" else "") + str(found)
    except Exception:
        problem = "exception in the tester: " + traceback.format_exc()[-700:]
    if problem and options.keep:
        kept = os.path.join(options.keep, f"{name}-{options.seed}-{number}")
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(directory, kept, symlinks=True)
        with open(os.path.join(kept, "said.txt"), "w") as file:
            file.write("\n\n".join([problem, *program.log]))
    shutil.rmtree(directory, ignore_errors=True)
    OUTCOMES[name + " " + program.last] += 1
    return problem


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groupstore", metavar="GROUPSTORE", help="the program under test")
    parser.add_argument("--rounds", type=int, default=10**9, help="at most so many rounds")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--keep", metavar="DIR", help="keep the files of rounds with problems there")
    parser.add_argument("--only", default=",".join(CASES), metavar="CASE", help="cases, with :NUMBER for one round")
    parser.add_argument("--all", action="store_true", help="go on after a problem, and count them")
    options = parser.parse_args()
    begun, rounds, problems = time.monotonic(), 0, 0
    chosen = [part.partition(":") for part in options.only.split(",")]
    while rounds < options.rounds and time.monotonic() - begun < options.seconds:
        name, fixed, number = chosen[rounds % len(chosen)]
        number = int(number) if fixed else rounds // len(chosen)
        problem = one_round(options, name, number)
        rounds += 1
        if problem:
            problems += 1
            print(f"--seed {options.seed} --only {name}:{number}: {problem}", flush=True)
            if not options.all:
                break
        if fixed and len(chosen) == 1:
            break
    for outcome, number in sorted(OUTCOMES.items()):
        print(f"{number:5} {outcome}", file=sys.stderr)
    print(f"merge adversary: {rounds} rounds from seed {options.seed}: {problems or 'no'} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
