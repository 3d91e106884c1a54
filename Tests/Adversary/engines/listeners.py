"""Those who listen: an agent with a subscriber at its socket, and `groupstore watch --direct`.

Every event is kept with the time at which it was read (`World.pump` reads all that is there before each step begins), so a
step can be asked: which event came after you?
"""
import ctypes
import json
import os
import re
import select
import signal
import socket
import subprocess
import time

GROUP = "group.adv.engines"


class Lines:
    """A descriptor that delivers lines; `read` never blocks."""

    def __init__(self, descriptor):
        self.descriptor = descriptor
        self.rest = b""
        self.ended = False
        os.set_blocking(descriptor, False)

    def read(self):
        lines = []
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
        for line in whole:
            try:
                lines.append(json.loads(line))
            except ValueError:
                lines.append({"type": "garbage", "line": repr(line[:200])})
        return lines

    def wait(self, accept, seconds):
        """The first line that `accept` takes, and the others that came before it."""
        others, end = [], time.monotonic() + seconds
        while True:
            for number, line in enumerate(lines := self.read()):
                if accept(line):
                    self.rest = b"".join(json.dumps(l).encode() + b"\n" for l in lines[number + 1:]) + self.rest
                    return line, others
                others.append(line)
            left = end - time.monotonic()
            if left <= 0 or self.ended:
                return None, others
            select.select([self.descriptor], [], [], left)


class Connection:
    """One connection to the agent's socket."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(path)
        self.lines = Lines(self.socket.fileno())
        self.lines.wait(lambda line: line.get("type") == "hello", 20)
        self.next = 0

    def ask(self, seconds=30, **request):
        """Sends a request; returns the reply and the events that came before it."""
        self.next += 1
        request["id"] = self.next
        os.set_blocking(self.socket.fileno(), True)
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        os.set_blocking(self.socket.fileno(), False)
        return self.lines.wait(lambda line: "ok" in line and line.get("id") == request["id"], seconds)

    def close(self):
        self.socket.close()


def own_mounts():
    """A mount namespace of our own, where we may have one: else each mount on this machine wakes the idle agent."""
    library = ctypes.CDLL(None, use_errno=True)
    new_namespace, private, recursive = 0x20000, 1 << 18, 1 << 14
    if library.unshare(new_namespace) == 0:
        library.mount(b"none", b"/", None, private | recursive, None)


def work_done(pid):
    """How often the threads of a process have been run, and their processor time in seconds."""
    switches, ticks = 0, 0
    for task in os.listdir("/proc/%d/task" % pid):
        try:
            with open("/proc/%d/task/%s/status" % (pid, task)) as file:
                switches += sum(int(l.split()[1]) for l in file if "_ctxt_switches" in l)
            with open("/proc/%d/task/%s/stat" % (pid, task)) as file:
                fields = file.read().rsplit(")", 1)[1].split()
                ticks += int(fields[11]) + int(fields[12])
        except OSError:
            pass
    return switches, ticks / os.sysconf("SC_CLK_TCK")


def calls_of(pid, seconds=12):
    """What wakes a process that should be idle, if strace is there: for people, the first calls after each rest."""
    try:
        result = subprocess.run(["timeout", str(seconds), "strace", "-f", "-r", "-y", "-p", str(pid)], stderr=subprocess.PIPE)
    except FileNotFoundError:
        return ""
    lines, shown, left = result.stderr.decode(errors="replace").splitlines(), [], 0
    for line in lines:
        rest = re.search(r"(?:^|\] )\s*(\d+\.\d+) ", line)
        if rest and float(rest[1]) > 0.2:
            left = 6
        if left > 0:
            shown.append("        " + line[:220])
            left -= 1
    return "\n".join(["        %d calls in %d s; after each rest:" % (len(lines), seconds)] + shown[:40])


class Agent:
    """A running agent, and the connection on which the tester listens to all stores."""

    def __init__(self, program, base, group):
        self.program, self.base, self.group = program, base, group
        self.socket = os.path.join(base, "s")
        self.log = open(os.path.join(base, "agent.log"), "ab")
        self.process = self.connection = None

    def configure(self, names):
        """A configuration with the group and these stores; the group's other files are served without one."""
        with open(os.path.join(self.base, "config.yaml"), "w") as file:
            file.write("groups:\n  - id: %s\n    directory: %s\n    stores:\n" % (GROUP, json.dumps(self.group)))
            for name in names or ["Nobody.sqlite"]:
                file.write("      - name: %s\n" % json.dumps(name, ensure_ascii=False))

    def start(self):
        environment = dict(os.environ, GROUPSTORE_SOCKET=self.socket)
        self.process = subprocess.Popen(
            [self.program, "agent", "--config", os.path.join(self.base, "config.yaml")],
            stderr=self.log, stdout=self.log, env=environment, start_new_session=True)
        end = time.monotonic() + 60
        while True:
            try:
                self.connection = Connection(self.socket)
                return
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise RuntimeError("the agent doesn't start: see agent.log")
                time.sleep(0.05)

    def kill(self, how=signal.SIGKILL):
        if self.process:
            self.process.send_signal(how)
            self.process.wait()
        if self.connection:
            self.connection.close()
        self.process = self.connection = None

    def answer_to(self, store, token, seconds=20):
        """What a subscriber that returns with this token is told: the first event, or None."""
        other = Connection(self.socket)
        try:
            reply, _ = other.ask(op="subscribe", store=GROUP + "/" + store, since=token)
            if not reply or not reply.get("ok"):
                return {"type": "refused", "reply": reply}
            event, _ = other.lines.wait(lambda line: line.get("type") in ("change", "reset"), seconds)
            return event
        finally:
            other.close()

    def token_of(self, store):
        """A token of this moment, from a subscription that ends at once."""
        other = Connection(self.socket)
        try:
            reply, _ = other.ask(op="subscribe", store=GROUP + "/" + store)
            return reply.get("token") if reply else None
        finally:
            other.close()


class Watch:
    """`groupstore watch --direct` of all stores of a round."""

    def __init__(self, program, paths, log):
        self.process = subprocess.Popen([program, "watch", "--direct", "--json"] + paths, stdout=subprocess.PIPE,
                                        stderr=log, start_new_session=True)
        self.lines = Lines(self.process.stdout.fileno())

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def direct_answer(program, path, token, seconds=20):
    """What the next `watch --direct` with this token says first: an event, or None after `seconds`."""
    result = subprocess.run(
        [program, "watch", "--direct", "--json", "--once", "--since", token, "--timeout", str(seconds), path],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds + 60)
    for line in result.stdout.splitlines():
        event = json.loads(line)
        if event.get("type") in ("change", "reset", "relocated"):
            return event
    return None


def direct_token(program, path):
    """A token of this moment of a store that is watched directly."""
    process = subprocess.Popen([program, "watch", "--direct", "--json", path], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
    line, _ = Lines(process.stdout.fileno()).wait(lambda line: line.get("type") == "watching", 20)
    process.kill()
    process.wait()
    process.stdout.close()
    return line.get("token") if line else None
