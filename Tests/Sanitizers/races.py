"""Judges ThreadSanitizer's reports. The sanitizer doesn't see the futex of Synchronization's Mutex, whose slow path is in a
library that isn't instrumented, so it reports guarded accesses as races.

usage: races.py REPORT...

Drops the reports in which each of the two accesses is in a closure that `Mutex.withLock` runs, on a value of the same
type; prints their count and types. Prints all others, also those with a lost stack, and exits with
1 if there is one. Blind spot: two mutexes that guard values of one type, each of which exposes the other's value.
"""

import collections
import re
import subprocess
import sys

# A stack of a report: its heading, and its frames.
ACCESS = re.compile(r"^  (?=\w)[^\n]*\b(?:access|read|write)\b[^\n]* by [^\n]*:\n((?:    #\d+ [^\n]*\n)*)", re.M | re.I)
# A body of `withLock`, demangled: it alone has the guarded value `sending inout`. A private type's name is in parentheses.
GUARDED = re.compile(r" closure #\d+ [^(]*\(sending inout ((?:[^(),]|\([^()]*\))+)\)")


def reports(text):
    for part in re.split(r"^={18,}\n", text, flags=re.M):
        if "WARNING: ThreadSanitizer" in part:
            yield part


def guarded(stack):
    """Returns the types of the values whose locks the stack holds, innermost first."""
    return [found[1] for found in map(GUARDED.search, stack.splitlines()) if found]


def mutex_value(report):
    """Returns the type of the guarded value that both accesses use; None otherwise."""
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
