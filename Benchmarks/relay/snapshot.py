"""A snapshot of a large store, from the home to a replica that can be used, beside `cat FILE | nc`."""

import os
import socket
import subprocess
import time

import link
from hosts import Hosts, free_port, same

CONTENT = ("WITH n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<?) "
           "INSERT INTO item SELECT i, 'item ' || i, randomblob(3800) FROM n")


def listening(port):
    with open("/proc/net/tcp", encoding="ascii") as file:
        return any(f":{port:04X} " in line and line.split()[3] == "0A" for line in file)


def sent(path, target):
    """Sends the file with cat and nc. Returns the seconds until the receiver has synced it."""
    port = free_port()
    receiver = subprocess.Popen(["sh", "-c", 'nc -l -p "$1" >"$2"; sync "$2"', "sh", str(port), target])
    while not listening(port):
        time.sleep(0.01)
    start = time.monotonic()
    subprocess.run(["sh", "-c", 'cat "$1" | nc -N 127.0.0.1 "$2"', "sh", path, str(port)], check=True)
    receiver.wait()
    return time.monotonic() - start


def took(hosts, name):
    """Follows with a new follower. Returns the seconds until the first and the last byte, and until the replica can be
    used, which was synced then."""
    start = time.monotonic()
    follower = hosts.follow(name)
    first = follower.event("snapshot", lambda event: event["bytes"] > 0)[0] - start
    last = follower.event("snapshot", lambda event: event["bytes"] == event["size"])[0] - start
    usable = follower.event("reset")[0] - start
    processor = follower.processor_time
    follower.stop()
    return first, last, usable, processor


def run(options, directory):
    hosts = Hosts(options, directory)
    store = hosts.make_home([
        ("CREATE TABLE item (id INTEGER PRIMARY KEY, title TEXT, content BLOB)",), (CONTENT, options.snapshot * 250)])
    store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    size = os.path.getsize(hosts.home)
    subprocess.run(["sync"], check=True)
    if options.link:
        link.limit(options.link, hosts.port)
    hosts.start_broker()
    publisher = hosts.publish()
    publisher.event("caught_up")
    rows = []
    target = os.path.join(directory, "sent")
    for number in range(options.runs):
        base = sent(hosts.home, target)
        os.unlink(target)
        # The first follower waits until the snapshot is made; the others get the same one.
        before = publisher.processor_time
        first, last, usable, processor = took(hosts, f"f{number}")
        home = publisher.processor_time - before
        same([hosts.home, hosts.replica(f"f{number}")], "SELECT count(*), total(length(content)) FROM item")
        subprocess.run(["rm", "-r", hosts.group(f"f{number}")], check=True)
        subprocess.run(["sync"], check=True)
        rows.append((base, first, last, usable, home, processor))
    publisher.stop()
    hosts.close()
    rate = f"over links of {options.link} Mbit/s" if options.link else "over loopback"
    print(f"\nA snapshot of {size / 1e6:,.0f} MB {rate}, with the receiver's sync\n")
    print("| | until the first tenth | until the last byte | until it can be used | speed, `cat | nc` = 1 | processor, home | follower |")
    print("| --- | --: | --: | --: | --: | --: | --: |")
    for number, (base, first, last, usable, home, processor) in enumerate(rows):
        name = "the first follower, for whom it is made" if number == 0 else "a further follower"
        print(f"| `cat` and `nc` | | | {base:.2f} s | 1 | | |")
        print(f"| {name} | {first:.2f} s | {last:.2f} s | {usable:.2f} s | {base / usable:.2f} | {home:.2f} s | {processor:.2f} s |")
    return max(base / usable for base, _, _, usable, _, _ in rows[1:] or rows) >= 0.7
