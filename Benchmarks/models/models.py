#!/usr/bin/env python3
"""Measures `model check --all` of a model with as many versions and entities as WooCommerce's: 117 and 40.

usage: models.py GROUPSTORE [--versions N] [--entities N] [--rounds N]

Measures the model without a mapping model, with one in the middle, with one for each tenth version, and with versions
between which no mapping can be inferred.
"""
import argparse
import os
import statistics
import subprocess
import tempfile
import time

TYPES = ["String", "Integer 64", "Double", "Boolean", "Date", "Decimal", "Binary", "Transformable"]
ATTRIBUTES = 9


def attribute(number, name, kind=None, optional="YES"):
    kind = kind or TYPES[number % len(TYPES)]
    return f'<attribute name="{name}" optional="{optional}" attributeType="{kind}"/>'


def entity(number, entities, version):
    """Returns an entity that gets an attribute every few versions, and is related to its neighbours."""
    lines = [attribute(index, f"value{index}") for index in range(ATTRIBUTES)]
    lines += [attribute(added, f"added{added}") for added in range(number % 7 + 1, version + 1, 7)]
    following, previous = (number + 1) % entities, (number - 1) % entities
    lines.append(f'<relationship name="next" optional="YES" maxCount="1" deletionRule="Nullify" '
                 f'destinationEntity="Entity{following}" inverseName="previous" inverseEntity="Entity{following}"/>')
    lines.append(f'<relationship name="previous" optional="YES" toMany="YES" deletionRule="Nullify" '
                 f'destinationEntity="Entity{previous}" inverseName="next" inverseEntity="Entity{previous}"/>')
    return lines


def contents(entities, version, breaks):
    """Returns a version. After each version in `breaks`, an attribute has another type, which no inference can bridge."""
    parts = []
    for number in range(entities):
        lines = entity(number, entities, version)
        if number == 0:
            lines.append(attribute(0, "kind", TYPES[sum(version > other for other in breaks) % 2 * 6], "YES"))
        parts.append(f'<entity name="Entity{number}" syncable="YES">' + "".join(lines) + "</entity>")
    return "<model>" + "".join(parts) + "</model>"


def make(directory, name, versions, entities, mapped=(), breaks=()):
    model = os.path.join(directory, name, "Model.xcdatamodeld")
    names = [f"Model {version}" for version in range(1, versions + 1)]
    for version, folder in enumerate(names, 1):
        path = os.path.join(model, folder + ".xcdatamodel")
        os.makedirs(path)
        with open(os.path.join(path, "contents"), "w", encoding="utf-8") as file:
            file.write(contents(entities, version, breaks))
    with open(os.path.join(model, ".xccurrentversion"), "w", encoding="utf-8") as file:
        file.write('<?xml version="1.0" encoding="UTF-8"?><plist version="1.0"><dict><key>_XCCurrentVersionName</key>'
                   f"<string>{names[-1]}.xcdatamodel</string></dict></plist>")
    for version in mapped:
        lines = ["mapping: 1", f"source: Model {version}", f"destination: Model {version + 1}", "entities:"]
        for number in range(entities):
            lines.append(f"  - {{from: Entity{number}, to: Entity{number}}}")
        with open(os.path.join(model, f"From{version}.mapping.yaml"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    return model


def check(groupstore, model):
    """Returns the seconds, the peak memory in MB, and how many versions are refused."""
    began = time.perf_counter()
    process = subprocess.Popen([groupstore, "model", "check", "--all", model, "--json"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    if os.waitstatus_to_exitcode(status) not in (0, 65):
        raise SystemExit(f"groupstore model check ended with status {status}")
    return seconds, usage.ru_maxrss / 1000, output.count(b'"verdict":"refused"')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("groupstore")
    parser.add_argument("--versions", type=int, default=117)
    parser.add_argument("--entities", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--require-ratio", type=float)
    options = parser.parse_args()
    versions = options.versions
    middle = versions // 2
    tenth = range(10, versions, 10)
    with tempfile.TemporaryDirectory() as directory:
        cases = [
            ("all inferred", {}),
            ("one mapping model", {"mapped": [middle]}),
            ("a mapping model for each tenth version", {"mapped": tenth}),
            ("one step that needs its mapping model", {"mapped": [middle], "breaks": [middle]}),
            ("one step that can't be inferred, without a mapping model", {"breaks": [middle]}),
            ("such a step after each tenth version", {"breaks": tenth}),
        ]
        models = [(name, make(directory, str(index), versions, options.entities, **arguments))
                  for index, (name, arguments) in enumerate(cases)]
        results = {name: [] for name, _ in models}
        for _ in range(options.rounds):
            for name, model in models:
                results[name].append(check(options.groupstore, model))
    print(f"### model check --all, {versions} versions of {options.entities} entities\n")
    print("| model | seconds | ratio to all inferred | memory | refused |")
    print("| --- | ---: | ---: | ---: | ---: |")
    base = statistics.median(seconds for seconds, _, _ in results["all inferred"])
    slowest = 0
    for name, runs in results.items():
        seconds = statistics.median(seconds for seconds, _, _ in runs)
        slowest = max(slowest, seconds / base)
        print(f"| {name} | {seconds:.2f} | {seconds / base:.2f} | {max(peak for _, peak, _ in runs):.0f} MB | "
              f"{runs[0][2]} |")
    if options.require_ratio is not None and slowest > options.require_ratio:
        raise SystemExit(f"the slowest took {slowest:.2f} times as long, more than {options.require_ratio}")


if __name__ == "__main__":
    main()
