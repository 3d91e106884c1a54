#!/usr/bin/env python3
"""Migrates and converts random Core Data stores, and counts with SQL of its own what was lost.

    adversary.py GROUPSTORE [--seconds N] [--rounds N] [--seed S] [--first M] [--kinds infer,steps,mapping,xml,writer]
                 [--keep DIR]

It was written from the documents alone. Each round is made from the seed and its number. A problem is a line that begins
with "PROBLEM" and says how to repeat the round; the last line counts what was reached; the exit code is 1 if there was a
problem. `Tests/Adversary/migration` has hand-picked cases; this one mixes all changes of a model, and has XML stores.
"""

import argparse
import collections
import os
import shutil
import sys
import tempfile
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from mappings import mapping  # noqa: E402
from migrate import infer  # noqa: E402
from round import Round  # noqa: E402
from writers import writer  # noqa: E402
from xmlstores import convert  # noqa: E402

KINDS = {"writer": writer, "infer": infer, "steps": lambda r: infer(r, True), "mapping": mapping, "xml": convert}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("groupstore")
    for f, t, d in (("seconds", float, 1e9), ("rounds", int, 10**9), ("first", int, 0), ("seed", str, "1")):
        p.add_argument("--" + f, type=t, default=d)
    p.add_argument("--keep")
    p.add_argument("--kinds", default="infer,infer,infer,infer,steps,mapping,xml,writer")
    p.add_argument("--work", help="the directory of the rounds; without it, a temporary one")
    o = p.parse_args()
    o.groupstore = os.path.abspath(o.groupstore)
    with tempfile.TemporaryDirectory(prefix="losses-") as temporary:
        o.work = o.work or temporary
        return run(o)


def run(o):
    """Runs the rounds and returns the exit code."""
    if o.rounds == 10**9 and o.seconds == 1e9:
        o.rounds = 100
    counts, seen, end, n, bad = collections.Counter(), collections.Counter(), time.time() + o.seconds, o.first, 0
    kinds = o.kinds.split(",")
    while n < o.first + o.rounds and time.time() < end:
        r = Round(o, n, counts)
        k = r.rng.choice(kinds)
        try:
            KINDS[k](r)
        except Exception as x:
            r.problem("TESTER", f"{type(x).__name__}: {x} {traceback.format_exc(limit=-3)}")
        counts["rounds of " + k] += 1
        if r.problems:
            bad += 1
            for kind, t in r.problems:
                seen[kind] += 1
                print(
                    f"PROBLEM round {n} ({k}) {kind}: {t}\n    {r.story}\n    repeat: {sys.argv[0]} {o.groupstore} --seed {o.seed} --first {n} --rounds 1 --kinds {o.kinds} --keep DIR",
                    flush=True,
                )
            if o.keep and seen[r.problems[0][0]] <= 12:
                shutil.copytree(
                    r.dir, f"{o.keep}/{n}-{r.problems[0][0].replace(' ', '-')}", symlinks=True, dirs_exist_ok=True
                )
                open(f"{o.keep}/{n}-{r.problems[0][0].replace(' ', '-')}/commands", "w").write(
                    "\n".join(r.commands) + "\n" + str(r.story)
                )
        n += 1
    shutil.rmtree(o.work + "/round", ignore_errors=True)
    print(
        f"SUMMARY {n - o.first} rounds, {bad} with problems {dict(seen)}; reached: "
        + ", ".join(f"{k} {v}" for k, v in sorted(counts.items()))
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
