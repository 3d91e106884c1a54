"""A second user swaps directories and files for symbolic links to a victim's, while a store is relocated back
and forth. However each run ends, the victim's files are unchanged, and no row is lost or taken from them.
"""

import itertools
import json
import os
import signal
import stat
import subprocess
import sys

import stores
import surroundings

# Swaps: the names below the place, and the link's target.
_TARGETS = {
    "directories": [("legacy", ""), ("group", "")],
    "bookkeeping": [(f"{side}/.groupstore{name}", "") for side in ("legacy", "group")
                    for name in ("", "/claims", "/staging", "/receipts", "/archive")],
    "store": [(f"{side}/{name}", name) for side in ("legacy", "group")
              for name in (stores.NAME, stores.NAME + "-wal", stores.NAME + "-journal", stores.SUPPORT)],
}

_WRITER = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("INSERT INTO note (text) VALUES ('one more')")
os._exit(0)
"""


def each_round(programs, progress, rounds, here, other):
    if os.geteuid() != 0:
        print("torture: swap: it is skipped: becoming a second user needs root", flush=True)
        return
    outcomes = {}
    for what in _TARGETS:
        for there, by in itertools.product((here, other), ("command", "agent")):
            _storm(programs, progress, rounds // (4 * len(_TARGETS)) or 1, here, there, (what, by), outcomes)
    print(f"torture: swap: {outcomes}", flush=True)


def _storm(programs, progress, rounds, here, there, what, outcomes):
    with surroundings.Place(here, there if there != here else None, "plain") as world:
        for directory in {world.root, world.there}:
            os.chmod(directory, 0o777)
        pairs = _pairs(world, what[0])
        command = [programs.swapper, str(surroundings.STRANGER)] + [name for pair in pairs for name in pair[:2]]
        with subprocess.Popen(command) as swapper:
            try:
                _rounds(programs, progress, rounds, world, swapper, pairs, what, outcomes)
            finally:
                swapper.kill()


def _pairs(world, what):
    found = []
    for number, (name, target) in enumerate(_TARGETS[what]):
        side, _, rest = name.partition("/")
        path = os.path.join(getattr(world, side), rest).rstrip("/")
        link = os.path.join(os.path.dirname(getattr(world, side)), f"link{number}")
        os.symlink(os.path.join(world.victim_of(path), target).rstrip("/"), link)
        os.chown(link, surroundings.STRANGER, surroundings.STRANGER, follow_symlinks=False)
        found.append((path, link, os.readlink(link)))
    return found


def _rounds(programs, progress, rounds, world, swapper, pairs, what, outcomes):
    rows = 60
    source, target = world.legacy, world.group
    _pause(swapper, pairs)
    for number in range(rounds):
        if progress.is_over:
            return
        if progress.random.random() < 0.5:
            subprocess.run([sys.executable, "-c", _WRITER, os.path.join(source, stores.NAME)], check=True)
            rows += 1
        swapper.send_signal(signal.SIGCONT)
        retire = progress.random.choice(["delete", "delete", "archive"])
        relocate = _by_command if what[1] == "command" else _by_agent
        found, said = relocate(programs, world, source, target, retire, lambda: _pause(swapper, pairs))
        found += world.harm()
        outcome = _outcome(said)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        # Interrupted relocations complete without disturbance.
        for place in (source, target):
            done, _, _, told = surroundings.run([programs.groupstore, "recover", place, "--json"])
            if done != 0:
                found.append(f"recover: {done}: {told[-400:]}")
        places = [place for place in (source, target) if _is_store(place)]
        if len(places) != 1:
            found.append(f"{len(places)} stores: {said[-500:]}")
        elif (count := _rows(places[0])) != rows:
            found.append(f"{count} rows of {rows} in {places[0]}: {said[-300:]}")
        progress.judge(f"swap: {', '.join(what)}, round {number}", found)
        if len(places) != 1:
            return
        if places[0] == target:
            source, target = target, source


def _by_command(programs, world, source, target, retire, pause):
    status, peak, seconds, said = surroundings.run(
        [programs.groupstore, "relocate", os.path.join(source, stores.NAME), target, "--json", "--deadline", "0.3",
         "--retire", retire])
    pause()
    found = [] if status in surroundings.STATUSES else [f"status {status}: {said[-500:]}"]
    if seconds > surroundings.SECONDS or peak > surroundings.KILOBYTES:
        found.append(f"{seconds:.1f} s, {peak} KB")
    return found, said


def _by_agent(programs, world, source, target, retire, pause):
    with surroundings.Agent(programs, world, source, target, retire) as agent:
        status, _, _, said = surroundings.run(
            [programs.groupstore, "relocate", os.path.join(source, stores.NAME), target, "--json", "--deadline", "0.3",
             "--retire", retire], agent.environment)
        pause()
        found = [] if status in surroundings.STATUSES else [f"status {status}: {said[-500:]}"]
        return found + agent.end(), said


def _pause(swapper, pairs):
    """Stops it, and restores each name's first content."""
    swapper.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, swapper.pid, os.WSTOPPED)
    for path, link, goal in pairs:
        if os.path.islink(path) and os.readlink(path) == goal:
            # The former content has the link's old name, unless nothing was there.
            aside = link + ".link"
            os.rename(path, aside)
            if os.path.lexists(link):
                os.rename(link, path)
            os.rename(aside, link)


def _outcome(said):
    try:
        summary = json.loads([line for line in said.splitlines() if line.startswith("{")][-1])
        return (summary.get("error") or {}).get("code") or summary.get("outcome")
    except (IndexError, ValueError):
        return "nothing said"


def _is_store(place):
    path = os.path.join(place, stores.NAME)
    return os.path.lexists(path) and stat.S_ISREG(os.lstat(path).st_mode)


def _rows(place):
    content = stores.content(place)
    return len(content["rows"]) if content and "rows" in content else content
