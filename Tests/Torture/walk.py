"""Provides the walks' common code: chooses points and counts outcomes."""

import random
import sys
import tempfile
import time


class Walk:
    """Counts points and losses, and chooses the points if only some are tried."""

    def __init__(self, seed, sample=None, seconds=None, keep_going=True):
        self.seed = seed
        self.sample = sample
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.keep_going = keep_going
        self.points = 0
        self.losses = 0
        self.random = random.Random(seed)

    @property
    def is_over(self):
        return self.deadline is not None and time.monotonic() > self.deadline

    def choose(self, points, limit=None):
        """Returns all points, or as many as are wanted of each walk, in order; with a time limit, in any order and at most
        `limit`."""
        points = list(points)
        wanted = self.sample
        if self.deadline is not None and limit is not None:
            wanted = limit if wanted is None else min(wanted, limit)
        if wanted is not None and len(points) > wanted:
            points = sorted(self.random.sample(points, wanted))
        if self.deadline is not None:
            self.random.shuffle(points)
        for point in points:
            if self.is_over:
                return
            yield point

    def judge(self, where, problems):
        self.points += 1
        if not problems:
            return
        self.losses += 1
        print(f"LOST {where}", file=sys.stderr)
        for problem in problems:
            print(f"     {problem}", file=sys.stderr)
        sys.stderr.flush()
        if not self.keep_going:
            sys.exit(1)


def calls(world, *options, by=None, undo=False, words=None):
    """Returns the calls of an undisturbed relocation, or of other words: their names, and whether they change something."""
    with tempfile.NamedTemporaryFile("r") as trace:
        world.step("--trace", trace.name, *options, by=by, undo=undo, words=words)
        lines = [line.split("\t") for line in trace.read().splitlines()]
    return [(name, changes == "1") for _, name, changes in lines]
