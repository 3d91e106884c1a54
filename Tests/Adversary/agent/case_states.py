"""Leaves legacy places and groups alone in each state: idleness must cost nothing, and be reported once."""

import os
import socket
import sqlite3
import subprocess
import sys
import time

import store as stores
from program import quoted, wait_until
from wire import requires_reread

HOLDER = """
import sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
for s in sys.argv[2:]: c.execute(s).fetchall()
print("ready", flush=True)
sys.stdin.read()
"""


class Place:
    """A legacy place and a group, with what keeps a process or a file system in that state."""

    def __init__(self, round, number):
        self.round, self.r, self.number, self.user = round, round.rng, number, round.user
        self.legacy_directory, self.group = round.path(f"legacy{number}"), round.path(f"group{number}")
        for directory in (self.legacy_directory, self.group):
            os.mkdir(directory)
        self.legacy, self.store = os.path.join(self.legacy_directory, "N.sqlite"), os.path.join(self.group, "N.sqlite")
        self.title, self.later = "", lambda: None  # `later` makes what the agent would refuse to start with

    def hold(self, path, *statements):
        """Starts a process that keeps the store open; the round ends it."""
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, path, *statements], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.round.closers.append(lambda: (process.stdin.close(), process.stdout.close(), process.kill(), process.wait()))
        process.stdout.readline()
        return process

    def killed(self, path, *statements):
        """Kills a process with the store open, which leaves a hot log or journal."""
        process = self.hold(path, *statements)
        process.kill()
        process.wait()

    def write(self, path, data):
        with open(path, "wb") as file:
            file.write(data)


def absent(p, path): pass  # noqa: E704
def zero(p, path): p.write(path, b"")  # noqa: E704
def rows(p, path): stores.make(path, p.r.choice(["wal", "delete", "persist", "truncate"]), 3, note=path)  # noqa: E704
def same(p, path): stores.make(path, "delete", 3, note="same")  # noqa: E704
def schema_only(p, path): stores.make(path, "delete", 0)  # noqa: E704
def no_database(p, path): p.write(path, b"This is no database.\n" * 300)  # noqa: E704
def encrypted(p, path): p.write(path, p.r.randbytes(8192))  # noqa: E704
def one_byte(p, path): p.write(path, b"S")  # noqa: E704
def xml(p, path): p.write(path, b'<?xml version="1.0"?>\n<!DOCTYPE database SYSTEM "file:///x">\n<database></database>\n')  # noqa: E704
def directory(p, path): os.mkdir(path)  # noqa: E704
def fifo(p, path): os.mkfifo(path)  # noqa: E704
def dangling(p, path): os.symlink("nowhere", path)  # noqa: E704
def loop(p, path): os.symlink(os.path.basename(path), path)  # noqa: E704


def corrupt(p, path):
    stores.make(path, "delete", 400)
    with open(path, "r+b") as file:
        file.seek(p.r.choice([20, 60, 100, 104, 4096]))
        file.write(p.r.randbytes(64))


def cut(p, path):
    stores.make(path, "delete", 400)
    os.truncate(path, p.r.choice([50, 100, 1000, 4096, 5000]))


def unix_socket(p, path):
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    s.close()


def link_away(p, path):
    other = path + ".real"
    stores.make(other, "delete", 3)
    os.symlink(other, path)


def hard_link(p, path):
    stores.make(path, "delete", 3)
    os.link(path, path + ".other")


def hot_wal(p, path):
    p.killed(path, "PRAGMA journal_mode=wal", "CREATE TABLE mark (text)", "INSERT INTO mark VALUES (1)")


def hot_journal(p, path):
    stores.make(path, "delete", 300)
    p.killed(path, "PRAGMA cache_size=1", "BEGIN IMMEDIATE", "UPDATE mark SET text = hex(randomblob(900))")


def wal_alone(p, path):
    hot_wal(p, path)
    os.unlink(path)


def journal_alone(p, path):
    hot_journal(p, path)
    os.unlink(path)


def held(p, path):
    stores.make(path, p.r.choice(["wal", "delete"]), 3)
    p.hold(path, "SELECT count(*) FROM mark")


def reading(p, path):
    stores.make(path, p.r.choice(["wal", "delete"]), 3)
    p.hold(path, "BEGIN", "SELECT count(*) FROM mark")


def exclusive(p, path):
    stores.make(path, p.r.choice(["wal", "delete"]), 3)
    p.hold(path, "PRAGMA locking_mode=exclusive", "INSERT INTO mark (text) VALUES ('x')")


def writing(p, path):
    stores.make(path, "delete", 3)
    p.hold(path, "BEGIN IMMEDIATE", "INSERT INTO mark (text) VALUES ('x')")


def unreadable(p, path):
    stores.make(path, "delete", 3)
    os.chmod(path, 0)


LEGACY = [absent, zero, zero, rows, same, schema_only, no_database, encrypted, one_byte, xml, directory, fifo, dangling, loop, corrupt,
          cut, unix_socket, link_away, hard_link, hot_wal, hot_journal, wal_alone, journal_alone, held, reading, exclusive, writing,
          unreadable]  # fmt: skip
GROUP = [absent, absent, absent, zero, rows, same, schema_only, no_database, cut, directory, hot_wal, held, exclusive, dangling, fifo, unreadable]
SIDES = ["", "", "", "-wal", "-shm", "-journal", "-wal -shm", ".bak"]
SURROUNDINGS = ["", "", "", "", "legacy read-only", "group read-only", "no group", "group a file", "no legacy", "legacy closed",
                "link to the group", "same file", "alone -wal empty", "support folder"]  # fmt: skip


def prepare(p, turn=None):
    """Draws a state and makes it; returns its title. Each legacy state has a turn alone."""
    r = p.r
    legacy, group, sides, around = r.choice(LEGACY), r.choice(GROUP), r.choice(SIDES), r.choice(SURROUNDINGS)
    if turn is not None:
        legacy = LEGACY[turn % len(LEGACY)]
    legacy(p, p.legacy)
    for side in sides.split():
        if not os.path.lexists(p.legacy + side):
            p.write(p.legacy + side, r.choice([b"", b"", b"\0" * 512, r.randbytes(700)]))
    if around not in ("link to the group", "same file"):
        group(p, p.store)
    if p.user is not None:
        for directory_ in (p.legacy_directory, p.group):
            os.chown(directory_, p.user, p.user)
            for name in os.listdir(directory_):
                os.lchown(os.path.join(directory_, name), p.user, p.user)
    if around == "legacy read-only":
        os.chmod(p.legacy_directory, 0o555)
    elif around == "group read-only":
        p.later = lambda: os.chmod(p.group, 0o555)
    elif around == "legacy closed":
        os.chmod(p.legacy_directory, 0)
    elif around == "no group":
        os.rename(p.group, p.group + ".away")
    elif around == "group a file":
        p.later = lambda: (os.rename(p.group, p.group + ".away"), p.write(p.group, b""))
    elif around == "no legacy":
        os.rename(p.legacy_directory, p.legacy_directory + ".away")
    elif around in ("link to the group", "same file"):
        p.later = lambda: linked(p, around)
    elif around == "support folder":
        os.makedirs(os.path.join(p.legacy_directory, ".N_SUPPORT", "_EXTERNAL_DATA"), exist_ok=True)
    return f"legacy {legacy.__name__}{' ' + sides if sides else ''}, group {group.__name__}{', ' + around if around else ''}"


def linked(p, around):
    """Links the legacy place to the group's directory or store."""
    stores.make(p.store, "delete", 2)
    os.rename(p.legacy_directory, p.legacy_directory + ".away")
    if around == "same file":
        os.symlink(p.group, p.legacy_directory)
    else:
        os.mkdir(p.legacy_directory)
        os.symlink(p.store, p.legacy)
    for path in (p.store, p.legacy_directory, p.legacy):
        if p.user is not None:
            os.lchown(path, p.user, p.user)


def poke(p):
    """Does what an old program may do to its place now and then, without changing anything."""
    if not os.path.isfile(p.legacy):
        return  # opening a FIFO would wait for its other end
    try:
        connection = sqlite3.connect(f"file:{p.legacy}?mode=ro", uri=True, timeout=0)
        try:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        finally:
            connection.close()
    except (sqlite3.Error, OSError):
        pass


def run(round):
    r = round.rng
    round.user = 54322 if os.geteuid() == 0 and r.random() < 0.5 else None
    alone = round.number % 2 == 0
    places = [Place(round, n) for n in range(1 if alone else r.randint(2, 10))]
    text = "groups:\n"
    for p in places:
        p.title = prepare(p, round.number // 2 if alone else None)
        round.step(f"group.s{p.number}: {p.title}")
        text += f"  - id: group.s{p.number}\n    directory: {quoted(p.group)}\n    stores:\n      - name: N.sqlite\n"
        text += f"        settle: 200ms\n        legacy: [{quoted(p.legacy)}]\n"
        text += f"        on-conflict: {r.choice(['refuse', 'refuse', 'keep-group', 'keep-legacy'])}\n"
        text += f"        retire: {r.choice(['delete', 'delete', 'archive', 'symlink'])}\n"
    round.title = places[0].title if len(places) == 1 else f"{len(places)} places, user {round.user}"
    agent = round.agent(text, user=round.user)
    if not agent.start():
        round.problem("no-start", agent.tail())
        return
    client = agent.connect()
    for p in places:
        p.later()
        reply = client.ask({"op": "subscribe", "store": f"group.s{p.number}/N.sqlite"})
        p.refused = not (reply or {}).get("ok")
    settled(agent, client)
    poked = [p for p in places if r.random() < 0.3]
    for p in poked:
        poke(p)
    if poked:
        settled(agent, client)
    measure(round, agent, client, places, r.choice([6, 8, 12]))
    if len(places) > 1:
        round.outcome = f"{len(places)} places"


def settled(agent, client):
    """Waits until two seconds pass without output, or 15 s in all."""
    last, since = None, time.monotonic()
    end = since + 15

    def quiet():
        nonlocal last, since
        client.drain()
        now = (agent.lines(), len(client.events))
        if now != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since > 2 or time.monotonic() > end

    wait_until(quiet, 20, 0.1)


def measure(round, agent, client, places, seconds):
    """Measures a window without activity. The agent may repeat earlier attempts at 1 s, 2 s, 4 s, … at most."""
    text, lines, cpu, wakeups = len(agent.text()), agent.lines(), agent.seconds(), agent.wakeups()
    began = time.monotonic()
    client.drain()
    while time.monotonic() - began < seconds:
        client.read(seconds - (time.monotonic() - began))
    said, used, woken = agent.lines() - lines, agent.seconds() - cpu, agent.wakeups() - wakeups
    log, events = agent.text()[text:].decode(errors="replace"), client.since(began)
    report = f"in {seconds} s: {said} lines, {len(events)} events, {used:.2f} s of processor time, {woken} wake-ups"
    round.step(report)
    round.outcome = report

    def whose(p):
        return f"{p.title}; status: {[x for x in client.status()[1] if x.get('store') == f'group.s{p.number}/N.sqlite' and x['type'] == 'legacy']}"

    for p in places:
        mine = [e for e in events if e.get("store") == f"group.s{p.number}/N.sqlite"]
        in_log = sum(f"group.s{p.number}/" in x or f"legacy{p.number}/" in x or f"group{p.number}/" in x for x in log.splitlines())
        if len(mine) > 3:
            round.problem("noise", f"{len(mine)} events in {seconds} s of silence: {whose(p)}; last {mine[-1]}")
        if in_log > 3:
            round.problem("log", f"{in_log} lines in {seconds} s of silence: {whose(p)}; last {log.splitlines()[-1]}")
    if said > 3 * len(places) and not round.problems:
        round.problem("log", f"{report}: {log[-300:]}")
    if used > 0.05 + 0.03 * len(places):
        round.problem("processor", f"{report} of {[p.title for p in places]}")
    if woken > 60 + 20 * len(places):
        round.problem("wakeups", f"{report} of {[p.title for p in places]}")
    if any(requires_reread(e) for e in events):
        round.step(f"told: {events[:3]}")
