"""What must be true at the end of a round, and of all that was seen meanwhile."""

import json
import os
import sqlite3
import time

import digests
import round as rounds
from programs import program
from round import Problem
from wire import number_of

STATES = "Every state that a replica shows is one that the home had at a commit, in order"


def end(self, followers=None):
    """Ends the writing, heals everything, waits until all have caught up, and compares."""
    self.stop_writers()
    self.heal()
    self.execute("UPDATE tick SET n=n+1")
    followers = self.followers if followers is None else followers
    for follower in followers:
        caught_up(self, follower)
    for follower in followers:
        equal(self, follower)
    version = self.chance.randrange(1 << 30)
    with self.locked():
        connection = sqlite3.connect(self.home, isolation_level=None, timeout=20)
        connection.execute(f"PRAGMA user_version={version}")
        connection.close()
        self.note()
    limit = time.monotonic() + 20
    for follower in followers:
        while digests.read(follower.replica)["user_version"] != f"({version},)":
            if time.monotonic() > limit:
                raise Problem("user_version", f"{follower.name} has {digests.read(follower.replica)['user_version']}, the home {version}",
                              "A batch whose tokens are the same says only what no change says")
            time.sleep(0.1)
        tokens(self, follower)
    self.stop_watchers()
    for follower in followers:
        seen(self, follower)
    for role in [self.publisher, *followers]:
        code = role.now.stop()
        if code != 0:
            raise Problem("exit", f"{role.name} ended with {code} after SIGTERM: {role.last_words()}", "SIGTERM ends them with exit code 0")
        if not role.now.lines or role.now.lines[-1].get("outcome") != "stopped":
            raise Problem("summary", f"{role.name}: {role.last_words()}", "summary is the last line: outcome is stopped")


def caught_up(self, follower, patience=None):
    """Waits until a follower says that it has the home's last change."""
    start, want = time.monotonic(), None
    limit = start + (patience or rounds.PATIENCE)
    while time.monotonic() < limit:
        self.look_after()
        want = self.token()
        said = follower.now.of("caught_up")
        if said and said[-1]["upto"] == want:
            took = int(time.monotonic() - start)
            self.counts["seconds to catch up"] = self.counts.get("seconds to catch up", 0) + took
            return
        time.sleep(0.2)
    for role in (self.publisher, follower):
        role.keep_stacks()
    raise Problem("caught_up", f"{follower.name} doesn't say it of {want} in time; its last words: {follower.last_words()}; "
                  f"the publisher's: {self.publisher.last_words()}", "it catches up; caught_up when nothing is left to send or apply")


def reached(self, follower):
    """Waits until a follower has what the home has now, although writers go on."""
    want, limit = number_of(self.token()), time.monotonic() + rounds.PATIENCE
    while time.monotonic() < limit:
        self.look_after()
        said = follower.now.of("caught_up") + follower.now.of("applied")
        if any(number_of(line["upto"]) >= want for line in said):
            return
        time.sleep(0.1)
    raise Problem("caught_up", f"{follower.name} doesn't reach {want}; its last words: {follower.last_words()}; "
                  f"the publisher's: {self.publisher.last_words()}", "it catches up")


def history(path):
    connection = digests.opened(path)
    connection.execute("BEGIN")
    (trimmed,) = connection.execute("SELECT trimmed FROM GS_HISTORY").fetchone()
    rows = {row[0]: row for row in connection.execute("SELECT number, table_id, operation, key, columns, nonce, time, author FROM GS_CHANGE")}
    of_tables = connection.execute("SELECT id, name, key_columns, columns, installed FROM GS_TABLE ORDER BY id").fetchall()
    identifier = connection.execute("SELECT identifier, version FROM GS_HISTORY").fetchall()
    connection.close()
    return trimmed, rows, of_tables, identifier


def sound(self):
    """Checks the replicas' indexes, unless the home's are damaged too: SQLite itself damages an index on the text of a BLOB that a program binds."""
    damaged = {}
    for path in filter(os.path.exists, [self.home] + [follower.replica for follower in self.followers]):
        connection = digests.opened(path)
        connection.execute("PRAGMA ignore_check_constraints=ON")
        damaged[path] = [row for (row,) in connection.execute("PRAGMA integrity_check(20)") if row != b"ok" and b" value in " not in row]
        connection.close()
    if not damaged[self.home] and any(damaged.values()):
        raise Problem("damaged", f"{damaged}", "A replica has the home's rows, schema and history")


def equal(self, follower):
    """Compares the replica with its home: each table, each number, the history."""
    found = digests.difference(digests.read(self.home), digests.read(follower.replica))
    if found:
        raise Problem("unequal", f"{follower.name} says caught_up, but {found}", "The copy then has the state of the home's commit upto")
    (trimmed, mine, tables, identifier), (other_trimmed, others, other_tables, other_identifier) = history(self.home), history(follower.replica)
    if tables != other_tables or identifier != other_identifier:
        raise Problem("history", f"GS_TABLE or GS_HISTORY: {tables} {identifier}; {follower.name}: {other_tables} {other_identifier}", "A replica has the home's rows, schema and history")
    start = max(trimmed, other_trimmed)
    for number in sorted(n for n in mine.keys() | others.keys() if n > start):
        if mine.get(number) != others.get(number):
            raise Problem("history", f"row {number}: {mine.get(number)}, {follower.name}: {others.get(number)}", "A replica has the home's rows, schema and history")
    connection = digests.opened(follower.replica)
    check = connection.execute("PRAGMA integrity_check(5)").fetchall()
    connection.close()
    home = digests.opened(self.home)
    if check != [(b"ok",)] and check != home.execute("PRAGMA integrity_check(5)").fetchall():
        raise Problem("corrupt", f"{follower.name}: {check}", "never a wrong row")
    home.close()
    self.count("replicas equal")


def changes(self, path, token):
    code, lines, _ = program([self.groupstore, "changes", path, "--since", token, "--json", "--limit", "100000"], self.environment)
    kept = [{name: value for name, value in line.items() if name not in ("transaction",)} for line in lines]
    return code, kept


def tokens(self, follower):
    """Compares what tokens of the home give on the replica."""
    for token in self.chance.sample(self.tokens, min(3, len(self.tokens))) + [self.token()]:
        one, other = changes(self, self.home, token), changes(self, follower.replica, token)
        if one != other and not (self.words and "purge" in self.words and one[1][0].get("type") == "reset"):
            different = [pair for pair in zip(one[1], other[1]) if pair[0] != pair[1]][:1]
            raise Problem("token", f"since {token}: {one[0]}, {len(one[1])} lines; {follower.name}: {other[0]}, {len(other[1])} lines; {str(different)[:400]}",
                          "Tokens of the home are valid on it; durable tokens hold on every replica")
        self.count("tokens")


def seen(self, follower):
    """Compares each state that the replica showed with the home's."""
    places, at_token = {}, {}
    with open(self.directory + "/states.jsonl") as file:
        states = [json.loads(line) for line in file]
    for place, each in enumerate(states):
        places.setdefault(each["digest"], []).append(place)
        at_token.setdefault(each["last"], set()).add(each["digest"])
    self.count("home states", len(states))
    resets = follower.count("reset") + self.took_over
    position, back = 0, 0
    with open(follower.seen) as file:
        shown = [json.loads(line) for line in file]
    for each in shown:
        if "error" in each:
            raise Problem("unreadable", f"{follower.name}: {each['error']}", STATES)
        found = places.get(each["digest"])
        if not found:
            near = max(states, key=lambda s: sum(s["parts"].get(n) == d for n, d in each["parts"].items()))
            wrong = sorted(n for n in near["parts"].keys() | each["parts"].keys() if near["parts"].get(n) != each["parts"].get(n))
            raise Problem("never a state", f"{follower.name} showed at change {each['last']} a state that the home never had; "
                          f"nearest: the home's at {near['last']}, where {wrong} differ", STATES)
        if each["last"] in at_token and each["digest"] not in at_token[each["last"]]:
            raise Problem("another state's token", f"{follower.name} at {each['last']} shows what the home had at {states[found[0]]['last']}", STATES)
        later = next((place for place in found if place >= position), None)
        if later is None:
            back += 1
            if back > resets:
                raise Problem("went back", f"{follower.name} from {states[position]['last']} to {each['last']} with {resets} resets", STATES)
            later = found[-1]
        position = later
    self.count("replica states", len(shown))
    self.count("resets", follower.count("reset"))
    applied = None
    for run in follower.runs:
        for line in run.lines:
            if line.get("type") == "not JSON":
                raise Problem("not JSON", line["line"], "--json prints one object a line")
            if line.get("type") == "reset":
                applied = None
            if line.get("type") == "applied":
                number = number_of(line["upto"])
                if applied is not None and number < applied and not self.took_over:
                    raise Problem("applied", f"{follower.name} applied {line} after {applied}", STATES)
                applied = number
