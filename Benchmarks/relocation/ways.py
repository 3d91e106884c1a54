"""Implements the ways to move a store; each returns seconds and the process's peak memory."""

import json
import os
import subprocess
import sys
import time

from stores import NAME


def run(*words):
    """Returns seconds, peak KiB and the output."""
    started = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process.stdout, process.stderr:
        output, errors = process.stdout.read(), process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    elapsed = time.monotonic() - started
    if process.returncode != 0:
        sys.exit(f"relocation: {' '.join(words)}: {process.returncode}: {output}{errors}")
    return elapsed, usage.ru_maxrss, output


class Relocation:
    def __init__(self, program, *options):
        self.program = program
        self.options = options
        self.method = ""
        self.kibibytes = 0

    def __call__(self, source, destination):
        elapsed, kibibytes, output = run(
            self.program, "relocate", source, destination, "--json", *self.options)
        summary = json.loads(output.splitlines()[-1])
        if summary["outcome"] != "relocated":
            sys.exit(f"relocation: {summary}")
        self.method = summary["method"]
        self.kibibytes = max(self.kibibytes, kibibytes)
        return elapsed


def _with_sync(target, destination, *words):
    # sync(1) with names calls fsync(2) on each.
    return run(*words)[0] + run("sync", target, destination)[0]


def copy(source, destination):
    target = os.path.join(destination, NAME)
    return _with_sync(target, destination, "cp", source, target)


def move(source, destination):
    """Does what a script that needs the store in one place does."""
    return copy(source, destination) + run("rm", source)[0]


def backup(source, destination):
    target = os.path.join(destination, NAME)
    return _with_sync(target, destination, "sqlite3", source, f".backup '{target}'")


def vacuum(source, destination):
    target = os.path.join(destination, NAME)
    return _with_sync(target, destination, "sqlite3", source, f"VACUUM INTO '{target}'")
