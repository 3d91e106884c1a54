#!/usr/bin/env python3
"""An adversary for the relay: a home with several writers, a broker that fails, and replicas that are watched all the time.

    python3 adversary.py GROUPSTORE RELAY [--rounds N] [--seed S] [--only CASE] [--seconds S] [--keep DIR] [--all]

It knows the documents and the programs' output, nothing else. It ends at the first problem with exit code 1, and prints
the seed and what was promised; with --all it goes on, and counts.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter

from cases import CASES
from round import Problem


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groupstore")
    parser.add_argument("relay")
    parser.add_argument("--rounds", type=int, default=len(CASES))
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", help="cases, separated by commas: " + ", ".join(CASES))
    parser.add_argument("--seconds", type=float, default=10, help="of harm in each round")
    parser.add_argument("--keep", metavar="DIR", help="keep a failed round's files there")
    parser.add_argument("--all", action="store_true", help="go on after a problem")
    parser.add_argument("--left-out", default="", help="cases to leave out")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names = [name for name in (options.only.split(",") if options.only else CASES) if name not in options.left_out.split(",")]
    for name in names:
        if name not in CASES:
            parser.error(f"no case {name}; there are {', '.join(CASES)}")
    seed = options.seed if options.seed is not None else random.randrange(10**6)
    totals, problems = Counter(), Counter()
    rounds = 0
    for number in range(options.rounds):
        name = names[number % len(names)]
        base = tempfile.mkdtemp(prefix="relay-")
        start, play = time.monotonic(), None
        try:
            play = CASES[name](os.path.abspath(options.groupstore), os.path.abspath(options.relay), base, seed + number, name)
            play.play(options.seconds)
            words = "ok"
        except Problem as problem:
            words = str(problem)
            problems[f"{name}/{problem.kind}"] += 1
        except Exception:
            words = traceback.format_exc()[-1500:]
            problems[f"{name}/exception"] += 1
        finally:
            if play:
                play.close()
        rounds += 1
        if play:
            totals.update(play.counts)
        slow = play.counts.get("seconds to catch up", 0) if play else 0
        words += f", {slow} s to catch up" if slow > 5 else ""
        print(f"{name} --seed {seed + number}: {words} ({time.monotonic() - start:.0f} s)".encode("utf-8", "backslashreplace").decode(), flush=True)
        if not words.startswith("ok") and options.keep and play:
            play.keep(os.path.join(options.keep, f"{name}-{seed + number}"))
        shutil.rmtree(base, ignore_errors=True)
        if problems and not options.all:
            break
    found = ", ".join(f"{count} {name}" for name, count in sorted(totals.items()))
    wrong = sum(problems.values())
    print(f"relay: {rounds} rounds, {found}, {wrong} problems" + (f" ({dict(problems)})" if problems else ""))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
