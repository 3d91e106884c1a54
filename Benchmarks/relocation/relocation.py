"""Relocation of a large store, on one file system and to another one, beside cp + fsync and sqlite3's .backup.

usage: relocation.py GROUPSTORE [--size MIB] [--rounds N] [--here DIR] [--other DIR] [--require-ratio R]

--other defaults to /dev/shm, where fsync costs nothing, when there is room, else to `loop`: an ext4 in a file, mounted
for the time being (root only). Or give a directory on a second disk. The rounds are interleaved. Prints a Markdown table
of medians.
"""

import argparse
import contextlib
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20


def make_store(path, mebibytes):
    """Blobs that no file system can compress; about `mebibytes` in all."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA page_size = 4096")
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE photo (id INTEGER PRIMARY KEY, bytes BLOB)")
    connection.execute("BEGIN")
    for _ in range(mebibytes):
        connection.execute("INSERT INTO photo (bytes) VALUES (randomblob(1040000))")
    connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


def run(*command):
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    elapsed = time.monotonic() - started
    if done.returncode != 0:
        sys.exit(f"relocation: {' '.join(command)}: {done.returncode}: {done.stdout}{done.stderr}")
    return elapsed, done.stdout


def groupstore(program):
    def relocate(source, destination):
        elapsed, output = run(program, "relocate", source, destination, "--json")
        summary = json.loads(output.splitlines()[-1])
        if summary["outcome"] != "relocated":
            sys.exit(f"relocation: {summary}")
        relocate.method = summary["method"]
        return elapsed
    return relocate


def copy(source, destination):
    target = os.path.join(destination, "Store.sqlite")
    # sync(1) with names calls fsync(2) on each.
    return run("cp", source, target)[0] + run("sync", target, destination)[0]


def backup(source, destination):
    target = os.path.join(destination, "Store.sqlite")
    return run("sqlite3", source, f".backup '{target}'")[0] + run("sync", target, destination)[0]


def measure(way, master, here, to):
    """Seconds that one way takes, from a source that is on disk and in the page cache."""
    legacy = tempfile.mkdtemp(prefix="groupstore-bench-legacy-", dir=here)
    group = tempfile.mkdtemp(prefix="groupstore-bench-group-", dir=to)
    try:
        source = os.path.join(legacy, "Store.sqlite")
        shutil.copyfile(master, source)
        os.sync()
        return way(source, group)
    finally:
        shutil.rmtree(legacy)
        shutil.rmtree(group)


@contextlib.contextmanager
def loop_mount(here, size):
    """An ext4 of its own, in a file that takes real space from the beginning."""
    with tempfile.TemporaryDirectory(prefix="groupstore-bench-loop-", dir=here) as place:
        image, mount = os.path.join(place, "image"), os.path.join(place, "mount")
        os.mkdir(mount)
        run("fallocate", "-l", f"{2 * size + 128}M", image)
        run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
        run("mount", "-o", "loop", image, mount)
        try:
            yield mount
        finally:
            run("umount", mount)


def other_directory(options):
    has_room = shutil.disk_usage("/dev/shm").free > 3 * options.size * MIB
    other = options.other or ("/dev/shm" if has_room else "loop")
    return loop_mount(options.here, options.size) if other == "loop" else contextlib.nullcontext(other)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("groupstore")
    parser.add_argument("--size", type=int, default=1024, help="MiB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--here", default=os.environ.get("TMPDIR", "/tmp"))
    parser.add_argument("--other", help="a directory on another file system, or `loop`")
    parser.add_argument("--require-ratio", type=float,
                        help="fail when another file system is reached at less than R times cp + fsync's speed")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="groupstore-bench-", dir=options.here) as place, \
            other_directory(options) as other:
        master, small = os.path.join(place, "large"), os.path.join(place, "small")
        make_store(master, options.size)
        make_store(small, 16)
        relocate = groupstore(options.groupstore)
        ways = {
            ("same", f"groupstore relocate, {options.size} MiB"): (relocate, master, options.here),
            ("same", "groupstore relocate, 16 MiB"): (relocate, small, options.here),
            ("same", "cp + fsync"): (copy, master, options.here),
            ("same", "sqlite3 .backup + fsync"): (backup, master, options.here),
            ("another", f"groupstore relocate, {options.size} MiB"): (relocate, master, other),
            ("another", "cp + fsync"): (copy, master, other),
            ("another", "sqlite3 .backup + fsync"): (backup, master, other),
        }
        seconds = {key: [] for key in ways}
        methods = {}
        for round in range(options.rounds):
            for key, (way, source, to) in ways.items():
                seconds[key].append(measure(way, source, options.here, to))
                if way is relocate:
                    methods[key] = relocate.method
                print(f"round {round + 1}: {key[1]}, {key[0]} file system: {seconds[key][-1]:.3f} s", file=sys.stderr)

    print(f"Relocation of {options.size} MiB from {options.here}, {options.rounds} interleaved rounds, medians, page cache "
          f"warm; the other file system is {other}. groupstore's time holds the start of the program, verification and "
          "the removal of the old store; cp's and .backup's hold no verification and leave the old one.\n")
    print("| file system | way | method | s | MiB/s | speed, cp + fsync = 1 |")
    print("| --- | --- | --- | --: | --: | --: |")
    ratio = 0
    for key, values in seconds.items():
        median = statistics.median(values)
        size = 16 if "16 MiB" in key[1] else options.size
        speed = statistics.median(seconds[(key[0], "cp + fsync")]) / median
        if key == ("another", f"groupstore relocate, {options.size} MiB"):
            ratio = speed
        shown = f"{speed:.2f}" if size == options.size else ""
        print(f"| {key[0]} | {key[1]} | {methods.get(key, '')} | {median:.3f} | {size / median:.0f} | {shown} |")
    if options.require_ratio and ratio < options.require_ratio:
        sys.exit(f"relocation: another file system at {ratio:.2f} of cp + fsync, less than {options.require_ratio}")


if __name__ == "__main__":
    main()
