"""Listeners at an agent, and views: each knows a store by its listener's lines alone, and must come to know all of it."""

import json
import os
import sqlite3
import threading
import time

from process import Agent
from program import PATIENCE, Line, Listener
from store import TABLES, connect
from wire import Closed, store_member

GROUP = "group.together"


def start_agent(round, name, directory, legacy=None, retire="delete"):
    """Starts an agent with a socket, a home and a configuration of its own; returns None if it doesn't start."""
    text = f"groups:\n  - id: {GROUP}\n    directory: {json.dumps(directory)}\n"
    if legacy:
        text += f"    stores:\n      - name: s.db\n        legacy: [{json.dumps(legacy)}]\n        retire: {retire}\n        settle: 200ms\n"
    place = os.path.join(os.path.dirname(round.directory), name)
    os.mkdir(place)
    agent = Agent(round, text, directory=place)
    if not agent.start():
        round.problem("no-start", agent.tail())
        return None
    return agent


class Subscription(Listener):
    """A subscriber at an agent, which connects again when the agent is back, and resumes after its last event."""

    def __init__(self, round, agent, name="s.db"):
        super().__init__(round)
        self.agent, self.store, self.name = agent, f"{GROUP}/{name}", os.path.basename(agent.directory)
        self.token, self.over = None, False
        self.subscribe()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        round.closers.append(self.close)

    def subscribe(self):
        self.client = self.agent.connect()
        since = {"since": self.token} if self.token else {}
        reply = self.client.ask({"op": "subscribe", **store_member(self.store), **since})
        if not reply or not reply.get("ok"):
            self.round.problem("refused", f"{self.name}: subscribe is answered {reply}")
            return
        self.token = self.token or reply["token"]
        self.round.step(f"{self.name}: subscribed since {since}")

    def read(self):
        while not self.over:
            self.client.read(0.2)
            for moment, message in self.client.events:
                self.token = message.get("token", self.token)
                line = Line(json.dumps(message).encode(), moment)
                self.round.step(f"{self.name}: {line.text}", moment)
                self.take(line)
            self.client.events.clear()
            while self.client.closed and not self.over:
                try:
                    self.subscribe()
                except (OSError, Closed):
                    time.sleep(0.05)

    def close(self):
        self.over = True
        self.reader.join(5)
        self.client.close()


def everything(path):
    """Returns what each table holds, with SQL; nothing if there is no store. Makes no store."""
    if not os.path.exists(path):
        return {}
    connection = connect(os.path.realpath(path))
    try:
        return {table: digest(connection, table) for table in TABLES}
    finally:
        connection.close()


def digest(connection, table):
    return hash(tuple(connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()))


class View:
    """Reads a store when a line says so, and only the tables that the line names, if it names all."""

    def __init__(self, round, listener, path, quiet):
        self.round, self.listener, self.path, self.quiet = round, listener, path, quiet
        self.known, self.index, self.over, self.condition = {}, 0, False, threading.Condition()
        self.last = None
        self.read(None)
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()
        round.closers.append(self.close)

    def replace(self, listener):
        """Goes on with another listener, which keeps the lines."""
        self.listener = listener

    def follow(self):
        while not self.over:
            with self.listener.changed:
                if self.index >= len(self.listener.lines):
                    self.listener.changed.wait(0.2)
                lines, self.index = self.listener.lines[self.index :], len(self.listener.lines)
            wanted = set()
            for line in lines:
                if not line.news or (isinstance(line.data.get("store"), str) and os.path.isabs(line.data["store"])
                                     and line.data["store"] != self.path):  # fmt: skip
                    continue
                self.last = line
                wanted = None if wanted is None or line.named is None else wanted | line.named
            if wanted is None or wanted:
                self.read(wanted)

    def read(self, tables):
        """Reads tables, or all. The next event says so if a store that can't be read comes to be readable."""
        with self.quiet:
            try:
                if not os.path.exists(self.path):
                    found = {}
                else:
                    connection = connect(os.path.realpath(self.path))
                    try:
                        names = TABLES if tables is None else [each for each in TABLES if each in tables]
                        found = dict(self.known) if tables is not None else {}
                        found |= {table: digest(connection, table) for table in names}
                    finally:
                        connection.close()
            except sqlite3.Error as error:
                self.round.step(f"{self.path}: view: {error}")
                found = {}
        with self.condition:
            self.known = found
            self.condition.notify_all()

    def knows(self, truth, seconds=PATIENCE):
        with self.condition:
            return self.condition.wait_for(lambda: self.known == truth, seconds)

    def close(self):
        self.over = True
        self.thread.join(5)
