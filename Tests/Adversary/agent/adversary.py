#!/usr/bin/env python3
"""A random, hostile tester of the agent with an oracle of its own. See README.md."""

import os
import sys

sys.dont_write_bytecode = True
sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
from mounts import private_namespace  # noqa: E402
from program import Round, remove  # noqa: E402
from rounds import Tester  # noqa: E402


class AgentTester(Tester):
    classes = ["paths", "users", "mounts", "limits", "requests", "states"]
    timed = {"late", "late-status", "processor", "wakeups", "slow"}

    def left_out(self, name):
        if name in ("users", "mounts") and os.geteuid() != 0:
            return "it needs root"
        if name != "mounts":
            return None
        try:
            private_namespace()
        except OSError as error:
            return str(error)
        return None

    def round(self, directory, chance, number):
        return Round(self.options.groupstore, directory, chance, number)

    def failed(self, round):
        if ended := round.ended_agent():
            steps = "; ".join(step[9:] for step in round.steps[-4:])
            round.problem("died", f"with {ended.process.returncode}: {ended.tail()} | {steps}")
        else:
            super().failed(round)

    def end(self, round):
        round.end()

    def remove(self, directory):
        remove(directory)


if __name__ == "__main__":
    sys.exit(AgentTester(__doc__).main())
