"""Lists the functions between a commit and its line, in the order in which the linker is to place them.

usage: order.py GROUPSTORE > Benchmarks/latency/functions.order

Runs a release build's `watch --direct` and its agent under valgrind's callgrind, and notes what runs on the fast path. Place
by place, a program that wakes up after a rest finds its code in fewer cache lines and pages. Names that a later version no
longer has do no harm; list them again after larger changes of that path.
"""

import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

COMMITS = 300
# What runs when an event has come, and when it was read. What follows a line runs inside of the first, and an inner name
# ends the collection until it returns: so the functions before a line come first, and all others after them.
FAST_PATHS = ["*FeedLoopC4step*KFyycfU_", "*publishFastPath*"]
AFTER_THE_LINE = ["*confirmRepeatedCommit*"]
GROUP = "group.example.order"


def run(program, place, arguments, ready, paths):
    """Returns the functions of one program that notices commits, while it is in those whose names match."""
    profile = os.path.join(place, "profile")
    command = ["valgrind", "--tool=callgrind", "--demangle=no", f"--callgrind-out-file={profile}"]
    command += [*(f"--toggle-collect={path}" for path in paths), program, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    subscriber = ready(process)
    store = sqlite3.connect(os.path.join(place, "Order.sqlite"), isolation_level=None)
    store.execute("PRAGMA synchronous = NORMAL")
    for _ in range(COMMITS):
        store.execute("INSERT INTO note (text) VALUES ('some text')")
        subscriber()
    store.close()
    process.terminate()
    process.communicate()
    listed = subprocess.run(
        ["callgrind_annotate", "--threshold=100", profile], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^ *([\d,]+) \([^)]*\) +[^:]*:(\S+) \[" + re.escape(program), listed, re.MULTILINE)
    # What runs for a few commits only would lie between what runs for each.
    usual = [name for count, name in found if int(count.replace(",", "")) >= 3 * COMMITS]
    # A recursive function has a number behind its name, and one without a name is listed by its address.
    return [re.sub(r"'\d+$", "", name) for name in usual if not name.startswith("0x")]


def main():
    program = os.path.realpath(sys.argv[1])
    if not shutil.which("callgrind_annotate"):
        sys.exit("order: install valgrind first")
    names = {}
    with tempfile.TemporaryDirectory(prefix="groupstore-order-") as place:
        path = os.path.join(place, "Order.sqlite")
        store = sqlite3.connect(path, isolation_level=None)
        store.execute("PRAGMA journal_mode = WAL")
        store.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)")

        def watching(process):
            process.stdout.readline()
            return process.stdout.readline

        watch = ["watch", "--direct", "--json", path]
        configuration, address = os.path.join(place, "config.yaml"), os.path.join(place, "socket")
        with open(configuration, "w", encoding="utf-8") as file:
            file.write(f"socket: {{ path: {address} }}\n"
                       f"groups:\n  - id: {GROUP}\n    directory: {place}\n    stores:\n      - name: Order.sqlite\n")

        def subscribed(process):
            while not os.path.exists(address):
                time.sleep(0.05)
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(address)
            lines = connection.makefile("rb")
            lines.readline()
            request = {"id": 1, "op": "subscribe", "store": f"{GROUP}/Order.sqlite"}
            connection.sendall(json.dumps(request).encode() + b"\n")
            lines.readline()
            return lines.readline

        agent = ["agent", "--config", configuration]
        for paths in (FAST_PATHS + AFTER_THE_LINE, FAST_PATHS):
            names.update(dict.fromkeys(run(program, place, watch, watching, paths)))
            names.update(dict.fromkeys(run(program, place, agent, subscribed, paths)))
        store.close()
    print("# The functions on the fast path from a commit to its line; made by Benchmarks/latency/order.py.")
    print("\n".join(names))


main()
