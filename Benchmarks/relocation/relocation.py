"""Relocation of large stores beside other ways, and beside that of small ones.

usage: relocation.py GROUPSTORE ABSENCE [PART...] [--size MIB] [--large MIB] [--small MIB] [--rounds N] [--here DIR]
                     [--other DIR] [--require]

Parts: same (one file system: a rename, large and small, and how long the store has no usable name), another (another
file system, compared with cp + fsync, .backup + sync, VACUUM INTO + sync), reflink (an archive kept on xfs, large and
small; root only). --other is a directory on another file system; or ext4, xfs or btrfs, made in a file and mounted
temporarily (root only). The default is /dev/shm, where fsync costs nothing. Rounds are interleaved. Prints Markdown
tables of medians. --require fails if a figure misses what Guarantees.md states.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import stores
import ways

missed = []


def require(what, value, limit, at_least=False):
    if value < limit if at_least else value > limit:
        missed.append(f"{what}: {value:.2f}, {'less' if at_least else 'more'} than {limit}")


def measure(way, master, here, to):
    """Measures one way from a source that is on disk and in the page cache."""
    legacy = tempfile.mkdtemp(prefix="groupstore-bench-legacy-", dir=here)
    group = tempfile.mkdtemp(prefix="groupstore-bench-group-", dir=to)
    try:
        source = os.path.join(legacy, stores.NAME)
        shutil.copyfile(master, source)
        os.sync()
        return way(source, group)
    finally:
        shutil.rmtree(legacy)
        shutil.rmtree(group)


def there_and_back(program, absence, store, rounds, sizes):
    """Moves a store between directories. Returns (seconds, microseconds without a name) for each round."""
    for round in range(rounds):
        for size, places in store.items():
            source = os.path.join(places[round % 2], stores.NAME)
            os.sync()
            watch = subprocess.Popen(
                [absence, source, os.path.join(places[1 - round % 2], stores.NAME)], stdout=subprocess.PIPE, text=True)
            watch.stdout.readline()
            seconds = program(source, places[1 - round % 2])
            sizes[size].append((seconds, int(watch.communicate()[0])))
            print(f"round {round + 1}: {size} MiB: {sizes[size][-1]}", file=sys.stderr)


def same_part(options):
    relocation = ways.Relocation(options.groupstore)
    with tempfile.TemporaryDirectory(prefix="groupstore-bench-", dir=options.here) as place:
        places = {}
        for size in (options.large, options.small):
            places[size] = [os.path.join(place, f"{size}-{number}") for number in range(2)]
            for directory in places[size]:
                os.mkdir(directory)
            stores.make_store(os.path.join(places[size][0], stores.NAME), size)
        found = {size: [] for size in places}
        there_and_back(relocation, options.absence, places, 2 * options.rounds, found)
    seconds = {size: statistics.median(value[0] for value in values) for size, values in found.items()}
    absent = {size: statistics.median(value[1] for value in values) / 1000 for size, values in found.items()}
    print(f"One file system, {2 * options.rounds} interleaved rounds, medians:\n")
    print("| store | method | s | time, small = 1 | without a usable name, ms | most memory, MiB |")
    print("| --: | --- | --: | --: | --: | --: |")
    for size in places:
        print(f"| {size} MiB | {relocation.method} | {seconds[size]:.3f} | {seconds[size] / seconds[options.small]:.2f} "
              f"| {absent[size]:.1f} | {relocation.kibibytes / 1024:.0f} |")
    require("large beside small", seconds[options.large] / seconds[options.small], 1.5)
    require("ms without a usable name", max(absent.values()), 20)
    require("MiB of memory", relocation.kibibytes / 1024, 40)


def another_part(options):
    relocation = ways.Relocation(options.groupstore)
    with tempfile.TemporaryDirectory(prefix="groupstore-bench-", dir=options.here) as place, \
            stores.other_directory(options) as other:
        master = os.path.join(place, "master")
        stores.make_store(master, options.size)
        names = {"groupstore relocate": relocation, "cp + fsync": ways.copy, "cp + fsync + rm": ways.move,
                 "sqlite3 .backup + fsync": ways.backup,
                 "VACUUM INTO + fsync": ways.vacuum}
        seconds = {name: [] for name in names}
        for round in range(options.rounds):
            for name, way in names.items():
                seconds[name].append(measure(way, master, options.here, other))
                print(f"round {round + 1}: {name}: {seconds[name][-1]:.3f} s", file=sys.stderr)
    print(f"{options.size} MiB from {options.here} to {options.other or other}, {options.rounds} interleaved rounds, medians, "
          "page cache warm. groupstore's time holds verification and the removal of the old store, whose blocks are given "
          "back behind it; the others verify nothing and leave it.\n")
    print("| way | s | MiB/s | speed, cp + fsync = 1 | most memory, MiB |")
    print("| --- | --: | --: | --: | --: |")
    median = {name: statistics.median(values) for name, values in seconds.items()}
    for name, value in median.items():
        # Compares each round with its neighbours, because other load on the machine changes between rounds.
        ratio = statistics.median(a / b for a, b in zip(seconds["cp + fsync"], seconds[name]))
        memory = f"{relocation.kibibytes / 1024:.0f}" if name == "groupstore relocate" else ""
        print(f"| {name} ({relocation.method}) | " if memory else f"| {name} | ", end="")
        print(f"{value:.3f} | {options.size / value:.0f} | {ratio:.2f} | {memory} |")
        if memory:
            require("speed beside cp + fsync", ratio, 0.9, at_least=True)
    for name in ("sqlite3 .backup + fsync", "VACUUM INTO + fsync"):
        require(f"time beside {name}", median["groupstore relocate"] / median[name], 1)
    require("MiB of memory", relocation.kibibytes / 1024, 40)


def reflink_part(options):
    if os.geteuid() != 0 or shutil.which("mkfs.xfs") is None:
        print("reflink: skipped, it needs root and mkfs.xfs")
        return
    relocation = ways.Relocation(options.groupstore, "--retire", "archive")
    with stores.loop_mount(options.here, "xfs", 2 * options.large + 1024) as mount:
        seconds = {}
        masters = {size: os.path.join(mount, f"master-{size}") for size in (options.large, options.small)}
        for size, master in masters.items():
            stores.make_store(master, size)
            seconds[size] = []
        for round in range(options.rounds):
            for size, master in masters.items():
                legacy, group = (tempfile.mkdtemp(dir=mount) for _ in range(2))
                source = os.path.join(legacy, stores.NAME)
                stores.command("cp", "--reflink=always", master, source)
                os.sync()
                seconds[size].append(relocation(source, group))
                print(f"round {round + 1}: {size} MiB: {seconds[size][-1]:.3f} s", file=sys.stderr)
                shutil.rmtree(legacy)
                shutil.rmtree(group)
    median = {size: statistics.median(values) for size, values in seconds.items()}
    print(f"A copy kept in the archive on xfs, by reflink, {options.rounds} interleaved rounds, medians:\n")
    print("| store | s | time, small = 1 | most memory, MiB |")
    print("| --: | --: | --: | --: |")
    for size, value in median.items():
        print(f"| {size} MiB | {value:.3f} | {value / median[options.small]:.2f} | {relocation.kibibytes / 1024:.0f} |")
    require("reflink, large beside small", median[options.large] / median[options.small], 2)


PARTS = {"same": same_part, "another": another_part, "reflink": reflink_part}


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("groupstore")
    parser.add_argument("absence")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS])
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--large", type=int, default=4096)
    parser.add_argument("--small", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--here", default=os.environ.get("TMPDIR", "/var/tmp"))
    parser.add_argument("--other")
    parser.add_argument("--require", action="store_true")
    options = parser.parse_args()
    for part in options.parts or PARTS:
        PARTS[part](options)
        print(flush=True)
    if options.require and missed:
        sys.exit("relocation: " + "; ".join(missed))


if __name__ == "__main__":
    main()
