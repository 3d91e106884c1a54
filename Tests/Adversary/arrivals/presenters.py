"""Presenters that say yes, say no, say nothing, answer late, lie, or die; and what was asked of them.

A presenter is a connection of its own, and may have the store open in a holder. `Presenter.tend` is called often; it
answers what is due and never waits. What is counted: each `relinquish` must be followed by one `reacquire`, as long as the
connection lasts, and nobody is asked over and over again.
"""
import time

from agent import GROUPS, Connection
from holder import Holder

MOODS = ["polite", "polite", "refuses", "mute", "late", "too late", "liar", "dies"]


class Presenter:
    def __init__(self, world, place, mood, open_now):
        self.world, self.place, self.mood = world, place, mood
        self.asked, self.reacquired, self.times = 0, 0, []
        self.due = []              # answers to be sent: (when, message)
        self.holder = Holder(world.user)
        self.is_open = False
        self.let_go = False        # between `relinquished` and `reacquire`
        self.connection = None
        self.connected = 0
        self.register()
        if open_now:
            self.open()

    def register(self):
        if self.connection:
            self.connection.close()
        self.asked = self.reacquired = 0
        self.due, self.let_go = [], False
        try:
            self.connection = Connection(self.world.agent.socket)
        except OSError:
            self.connection = None
            return
        self.connected += 1
        self.connection.send(op="present", store=GROUPS[self.place.kind] + "/" + self.place.name,
                             pid=self.holder.process.pid, program="presenter")

    def open(self):
        """Opens the store where it is now, as an app would: never makes one."""
        path = self.place.where()
        if path == self.place.legacy and not self.place.arrived:
            return   # whoever closes half a set last would checkpoint it, and remove the log that is still coming
        if path and not self.is_open:
            self.is_open = self.holder.call("open", path=path)
            if not self.is_open:
                self.holder.call("close")

    def close(self):
        if self.is_open:
            self.holder.call("close")
            self.is_open = False

    def becomes(self, mood):
        self.mood = mood
        if mood == "polite":
            self.due = [(min(when, time.monotonic() + 0.5), message) for when, message in self.due]
            if not self.connection or self.connection.closed:
                self.register()

    def tend(self):
        if self.connection is None or self.connection.closed:
            if self.mood == "polite" and self.world.agent.process:
                self.register()
            return
        for line in self.connection.read():
            self.take(line)
            if self.connection.closed:
                return
        now = time.monotonic()
        for when, message in [d for d in self.due if d[0] <= now]:
            self.due.remove((when, message))
            self.connection.send(**message)
        if self.connection.lines.ended:
            self.connection.close()

    def take(self, line):
        kind, now = line.get("type"), time.monotonic()
        if line.get("ok") and line.get("waits_for"):
            self.let_go = True   # a `reacquire` will come for these
            self.asked += len(line["waits_for"])
        if kind == "save":
            self.due.append((now, {"op": "saved", "claim": line["claim"]}))
        elif kind == "accommodate_deletion":
            self.due.append((now, {"op": "accommodated", "claim": line["claim"]}))
        elif kind == "relinquish":
            self.asked += 1
            self.times.append(now)
            self.world.count("relinquish: " + self.mood)
            message = {"op": "relinquished", "claim": line["claim"]}
            if self.mood == "dies":
                self.close()
                self.connection.close()
            elif self.mood == "refuses":
                self.due.append((now, dict(message, error="a dialog is open")))
            elif self.mood != "mute":
                if self.mood != "liar":
                    self.close()
                self.let_go = True
                delay = {"late": 1.5, "too late": 5}.get(self.mood, 0)
                self.due.append((now + delay, message))
        elif kind == "reacquire":
            self.reacquired += 1
            if self.let_go or not self.is_open:
                self.let_go = False
                if self.world.rng.random() < 0.7:
                    self.open()
        elif kind == "did_move":
            self.world.count("did_move")

    def end(self):
        self.holder.end(kill=True)
        if self.connection:
            self.connection.close()
