"""Holds a store open in ways that are hard to detect."""

import contextlib
import json
import mmap
import os
import subprocess
import sys

import stores
from world import Scenario, World

_USER = 65534


def each_holder(programs, progress, here, other):
    for kind in ("plain", "closed-wal"):
        for name, holder in _HOLDERS.items():
            with World(programs, Scenario(kind), here, other) as world:
                world.reset()
                problems = holder(world)
                if problems is None:
                    print(f"torture: holders: {name} is skipped: it needs root", flush=True)
                else:
                    progress.judge(f"{kind} {name}", problems)


def _store(world):
    return os.path.join(world.legacy, stores.NAME)


def _refused(world, status, words=()):
    """Returns what is wrong with a relocation that should have been refused."""
    done = subprocess.run(
        [*words, world.programs.groupstore, "relocate", _store(world), world.group, "--json", "--deadline", "0.3"],
        capture_output=True, text=True, env=dict(os.environ, GROUPSTORE_SOCKET="/nonexistent/a.sock"), check=False)
    found = [] if done.returncode == status else [f"ended with {done.returncode}: {done.stdout}{done.stderr}"]
    summary = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    error = summary.get("error", {})
    if not (error.get("message") and error.get("hint")):
        found.append(f"no remedy: {summary}")
    return found + world.problems_of_refusal()


def _by_hard_link(world):
    other = os.path.join(world.here, "other name")
    os.link(_store(world), other)
    with open(other, "rb"):
        return _refused(world, 65)


def _by_mapping(world):
    with open(_store(world), "rb") as file:
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with contextlib.closing(mapping):
        return _refused(world, 75)


def _from_another_namespace(world):
    """Hides a bind mount from all but the holder, and runs a holder in its own PID namespace."""
    if os.geteuid() != 0:
        return None
    hidden = os.path.join(world.here, "hidden")
    os.mkdir(hidden)
    script = (
        f"mount --bind '{world.legacy}' '{hidden}' && exec 9<'{hidden}/{stores.NAME}' && echo open && read -r line")
    holder = subprocess.Popen(
        ["unshare", "--mount", "--pid", "--fork", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        if holder.stdout.readline() != b"open\n":
            return ["the holder could not open it"]
        return _refused(world, 75)
    finally:
        holder.communicate(b"\n")


def _by_somebody_else(world):
    """Root holds the store; the relocating user can't see what root has open."""
    if os.geteuid() != 0:
        return None
    for directory in (world.here, world.there):
        subprocess.run(["chown", "-R", f"{_USER}:{_USER}", directory], check=True)
    words = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups"]
    with open(_store(world), "rb"):
        return _refused(world, 75, words)


def _by_path_only(world):
    """Opens the store with O_PATH, which doesn't use the content and so blocks nobody."""
    descriptor = os.open(_store(world), os.O_PATH)
    try:
        status, summary, said = world.run_again("command")
        return world.problems() + ([] if status == 0 else [f"{summary or said}"])
    finally:
        os.close(descriptor)


def _of_a_child(world):
    """A forked child keeps its parent's connection."""
    code = (
        "import os, sqlite3, sys\nconnection = sqlite3.connect(sys.argv[1])\n"
        "connection.execute('SELECT count(*) FROM note').fetchall()\n"
        "if os.fork() == 0:\n    print('open', flush=True); sys.stdin.readline()\n"
        "else:\n    os._exit(0)\n")
    holder = subprocess.Popen(
        [sys.executable, "-c", code, _store(world)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        holder.stdout.readline()
        return _refused(world, 75)
    finally:
        holder.communicate(b"\n")


_HOLDERS = {
    "held through a hard link": _by_hard_link,
    "mapped only": _by_mapping,
    "held in another mount namespace": _from_another_namespace,
    "held by a program of somebody else": _by_somebody_else,
    "named by O_PATH": _by_path_only,
    "held by a forked child": _of_a_child,
}
