"""The programs under test: started, killed, stopped, and what they say."""

import json
import os
import shutil
import signal
import subprocess
import threading
import time


class Running:
    """One run of groupstore-relay."""

    def __init__(self, words, environment, log):
        self.words, self.lines, self.killed, self.log = words, [], False, log
        self.errors = open(log, "ab")
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.errors,
                                        env=environment, start_new_session=True)
        self.started = time.monotonic()
        self.peak = []
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.errors.write(line)
            self.errors.flush()
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.lines.append({"type": "not JSON", "line": line.decode("utf-8", "replace")})

    @property
    def code(self):
        return self.process.poll()

    def kill(self):
        self.killed = True
        self.process.kill()
        self.process.wait()

    def stop(self, seconds=20):
        """Sends SIGTERM; returns the exit code, None if it took too long."""
        if self.code is None:
            self.process.terminate()
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        self.thread.join(2)
        return code

    def wait(self, seconds):
        try:
            self.process.wait(seconds)
            self.thread.join(2)
        except subprocess.TimeoutExpired:
            return None
        return self.code

    def of(self, kind):
        return [line for line in list(self.lines) if line.get("type") == kind]

    def memory(self):
        try:
            with open(f"/proc/{self.process.pid}/status") as file:
                return next((int(line.split()[1]) for line in file if line.startswith("VmRSS")), 0)
        except OSError:
            return 0


class Role:
    """A publisher or a follower over its several runs."""

    def __init__(self, name, words, environment, directory):
        self.name, self.words, self.environment = name, words, environment
        self.log = os.path.join(directory, name + ".log")
        self.runs, self.extra = [], []

    @property
    def now(self):
        return self.runs[-1] if self.runs else None

    @property
    def alive(self):
        return bool(self.runs) and self.now.code is None

    def start(self):
        if not self.alive:
            self.runs.append(Running(self.words + self.extra, self.environment, self.log))
        return self.now

    def count(self, kind):
        return sum(len(run.of(kind)) for run in self.runs)

    def unexpected_end(self):
        """Returns the exit code of a run that nobody ended."""
        if self.runs and self.now.code is not None and not self.now.killed:
            return self.now.code
        return None

    def keep_stacks(self):
        """Writes where each thread of the running program is beside its log."""
        if not self.alive:
            return
        pid = self.now.process.pid
        with open(self.log + ".stacks", "a") as kept:
            for task in sorted(os.listdir(f"/proc/{pid}/task")):
                for part in ("comm", "wchan", "syscall"):
                    try:
                        with open(f"/proc/{pid}/task/{task}/{part}") as file:
                            kept.write(f"{task} {part}: {file.read().strip()}\n")
                    except OSError as error:
                        kept.write(f"{task} {part}: {error}\n")
            kept.flush()
            if shutil.which("gdb"):
                words = ["timeout", "-k", "5", "120", "gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 40"]
                subprocess.run(words, stdin=subprocess.DEVNULL, stdout=kept, stderr=subprocess.STDOUT)

    def last_words(self):
        run = self.now
        return [line for line in run.lines[-4:]] if run else []


def program(words, environment=None, seconds=60):
    """Runs a program to its end: its exit code, its lines of JSON, its errors."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=seconds)
    except subprocess.TimeoutExpired as late:
        return None, [{"type": "nothing", "after": seconds}], (late.stderr or b"").decode("utf-8", "replace")
    lines = []
    for line in done.stdout.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            lines.append({"type": "not JSON", "line": line.decode("utf-8", "replace")})
    return done.returncode, lines, done.stderr.decode("utf-8", "replace")
