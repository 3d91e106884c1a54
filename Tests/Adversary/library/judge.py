"""The oracle: which rows must exist, and who had a store open inside another's access."""

import os
import sqlite3



def rows_of(path):
    """Returns the texts in one database; recovers its log as any program would."""
    connection = sqlite3.connect(path, timeout=30)
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    try:
        return [row[0] for row in connection.execute("SELECT text FROM entry")]
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return []
        raise
    finally:
        connection.close()


def databases(*directories):
    """Returns databases with a name of their own, without the unfinished copies of killed actors."""
    found = []
    for directory in directories:
        for place, below, names in os.walk(directory):
            below[:] = [each for each in below if each != ".groupstore"]
            for name in names:
                path = os.path.join(place, name)
                if name.startswith(".fresh-") or not os.path.isfile(path):
                    continue
                with open(path, "rb") as file:
                    if file.read(15) == b"SQLite format 3":
                        found.append(path)
    return found


def judge_rows(round, acknowledged, *directories):
    """Checks that every acknowledged row is in a named store; none is twice in one store."""
    there = {}
    for path in databases(*directories):
        try:
            connection = sqlite3.connect(path, timeout=30)
            with_fault = connection.execute("PRAGMA integrity_check").fetchone()[0]
            connection.close()
            if with_fault != "ok":
                round.problem("corrupt", f"{path}: {with_fault}")
            for text in rows_of(path):
                there.setdefault(text, []).append(path)
        except sqlite3.DatabaseError as error:
            round.problem("unreadable", f"{path}: {error}")
    lost = [text for text in acknowledged if text not in there]
    if lost:
        round.problem("row-lost", f"{len(lost)} of {len(acknowledged)} acknowledged rows: {sorted(lost)[:5]}")
    for text, places in there.items():
        if len(places) != len(set(places)):
            round.problem("row-twice", f"{text} in {places}")
            break
    return there


def times_open(actor, end):
    """Returns (key, path, from, to) for each time that a presentation had its store open."""
    last = actor.killed or end
    opened, found = {}, []
    for event in actor.events:
        key = event.get("key")
        if event.get("event") == "opening":
            opened[key] = (event["path"], event["at"])
        elif event.get("event") in ("closed", "unopened") and key in opened:
            path, start = opened.pop(key)
            found.append((key, path, start, event["at"]))
    return found + [(key, path, start, last) for key, (path, start) in opened.items()]


def writes(actor, end):
    """Returns (request, paths, from, to) for each granted coordinated write that asks presenters to let go."""
    last = actor.killed or end
    left = {event["id"]: event["at"] for event in actor.events if event.get("event") == "leaving"}
    found = []
    for event in actor.events:
        if event.get("event") != "granted" or event["id"] not in actor.asked:
            continue
        request = actor.asked[event["id"]][0]
        intents = request.get("intents", [])
        paths = [
            path for intent, path in zip(intents, event.get("paths", []))
            if intent["access"] == "write" and "metadata" not in (intent.get("options") or [])
        ]
        if paths:
            found.append((request, paths, event["at"], left.get(event["id"], last)))
    return found


def judge_times(round, end):
    """Checks that nobody has a store open inside another's write access, and no two write at once."""
    accesses = [(actor, *access) for actor in round.actors for access in writes(actor, end)]
    for presenter in round.actors:
        for key, path, start, stop in times_open(presenter, end):
            for actor, request, paths, entered, left in accesses:
                own = actor is presenter and request.get("presenter") == key
                if not own and path in paths and start < left and entered < stop:
                    round.problem(
                        "open-inside-write",
                        f"{presenter.name}/{key} has {path!r} open from {start:.4f} to {stop:.4f}, {actor.name} "
                        f"#{request['id']} {request.get('action')} writes from {entered:.4f} to {left:.4f}")
                    return
    for first in accesses:
        for second in accesses:
            if first[1]["id"] < second[1]["id"] and set(first[2]) & set(second[2]) \
                    and first[3] < second[4] and second[3] < first[4] and not related(first[1], second[1]):
                round.problem("two-writers", f"{first[1]} and {second[1]}: {first[3:]} {second[3:]}")
                return


def related(first, second):
    """Returns whether two requests need not wait for each other: equal purposes, or the same coordinator or presenter."""
    same = ("purpose", "presenter", "coordinator")
    return any(first.get(each) is not None and first.get(each) == second.get(each) for each in same)


def judge_callbacks(round):
    for actor in round.actors:
        for event in actor.events:
            if event.get("event") == "trouble":
                round.problem("callbacks", f"{actor.name}/{event.get('key')}: {event.get('what')}")
                break
        for event in actor.events:
            if event.get("event") == "unreadable":
                round.problem("exception", f"{actor.name}: {event.get('message')}")


def judge_lives(round):
    """Checks that only killed processes have died."""
    for actor in round.actors:
        code = actor.process.poll()
        if actor.killed is None and code not in (None, 0):
            with open(round.path(actor.name + ".err"), errors="replace") as file:
                round.problem("crash", f"{actor.name} ended with {code}: {file.read()[-500:]}")
