"""Runs one agent with everything of its own; the tester of direct watching starts agents too."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import time

from wire import Client

TICKS = os.sysconf("SC_CLK_TCK")
SOON, LATE = 5.0, 60.0  # seconds: after the first, an event is late; after the second, it is missed


@contextlib.contextmanager
def acting_as(user):
    """Acts with the rights of a user number, or of this process if there is none."""
    if user is None:
        yield
        return
    before = os.geteuid(), os.getegid(), os.getgroups()
    os.setgroups([])
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(before[0])
        os.setegid(before[1])
        os.setgroups(before[2])


class Agent:
    """A running agent. `user` is a user number, or None for the current user; `directory` is for its own files."""

    def __init__(self, round, config=None, options=(), user=None, limits=(), wrap=(), environment=None, directory=None):
        self.round, self.config, self.options = round, config, [os.fsencode(o) for o in options]
        self.user, self.limits, self.wrap = user, limits, list(wrap)
        self.directory = directory or round.directory
        self.socket_path = self.path("run", "agent.sock")
        self.environment = environment or {}
        self.process = None

    def path(self, *parts):
        return os.path.join(self.directory, *parts)

    def start(self):
        """Returns True once the agent is ready, False if it ends instead."""
        home = self.path("home")
        for name in ("home", "run", "temporary"):
            os.makedirs(self.path(name), exist_ok=True)
            if self.user is not None:
                os.chown(self.path(name), self.user, self.user)
        command = [*self.wrap, self.round.program, "agent"]
        if self.config is not None:
            self.write_config()
            command += ["--config", self.path("config.yaml")]
        command += self.options
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        place = self.path("notify")
        if os.path.exists(place):
            os.unlink(place)
        notify.bind(place)
        os.chmod(place, 0o777)
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": home,
            "XDG_CONFIG_HOME": os.path.join(home, "config"),
            "XDG_DATA_HOME": os.path.join(home, "data"),
            "XDG_STATE_HOME": os.path.join(home, "state"),
            "XDG_CACHE_HOME": os.path.join(home, "cache"),
            "XDG_RUNTIME_DIR": self.path("run"),
            "GROUPSTORE_SOCKET": self.socket_path,
            "TMPDIR": self.path("temporary"),
            "NOTIFY_SOCKET": place,
            **self.environment,
        }
        import resource  # noqa: PLC0415

        limits = list(self.limits)

        def prepare():
            for which, soft, hard in limits:
                resource.setrlimit(which, (soft, hard))

        self.log = self.path("agent.log")
        who = {} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": []}
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory,
                preexec_fn=prepare if limits else None, start_new_session=True, **who)
        self.round.agents.append(self)
        end, watch = time.monotonic() + LATE, os.pidfd_open(self.process.pid)
        try:
            while time.monotonic() < end:
                ready = select.select([notify, watch], [], [], max(0, end - time.monotonic()))[0]
                if notify in ready and b"READY=1" in notify.recv(4096):
                    return True
                if watch in ready:
                    self.process.wait()
                    return False
            self.round.problem("not-ready", f"the agent says nothing for {LATE:.0f} s: {self.tail()}")
            return False
        finally:
            os.close(watch)
            notify.close()

    def connect(self):
        """Returns a connection of the agent's own user."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(30)
        with acting_as(self.user):
            connection.connect(self.socket_path)
        return Client(None, connection)

    def write_config(self):
        with open(self.path("config.yaml"), "w", encoding="utf-8") as file:
            file.write(self.config)
        if self.user is not None:
            os.chown(self.path("config.yaml"), self.user, self.user)

    def reload(self, config=None):
        if config is not None:
            self.config = config
            self.write_config()
        self.process.send_signal(signal.SIGHUP)

    @property
    def pid(self):
        return self.process.pid

    def lives(self):
        return self.process is not None and self.process.poll() is None

    def stop(self):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.round.problem("no-end", "SIGTERM did not end the agent within 20 s: " + self.tail())
                self.process.kill()
                self.process.wait()
        code, self.process = self.process.returncode, None
        if code is not None and code < 0 and code not in (-15, -9):
            self.round.problem("crash", f"the agent ended by signal {-code}: {self.tail()}")

    def text(self):
        with open(self.log, "rb") as file:
            return file.read()

    def lines(self):
        return self.text().count(b"\n")

    def tail(self, most=300):
        return self.text()[-most:].decode(errors="replace")

    # Readings from /proc

    def seconds(self):
        """Returns the processor time of the agent and its ended children."""
        with open(f"/proc/{self.pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return sum(int(x) for x in fields[11:15]) / TICKS

    def wakeups(self):
        total = 0
        for task in os.listdir(f"/proc/{self.pid}/task"):
            try:
                with open(f"/proc/{self.pid}/task/{task}/status", encoding="ascii", errors="replace") as file:
                    total += sum(int(x.split()[1]) for x in file if x.startswith("voluntary_ctxt"))
            except OSError:
                pass
        return total

    def memory(self, field="VmRSS"):
        """Returns a field in KiB."""
        with open(f"/proc/{self.pid}/status", encoding="ascii", errors="replace") as file:
            return next((int(x.split()[1]) for x in file if x.startswith(field + ":")), 0)

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))
