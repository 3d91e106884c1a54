"""Reads a replica again and again: watcher.py REPLICA OUTPUT STOP. Each new state it shows is a line of OUTPUT."""

import json
import os
import shutil
import sqlite3
import sys
import time

from digests import opened, state


def run(replica, output, stop):
    last, connection, opens, parent = None, None, 0, os.getppid()
    with open(output, "a") as file:
        while not os.path.exists(stop) and os.getppid() == parent:  # also ends with a tester that is killed
            try:
                if connection is None or opens % 5 == 0:  # now with a new connection, now with one that was open
                    if connection:
                        connection.close()
                    connection = opened(replica, timeout=2)
                opens += 1
                seen = state(connection)
                if (seen["digest"], seen["last"]) != last:
                    last = (seen["digest"], seen["last"])
                    file.write(json.dumps(dict(seen, time=time.time())) + "\n")
                    file.flush()
            except sqlite3.Error as error:
                text, connection = str(error), None
                if "unable to open" not in text and "locked" not in text and "busy" not in text:
                    file.write(json.dumps({"error": text, "time": time.time()}) + "\n")
                    file.flush()
            time.sleep(0.01)


if __name__ == "__main__":
    run(*sys.argv[1:4])
