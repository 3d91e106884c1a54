#!/usr/bin/env python3
"""An adversary for histories: random schemas and statements against a store with a history and its twin without.

    python3 adversary.py GROUPSTORE [--seconds S] [--rounds N] [--seed N] [--only CLASS] [--keep DIR]

Attacks two promises: an app's statements have the same outcome with a history as without, and the history reports
exactly the rows that changed, or names a gap. Round N of seed S is always the same.
"""

import argparse
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time

import scenarios
from minimise import minimise
from program import Program
from schemas import SchemaWriter, draw_features
from statements import StatementWriter
from twins import MINOR, ControlTwins, Problem, Skip, Twins


class TwinRound:
    """Runs a random script on both twins."""

    def __init__(self, program, directory, options):
        self.program, self.directory, self.options = program, directory, options

    def play(self, seed):
        """Draws and runs a script; returns the problem, or None."""
        r = random.Random(seed)
        self.features = draw_features(r, self.options.without)
        writer = SchemaWriter(r, self.features)
        self.setup, self.body = writer.statements(), []
        twins = Twins(self.program, self.directory)
        try:
            twins.prepare(self.setup)
            statements = StatementWriter(r, self.features, twins.a)
            opening = [f"PRAGMA foreign_keys={'ON' if 'foreign_keys' in self.features else 'OFF'}",
                       f"PRAGMA recursive_triggers={r.choice(['ON', 'OFF'])}"]
            for n in range(self.options.statements):
                step = opening[n] if n < len(opening) else statements.next()
                self.body.append(step)
                statements.connection = twins.a
                twins.run(step)
                statements.connection = twins.a
            twins.finish()
        except Problem as problem:
            return problem
        except Skip:
            return None
        finally:
            twins.close()
        return None

    def happens_with_any_trigger(self, problem):
        """Returns whether SQLite alone does so on any table with triggers, whatever they do."""
        body = self.body[:problem.step + 1] if problem.step >= 0 else self.body
        found = self.replay(self.setup, body, ControlTwins)
        return found is not None and found.kind == problem.kind and found.step == problem.step

    def replay(self, setup, body, kind=Twins):
        twins = kind(self.program, self.directory)
        try:
            twins.prepare(setup)
            for step in body:
                twins.run(step)
            twins.finish()
        except Problem as problem:
            return problem
        except (Skip, sqlite3.Error):
            return None
        finally:
            twins.close()
        return None

    def minimised(self, problem, seconds):
        def attempt(setup, body):
            found = self.replay(setup, body)
            return found.kind if found else None
        body = self.body[:problem.step + 1] if 0 <= problem.step < len(self.body) else self.body
        setup, body, same = minimise(self.setup, body, problem.kind, attempt, seconds)
        return setup, body, self.replay(setup, body) if same else problem


def read_script(path):
    """Reads a kept script: the schema, a line `!enable`, and the statements."""
    steps = [line for line in open(path, encoding="utf-8").read().splitlines() if line and not line.startswith("--")]
    steps = [s.replace("\\n", "\n") for s in steps]
    at = steps.index("!enable")
    return steps[:at], steps[at + 1:]


def write_script(path, setup, body, title):
    with open(path, "w", encoding="utf-8") as out:
        steps = list(setup) + ["!enable"] + list(body)
        out.write("\n".join([f"-- {title}".replace("\n", " ")] + [s.replace("\n", "\\n") for s in steps]) + "\n")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groupstore")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=1 << 60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", help="twins, or one of the scenarios: " + ", ".join(scenarios.ALL))
    parser.add_argument("--keep", metavar="DIR", help="write each problem's script and stores there")
    parser.add_argument("--statements", type=int, default=150, help="statements a round")
    parser.add_argument("--without", type=lambda s: set(s.split(",")), default=set(), help="features to leave out")
    parser.add_argument("--ignore", type=lambda s: set(s.split(",")), default=set(), help="problems' classes to pass over")
    parser.add_argument("--minor", action="store_true", help="tell also where both fail, in other words or with other traces")
    parser.add_argument("--minimise", type=float, default=30, metavar="S", help="seconds spent on making a problem of a new class small")
    parser.add_argument("--before", action="store_true", help="record what rows held before, too")
    parser.add_argument("--replay", metavar="SCRIPT", help="run one kept script, and end")
    return parser.parse_args()


def main():
    options = arguments()
    program = Program(options.groupstore)
    program.before = options.before
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    directory = tempfile.mkdtemp(prefix="history-adversary-", dir=shared)
    try:
        return run(options, program, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run(options, program, directory):
    twin = TwinRound(program, directory, options)
    if options.replay:
        problem = twin.replay(*read_script(options.replay))
        print(f"{problem.kind}: {problem.detail}" if problem else "adversary: no problem")
        return 1 if problem else 0
    counts, unavoidable, rounds, end = {}, 0, 0, time.monotonic() + options.seconds
    while rounds < options.rounds and time.monotonic() < end:
        seed = options.seed + rounds
        name = options.only or scenarios.pick(random.Random(seed))
        if name == "twins":
            problem = twin.play(seed)
        else:
            problem = scenarios.ALL[name](program, directory, random.Random(seed))
        rounds += 1
        if problem is None or problem.kind in options.ignore or (problem.kind in MINOR and not options.minor):
            continue
        if name == "twins" and twin.happens_with_any_trigger(problem):
            unavoidable += 1
            if not options.minor:
                continue
            problem.detail = "(with any trigger) " + problem.detail
        counts[problem.kind] = counts.get(problem.kind, 0) + 1
        print(f"seed {seed} ({name}) {problem.kind}: {problem.detail[:400]}", flush=True)
        if name == "twins" and counts[problem.kind] <= 2 and options.minimise:
            small = twin.minimised(problem, options.minimise)
            for step in small[0] + ["!enable"] + small[1]:
                print("    " + step.replace("\n", "\n    "))
            print(f"  = {small[2].kind}: {small[2].detail[:600]}", flush=True)
            if options.keep:
                os.makedirs(options.keep, exist_ok=True)
                write_script(os.path.join(options.keep, f"{seed}.sql"), small[0], small[1], f"{small[2].kind}: {small[2].detail[:300]}")
        elif options.keep:
            os.makedirs(options.keep, exist_ok=True)
            if name == "twins":
                write_script(os.path.join(options.keep, f"{seed}.sql"), twin.setup, twin.body, problem.kind)
    if unavoidable:
        print(f"adversary: {unavoidable} rounds met what SQLite does for any trigger (--minor tells which)")
    if not counts:
        print(f"adversary: {rounds} rounds from seed {options.seed}: no problem")
        return 0
    print(f"adversary: {rounds} rounds from seed {options.seed}: " + ", ".join(f"{n} {k}" for k, n in sorted(counts.items())))
    return 1


if __name__ == "__main__":
    sys.exit(main())
