"""Judges ThreadSanitizer's reports. It doesn't see the futex of Synchronization's Mutex, whose slow path is in a library that
isn't instrumented, and so takes what one guards for a race.

usage: races.py REPORT...

Drops the reports in which each of the two accesses is made in a closure that `Mutex.withLock` runs, on a value of the same
type; says how many they were, and of which types. Prints all others, also those with a stack that was lost, and exits with
1 when there is one. What it can't see: two mutexes that guard values of one type, each of which lets go of the other's.
"""

import collections
import re
import subprocess
import sys

# A stack of a report: its heading, and its frames.
ACCESS = re.compile(r"^  (?=\w)[^\n]*\b(?:access|read|write)\b[^\n]* by [^\n]*:\n((?:    #\d+ [^\n]*\n)*)", re.M | re.I)
# A body of `withLock`, demangled: it has the guarded value `sending inout`, and nothing else has. A private type's name is
# in parentheses.
GUARDED = re.compile(r" closure #\d+ [^(]*\(sending inout ((?:[^(),]|\([^()]*\))+)\)")


def reports(text):
    for part in re.split(r"^={18,}\n", text, flags=re.M):
        if "WARNING: ThreadSanitizer" in part:
            yield part


def guarded(stack):
    """The types of the values whose locks are held there: the innermost first."""
    return [found[1] for found in map(GUARDED.search, stack.splitlines()) if found]


def mutex_value(report):
    """The type of the guarded value that both accesses are about; None where that isn't so."""
    stacks = [found[1] for found in ACCESS.finditer(report)]
    if len(stacks) != 2:
        return None
    held = [guarded(stack) for stack in stacks]
    return next((value for value in held[0] if value in held[1]), None)


def main():
    dropped, kept = collections.Counter(), []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        text = subprocess.run(["swift", "demangle"], input=text, capture_output=True, text=True, check=True).stdout
        for report in reports(text):
            value = mutex_value(report)
            if value:
                dropped[value] += 1
            else:
                kept.append(report)
    for report in kept:
        print(report)
    of = ", ".join(f"{value} {count}" for value, count in sorted(dropped.items()))
    print(f"races: {len(kept)} reports; {dropped.total()} dropped of what a Mutex guards{': ' + of if of else ''}")
    sys.exit(1 if kept else 0)


main()
