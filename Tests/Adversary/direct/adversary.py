#!/usr/bin/env python3
"""A random, hostile tester of `groupstore watch --direct` that judges with SQL of its own. See README.md."""

import os
import sys
from collections import Counter

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
sys.path.append(os.path.join(os.path.dirname(HERE), "agent"))  # for process.py and wire.py
from program import Round  # noqa: E402
from rounds import Tester  # noqa: E402


class DirectTester(Tester):
    classes = ["commits", "tables", "paths", "tokens", "kills", "quiet", "options", "agents", "many"]
    timed = {"late", "slow", "processor", "noise-late"}

    def __init__(self, description):
        super().__init__(description)
        self.figures = Counter()

    def round(self, directory, chance, number):
        round = Round(self.options.groupstore, directory, chance, number)
        round.figures = self.figures
        return round

    def end(self, round):
        round.end()

    def main(self):
        code = super().main()
        print("figures: " + (", ".join(f"{name} {count}" for name, count in sorted(self.figures.items())) or "none"), file=sys.stderr)
        return code


if __name__ == "__main__":
    sys.exit(DirectTester(__doc__).main())
