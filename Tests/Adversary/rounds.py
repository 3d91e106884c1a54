"""Runs random rounds: common code of the testers of the agent, of the client libraries and of migrations.

A round depends only on its class, the run's seed and its number in the class. Each problem is printed with the
words that repeat its round; the exit code is 1 if there was a problem.
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

SHOWN = 5  # of each kind of problem; all are counted
LENGTH = 500  # of one problem's text


class Tester:
    """One tester: its classes of rounds, each in a module `case_CLASS` with a function `run`."""

    classes = []
    # Kinds of problems that a busy machine may cause: they count if the same round shows them again.
    timed = set()

    def __init__(self, description):
        self.parser = parser = argparse.ArgumentParser(description=description.splitlines()[0])
        parser.add_argument("groupstore", help="the program under test")
        self.add_arguments(parser)
        parser.add_argument("--seconds", type=float, default=60)
        parser.add_argument("--seed", type=int, default=None)
        parser.add_argument("--rounds", type=int, default=10**9, help="at most so many rounds in all")
        parser.add_argument("--only", default=",".join(self.classes), help="classes, with :NUMBER for one round of a class")
        parser.add_argument("--keep", metavar="DIR", help="keep each problem's files, and what was done and said, there")
        parser.add_argument("--verbose", action="store_true", help="a line for each round")
        parser.add_argument("--untimed", action="store_true", help="pass over the kinds that a busy machine may be the reason of")
        parser.add_argument("--ignore", default="", help="kinds of problems, or CLASS/KIND, that aren't counted, separated by commas")
        self.options = parser.parse_args()

    # Hooks for a tester.

    def add_arguments(self, parser):
        pass

    def programs(self, names):
        """Returns the programs that the classes of these names need."""
        return [self.options.groupstore]

    def left_out(self, name):
        """Returns why a class can't run here; None if it can."""
        return None

    def round(self, directory, chance, number):
        raise NotImplementedError

    def failed(self, round):
        """Handles an exception: the tester's own fault, or something that is gone. Never silent."""
        round.problem("exception", traceback.format_exc()[-900:])

    def end(self, round):
        pass

    def remove(self, directory):
        shutil.rmtree(directory, ignore_errors=True)

    # The run.

    def main(self):
        options = self.options
        options.groupstore = os.path.abspath(options.groupstore)
        self.seed = options.seed if options.seed is not None else random.randrange(10**6, 10**8)
        wanted = [(each.partition(":")[0], each.partition(":")[2]) for each in options.only.split(",")]
        for name, _ in wanted:
            if name not in self.classes:
                self.parser.error(f"no class {name}; there are {', '.join(self.classes)}")
        for program in self.programs([name for name, _ in wanted]):
            if not os.access(program, os.X_OK):
                self.parser.error(f"{program} is no program")
        reasons = {name: self.left_out(name) for name, _ in wanted}
        for name, reason in reasons.items():
            if reason:
                print(f"adversary: {name} is left out: {reason}", flush=True)
        wanted = [each for each in wanted if not reasons[each[0]]]
        self.cases = {name: importlib.import_module("case_" + name) for name, _ in wanted}
        self.ignored, self.counts, self.rounds = set(options.ignore.split(",")), Counter(), 0
        if options.untimed:
            self.ignored |= self.timed
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the directory is removed
        self.base = tempfile.mkdtemp(prefix="adv-")  # short: a socket's path has 107 bytes
        os.chmod(self.base, 0o755)
        try:
            self.run(wanted)
        finally:
            self.remove(self.base)
        found = ", ".join(f"{kind} {count}" for kind, count in sorted(self.counts.items())) or "no problem"
        print(f"adversary: {self.rounds} rounds from seed {self.seed}: {found}")
        return 1 if self.counts else 0

    def run(self, wanted):
        end, number = time.monotonic() + self.options.seconds, 0
        while wanted:
            for name, only in wanted:
                if self.rounds >= self.options.rounds or time.monotonic() >= end:
                    return
                self.report(name, *self.play_counted(name, int(only) if only else number))
            number += 1
            if all(only for _, only in wanted):
                return

    def play_counted(self, name, number):
        round, problems = self.play(name, number)
        self.rounds += 1
        if problems and all(kind in self.timed for kind, _ in problems):
            kinds = {kind for kind, _ in problems}
            round, problems = self.play(name, number)
            problems = [each for each in problems if each[0] in kinds or each[0] not in self.timed]
        return round, number, problems

    def play(self, name, number):
        directory = os.path.join(self.base, "r")
        self.remove(directory)
        os.makedirs(directory)
        os.chmod(directory, 0o755)
        start = time.monotonic()
        round = self.round(directory, random.Random(f"{self.seed}/{name}/{number}"), number)
        try:
            self.cases[name].run(round)
        except Exception:
            self.failed(round)
        finally:  # an ended run leaves no process behind either
            self.end(round)
        if self.options.verbose:
            took = f"{time.monotonic() - start:.1f} s"
            print(f"{name}:{number} [{round.title}] {getattr(round, 'outcome', '')} {took}", flush=True)
        return round, [each for each in round.problems if self.ignored.isdisjoint([each[0], f"{name}/{each[0]}"])]

    def report(self, name, round, number, problems):
        for kind in dict.fromkeys(kind for kind, _ in problems):
            self.counts[f"{name}/{kind}"] += 1
            if self.counts[f"{name}/{kind}"] <= SHOWN:
                text = next(text for each, text in problems if each == kind).replace("\n", " ")
                text = text[-LENGTH:] if kind == "exception" else text[:LENGTH]
                text = text.encode("utf-8", "backslashreplace").decode()
                print(f"{name}/{kind} --seed {self.seed} --only {name}:{number} [{round.title}] {text}", flush=True)
        if problems and self.options.keep:
            round.keep(os.path.join(self.options.keep, f"{name}-{self.seed}-{number}"))
