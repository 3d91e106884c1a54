#!/usr/bin/env python3
"""Random and hand-picked migrations of Core Data stores, judged by an oracle of its own. See README.md."""

import os
import sys

sys.dont_write_bytecode = True
sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
from program import Round  # noqa: E402
from rounds import Tester  # noqa: E402


class MigrationTester(Tester):
    classes = ["names", "hierarchy", "mapping", "chain", "doors", "losses", "data", "kill"]

    def round(self, directory, chance, number):
        round = Round(self.options.groupstore, directory, chance, number)
        round.title = round.outcome = ""
        return round


if __name__ == "__main__":
    sys.exit(MigrationTester(__doc__).main())
