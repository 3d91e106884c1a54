"""Runs openers that don't cooperate: every acknowledged commit exists at the end, wherever the store moved."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time

import stores

def storm(programs, progress, mode, rounds, create, here, count, seconds=None):
    """Relocates a store back and forth while unaware programs go on using its legacy path.

    With `create`, they make a store if there is none; then only one direction is used, and conflicts are resolved.
    """
    with tempfile.TemporaryDirectory(prefix="torture.", dir=here) as root:
        legacy, group = os.path.join(root, "legacy"), os.path.join(root, "group")
        for place in (legacy, group):
            os.mkdir(place)
        store = os.path.join(legacy, stores.NAME)
        connection = sqlite3.connect(store, isolation_level=None)
        connection.execute(f"PRAGMA journal_mode = {mode}")
        connection.execute("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)")
        connection.close()
        openers = [_opener(programs, root, store, group, number, create) for number in range(1, count + 1)]
        try:
            until = None if seconds is None else time.monotonic() + seconds
            outcomes = _relocate(programs, progress, legacy, group, rounds, create, until)
        finally:
            for opener in openers:
                opener.terminate()
            ends = [opener.wait(60) for opener in openers]
        acknowledged = _acknowledged(root)
        lost = acknowledged - _rows(root)
        found = [f"{len(lost)} acknowledged rows are lost"] * bool(lost)
        if 3 in ends:
            found.append("an opener held the moved file under its old name")
        if any(end not in (0, 3, -signal.SIGTERM) for end in ends):
            found.append(f"openers ended with {ends}")
        word = "that create it" if create else "at the legacy path"
        print(
            f"torture: storm: {count} openers {word}, {mode}: {len(acknowledged)} rows acknowledged, "
            + ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items())), flush=True)
        progress.judge(f"storm of openers {word}, {mode}", found)
        if not create and seconds is None and outcomes.get("relocated", 0) == 0:
            progress.judge(f"storm, {mode}", ["nothing was relocated"])


def _opener(programs, root, store, group, number, create):
    words = [programs.opener, store, os.path.join(root, f"log.{number}"), str(number)]
    words += ["--create"] if create else ["--forbidden", os.path.join(group, stores.NAME)]
    return subprocess.Popen(words)


def _relocate(programs, progress, legacy, group, rounds, create, until):
    """Returns how often each outcome came. Tries at least one round, however little time there is."""
    outcomes = {}
    there = [os.path.join(legacy, stores.NAME), group]
    back = [os.path.join(group, stores.NAME), legacy]
    for number in range(rounds):
        if outcomes and _is_over(until):
            break
        words = there if create or number % 2 == 0 else back
        summary = _run(programs, words)
        if summary["outcome"] == "conflict":
            if {side["role"] for side in summary.get("sides", [])} != {"legacy", "group"}:
                progress.judge("storm", [f"a conflict that doesn't describe both: {summary}"])
            outcomes["conflict"] = outcomes.get("conflict", 0) + 1
            summary = _run(programs, words + ["--on-conflict", ("keep-group", "keep-legacy")[number % 2]])
        elif summary["outcome"] not in ("relocated", "busy", "already_relocated", "nothing_to_do", "conflict"):
            progress.judge("storm", [f"{summary}"])
        outcomes[summary["outcome"]] = outcomes.get(summary["outcome"], 0) + 1
        if not create:
            # The other direction begins only after this one is complete.
            while summary["outcome"] == "busy" and not _is_over(until):
                summary = _run(programs, words)
                outcomes[summary["outcome"]] = outcomes.get(summary["outcome"], 0) + 1
    return outcomes


def _is_over(until):
    return until is not None and time.monotonic() > until


def _run(programs, words):
    done = subprocess.run(
        [programs.groupstore, "relocate", *words, "--json", "--deadline", "5"], capture_output=True, text=True,
        env=dict(os.environ, GROUPSTORE_SOCKET="/nonexistent/agent.sock"), check=False)
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines else {"outcome": f"{done.returncode}: {done.stderr}"}


def _acknowledged(root):
    found = set()
    for name in os.listdir(root):
        if name.startswith("log."):
            with open(os.path.join(root, name), encoding="ascii") as file:
                found |= {int(line) for line in file if line.endswith("\n")}
    return found


def _rows(root):
    """Returns the rows of the store and of every archived store."""
    found = set()
    for directory, _, files in os.walk(root):
        if stores.NAME in files:
            with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
                for part in stores.parts(directory):
                    shutil.copyfile(os.path.join(directory, part), os.path.join(scratch, part))
                connection = sqlite3.connect(os.path.join(scratch, stores.NAME))
                try:
                    found |= {row[0] for row in connection.execute("SELECT id FROM note")}
                except sqlite3.OperationalError:
                    pass  # Created, and nothing committed yet.
                connection.close()
    return found
