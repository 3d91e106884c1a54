"""What a run consists of: the home and its writers, the brokers, the links, the relay's programs, and who watches the replica."""

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import oracle
from broker import Proxy
from control import ALLOWED, STOP, UNWATCH, UNWATCHED, Control
from memory import Memory
from nodes import Brokers
from places import may_have

HERE = os.path.dirname(os.path.abspath(__file__))


class Failure(Exception):
    """The relay broke a promise."""


class Program:
    """A publisher or a follower over its runs. It writes its lines to a file."""

    def __init__(self, name, words, variables, directory):
        self.name, self.words, self.variables = name, words, variables
        self.out, self.err = os.path.join(directory, name + ".out"), os.path.join(directory, name + ".err")
        self.process, self.began, self.started, self.killed = None, 0, 0, False

    @property
    def alive(self):
        return self.process is not None and self.process.poll() is None

    def start(self, *more):
        if self.alive:
            return
        with open(self.out, "ab") as out, open(self.err, "ab") as err:
            self.began, self.started, self.killed = out.tell(), time.monotonic(), False
            self.process = subprocess.Popen(self.words + list(more), stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self.variables,
                                            start_new_session=True)

    def kill(self):
        self.killed = True
        self.process.kill()
        self.process.wait()

    def stop(self, seconds=30):
        """Sends SIGTERM, and returns the exit code."""
        self.killed = True
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} doesn't end after SIGTERM")

    def lines(self):
        """Returns what this run has written."""
        with open(self.out, "rb") as file:
            file.seek(self.began)
            return [json.loads(line) for line in file if line.endswith(b"\n")]

    def last_words(self):
        return json.dumps(self.lines()[-4:])[-1500:]


class Hosts:
    def __init__(self, options, directory):
        self.options, self.directory, self.chance = options, directory, random.Random(options.seed)
        self.stream, self.counts = "Notes", {}
        self.home, self.group = os.path.join(directory, "home", "Notes.sqlite"), os.path.join(directory, "group")
        self.replica = os.path.join(self.group, "Notes.sqlite")
        for name in ("home", "group", "run", "second"):
            os.makedirs(os.path.join(directory, name), mode=0o700)
        self.control, self.log, self.memory = Control(directory), oracle.Log(directory), Memory()
        self.key = os.path.join(directory, "key")
        with open(self.key, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(os.urandom(24).hex().encode() + b"\n")
        self.brokers = Brokers(options.broker, directory, 3 if options.cluster else 1)
        self.links = {side: [Proxy(node.port, node.host) for node in self.brokers.nodes] for side in ("publisher", "follower", "second")}
        publish = ["publish", self.home, "--max-bytes", str(options.max_bytes)]
        self.publisher = self.program("publisher", publish)
        self.second = self.program("second", [*publish, "--snapshot-directory", os.path.join(directory, "second")])
        self.follower = self.program("follower", ["follow", self.group, "--follower", "other"])
        self.writers, self.watcher = [], None
        self.limit, self.paced = 0, time.monotonic()

    def count(self, name, number=1):
        self.counts[name] = self.counts.get(name, 0) + number

    def program(self, name, words):
        servers = [word for proxy in self.links[name] for word in ("--server", f"nats://127.0.0.1:{proxy.port}")]
        run = os.path.join(self.directory, "second" if name == "second" else "run")
        variables = dict(os.environ, XDG_RUNTIME_DIR=run, XDG_CACHE_HOME=os.path.join(run, "cache"), GROUPSTORE_SOCKET="/nonexistent/agent.sock")
        return Program(name, [self.options.relay, *words, *servers, "--stream", self.stream, "--key", self.key, "--json"], variables, self.directory)

    def groupstore(self, *words):
        done = subprocess.run([self.options.groupstore, *words, "--json"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise Failure(f"groupstore {' '.join(words)}: {done.returncode} {done.stdout[-500:]} {done.stderr[-500:]}")

    def enable(self):
        self.groupstore("history", "enable", self.home)

    # The home

    def make_home(self):
        connection = sqlite3.connect(self.home, isolation_level=None)
        connection.executescript(oracle.SCHEMA)
        connection.executemany("INSERT INTO Archive VALUES (?, ?)", [(number, os.urandom(60)) for number in range(1, self.options.archive + 1)])
        connection.close()
        connection = oracle.connect(self.home)
        commit = oracle.Commit(connection, self.log)
        commit.change_schema([])
        commit.finish()
        connection.close()
        self.enable()

    def commit(self, statements):
        """Makes a commit that changes the schema."""
        connection = oracle.connect(self.home)
        try:
            commit = oracle.Commit(connection, self.log)
            commit.change_schema(statements)
            commit.finish()
        finally:
            connection.close()

    # Processes

    def start(self):
        self.make_home()
        self.brokers.start()
        self.brokers.await_ready()
        self.publisher.start()
        self.follower.start()
        self.start_watcher()
        threading.Thread(target=self.pace, daemon=True).start()
        for index in range(self.options.writers):
            with open(os.path.join(self.directory, f"writer{index}.err"), "ab") as errors:
                self.writers.append(subprocess.Popen([sys.executable, os.path.join(HERE, "commits.py"), self.directory, self.home, str(index),
                                                      str(self.options.seed)], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors))

    def start_watcher(self):
        self.watched = os.path.join(self.directory, "watcher.out")
        with open(self.watched, "ab") as out:
            self.watcher = subprocess.Popen([sys.executable, os.path.join(HERE, "states.py"), self.directory, self.replica],
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def unwatch(self):
        """Lets nobody look at the replica, which isn't the home's any more."""
        self.control[UNWATCH] = 1
        end = time.monotonic() + 60
        while not self.control[UNWATCHED]:
            self.check_watcher()
            if time.monotonic() > end:
                raise SystemExit("long: the watcher doesn't pause")
            time.sleep(0.005)

    def watch(self):
        self.control[UNWATCH] = 0

    def check_watcher(self):
        if self.watcher.poll() is not None:
            with open(self.watched) as file:
                raise Failure(file.read()[-3000:])

    def check(self):
        """Fails if something ended that shouldn't have, or a wrong state was seen."""
        self.check_watcher()
        for index, each in enumerate(self.writers):
            if each.poll() is not None:
                with open(os.path.join(self.directory, f"writer{index}.err")) as file:
                    raise SystemExit(f"long: a writer failed, which is this test's own fault: {file.read()[-3000:]}")
        for program in (self.publisher, self.follower):
            if not program.alive and not program.killed:
                code = program.process.returncode
                if code == 73 and program is self.publisher:
                    self.take_over()
                else:
                    raise Failure(f"{program.name} ended with {code}: {program.last_words()}")
        self.memory.sample([self.publisher, self.follower])

    def pace(self):
        """Allows more commits again and again, at most `limit` of them and `rate` a second."""
        while not self.control[STOP]:
            now = time.monotonic()
            more, self.paced = min(now - self.paced, 0.2) * self.options.rate, now
            self.control[ALLOWED] = min(self.limit, max(self.control[ALLOWED], self.control.commits()) + int(more) + 1)
            time.sleep(0.01)

    def superseding(self, program):
        """Returns the token of the stream's last change, which superseded a publisher. Fails if it is the home's own."""
        text = json.dumps([line for line in program.lines() if line.get("type") in ("superseded", "error", "summary")])
        tokens = re.findall(r"h1\.[0-9a-f]+\.[0-9]+\.[0-9a-f]+", text)
        if not tokens or may_have(self.home, tokens[-1]):
            raise Failure(f"superseded without a reason: {program.last_words()}")
        return tokens[-1]

    def take_over(self):
        token = self.superseding(self.publisher)
        self.count("take-overs")
        self.publisher.start("--take-over", token)

    def proxies(self, *sides):
        return [proxy for side in sides or self.links for proxy in self.links[side]]

    def heal(self):
        for proxy in self.proxies():
            proxy.mode = "pass"
        for node in self.brokers.nodes:
            node.signal(signal.SIGCONT)
            node.start()

    def close(self):
        self.control[STOP] = 1
        for program in (self.publisher, self.follower, self.second):
            if program.alive:
                program.kill()
        for each in [*self.writers, *([self.watcher] if self.watcher else [])]:
            try:
                each.wait(20)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()
        for proxy in self.proxies():
            proxy.close()
        self.brokers.close()
