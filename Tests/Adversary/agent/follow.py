"""States what a subscriber must receive, whatever has happened to the path of its store."""

import os
import sqlite3
import stat
import time

import store as stores
from program import LATE, SOON, acting_as, wait_until
from wire import requires_reread, store_member


def seen_by(user, path):
    """Returns what the path leads to for that user: ("store", dev, ino), or ("absent" or "closed" or "dim" or "odd",). A
    store is dim if that user may go through its directory but not read it: the agent can't watch it, and need not."""
    try:
        with acting_as(user):
            found = os.lstat(path)
            if not stat.S_ISREG(found.st_mode):
                return ("odd",)
            os.close(os.open(path, os.O_RDONLY | os.O_NOFOLLOW))
            if not os.access(os.path.dirname(path), os.R_OK, effective_ids=True):
                return ("dim",)
            return ("store", found.st_dev, found.st_ino)
    except PermissionError:
        return ("closed",)
    except OSError:
        return ("absent",)


class Follower:
    """A subscriber to one store, and a writer that commits marked rows wherever the store's path leads."""

    def __init__(self, round, agent, group, name, directory, user=None):
        self.round, self.agent, self.user, self.r = round, agent, user, round.rng
        self.store = os.fsencode(group) + b"/" + name
        self.path = os.path.join(os.fsencode(directory), name)
        self.marks, self.client, self.soon = 0, agent.connect(), SOON
        self.failed, self.kept = False, None
        round.closers.append(self.close_connection)
        reply = self.client.ask({"op": "subscribe", **store_member(self.store)})
        if not reply or not reply.get("ok"):
            self.fail("refused", f"subscribe is answered {reply}")
        self.seen, self.moment = seen_by(user, self.path), time.monotonic()
        self.known = self.seen if self.seen[0] == "store" else None  # the subscriber's last reported store

    def fail(self, kind, text):
        self.failed = True
        steps = "; ".join(s[9:] for s in self.round.steps[-8:] if not s[9:].startswith("PROBLEM"))
        self.round.problem(kind, f"{text} | {steps} | {self.path!r}")

    def begin(self):
        """Prepares for a change."""
        self.client.drain()
        self.moment = time.monotonic()

    def expect_event(self, moment, what, client=None, accept=requires_reread):
        """Waits until the subscriber gets an event for a change made after the moment."""
        client = client or self.client
        delay = client.wait_event(accept, moment, LATE)
        if delay is None:
            row = self.status()
            last = self.client.events[-1][1] if self.client.events else None
            self.fail("missed", f"{what}: nothing in {LATE:.0f} s; status: {row and row.get('state')}; last event: {last}")
        elif delay > self.soon:
            self.fail("late", f"{what}: received after {delay:.1f} s")
        else:
            return True
        return False

    def status(self):
        return self.agent.connect().status(self.store)

    def judge(self):
        """Checks where the path leads now, and expects what the documents promise."""
        before, self.seen = self.seen, seen_by(self.user, self.path)
        self.round.step(f"now {self.seen[0]}")
        if self.seen[0] in ("closed", "dim"):
            self.expect_following_or_status()
            return
        if self.seen[0] == "store":
            changed = self.seen != self.known or self.was_reported_missing()
        else:
            changed = self.known is not None and not self.was_reported_missing()
        if changed and not self.expect_event(self.moment, f"{before[0]} became {'another ' if before[0] == self.seen[0] else ''}{self.seen[0]}"):
            return
        if self.seen[0] != "store":
            self.known = None
            self.expect_not_following()
            if self.failed or self.seen[0] != "absent" or not os.path.isdir(os.path.dirname(self.path)):
                return
        self.commits()

    def was_reported_missing(self):
        """Returns whether the subscriber's last event before this reported that there is no readable store."""
        events = [m for t, m in self.client.events if t < self.moment and requires_reread(m)]
        return bool(events) and events[-1].get("reason") in ("vanished", "unreadable")

    def expect_following_or_status(self):
        """Without a right, the agent may have kept what it needs and report commits; otherwise it says that it can't."""
        if not wait_until(lambda: (self.status() or {}).get("state") != "following", 3, 0.1):
            if not os.path.isfile(self.path):
                return
            self.client.drain()
            self.marks += 1
            # Opening the store may already show the agent that it can't read it, which it then reports.
            before = time.monotonic()
            stores.commit(self.path, f"mark {self.marks}")
            self.give_files_back()
            delay = self.client.wait_event(requires_reread, before, LATE)
            if delay is None:
                self.fail("status-lies", f"status says following, and a commit isn't reported in {LATE:.0f} s; {self.seen[0]}")
        elif self.known is not None and not self.was_reported_missing():
            self.expect_event(self.moment, f"a store became {self.seen[0]}, and is no longer reported as followed")
            self.known = None

    def give_files_back(self):
        if self.user is not None:
            for side in stores.SIDES:
                if os.path.lexists(self.path + os.fsencode(side)):
                    os.lchown(self.path + os.fsencode(side), self.user, self.user)

    def commits_by_the_kept_connection(self):
        """Commits through a connection that has been open all along; returns False if the commit wasn't reported."""
        if self.kept[1] != seen_by(None, self.path):
            self.close_connection()
            return True
        self.client.drain()
        moment = time.monotonic()
        try:
            self.kept[0].execute("INSERT INTO mark (text) VALUES ('kept')")
        except sqlite3.Error:  # SQLite resolved the links when it opened the store, and no longer finds its journal's place
            self.close_connection()
            return True
        return self.expect_event(moment, "a commit by a program that had it open")

    def close_connection(self):
        if self.kept:
            self.kept[0].close()
            self.kept = None

    def expect_not_following(self):
        began = time.monotonic()

        def is_not_following():
            row = self.status()
            return row is None or row.get("state") != "following"

        if not wait_until(is_not_following, LATE, 0.1):
            self.fail("status-lies", f"status says following, and the path leads to nothing that could be: {self.seen[0]}")
        elif time.monotonic() - began > self.soon:
            self.fail("late-status", f"status said following for {time.monotonic() - began:.1f} s")

    def commits(self):
        """Commits two marked rows; the latest subscriber must get events for them, too."""
        others = []
        if self.r.random() < 0.5:
            other = self.agent.connect()
            reply = other.ask({"op": "subscribe", **store_member(self.store)})
            if reply and reply.get("ok"):
                others.append(other)
            else:
                self.fail("refused", f"a subscription to what can be followed is answered {reply}")
                return
        mode = None if self.kept else self.r.choice([None, None, "wal", "delete", "truncate", "persist"])
        if self.kept and not self.commits_by_the_kept_connection():
            return
        for n in range(2):
            self.marks += 1
            listening = [self.client, *others]
            before, _ = stores.commit(self.path, f"mark {self.marks}", mode if n == 0 else None, lambda: [c.drain() for c in listening])
            self.give_files_back()
            for client in listening:
                if not self.expect_event(before, f"commit {n + 1} in mode {mode or 'as before'}", client):
                    return
        for other in others:
            other.close()
        if not self.kept and self.r.random() < 0.25:
            self.kept = stores.connect(self.path), seen_by(None, self.path)
            self.kept[0].execute("SELECT count(*) FROM mark").fetchall()
        self.seen = seen_by(self.user, self.path)
        if self.seen[0] == "store":
            self.known = self.seen
            row = wait_until(lambda: (self.status() or {}).get("state") == "following", self.soon, 0.1)
            if not row:
                self.fail("given-up", f"a store whose commits are reported is not reported as followed: {self.status()}")
        if self.client.faults:
            self.fail("wire", self.client.faults[0])
