"""A thousand stores in one process; idle, it must make no system call."""

import os
import shutil
import time

from store import make, once


def run(round):
    r = round.chance
    count = r.choice([1, 10, 1000])
    round.title = str(count)
    paths = []
    first = round.path("first.db")
    make(first, r.choice(["wal", "delete"]))
    for number in range(count):
        folder = round.path(f"f{number % r.choice([1, 30, 1000])}")
        os.makedirs(folder, exist_ok=True)
        paths.append(os.path.join(folder, f"{number}.db"))
        if r.random() < 0.9:
            shutil.copy(first, paths[-1])
    watch = round.watch(*paths)
    if not watch.ready(60):
        return
    for path in r.sample(paths, min(20, count)):
        before = time.monotonic()
        if not os.path.exists(path):
            make(path)
        else:
            once(path)
        watch.covers(before, time.monotonic(), path)
    watch.settle(1)
    idle(round, watch)


def idle(round, watch):
    out = os.path.join(round.environment["HOME"], "strace")  # not near the stores: it would wake the program
    if not shutil.which("strace"):
        return
    seen = len(watch.lines)
    os.system(f"timeout -s INT 4 strace -f -o {out} -p {watch.process.pid} 2>/dev/null")
    if not os.path.exists(out):
        return
    # A call that was under way when the trace began is shown as resumed; waiting is no work.
    calls = [line for line in open(out) if "resumed" not in line and "unfinished" not in line and "detached" not in line
             and "strace:" not in line and "restart_syscall" not in line]  # fmt: skip
    round.figures["idle traces"] += 1
    if calls and len(watch.lines) == seen:
        round.problem("processor", f"{len(calls)} calls in 4 s idle: {calls[:4]}")
