"""Links of a limited rate between home, broker and follower, in a network namespace of their own. Needs root."""

import os
import subprocess
import sys

INSIDE = "GROUPSTORE_BENCHMARK_LINK"


def enter():
    """Starts the program again in a network namespace of its own, unless it is in one."""
    if os.environ.get(INSIDE):
        return
    os.environ[INSIDE] = "yes"
    os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])


def limit(megabits, broker_port):
    """Gives the way to the broker, the way from it, and everything else a rate of their own, as links between three
    hosts would have."""
    def run(*words):
        found = subprocess.run(words, capture_output=True, text=True)
        if found.returncode:
            sys.exit(f"link.py: {' '.join(words)}: {found.stderr.strip()}")

    run("ip", "link", "set", "lo", "up")
    run("tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb", "default", "30")
    for number in (10, 20, 30):
        run("tc", "class", "add", "dev", "lo", "parent", "1:", "classid", f"1:{number}", "htb", "rate", f"{megabits}mbit",
            "burst", "256k", "quantum", "65536")
    for direction, number in (("dport", 10), ("sport", 20)):
        run("tc", "filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", "u32", "match", "ip", direction,
            str(broker_port), "0xffff", "flowid", f"1:{number}")
