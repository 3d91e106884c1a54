"""The agent as the tester sees it: a process, its log, and connections to its socket. Also what the tester needs of Linux."""
import collections
import ctypes
import json
import os
import re
import select
import socket
import subprocess
import time

GROUPS = {"near": "group.adv.near", "far": "group.adv.far"}   # far: on another file system than the legacy places
LIBC = ctypes.CDLL(None, use_errno=True)


def own_mounts():
    """A mount namespace of our own: what we mount ends with us, and other mounts on this machine don't wake the agent."""
    if LIBC.unshare(0x20000) != 0 or LIBC.mount(b"none", b"/", None, (1 << 18) | (1 << 14), None) != 0:
        return False
    return True


def mount(source, target, kind=None, bind=False):
    return LIBC.mount(source.encode(), target.encode(), kind and kind.encode(), 4096 if bind else 0, None) == 0


def unmount(target):
    return LIBC.umount2(target.encode(), 2) == 0


class Lines:
    """A descriptor that delivers lines of JSON; `read` never blocks."""

    def __init__(self, descriptor):
        self.descriptor, self.rest, self.ended = descriptor, b"", False
        os.set_blocking(descriptor, False)

    def read(self):
        while True:
            try:
                data = os.read(self.descriptor, 1 << 16)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.ended = True
                break
            self.rest += data
        *whole, self.rest = self.rest.split(b"\n")
        return [json.loads(line) for line in whole]


class Connection:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.lines = Lines(self.socket.fileno())
        self.next = 0
        self.closed = False

    def send(self, **message):
        """Sends a line; returns its id. A dead peer is noticed when reading."""
        self.next += 1
        message.setdefault("id", self.next)
        try:
            self.socket.send(json.dumps(message).encode() + b"\n")
        except OSError:
            self.lines.ended = True
        return message["id"]

    def read(self):
        return [] if self.closed else self.lines.read()

    def ask(self, seconds=30, **message):
        """Sends a request and waits for its rows and its reply; on a connection that is used for nothing else."""
        number, lines, end = self.send(**message), [], time.monotonic() + seconds
        while time.monotonic() < end and not self.lines.ended:
            lines += self.lines.read()
            if any("ok" in line and line.get("id") == number for line in lines):
                break
            select.select([self.lines.descriptor], [], [], 0.2)
        return lines

    def close(self):
        if not self.closed:
            self.closed = True
            self.socket.close()


class Agent:
    def __init__(self, program, base, user):
        self.program, self.base, self.user = program, base, user
        self.socket = os.path.join(base, "socket", "s")
        os.mkdir(os.path.dirname(self.socket), 0o755)
        self.config = os.path.join(base, "config.yaml")
        self.log_path = os.path.join(base, "agent.log")
        self.log = open(self.log_path, "ab")
        self.process = None
        temporary = os.path.join(base, "tmp")
        os.mkdir(temporary, 0o1777)
        os.chmod(temporary, 0o1777)
        self.environment = dict(os.environ, GROUPSTORE_SOCKET=self.socket, HOME=base, TMPDIR=temporary)
        if user:
            os.chown(os.path.dirname(self.socket), *user)

    def configure(self, directories, places):
        lines = ["claim-deadline: 3s", "groups:"]
        for kind, identifier in GROUPS.items():
            lines += ["  - id: " + identifier, "    directory: " + json.dumps(directories[kind]), "    stores:"]
            for place in [p for p in places if p.kind == kind]:
                lines += ["      - name: " + json.dumps(place.name, ensure_ascii=False),
                          "        legacy: [%s]" % json.dumps(place.legacy, ensure_ascii=False)]
            if not any(p.kind == kind for p in places):
                lines += ["      - name: Nobody.sqlite"]
        with open(self.config, "w") as file:
            file.write("\n".join(lines) + "\n")

    def start(self):
        def become():
            if self.user:
                os.setgroups([])
                os.setgid(self.user[1])
                os.setuid(self.user[0])
        self.process = subprocess.Popen(
            [self.program, "agent", "--config", self.config], stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
            env=self.environment, preexec_fn=become, start_new_session=True, cwd="/")
        end = time.monotonic() + 60
        while True:
            try:
                Connection(self.socket).close()
                return
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise RuntimeError("the agent doesn't start:\n" + "\n".join(self.log_lines()[-5:]))
                time.sleep(0.05)

    def stop(self, how=9):
        if self.process:
            self.process.send_signal(how)
            self.process.wait()
            self.process = None

    def log_lines(self):
        with open(self.log_path, errors="replace") as file:
            return file.read().splitlines()

    def status(self, place):
        """The rows of `status` about a place: of its store, and of the legacy path."""
        connection = Connection(self.socket)
        try:
            rows = connection.ask(op="status", store=GROUPS[place.kind] + "/" + place.name)
        finally:
            connection.close()
        return {row["type"]: row for row in rows if row.get("type") in ("store", "legacy")}

    def work_done(self):
        """How often the agent's threads have been run, and their processor time."""
        switches, ticks = 0, 0
        for task in os.listdir("/proc/%d/task" % self.process.pid):
            try:
                with open("/proc/%d/task/%s/status" % (self.process.pid, task)) as file:
                    switches += sum(int(line.split()[1]) for line in file if "_ctxt_switches" in line)
                with open("/proc/%d/task/%s/stat" % (self.process.pid, task)) as file:
                    fields = file.read().rsplit(")", 1)[1].split()
                    ticks += int(fields[11]) + int(fields[12])
            except OSError:
                pass
        return switches, ticks / os.sysconf("SC_CLK_TCK")

    def wakers(self, seconds=12):
        """For people: what a restless agent does first after each rest, if strace is there."""
        try:
            result = subprocess.run(["timeout", str(seconds), "strace", "-f", "-r", "-y", "-p", str(self.process.pid)],
                                    stderr=subprocess.PIPE)
        except FileNotFoundError:
            return ""
        lines, shown, left = result.stderr.decode(errors="replace").splitlines(), collections.Counter(), 0
        for line in lines:
            rest = re.search(r"(?:^|\] )\s*(\d+\.\d+) ", line)
            if rest and float(rest[1]) > 0.2:
                left = 6
            if left > 0:
                shown[re.sub(r"^(\S+ \d+\])?\s*\d+\.\d+ |=.*|\d{5,}", r"\1 ", line)[:200]] += 1
                left -= 1
        return "\n".join(["        %d calls in %d s; first after each rest:" % (len(lines), seconds)] + [
            "        %d times %s" % (times, line) for line, times in shown.most_common(15)])
