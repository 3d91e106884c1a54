"""Provides a round's agents, actors, private directory and list of problems."""

import itertools
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time

AMPLE = 40.0  # seconds for what should be instant, on a busy machine
SLACK = 3.0  # seconds that a deadline may be overrun


class Agent:
    """An agent with its own socket, home and configuration."""

    def __init__(self, round, name="agent"):
        self.round = round
        self.socket = round.path(name + ".sock")
        self.config = round.path(name + ".yaml")
        self.log = round.path(name + ".log")
        self.process = None
        self.is_stopped = False

    def configure(self, groups):
        """Writes a configuration. `groups` is {id: (directory, {store: [legacy, …]})}. JSON strings are valid YAML."""
        lines = ["claim-deadline: 10s", "groups:"]
        for identifier, (directory, stores) in groups.items():
            lines += [f"  - id: {quote(identifier)}", f"    directory: {quote(directory)}"]
            if stores:
                lines.append("    stores:")
            for store, legacies in stores.items():
                lines.append(f"      - name: {quote(store)}")
                if legacies:
                    lines.append("        legacy: [" + ", ".join(quote(each) for each in legacies) + "]")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [self.round.program, "agent", "--config", self.config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.round.environment(self.socket),
            )
        end = time.monotonic() + AMPLE
        while time.monotonic() < end:
            try:
                with socket.socket(socket.AF_UNIX) as connection:
                    connection.settimeout(5)
                    connection.connect(self.socket)
                    if connection.recv(1):
                        return self
            except OSError:
                if self.process.poll() is not None:
                    break
                self.process_wait(0.02)
        with open(self.log, errors="replace") as log:
            raise RuntimeError(f"the agent doesn't start: {log.read()[-400:]}")

    def process_wait(self, seconds):
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass

    def ask(self, op, **members):
        """Returns the rows and the reply of one request."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(AMPLE)
            connection.connect(self.socket)
            connection.sendall(json.dumps({"id": 1, "op": op, **members}).encode() + b"\n")
            rows = []
            for line in connection.makefile("rb"):
                message = json.loads(line)
                if "ok" in message:
                    return rows, message
                if message.get("id") == 1:
                    rows.append(message)
        raise ConnectionError("the agent ended the connection")

    def presenters(self, store):
        """Returns the processes that the agent reports as presenters of the store."""
        rows, _ = self.ask("status")
        for row in rows:
            if row.get("type") == "store" and row.get("store") == store:
                return [each.get("pid", 0) if isinstance(each, dict) else each for each in row.get("presenters", [])]
        return []

    def groups(self):
        rows, _ = self.ask("status")
        return {row["group"] for row in rows if row.get("type") == "group"}

    def reload(self, expected):
        """Sends SIGHUP until the agent serves those groups."""
        self.process.send_signal(signal.SIGHUP)
        if not wait(lambda: self.groups() == set(expected), AMPLE):
            raise RuntimeError("the agent doesn't reload its configuration")

    def stop(self):
        self.is_stopped = True
        freeze(self.process)

    def go_on(self):
        if self.is_stopped:
            self.is_stopped = False
            self.process.send_signal(signal.SIGCONT)

    def end(self, how=signal.SIGKILL):
        if self.process and self.process.poll() is None:
            self.go_on()
            self.process.send_signal(how)
            try:
                self.process.wait(AMPLE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Actor:
    """A process that uses the client library and takes its commands as lines."""

    numbers = itertools.count(1)

    def __init__(self, round, socket_path):
        self.round, self.name = round, f"a{len(round.actors)}"
        self.events, self.replies, self.asked = [], {}, {}
        self.news = threading.Condition()
        self.killed = None  # the time, by the clock that all share
        self.is_stopped = False
        self.errors = open(round.path(self.name + ".err"), "wb")
        self.process = subprocess.Popen(
            [round.actor_program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            env=round.environment(socket_path), cwd=round.directory,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.input = threading.Lock()
        if not self.wait_for(lambda e: e.get("event") == "ready"):
            raise RuntimeError("the actor doesn't start")

    @property
    def pid(self):
        return self.process.pid

    @property
    def is_alive(self):
        return self.killed is None and self.process.poll() is None

    def _read(self):
        for line in self.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                message = {"event": "unreadable", "message": repr(line[:200])}
            with self.news:
                if "ok" in message and "id" in message and "event" not in message:
                    self.replies[message["id"]] = message
                self.events.append(message)
                self.news.notify_all()
        with self.news:
            self.news.notify_all()

    def send(self, op, **members):
        """Sends one request; returns a number for `reply`, or None if the process is gone."""
        number = next(Actor.numbers)
        request = {"id": number, "op": op, **members}
        with self.news:
            self.asked[number] = (request, time.monotonic())
            for inner in nested(request):
                inner["op"] = "coordinate"
                inner["id"] = next(Actor.numbers)
                self.asked[inner["id"]] = (inner, time.monotonic())
        try:
            with self.input:
                self.process.stdin.write(json.dumps(request).encode() + b"\n")
                self.process.stdin.flush()
        except (OSError, ValueError):
            return None
        return number

    def reply(self, number, timeout=AMPLE):
        """Returns the answer, or None if none came in time or the process is gone."""
        end = time.monotonic() + timeout
        with self.news:
            while number not in self.replies:
                left = end - time.monotonic()
                if number is None or left <= 0 or (not self.is_alive and not self.reader.is_alive()):
                    return self.replies.get(number)
                self.news.wait(min(left, 0.5))
            return self.replies[number]

    def ask(self, op, timeout=AMPLE, **members):
        return self.reply(self.send(op, **members), timeout)

    def must(self, op, **members):
        """Makes a request that must succeed; any other answer is a problem and ends the round."""
        answer = self.ask(op, **members)
        if answer is None:
            self.round.problem("hang", f"{op} {members} has no answer")
            raise Over()
        if not answer["ok"]:
            self.round.problem("refused", f"{op} {members}: {answer.get('message')}")
            raise Over()
        return answer

    def wait_for(self, wanted, timeout=AMPLE, since=0):
        """Returns the first wanted event from number `since` on, or None on a time-out."""
        end, at = time.monotonic() + timeout, since
        with self.news:
            while True:
                while at < len(self.events):
                    if wanted(self.events[at]):
                        return self.events[at]
                    at += 1
                left = end - time.monotonic()
                if left <= 0 or (not self.is_alive and not self.reader.is_alive()):
                    return None
                self.news.wait(min(left, 0.5))

    def event_count(self):
        with self.news:
            return len(self.events)

    def stop(self):
        self.is_stopped = True
        freeze(self.process)

    def go_on(self):
        if self.is_stopped:
            self.is_stopped = False
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGCONT)

    def kill(self):
        if self.killed is None:
            self.killed = time.monotonic()
            self.process.kill()
        self.process.wait()
        self.reader.join(5)

    def leave(self):
        """Ends the process, and reads its last output."""
        self.go_on()
        try:
            self.process.stdin.close()
            self.process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.reader.join(5)
        self.process.stdout.close()
        self.errors.close()

    def open_files(self):
        """Returns what its descriptors lead to."""
        found = []
        for name in os.listdir(f"/proc/{self.pid}/fd"):
            try:
                found.append(os.readlink(f"/proc/{self.pid}/fd/{name}"))
            except OSError:
                pass
        return found

    def threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))


class Over(Exception):
    """Raised when the round can't go on; the cause is among its problems."""


class Round:
    def __init__(self, program, actor_program, directory, rng):
        self.program, self.actor_program, self.directory, self.rng = program, actor_program, directory, rng
        self.problems, self.agents, self.actors, self.title = [], [], [], ""
        self.lock = threading.Lock()
        self.group = "group.com.example." + rng.choice(["notes", "Notes-2", "a.b.c"])
        self.container = self.path("g", self.group)
        os.makedirs(self.container)
        os.makedirs(self.path("home"))
        os.makedirs(self.path("tmp"))

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def environment(self, socket_path):
        return {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": self.path("home"), "TMPDIR": self.path("tmp"),
            "GROUPSTORE_SOCKET": socket_path, "XDG_CONFIG_HOME": self.path("home", "none"), "LANG": "C.UTF-8",
            "GROUPSTORE_CONTAINERS": self.path("g"),
        }

    def problem(self, kind, text):
        with self.lock:
            self.problems.append((kind, str(text)))

    def agent(self, name="agent"):
        agent = Agent(self, name)
        self.agents.append(agent)
        return agent

    def actor(self, agent=None):
        actor = Actor(self, agent.socket if agent else self.path("agent.sock"))
        self.actors.append(actor)
        return actor

    def of_group(self, **members):
        """Returns a request's members about this round's group."""
        return {"group": self.group, "directory": self.container, **members}

    def command(self, *arguments, timeout=60):
        """Runs the program; returns its exit code and its summary."""
        try:
            run = subprocess.run(
                [self.program, *arguments, "--json"], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout,
                env=self.environment(self.path("agent.sock")),
            )
        except subprocess.TimeoutExpired:
            self.problem("hang", f"the command {arguments} takes more than {timeout} s")
            return None, {}
        lines = [line for line in run.stdout.decode("utf-8", "replace").splitlines() if line.startswith("{")]
        return run.returncode, json.loads(lines[-1]) if lines else {}

    def end(self):
        for actor in self.actors:
            actor.leave()
        for agent in self.agents:
            agent.end()

    def keep(self, place):
        """Keeps the round's files, and each actor's input and output."""
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        subprocess.run(["cp", "-a", self.directory + "/.", place], capture_output=True)
        for actor in self.actors:
            lines = [(at, ">", request) for request, at in actor.asked.values()]
            lines += [(event.get("at", 0), "<", event) for event in actor.events]
            with open(os.path.join(place, actor.name + ".said"), "w", encoding="utf-8") as file:
                for at, way, what in sorted(lines, key=lambda line: line[0]):
                    file.write(f"{at:.4f} {way} {json.dumps(what, ensure_ascii=False)}\n")
        with open(os.path.join(place, "problems.txt"), "w", encoding="utf-8") as file:
            file.write(self.title + "\n" + "".join(f"{kind}: {text}\n" for kind, text in self.problems))


def nested(request):
    for inner in request.get("inner", []):
        yield inner
        yield from nested(inner)


def quote(text):
    return json.dumps(text, ensure_ascii=False)


def freeze(process):
    """Sends SIGSTOP, and waits until the process has stopped."""
    process.send_signal(signal.SIGSTOP)
    for _ in range(2000):
        try:
            with open(f"/proc/{process.pid}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] in (b"T", b"Z", b"X"):
                    return
        except OSError:
            return
        time.sleep(0.001)


def wait(condition, timeout):
    """Polls until the condition holds, for changes without a notification."""
    end, pause = time.monotonic() + timeout, 0.005
    while True:
        try:
            if condition():
                return True
        except (OSError, ValueError):
            pass
        if time.monotonic() >= end:
            return False
        time.sleep(pause)
        pause = min(0.2, pause * 1.5)


def commit(path, text):
    """Commits a row from a program that knows nothing of groups."""
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE IF NOT EXISTS entry (id INTEGER PRIMARY KEY, text TEXT)")
        connection.execute("INSERT INTO entry (text) VALUES (?)", (text,))
    finally:
        connection.close()


def fill_backlog(path, most=5000):
    """Connects until a listener that doesn't accept takes no more."""
    held = []
    for _ in range(most):
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            break
        held.append(connection)
    return held
