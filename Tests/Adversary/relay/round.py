"""One round: a home with its writers, a broker, a publisher, followers, and those who watch the replicas."""

import fcntl
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import digests
from broker import Broker, Proxy
from programs import Role, program
from stores import UTF16_TABLES, new_store

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE = float(os.environ.get("RELAY_PATIENCE", "60"))  # seconds until all must have caught up


class Problem(Exception):
    def __init__(self, kind, detail, promise):
        super().__init__(f"{kind}: {detail} (promised: {promise})")
        self.kind = kind


class Round:
    page_size = encoding = None  # of the home; drawn if there are none

    def __init__(self, groupstore, relay, directory, seed, case, followers=1, words=("schema", "vacuum"), key=True, publish=()):
        self.groupstore, self.relay, self.directory, self.seed = groupstore, relay, directory, seed
        self.case, self.chance, self.stream = case, random.Random(f"{seed}/{case}"), "N-1_x"
        self.words, self.counts, self.tokens = list(words), {}, []
        self.home = os.path.join(directory, "home", "home.sqlite")
        for name in ("home", "run", "snapshots"):
            os.makedirs(os.path.join(directory, name), mode=0o700)
        self.environment = dict(os.environ, XDG_RUNTIME_DIR=os.path.join(directory, "run"), HOME=directory)
        self.key = None
        if key:
            self.key = os.path.join(directory, "key")
            with open(os.path.join(directory, "key"), "wb", opener=lambda p, f: os.open(p, f, 0o600)) as file:
                file.write(os.urandom(24).hex().encode() + b"\n")
        self.roles = []
        self.broker = Broker(directory)
        self.broker.start()
        self.publisher_proxy, self.follower_proxy = Proxy(self.broker.port), Proxy(self.broker.port)
        self.publisher = self.new_publisher("publisher", self.home, self.publisher_proxy.port, publish)
        self.followers = [self.new_follower(f"f{n + 1}") for n in range(followers)]
        self.writers, self.watchers, self.may_supersede, self.took_over = [], [], False, 0

    def count(self, name, number=1):
        self.counts[name] = self.counts.get(name, 0) + number

    def options(self, port):
        return ["--server", f"nats://127.0.0.1:{port}", "--stream", self.stream, "--json"] + (["--key", self.key] if self.key else [])

    def role(self, *arguments):
        self.roles.append(Role(*arguments))
        return self.roles[-1]

    def new_publisher(self, name, store, port, more=()):
        return self.role(name, [self.relay, "publish", store, *self.options(port), "--snapshot-directory", os.path.join(self.directory, "snapshots"), *more],
                    self.environment, self.directory)

    def new_follower(self, name, directory=None):
        group = directory or os.path.join(self.directory, "rep-" + name)
        os.makedirs(group, exist_ok=True)
        role = self.role(name, [self.relay, "follow", group, *self.options(self.follower_proxy.port), "--follower", name], self.environment, self.directory)
        role.replica = os.path.join(group, self.stream + ".sqlite")
        return role

    # The home

    def make_home(self):
        connection = sqlite3.connect(self.home, isolation_level=None)
        connection.execute(f"PRAGMA page_size={self.page_size or self.chance.choice([512, 1024, 4096, 65536])}")
        connection.execute(f"PRAGMA encoding='{self.encoding or self.chance.choice(['UTF-8', 'UTF-8', 'UTF-16le', 'UTF-16be'])}'")
        connection.execute(f"PRAGMA auto_vacuum={self.chance.choice([0, 0, 1, 2])}")
        connection.execute(f"PRAGMA journal_mode={self.chance.choice(['WAL', 'WAL', 'WAL', 'DELETE', 'TRUNCATE'])}")
        for sql in new_store(self.chance) + (UTF16_TABLES if "utf16" in self.words else []):
            connection.execute(sql)
        connection.close()
        code, lines, errors = program([self.groupstore, "history", "enable", self.home, "--json"] + (["--before"] if self.chance.random() < 0.2 else []), self.environment)
        if code:
            raise Problem("enable", f"{code} {lines} {errors}", "history enable")
        self.note()

    def locked(self):
        file = open(os.path.join(self.directory, "lock"), "a")
        fcntl.flock(file, fcntl.LOCK_EX)
        return file

    def note(self):
        connection = digests.opened(self.home)
        with open(os.path.join(self.directory, "states.jsonl"), "a") as file:
            file.write(json.dumps(digests.state(connection)) + "\n")
        connection.close()

    def execute(self, *statements):
        """Commits at home, as a writer does."""
        with self.locked():
            connection = sqlite3.connect(self.home, isolation_level=None, timeout=20)
            connection.execute("BEGIN IMMEDIATE")
            for sql in statements:
                connection.execute(sql)
            connection.execute("COMMIT")
            connection.close()
            self.note()

    def token(self):
        code, lines, errors = program([self.groupstore, "changes", self.home, "--now", "--json"], self.environment)
        if code == 0 and "token" in lines[-1] and not lines[-1].get("outdated"):
            return lines[-1]["token"]
        if lines and (lines[-1].get("error", {}).get("code") == "outdated_history" or lines[-1].get("outdated")):
            program([self.groupstore, "history", "enable", self.home, "--json"], self.environment)
            with self.locked():
                self.note()
            return self.token()
        if code == 75:  # another program keeps it busy: each command of the document says so, and to try again
            return self.token()
        raise Problem("tokens", f"changes --now: {code} {lines} {errors}", "Durable tokens")

    # Processes

    def start_writers(self, count):
        for number in range(count):
            log = open(os.path.join(self.directory, f"writer{number}.log"), "ab")
            self.writers.append(subprocess.Popen(
                [sys.executable, os.path.join(HERE, "writer.py"), self.directory, f"{self.seed}/{number}", self.groupstore, *self.words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))

    def stop_writers(self):
        open(os.path.join(self.directory, "stop"), "w").close()
        for each in self.writers:
            if each.wait(60):
                with open(each.args and os.path.join(self.directory, f"writer{self.writers.index(each)}.log")) as file:
                    raise Problem("tester", f"a writer failed: {file.read()[-600:]}", "nothing; this is the tester's own fault")
        self.writers = []

    def watch(self, follower):
        output = os.path.join(self.directory, follower.name + ".seen")
        follower.seen = output
        self.watchers.append(subprocess.Popen(
            [sys.executable, os.path.join(HERE, "watcher.py"), follower.replica, output, os.path.join(self.directory, "unwatch")],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(output + ".log", "ab"), start_new_session=True))

    def stop_watchers(self):
        open(os.path.join(self.directory, "unwatch"), "w").close()
        for each in self.watchers:
            if each.wait(30):
                raise Problem("tester", "a watcher failed", "nothing; this is the tester's own fault")
        self.watchers = []

    def start(self, writers=2):
        self.make_home()
        self.publisher.start()
        for follower in self.followers:
            follower.start()
            self.watch(follower)
        self.start_writers(writers)

    def heal(self):
        self.broker.signal(signal.SIGCONT)
        self.broker.start()
        for proxy in (self.publisher_proxy, self.follower_proxy):
            if proxy.mode in ("refuse", "stall", "truncate", "flip", "delay"):
                proxy.mode = "pass"

    def look_after(self):
        """Starts what was killed; ends the round if something ended that shouldn't have."""
        for role in [self.publisher, *self.followers]:
            code = role.unexpected_end()
            if code is None:
                role.start()
            elif code == 73 and role is self.publisher and self.may_supersede:
                self.take_over()
            elif code == 65 and self.case != "schema" and "outdated_history" in str(role.last_words()):
                self.count("stops after a schema change")  # the case `schema` takes it for a problem; the others go on
                self.token()
                role.start()
            else:
                raise Problem("ended", f"{role.name} with {code}: {role.last_words()}", "A broker that is away costs lag and nothing else")

    def take_over(self, role=None):
        role = role or self.publisher
        text = json.dumps([run for run in role.now.lines if run.get("type") in ("superseded", "summary", "error")])
        tokens = re.findall(r"h1\.[0-9a-f]+\.[0-9]+\.[0-9a-f]+", text)
        if not tokens:
            raise Problem("no token", text[-600:], "The error names the stream's last token")
        role.extra = ["--take-over", tokens[-1]]
        self.took_over += 1
        self.count("take-overs")
        role.start()

    def close(self):
        for role in self.roles:
            if role.alive:
                role.now.kill()
        for each in self.writers + self.watchers:
            each.kill()
            each.wait()
        for each in (self.publisher_proxy, self.follower_proxy):
            each.close()
        self.broker.signal(signal.SIGCONT)
        self.broker.kill()

    def keep(self, directory):
        shutil.copytree(self.directory, directory, dirs_exist_ok=True, symlinks=True)
