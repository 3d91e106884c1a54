"""How much of its speed a continuously committing writer keeps beside a relay, and with the broker away."""

import os
import shutil
import statistics
import subprocess
import tempfile

from hosts import Hosts, processor_time

# The writer has a core of its own; publisher and broker share the other one, although a broker is usually elsewhere.
HERE, THERE = ["taskset", "-c", "0"], ["taskset", "-c", "1"]

WITH, IN_MEMORY, AWAY = "beside a relay", "the same, the broker's files in memory", "beside a relay whose broker is away"


def seconds(options, hosts):
    output = subprocess.run(
        [*HERE, os.path.join(options.programs, "tight"), hosts.home, str(options.writer_commits)], check=True,
        capture_output=True, text=True).stdout
    return int(output) / 1e9


class Measured:
    """What a kind of run has shown, by ratios and by shares of a processor."""

    def __init__(self):
        self.ratios, self.publisher, self.broker = [], [], []

    def row(self, name):
        shares = (f"{statistics.median(each):.2f}" if each else "" for each in (self.publisher, self.broker))
        ratios = ", ".join(f"{each:.2f}" for each in self.ratios)
        return f"| {name} | {statistics.median(self.ratios):.2f} | {ratios} | {' | '.join(shares)} |"


def beside(kind, measured, options, hosts):
    """Runs the writer without a relay, beside one, and without one again. Returns the seconds without one."""
    before = seconds(options, hosts)
    publisher = hosts.publish(THERE)
    publisher.event("error" if kind == AWAY else "caught_up")
    programs = [(measured.publisher, publisher.process.pid)]
    if kind != AWAY:
        programs.append((measured.broker, hosts.broker.pid))
    times = [processor_time(pid) for _, pid in programs]
    during = seconds(options, hosts)
    for (shares, pid), time in zip(programs, times):
        shares.append((processor_time(pid) - time) / during)
    publisher.stop()
    after = seconds(options, hosts)
    measured.ratios.append((before + after) / 2 / during)
    return before


def run(options, directory):
    hosts = Hosts(options, directory)
    hosts.make_home([("CREATE TABLE note (id INTEGER PRIMARY KEY, text)",)]).close()
    # A first run, so that no other finds a smaller file.
    seconds(options, hosts)
    places = {WITH: hosts.messages, IN_MEMORY: tempfile.mkdtemp(prefix="relay-benchmark-", dir="/dev/shm"), AWAY: None}
    measured = {kind: Measured() for kind in places}
    try:
        for _ in range(options.runs):
            for kind, place in places.items():
                if place:
                    hosts.messages = place
                    hosts.start_broker(THERE)
                alone = beside(kind, measured[kind], options, hosts)
                if place:
                    hosts.stop_broker()
    finally:
        shutil.rmtree(places[IN_MEMORY])
        hosts.close()
    print(f"\nA writer that commits {options.writer_commits / alone:,.0f} times a second keeps of its speed\n")
    print("| | median | of | publisher's share of the other core | broker's |\n| --- | --: | --- | --: | --: |")
    for kind, each in measured.items():
        print(each.row(kind))
    return statistics.median(measured[WITH].ratios) >= 0.95 and statistics.median(measured[AWAY].ratios) >= 0.97
