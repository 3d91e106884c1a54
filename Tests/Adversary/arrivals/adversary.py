#!/usr/bin/env python3
"""Stores that arrive in every manner, presenters of every mood, and an agent that has to deal with both over time.

    adversary.py GROUPSTORE [--seconds N] [--seed S] [--rounds N] [--first M] [--places N] [--only CASE]
                 [--no-presenters] [--keep DIR]

It was written from the documents alone; README.md says what it does. Ends with one summary line, and exit code 1 if there
was a problem.
"""
import argparse
import collections
import os
import pwd
import signal
import subprocess
import sys
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from agent import own_mounts  # noqa: E402
from round import CASES, Round  # noqa: E402

USER = "advarrivals"


def find_user():
    """The agent's user, if the tester is root; True as the second value if the tester made it."""
    if os.getuid():
        return None, False
    try:
        made, entry = False, pwd.getpwnam(USER)
    except KeyError:
        if subprocess.run(["useradd", "--system", "--no-create-home", USER], capture_output=True).returncode:
            return None, False
        made, entry = True, pwd.getpwnam(USER)
    return (entry.pw_uid, entry.pw_gid), made


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--places", type=int, default=10)
    parser.add_argument(
        "--only", action="append", choices=sorted({case.__name__ for case in CASES}), metavar="CASE",
        help="this case alone (may be repeated): " + ", ".join(sorted({case.__name__ for case in CASES})))
    parser.add_argument("--no-presenters", action="store_true")
    parser.add_argument("--keep", help="copy the files of rounds with a problem here")
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))   # so that nothing is left behind
    options.mounts = own_mounts()
    options.user, made = find_user()
    totals = collections.Counter()
    end = time.monotonic() + options.seconds if options.seconds else None
    number = options.first
    try:
        while (end is None or time.monotonic() < end) and number < options.first + (options.rounds or (1 << 30)):
            round = Round(options, number, totals)
            try:
                round.run()
            except Exception:
                round.problem(None, "the round broke off: " + traceback.format_exc())
            finally:
                round.end()
            number += 1
            if end is None and not options.rounds:
                break
    finally:
        if made:
            subprocess.run(["userdel", USER], capture_output=True)
    print("arrivals: %d rounds, %d problems; reached: %s" % (number - options.first, totals["problems"], "; ".join(
        "%s %d" % pair for pair in sorted(totals.items()))), flush=True)
    return 1 if totals["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
