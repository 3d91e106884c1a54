#!/usr/bin/env python3
"""Measures the relay: publisher, broker and follower on one machine, each beside what does the minimum.

    python3 relay.py GROUPSTORE RELAY PROGRAMS [--part latency|changes|snapshot|writers] [--runs N] ...

PROGRAMS is the directory of bare, apply and tight, which script/bench compiles.
"""

import argparse
import importlib
import shutil
import sys
import tempfile

import link

PARTS = ["latency", "changes", "snapshot", "writers"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("groupstore", "relay", "programs"):
        parser.add_argument(name)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be repeated")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--commits", type=int, default=1000, help="commits whose latency is measured, in each run")
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--snapshot", type=int, default=1000, metavar="MB")
    parser.add_argument(
        "--link", type=int, metavar="MBIT", help="the rate of each link in the snapshot's part (default: loopback's; needs root)")
    parser.add_argument("--writer-commits", type=int, default=300_000, help="commits of a writer at full speed, in each run")
    parser.add_argument("--require", action="store_true", help="fail if a ratio is worse than it should be")
    options = parser.parse_args()
    if options.link:
        link.enter()
    failed = False
    for part in options.part or PARTS:
        directory = tempfile.mkdtemp(prefix="relay-benchmark-")
        try:
            failed |= not importlib.import_module(part).run(options, directory)
        finally:
            shutil.rmtree(directory)
    return 1 if failed and options.require else 0


if __name__ == "__main__":
    sys.exit(main())
