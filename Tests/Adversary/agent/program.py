"""One round: a directory, the agents in it, and the problems found."""

import ctypes
import json
import os
import select
import shutil
import stat
import time

from process import LATE, SOON, Agent, acting_as  # noqa: F401  (the cases import them from here)

LIBC = ctypes.CDLL(None, use_errno=True)


class Round:
    def __init__(self, program, directory, rng, number):
        self.program, self.directory, self.rng, self.number = program, os.path.abspath(directory), rng, number
        self.problems, self.steps, self.agents, self.closers = [], [], [], []
        self.title = self.outcome = ""

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def problem(self, kind, text):
        self.problems.append((kind, str(text)))
        self.step(f"PROBLEM {kind}: {text}")

    def step(self, text):
        self.steps.append(f"{time.monotonic() % 1000:8.3f} {text}")

    def agent(self, *arguments, **options):
        return Agent(self, *arguments, **options)

    def ended_agent(self):
        """Returns an agent that has ended or ends within 3 s; None if all keep running."""
        for agent in self.agents:
            if agent.process is not None:
                try:
                    agent.process.wait(3)
                    return agent
                except subprocess.TimeoutExpired:
                    pass
        return None

    def end(self):
        died = any(kind in ("died", "no-start") for kind, _ in self.problems)
        for agent in self.agents:
            if agent.process is not None and agent.process.poll() is not None and not died:
                self.problem("dead", f"the agent has ended with {agent.process.returncode}: {agent.tail()}")
            agent.stop()
        for close in reversed(self.closers):
            close()

    def keep(self, place):
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        with open(os.path.join(place, "steps.txt"), "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\n".join([self.title, *self.steps]) + "\n")
        for name in ("agent.log", "config.yaml"):
            if os.path.exists(self.path(name)):
                shutil.copy(self.path(name), place)


def remove(directory):
    """Removes a tree, whatever its modes."""
    if not os.path.lexists(directory):
        return
    for place, directories, _ in os.walk(directory):
        for name in directories:
            path = os.path.join(place, name)
            if stat.S_ISDIR(os.lstat(path).st_mode):
                os.chmod(path, 0o700)
    shutil.rmtree(directory, ignore_errors=True)


def exchange(a, b):
    """Swaps two names atomically."""
    if LIBC.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), 2) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), a)


def quoted(text):
    """Returns a YAML string in JSON's form, which YAML accepts."""
    return json.dumps(text, ensure_ascii=False)


def wait_until(condition, seconds, pause=0.02):
    """Polls what can't notify: another process's counters, or a row of `status`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value or time.monotonic() > end:
            return value
        select.select([], [], [], pause)
