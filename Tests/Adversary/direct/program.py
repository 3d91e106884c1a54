"""Runs the program under test, and keeps each line that it prints with the moment of its arrival."""

import base64
import json
import os
import shutil
import signal
import subprocess
import threading
import time

EXPECTED = 5.0  # seconds for an event that must come; a busy machine gets this long
PATIENCE = 25.0  # after this long, an event is not late but missing
NEWS = ("change", "reset", "relocated", "migrated")


def default_signals():
    """A shell's background job ignores SIGINT; the program under test must not inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


class Line:
    def __init__(self, text, moment=None):
        self.time = moment or time.monotonic()
        self.text = text.decode("utf-8", "backslashreplace").rstrip("\n")
        self.data = json.loads(text)

    @property
    def type(self):
        return self.data.get("type")

    @property
    def token(self):
        return self.data.get("token")

    @property
    def store(self):
        if "store_b64" in self.data:
            return base64.b64decode(self.data["store_b64"])
        return os.fsencode(self.data.get("store", ""))

    @property
    def news(self):
        return self.type in NEWS

    @property
    def named(self):
        """The tables, if the line promises that it names all of them."""
        return set(self.data.get("tables", [])) if self.type == "change" and self.data.get("complete") else None


class Listener:
    """Whoever hears of a store: keeps lines, and judges by them."""

    def __init__(self, round, former=None):
        self.round, self.begun = round, time.monotonic()
        # A listener that goes on where another one was killed keeps its lines.
        self.lines, self.changed = (former.lines, former.changed) if former else ([], threading.Condition())
        self.first = len(self.lines)

    def take(self, line):
        with self.changed:
            self.lines.append(line)
            self.changed.notify_all()

    def lives(self):
        """Returns whether more lines may come."""
        return self.reader.is_alive()

    def tail(self):
        return ""

    def wait(self, wanted, seconds, start=0):
        """Returns the first line from `start` on that is wanted; None after so many seconds or at the program's end."""
        end = time.monotonic() + seconds
        with self.changed:
            while True:
                while start < len(self.lines):
                    if wanted(self.lines[start]):
                        return self.lines[start]
                    start += 1
                left = end - time.monotonic()
                if left <= 0 or (not self.lives() and start >= len(self.lines)):
                    return None
                self.changed.wait(min(left, 0.5))

    def news(self, path=None):
        with self.changed:
            return [line for line in self.lines if line.news and (path is None or line.store == os.fsencode(path))]

    def settle(self, quiet=0.6, most=8):
        """Waits until nothing was printed for so long."""
        end = time.monotonic() + most
        while time.monotonic() < end:
            last = max([line.time for line in self.lines] + [self.begun])
            if time.monotonic() - last >= quiet:
                return
            time.sleep(0.05)

    def covers(self, before, after, path=None, what="commit"):
        """Judges: there must be a line that came after the commit began, and soon after it ended."""
        path = None if path is None else os.fsencode(path)
        wanted = lambda line: line.news and line.time >= before and path in (None, line.store)  # noqa: E731
        line = self.wait(wanted, max(0.1, after + PATIENCE - time.monotonic()))
        self.round.figures["commits judged"] += 1
        if line is None:
            self.round.problem("missed", f"{what}: no event after {time.monotonic() - after:.1f} s; {self.tail()}")
        elif line.time > after + EXPECTED:
            self.round.problem("late", f"{what}: {line.time - after:.1f} s")
        return line


class Watch(Listener):
    """One run of `watch --direct`."""

    def __init__(self, round, paths, *options, prefix=(), cwd=None, former=None):
        super().__init__(round, former)
        self.errors = []
        self.paths = [os.fsencode(path) for path in paths]
        words = [*prefix, round.program, "watch", "--direct", "--json", *options, "--", *self.paths]
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd or round.directory,
            env=round.environment, preexec_fn=default_signals,
        )  # fmt: skip
        round.watches.append(self)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        self.error_reader = threading.Thread(target=lambda: self.errors.extend(self.process.stderr), daemon=True)
        self.error_reader.start()
        round.step(f"watch {b' '.join(os.fsencode(each) for each in words[len(prefix) + 2:])!r}: {self.process.pid}")

    def read(self):
        for text in self.process.stdout:
            try:
                line = Line(text)
            except ValueError:
                if text.endswith(b"\n"):  # half a line is what a killed program may leave
                    self.round.problem("wire", f"not JSON: {text!r}")
                continue
            self.take(line)
            self.round.step(f"{self.process.pid}: {line.text}", line.time)

    def ready(self, seconds=PATIENCE):
        """Waits for each file's `watching`; returns whether all came."""
        wanted = set(self.paths)
        for index in range(len(self.paths)):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                with self.changed:
                    if sum(line.type == "watching" for line in self.lines[self.first :]) >= len(wanted):
                        return True
                    if not self.reader.is_alive():
                        break
                    self.changed.wait(0.5)
        self.round.problem("not-ready", f"no watching after {seconds} s: {self.tail()}")
        return False

    def tail(self):
        return b"".join(self.errors)[-300:].decode("utf-8", "backslashreplace") + " | " + str(self.process.poll())

    def kill(self):
        self.end(signal.SIGKILL)

    def end(self, number=signal.SIGTERM, seconds=20):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.code(seconds)

    def code(self, seconds=20):
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.round.problem("no-end", f"still there after {seconds} s: {self.process.args[-3:]!r}")
            self.process.kill()
            code = self.process.wait()
        self.reader.join(5)
        self.error_reader.join(1)
        return code


class Round:
    """One round: its directory, its randomness, what it did, and what it found."""

    def __init__(self, program, directory, chance, number):
        self.without = os.environ.get("ADVERSARY_WITHOUT", "hard_link").split(",")  # acts left out: known limits
        self.program, self.directory, self.chance, self.number = program, os.path.join(directory, "d"), chance, number
        self.title, self.problems, self.steps, self.watches, self.writers = "", [], [], [], []
        self.agents, self.closers = [], []
        self.begun = time.monotonic()
        for name in ("d", "run", "home"):
            os.mkdir(os.path.join(directory, name), 0o700)
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith(("GROUPSTORE_", "XDG_"))}
        # An empty runtime directory, so that no agent is found.
        self.environment |= {"XDG_RUNTIME_DIR": os.path.join(directory, "run"), "HOME": os.path.join(directory, "home")}

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def step(self, text, moment=None):
        self.steps.append(((moment or time.monotonic()) - self.begun, text))

    def problem(self, kind, text):
        self.problems.append((kind, text))
        self.step(f"PROBLEM {kind}: {text}")

    def watch(self, *paths, options=(), **more):
        self.figures["watches"] += 1
        return Watch(self, paths, *options, **more)

    def crashes(self):
        for watch in self.watches:
            code = watch.process.poll()
            if code is not None and code < 0 and code not in (-signal.SIGKILL, -signal.SIGPIPE):
                self.problem("crash", f"ended by signal {-code}: {watch.tail()}")

    def end(self):
        for writer in self.writers:
            writer.end()
        for close in reversed(self.closers):
            close()
        for agent in self.agents:
            agent.stop()
        for watch in self.watches:
            if watch.process.poll() is None:
                watch.process.kill()
                watch.process.wait()
            watch.reader.join(5)
            watch.process.stdout.close()
        self.crashes()

    def keep(self, directory):
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, "steps"), "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(f"{moment:9.3f} {text}\n" for moment, text in sorted(self.steps, key=lambda step: step[0]))
        for agent in self.agents:
            shutil.copy(agent.log, os.path.join(directory, os.path.basename(agent.directory) + ".log"))
        # A socket can't be copied.
        shutil.copytree(self.directory, os.path.join(directory, "files"), symlinks=True, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("*.sock", "notify"))
