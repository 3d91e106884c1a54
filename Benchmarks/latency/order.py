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
FAST_PATH = "*publishFastPath*"
GROUP = "group.example.order"


def run(program, place, arguments, ready):
    """Returns the functions of one program that notices commits."""
    profile = os.path.join(place, "profile")
    command = ["valgrind", "--tool=callgrind", "--demangle=no", f"--callgrind-out-file={profile}"]
    command += [f"--toggle-collect={FAST_PATH}", program, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
    subscriber = ready(process)
    store = sqlite3.connect(os.path.join(place, "Order.sqlite"), isolation_level=None)
    for _ in range(COMMITS):
        store.execute("INSERT INTO note (text) VALUES ('some text')")
        subscriber()
    store.close()
    process.terminate()
    process.communicate()
    listed = subprocess.run(
        ["callgrind_annotate", "--threshold=100", profile], check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^ *[\d,]+ \([^)]*\) +[^:]*:(\S+) \[" + re.escape(program), listed, re.MULTILINE)
    # A recursive function has a number behind its name, and one without a name is listed by its address.
    return [re.sub(r"'\d+$", "", name) for name in found if not name.startswith("0x")]


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

        names.update(dict.fromkeys(run(program, place, ["watch", "--direct", "--json", path], watching)))
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

        names.update(dict.fromkeys(run(program, place, ["agent", "--config", configuration], subscribed)))
        store.close()
    print("# The functions on the fast path from a commit to its line; made by Benchmarks/latency/order.py.")
    print("\n".join(names))


main()
