"""Tests hostile surroundings: directories that a second user may write to, with things planted at every name that is used.

Each run has an outcome of the table, in bounded time and memory; it reads nothing from outside into the store and writes
nothing there, the store stays whole, and a relocation succeeds after the plant is removed.
"""

import os
import resource
import select
import signal
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time

import stores

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "Clients", "python"))
import groupstore

SECONDS = 20
KILOBYTES = 200_000
STATUSES = (0, 65, 73, 74, 75, 77)
GIANT = 1 << 40
STRANGER = 65534
ID = "1700000000-hostile"

LEGACY_NAMES = [stores.NAME, *(stores.NAME + suffix for suffix in stores.SIDE_FILES), stores.SUPPORT,
                stores.SUPPORT + "/_EXTERNAL_DATA", stores.SUPPORT + "/_EXTERNAL_DATA/new"]
GROUP_NAMES = [
    stores.NAME, *(stores.NAME + suffix for suffix in stores.SIDE_FILES), stores.SUPPORT, ".groupstore",
    *(f".groupstore/{name}" for name in (
        "lock", "journal.json", "journal.json.new", "receipts", "staging", "archive", "claims", "write-ahead.json")),
    f".groupstore/receipts/{ID}.json", f".groupstore/staging/{ID}", f".groupstore/archive/{ID}",
    f".groupstore/claims/{stores.NAME}.lock", ".groupstore/claims/%root.lock", ".groupstore/claims/holders",
    f".groupstore/claims/holders/{ID}.json"]
# What an interrupted transfer leaves beside the store; the journal reveals its number.
HIDDEN_NAMES = [f".groupstore-{ID}{suffix}" for suffix in ("", "-wal", "-shm", "-journal", "-rollback", "-staging")]


# Plants


def _link_to_file(path, victim):
    os.symlink(os.path.join(victim, "secret"), path)


def _link_to_store(path, victim):
    os.symlink(os.path.join(victim, stores.NAME), path)


def _link_to_directory(path, victim):
    os.symlink(victim, path)


def _dangling_link(path, victim):
    os.symlink(os.path.join(victim, "made-through-a-link"), path)


def _hard_link(path, victim):
    os.link(os.path.join(victim, "secret"), path)


def _hard_link_to_store(path, victim):
    os.link(os.path.join(victim, stores.NAME), path)


def _fifo(path, victim):
    os.mkfifo(path, 0o666)


def _socket(path, victim):
    # A socket's path is short: make it elsewhere.
    with tempfile.TemporaryDirectory(dir=os.path.dirname(victim)) as place:
        made = os.path.join(place, "s")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(made)
        os.rename(made, path)


def _device(path, victim):
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))


def _directory(path, victim):
    os.mkdir(path, 0o777)
    with open(os.path.join(path, "in it"), "wb"):
        pass


def _giant(path, victim):
    with open(path, "wb") as file:
        file.truncate(GIANT)


def _giant_that_begins_well(path, victim):
    beginnings = {
        "-wal": bytes.fromhex("377f0682002de218") + bytes(24), "-journal": bytes.fromhex("d9d505f920a163d7ffffffff")}
    with open(path, "wb") as file:
        file.write(next((text for end, text in beginnings.items() if path.endswith(end)), b'{"version":1,'))
        file.truncate(GIANT)


KINDS = [_link_to_file, _link_to_store, _link_to_directory, _dangling_link, _hard_link, _hard_link_to_store, _fifo,
         _socket, _device, _directory, _giant, _giant_that_begins_well]


BY_NAME = {kind.__name__[1:]: kind for kind in KINDS}


def _kinds():
    """Returns the plants' names; only root makes devices."""
    return [name for name, kind in BY_NAME.items() if kind is not _device or os.geteuid() == 0]


class Place:
    """A legacy and a group directory that anybody may write to, with a victim's beside them."""

    def __init__(self, here, other=None, kind="wal"):
        self.root = tempfile.mkdtemp(prefix="torture.", dir=here)
        self.there = tempfile.mkdtemp(prefix="torture.", dir=other) if other else self.root
        os.chmod(self.root, 0o755)
        self.legacy, self.group = os.path.join(self.root, "legacy"), os.path.join(self.there, "group")
        # Hard links need a common file system.
        self.victims = {}
        for directory in {self.root, self.there}:
            os.chmod(directory, 0o755)
            self.victims[directory] = os.path.join(directory, "victim")
            os.mkdir(self.victims[directory], 0o700)
            with open(os.path.join(self.victims[directory], "secret"), "wb") as file:
                file.write(b"do not touch " * 100)
            os.chmod(os.path.join(self.victims[directory], "secret"), 0o600)
            stores.make("plain", self.victims[directory])
        for directory in (self.legacy, self.group):
            os.mkdir(directory)
            os.chmod(directory, 0o777)
        stores.make(kind, self.legacy)
        self.content = stores.content(self.legacy)
        self.before = self.seen()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for directory in {self.root, self.there}:
            subprocess.run(["chmod", "-R", "u+rwX", directory], check=False)
            shutil.rmtree(directory, ignore_errors=True)

    def victim_of(self, path):
        return self.victims[self.there if path.startswith(self.there + "/group") else self.root]

    def seen(self):
        """Returns the victims' bytes, modes and times."""
        found = {}
        for victim in self.victims.values():
            for directory, folders, files in os.walk(victim):
                for path in [directory, *(os.path.join(directory, name) for name in folders + files)]:
                    status = os.lstat(path)
                    data = None
                    if stat.S_ISREG(status.st_mode):
                        with open(path, "rb") as file:
                            data = file.read()
                    found[path] = (status.st_mode, status.st_uid, status.st_mtime_ns, status.st_size, data)
        return found

    def harm(self):
        now = self.seen()
        changed = [path for path in self.before.keys() | now.keys() if self.before.get(path) != now.get(path)]
        return [f"harm was done outside: {sorted(changed)}"] if changed else []

    def plant(self, path, kind):
        """Plants it there as the second user, and keeps the former content aside.

        Returns a function that removes it again.
        """
        os.makedirs(os.path.dirname(path), exist_ok=True)
        aside = None
        if os.path.lexists(path):
            aside = os.path.join(tempfile.mkdtemp(dir=self.root if path.startswith(self.legacy) else self.there), "it")
            os.rename(path, aside)
        kind(path, self.victim_of(path))
        # Changing a hard link's owner would change the victim's file's owner.
        if os.geteuid() == 0 and kind not in (_hard_link, _hard_link_to_store):
            os.chown(path, STRANGER, STRANGER, follow_symlinks=False)

        def remove():
            if os.path.lexists(path):
                shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
            # The plant in a support folder may have gone to the group.
            if aside and os.path.isdir(os.path.dirname(path)):
                os.rename(aside, path)
        return remove


def run(words, environment=None, limit=SECONDS, user=None):
    """Returns exit status, peak memory in KB, seconds, and output."""
    def prepare():
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if user is not None:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)

    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            ["timeout", "-k", "1", str(limit * 2), *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            env=environment or dict(os.environ, GROUPSTORE_SOCKET="/nonexistent/agent.sock"), preexec_fn=prepare)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return process.returncode, usage.ru_maxrss, time.monotonic() - started, output.read().decode(errors="replace")


class Agent:
    """An agent that serves a place's group, and relocates its store by itself."""

    GROUP = "group.example.surroundings"

    def __init__(self, programs, world, legacy, group, *retire):
        self.output = tempfile.TemporaryFile()
        configuration = os.path.join(world.root, "agent.yaml")
        with open(configuration, "w", encoding="utf-8") as file:
            file.write(f"""groups:
  - id: {self.GROUP}
    directory: {group}
    stores:
      - name: {stores.NAME}
        legacy: [{os.path.join(legacy, stores.NAME)}]
        retire: {(*retire, "delete")[0]}
""")
        self.socket = os.path.join(world.root, "agent.sock")
        self.environment = dict(os.environ, GROUPSTORE_SOCKET=self.socket)
        # The agent reports readiness there, as to a service manager.
        notify = os.path.join(world.root, "notify")
        if os.path.exists(notify):
            os.unlink(notify)
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notices.bind(notify)
        self.process = subprocess.Popen(
            [programs.groupstore, "agent", "--config", configuration, "--json"], stdin=subprocess.DEVNULL,
            stdout=self.output, stderr=self.output,
            env=dict(self.environment, NOTIFY_SOCKET=notify))
        pidfd = os.pidfd_open(self.process.pid)
        try:
            select.select([self.notices, pidfd], [], [], SECONDS)
        finally:
            os.close(pidfd)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.notices.close()
        self.output.close()

    @property
    def errors(self):
        return os.pread(self.output.fileno(), 1 << 20, 0).decode(errors="replace")

    def problems(self):
        """Returns what is wrong with the agent: it may have given up with a status of the table, else it runs and is small."""
        status = self.process.poll()
        if status is not None:
            # If a directory became a link to the other, the agent's configuration names one store twice.
            return [] if status in (*STATUSES, 78) else [f"agent: status {status}: {self.errors[-600:]}"]
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            peak = int(next(line for line in file if line.startswith("VmHWM")).split()[1])
        return [f"agent: {peak} KB"] if peak > KILOBYTES else []

    def await_arrival(self, world):
        """Waits until the agent has moved the store to its place, or time is up."""
        until = time.monotonic() + SECONDS
        with groupstore.Changes(f"{self.GROUP}/{stores.NAME}", path=self.socket, wait=True) as changes:
            while not _has_arrived(world) and changes.next(timeout=until - time.monotonic()) is not None:
                pass

    def end(self):
        """Asks the agent to end; a hang is a problem."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                return [f"agent: did not end: {self.errors[-600:]}"]
        return self.problems()


def each_plant(programs, progress, here, other):
    """Plants every kind of thing at every name, on one file system and to another, by commands and by an agent."""
    points = [
        (where, place, name, kind) for where in ("same", "another")
        for place, names in (("legacy", LEGACY_NAMES), ("group", GROUP_NAMES)) for name in names for kind in _kinds()]
    points += [
        (state, place, name, kind) for state in ("intended", "withdrawn", "committing")
        for place, names in (("legacy", HIDDEN_NAMES), ("group", [f".groupstore/{part}/{ID}" for part in (
            "staging", "archive")])) for name in names for kind in _kinds()]
    points = [(by, *point) for by in ("command", "agent") for point in points]
    for by, where, place, name, kind in progress.choose(points):
        # In place of a log with rows, a plant would only remove them.
        kind_of_store = "closed-wal" if name.startswith(stores.NAME + "-") else "wal"
        with Place(here, other if where == "another" else None, kind_of_store) as world:
            if where not in ("same", "another"):
                status, support = (os.stat(os.path.join(world.legacy, part)) for part in (stores.NAME, stores.SUPPORT))
                stores.write_journal(
                    world.group, ID, world.legacy, stores.NAME, (status.st_dev, status.st_ino), where,
                    (support.st_dev, support.st_ino))
            judged = _judged if by == "command" else _judged_by_agent
            found = judged(programs, world, os.path.join(getattr(world, place), name), BY_NAME[kind])
            progress.judge(f"{by}, {where}: {kind} at {place}/{name}", found)


def _relocate(programs, world, *more):
    return [programs.groupstore, "relocate", os.path.join(world.legacy, stores.NAME), world.group, "--json",
            "--deadline", "1", *more]


def _judged(programs, world, path, kind):
    remove = world.plant(path, kind)
    found = []
    stores_name = os.path.join(world.legacy, stores.NAME)
    for words in (
            [programs.groupstore, "status", world.group, "--json"],
            [programs.groupstore, "inspect", stores_name, "--json"],
            _relocate(programs, world, "--dry-run"), _relocate(programs, world),
            [programs.groupstore, "recover", world.group, "--json"]):
        status, peak, seconds, said = run(words)
        if status not in STATUSES:
            found.append(f"{words[1]}: status {status}: {said[-600:]}")
        if "see why" in said or "dmesg" in said:
            found.append(f"{words[1]}: no remedy for it: {said[-400:]}")
        if seconds > SECONDS / 2 or peak > KILOBYTES:
            found.append(f"{words[1]}: {seconds:.1f} s, {peak} KB")
        found += world.harm()
    remove()
    # A store that was only renamed meanwhile is as whole as ever.
    status, _, _, said = run(_relocate(programs, world))
    if status != 0:
        found.append(f"afterwards: status {status}: {said[-600:]}")
    now = stores.content(world.group)
    if now is None or now["rows"] != world.content["rows"]:
        found.append(f"not whole afterwards: {now and str(now)[:200]} {said[-300:]}")
    return found + world.harm()


def _judged_by_agent(programs, world, path, kind):
    remove = world.plant(path, kind)
    with Agent(programs, world, world.legacy, world.group) as agent:
        # The agent answers after it has done what it can.
        status, _, _, said = run(_relocate(programs, world), agent.environment)
        found = [] if status in STATUSES else [f"status {status}: {said[-600:]}"]
        found += agent.problems() + world.harm()
        remove()
        found += agent.end()
    # With the plant gone the agent does its work.
    with Agent(programs, world, world.legacy, world.group) as agent:
        agent.await_arrival(world)
        found += agent.end()
        now = stores.content(world.group)
        if now is None or now["rows"] != world.content["rows"]:
            found.append(f"not whole afterwards: {now and str(now)[:200]} {agent.errors[-600:]}")
    return found + world.harm()


def _has_arrived(world):
    return os.path.isfile(os.path.join(world.group, stores.NAME)) and not os.path.exists(
        os.path.join(world.group, ".groupstore", "journal.json"))
