"""How much of its speed a continuously committing writer keeps beside a relay, and with the broker away."""

import os
import statistics
import subprocess

from hosts import Hosts

# The writer has a core of its own; relay and broker share the other one, although a broker is usually elsewhere.
HERE, THERE = ["taskset", "-c", "0"], ["taskset", "-c", "1"]


def seconds(options, hosts):
    output = subprocess.run(
        [*HERE, os.path.join(options.programs, "tight"), hosts.home, str(options.writer_commits)], check=True,
        capture_output=True, text=True).stdout
    return int(output) / 1e9


def run(options, directory):
    hosts = Hosts(options, directory)
    hosts.make_home([("CREATE TABLE note (id INTEGER PRIMARY KEY, text)",)]).close()
    hosts.start_broker(THERE)
    # A first run, so that no other finds a smaller file.
    seconds(options, hosts)
    kept = {"with the broker": [], "with the broker away": []}
    for _ in range(options.runs):
        for name in kept:
            if name == "with the broker away":
                hosts.stop_broker()
            before = seconds(options, hosts)
            publisher = hosts.publish(THERE)
            publisher.event("caught_up" if name == "with the broker" else "error")
            during = seconds(options, hosts)
            publisher.stop()
            after = seconds(options, hosts)
            kept[name].append((before + after) / 2 / during)
            if name == "with the broker away":
                hosts.start_broker(THERE)
    hosts.close()
    rate = options.writer_commits / before
    print(f"\nA writer that commits {rate:,.0f} times a second keeps of its speed\n")
    print("| | median | of |\n| --- | --: | --- |")
    for name, ratios in kept.items():
        print(f"| beside a relay {name} | {statistics.median(ratios):.2f} | {', '.join(f'{each:.2f}' for each in ratios)} |")
    return statistics.median(kept["with the broker"]) >= 0.95 and statistics.median(kept["with the broker away"]) >= 0.97
