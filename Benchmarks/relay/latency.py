"""From a commit at home to the commit at the follower, beside a bare publish-to-receive and one SQLite commit."""

import os
import statistics
import subprocess

from hosts import Hosts, connected

# Between two commits: no batch has two of them.
PAUSE_US = 30_000


def relay(hosts, options, follower):
    """Returns the microseconds of each commit. The follower's line comes after its COMMIT has returned."""
    first = connected(hosts.home).execute("SELECT coalesce(max(number), 0) FROM GS_CHANGE").fetchone()[0]
    output = subprocess.run(
        [os.path.join(options.programs, "paced-writer"), hosts.home, str(options.commits), str(PAUSE_US)], check=True,
        capture_output=True, text=True).stdout
    committed = {first + 1 + index: int(line) / 1e9 for index, line in enumerate(output.split())}
    times, last = [], first
    while last < first + options.commits:
        at, event = follower.event("applied")
        number = int(event["upto"].split(".")[2])
        # A batch of several commits brings each of them.
        times += [(at - committed[each]) * 1e6 for each in range(last + 1, number + 1)]
        last = number
    return times


def bare(hosts, options, size, number):
    store = os.path.join(hosts.directory, f"bare{number}.sqlite")
    output = subprocess.run(
        [os.path.join(options.programs, "bare"), hosts.url, store, str(options.commits), str(size), str(PAUSE_US)],
        check=True, capture_output=True, text=True).stdout
    return [int(line) / 1e3 for line in output.split()]


def run(options, directory):
    hosts = Hosts(options, directory)
    store = hosts.make_home([("CREATE TABLE note (id INTEGER PRIMARY KEY, text)",)])
    hosts.start_broker()
    publisher, follower = hosts.publish(), hosts.follow()
    follower.event("caught_up")
    store.execute("INSERT INTO note (text) VALUES ('note 0')")
    follower.event("applied")
    size = hosts.message_size()
    ours, theirs = [], []
    for number in range(options.runs):
        theirs += bare(hosts, options, size, number)
        ours += relay(hosts, options, follower)
    for program in (publisher, follower):
        program.stop()
    hosts.close()
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(f"\nOne row, a message of {size:,} bytes, {len(ours)} commits\n")
    print("| | p50 ms | p99 ms | ratio of p50 |\n| --- | --: | --: | --: |")
    for name, times, relation in (("relay", ours, f"{ratio:.2f}"), ("`bare.c`", theirs, "1")):
        p99 = sorted(times)[len(times) * 99 // 100]
        print(f"| {name} | {statistics.median(times) / 1e3:.2f} | {p99 / 1e3:.2f} | {relation} |")
    return ratio <= 3 and statistics.median(ours) <= 5_000
