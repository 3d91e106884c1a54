#!/usr/bin/env python3
"""Moves a program's directory under disturbances: killed at each change to a disk, each changing call failed, and killed at
random moments. The oracle shares nothing with the program: it compares hashes of files, and rows as sqlite3 reads them.

usage: apps.py GROUPSTORE [--sample N] [--seed N] [--only WORDS] [--kills N]
Needs ptrace, and /dev/shm on another file system than the temporary directory."""

import argparse
import errno
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TORTURE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "Torture")
ROWS = 300
MAKE = """
import os, sqlite3, sys
os.makedirs("sub/deep")
for number in range(6): open(f"sub/f{number}", "wb").write(bytes([number]) * (1000 + 900 * number))
os.link("sub/f1", "hard"); os.symlink("sub/f1", "link"); os.mkfifo("fifo"); os.chmod("sub/deep", 0o550)
closed = sqlite3.connect("sub/closed.db")
closed.execute("CREATE TABLE t (path)")
closed.executemany("INSERT INTO t VALUES (?)", [(os.getcwd() + "/x",), ("/elsewhere",)])
closed.commit(); closed.close()
live = sqlite3.connect("live.db")
live.execute("PRAGMA journal_mode = WAL"); live.execute("PRAGMA wal_autocheckpoint = 0")
live.execute("CREATE TABLE t (x)"); live.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(%d)])
live.commit(); os._exit(0)
""" % ROWS


class World:
    """Two places, set up again for each point."""

    def __init__(self, groupstore, stepper, mode):
        self.groupstore, self.stepper, self.mode = groupstore, stepper, mode
        self.here = tempfile.mkdtemp(prefix="apps.")
        self.there = tempfile.mkdtemp(prefix="apps.", dir="/dev/shm" if "copy" in mode else None)
        self.source, self.destination = self.here + "/app", self.there + "/moved"
        self.rewrites = ["--rewrite", f"{self.source}={self.destination}"] if "rewrite" in mode else []

    def close(self):
        for place in (self.here, self.there):
            shutil.rmtree(place, ignore_errors=True)

    def reset(self):
        for place in (self.here, self.there):
            for name in os.listdir(place):
                path = os.path.join(place, name)
                if os.path.isdir(path) and not os.path.islink(path):
                    shutil.rmtree(path)
                else:
                    os.unlink(path)
        os.mkdir(self.source)
        subprocess.run([sys.executable, "-c", MAKE], cwd=self.source, check=True)
        self.wanted = self.files(self.source)
        if "undo" in self.mode:
            assert self.run([]).returncode == 0

    def words(self):
        # The old path alone says which move to take back.
        places = ["--undo", self.source] if "undo" in self.mode else [*self.rewrites, self.source, self.destination]
        return [self.groupstore, "move-app", *places, "--json", "--deadline", "5"]

    def run(self, options=None):
        words = self.words()
        if options is not None:
            words = [self.groupstore, "move-app", *self.rewrites, self.source, self.destination, *options]
        return subprocess.run(words, capture_output=True, text=True, timeout=120)

    def step(self, *options):
        words = [self.stepper, "--marker", "moved", *map(str, options), "--", *self.words()]
        return subprocess.run(words, capture_output=True, text=True, timeout=300)

    @staticmethod
    def files(place):
        found = {}
        for directory, _, names in os.walk(place):
            for name in names:
                path = os.path.join(directory, name)
                if name.startswith(("live.db", "closed.db")):
                    continue
                if os.path.islink(path):
                    content = os.readlink(path)
                elif os.path.isfile(path):
                    with open(path, "rb") as file:
                        content = hashlib.sha256(file.read()).hexdigest()
                else:
                    content = "special"
                found[os.path.relpath(path, place)] = (content, os.lstat(path).st_mode)
        return found

    def real(self):
        return [p for p in (self.source, self.destination) if os.path.isdir(p) and not os.path.islink(p)]

    def hidden(self):
        return [
            os.path.join(place, name) for place in {self.here, self.there} for name in os.listdir(place)
            if name.startswith(".groupstore-")
        ]

    def problems_of_two(self):
        """Returns what is wrong before the next run: two places, or a visible one that isn't whole."""
        real = self.real()
        found = ["two places"] if len(real) == 2 else []
        return found + [f"{place} is not whole" for place in real if self.files(place) != self.wanted]

    def problems(self):
        """Returns what is wrong at the end."""
        end = self.source if "undo" in self.mode else self.destination
        found = [] if self.real() == [end] else [f"at {self.real()}"]
        found += [f"left: {path}" for path in self.hidden()]
        if found:
            return found
        if self.files(end) != self.wanted:
            found.append("the files differ")
        rows = self.sql(end + "/live.db", "SELECT count(*) FROM t")
        paths = self.sql(end + "/sub/closed.db", "SELECT path FROM t ORDER BY rowid")
        is_rewritten = "rewrite" in self.mode and "undo" not in self.mode
        expected = f"{self.destination if is_rewritten else self.source}/x\n/elsewhere"
        return found + [f"{rows} rows"] * (rows != str(ROWS)) + [f"paths {paths}"] * (paths != expected)

    @staticmethod
    def sql(store, text):
        return subprocess.run(["sqlite3", store, text], capture_output=True, text=True).stdout.strip()


class Judge:
    def __init__(self):
        self.points = self.losses = 0

    def __call__(self, where, problems):
        self.points += 1
        if problems:
            self.losses += 1
            print(f"LOST {where}: {'; '.join(problems)}", file=sys.stderr, flush=True)


def again(world):
    done = world.run()
    # An undo that was complete has no receipt any more.
    is_done = done.returncode == 0 or ("undo" in world.mode and '"no_receipt"' in done.stdout)
    return world.problems() + ([] if is_done else [f"the next run ended with {done.returncode}: {done.stdout[-300:]}"])


def walk(world, judge, choose):
    world.reset()
    with tempfile.NamedTemporaryFile("r") as trace:
        world.step("--trace", trace.name, "--changes-only")
        total = len(trace.read().splitlines())
    judge(f"{world.mode} undisturbed", world.problems())
    for point in choose(range(1, total + 1)):
        world.reset()
        world.step("--changes-only", "--kill", point)
        judge(f"{world.mode} killed at {point} of {total}", world.problems_of_two() + again(world))
    for point in choose(range(1, total + 1)):
        for error in (errno.EIO, errno.ENOSPC):
            world.reset()
            done = world.step("--changes-only", "--fail", point, error)
            found = world.problems_of_two() + ([] if len(world.real()) == 1 else ["no place"])
            if done.returncode < 0 or done.returncode > 130:
                found.append(f"status {done.returncode}: {done.stderr[-200:]}")
            name = errno.errorcode[error]
            found += again(world)
            # After a failed removal of old files, the program says where the rest is.
            old = world.there if "undo" in world.mode else world.here
            if "could not be removed" in done.stdout or re.search("files? stays? in", done.stdout):
                found = [problem for problem in found if not problem.startswith("left: " + old)]
            judge(f"{world.mode} {name} at {point} of {total}", found)


def storm(world, judge, kills, chance):
    world.reset()
    started = time.monotonic()
    world.run()
    length = time.monotonic() - started
    for number in range(kills):
        world.reset()
        process = subprocess.Popen(world.words(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.random() * length)
        process.send_signal(signal.SIGKILL)
        process.wait()
        judge(f"{world.mode} random kill {number}", world.problems_of_two() + again(world))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("groupstore")
    parser.add_argument("--sample", type=int, help="try so many points of each walk, not all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--only", default="", help="a mode, such as copy or undo-rename")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    judge = Judge()

    def choose(points):
        points = list(points)
        return sorted(chance.sample(points, min(options.sample, len(points)))) if options.sample else points

    with tempfile.TemporaryDirectory() as directory:
        stepper = os.path.join(directory, "stepper")
        sources = [os.path.join(TORTURE, name) for name in ("stepper.c", "calls.c")]
        subprocess.run(["cc", "-O1", "-o", stepper, *sources], check=True)
        for mode in ("rename", "copy", "undo-rename", "undo-copy", "rewrite-copy", "undo-rewrite-copy"):
            if options.only and options.only != mode:
                continue
            world = World(os.path.abspath(options.groupstore), stepper, mode)
            try:
                walk(world, judge, choose)
                storm(world, judge, options.kills // 6 or 1, chance)
            finally:
                world.close()
            print(f"soak: apps: {mode}: {judge.points} points, {judge.losses} lost", flush=True)
    print(f"soak: apps: {judge.points} points, {judge.losses} lost, seed {options.seed}")
    sys.exit(1 if judge.losses else 0)


if __name__ == "__main__":
    main()
