#!/usr/bin/env python3
"""Random, hostile use of the client libraries, judged by an oracle of its own. See README.md."""

import os
import sys

sys.dont_write_bytecode = True
sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
from judge import judge_lives  # noqa: E402
from rounds import Tester  # noqa: E402
from stage import Round  # noqa: E402


class LibraryTester(Tester):
    classes = ["presenters", "late", "deadlines", "nested", "prepare", "python", "leaks"]
    timed = {
        "slow-deadline", "slow-present", "slow-end", "slow-cancel", "slow-nested", "slow-close", "hang", "deaf",
        "deaf-watch", "deaf-observation", "not-registered", "not-granted", "not-coordinated", "threads", "descriptors",
    }

    def add_arguments(self, parser):
        parser.add_argument("actor", type=os.path.abspath, help="LibraryActor, built with the library under test")

    def programs(self, names):
        return [self.options.groupstore] + ([] if names == ["python"] else [self.options.actor])

    def round(self, directory, chance, number):
        return Round(self.options.groupstore, self.options.actor, directory, chance)

    def end(self, round):
        round.end()
        judge_lives(round)


if __name__ == "__main__":
    sys.exit(LibraryTester(__doc__).main())
