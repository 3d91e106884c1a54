"""Measures the pause that apps see when the agent relocates the store that they present and write.

usage: presenter.py GROUPSTORE NOTES_APP [--rounds N] [--apps A,B] [--rate R] [--require-milliseconds M]

Each app writes at its rate; all write into one legacy store. Then `groupstore relocate` asks the agent, which asks the
apps. A pause lasts from the last row committed at the old place to the first at the new place, as the app prints it.
Every row that an app saw committed must be there. Prints a Markdown table.
"""

import argparse
import json
import os
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

GROUP = "group.example.bench"
NAME = "Bench.sqlite"
SECONDS = 1.5


def measure(groupstore, notes_app, apps, rate):
    """Returns milliseconds, one value for each app."""
    with tempfile.TemporaryDirectory(prefix="groupstore-bench-") as place:
        legacy, group, path = (os.path.join(place, name) for name in ("legacy", "group", "socket"))
        os.mkdir(legacy)
        os.mkdir(group)
        store = os.path.join(legacy, NAME)
        maker = sqlite3.connect(store)
        maker.execute("PRAGMA journal_mode = WAL")
        maker.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT)")
        maker.close()
        environment = dict(os.environ, GROUPSTORE_SOCKET=path)
        agent = subprocess.Popen(
            [groupstore, "agent", "--group", f"{GROUP}={group}"], env=environment, stderr=subprocess.DEVNULL)
        while not os.path.exists(path):
            if agent.poll() is not None:
                sys.exit("presenter: the agent ended")
            time.sleep(0.01)
        writers = [
            subprocess.Popen(
                [notes_app, GROUP, "--directory", group, "--legacy", store, "--name", NAME, "--title", f"app{number}",
                 "--rows", str(int(rate * SECONDS)), "--rate", str(rate)],
                env=environment, stdout=subprocess.PIPE, text=True)
            for number in range(apps)]
        try:
            # The first line reports that the store is open and presented.
            for writer in writers:
                writer.stdout.readline()
            time.sleep(SECONDS / 3)
            done = subprocess.run(
                [groupstore, "relocate", store, group, "--json"], env=environment, capture_output=True, text=True)
            outcome = json.loads(done.stdout.splitlines()[-1])["outcome"]
            if outcome != "relocated":
                sys.exit(f"presenter: {outcome}: {done.stderr}")
            said = [writer.communicate()[0] for writer in writers]
        finally:
            for process in [*writers, agent]:
                process.kill()
                process.wait()
        told = {line[4:] for text in said for line in text.splitlines() if line.startswith("row ")}
        found = {title for (title,) in sqlite3.connect(os.path.join(group, NAME)).execute("SELECT title FROM note")}
        if not told <= found:
            sys.exit(f"presenter: {len(told - found)} rows are missing")
        return [int(match) for text in said for match in re.findall(r"paused (\d+) ms", text)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("groupstore")
    parser.add_argument("notes_app")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--apps", default="1,20")
    parser.add_argument("--rate", type=float, default=1000, help="rows a second, of all apps together")
    parser.add_argument("--require-milliseconds", type=float, help="fail when one app's median pause is longer")
    options = parser.parse_args()
    pauses = {int(apps): [] for apps in options.apps.split(",")}
    for round in range(options.rounds):
        for apps, values in pauses.items():
            found = measure(options.groupstore, options.notes_app, apps, max(1, int(options.rate / apps)))
            values += found
            print(f"round {round + 1}: {apps} apps: {sorted(found)} ms", file=sys.stderr)
    print(f"Pause of apps that write {options.rate:.0f} rows a second, {options.rounds} interleaved rounds.\n")
    print("| apps | median ms | longest ms |")
    print("| --: | --: | --: |")
    for apps, values in pauses.items():
        print(f"| {apps} | {statistics.median(values):.0f} | {max(values)} |")
    median = statistics.median(next(iter(pauses.values())))
    if options.require_milliseconds and median > options.require_milliseconds:
        sys.exit(f"presenter: {median:.0f} ms, more than {options.require_milliseconds}")


if __name__ == "__main__":
    main()
