"""Works out from strace what a process did to stores: every write to a database, every log truncated or removed, every lock.

A process may write a database only while it holds a write lease or SQLite's exclusive lock on it, and not while
it maps the shared index of the log, as a checkpoint beside other programs would. It may truncate or remove a log
only under one of the two. New unknown files, and the contents of `.groupstore`, are ours.
"""

import collections
import re

CALLS = ("openat,open,close,dup,write,pwrite64,pwritev,ftruncate,truncate,unlink,unlinkat,rename,renameat,renameat2,"
         "fcntl,execve,clone,clone3,fork,vfork,exit_group")
OPTIONS = ["-f", "-qq", "-yy", "-s", "64", "-e", "trace=" + CALLS, "-e", "signal=none"]

_LINE = re.compile(r"^(\d+) +(.*)$")
_CALL = re.compile(r"^(\w+)\((.*)\) += (-?\d+|\?)(?:<[^>]*>)?(.*)$")
_FILE = re.compile(r"^(\d+)<(/[^<>]*)(?:<[^>]*>)?>(?:\(deleted\))?")
_NAME = re.compile(r'(?:AT_FDCWD(?:<([^>]*)>)?|\d+<([^>]*)>), "((?:[^"\\]|\\.)*)"')
_LOCK = re.compile(r"l_type=(F_\w+), l_whence=SEEK_SET, l_start=(\d+), l_len=(\d+)")
_PENDING, _SHARED = 0x40000000, (0x40000002, 510)
_CHECKPOINT_LOCK = (121, 1)


class Process:
    def __init__(self, name="", assumes_closed=False):
        self.name, self.assumes_closed = name, assumes_closed
        self.leases = {}  # descriptor: path
        self.exclusive = {}  # path: descriptor
        self.open = {}  # descriptor: path
        self.made = set()


class Trace:
    """Reads one file of `strace -f -yy -o`."""

    def __init__(self, path):
        self.problems, self.counts = [], collections.Counter()
        self._processes, self._owner, self._unfinished = {}, {}, {}
        self._databases = set()
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
        # Any file that SQLite locks, or anybody leases for writing, is a database: found first, for all lines. A read lease
        # of a log only asks whether a program is writing it.
        for line in lines:
            self._learn(line)
        for line in lines:
            self._read(line)

    def _learn(self, line):
        if "F_SETLEASE" in line and "F_WRLCK" in line or "l_start=10737418" in line:
            found = re.search(r"fcntl\((\d+<[^,]*)", line)
            file = found and _FILE.match(found.group(1))
            if file and not file.group(2).endswith("-shm"):
                self._databases.add(file.group(2))

    def _process(self, task):
        task = self._owner.get(task, task)
        return self._processes.setdefault(task, Process())

    def _read(self, line):
        found = _LINE.match(line)
        if not found:
            return
        task, text = int(found.group(1)), found.group(2)
        if text.endswith("<unfinished ...>"):
            self._unfinished[task] = text[: -len("<unfinished ...>")].rstrip()
            return
        if text.startswith("<... "):
            text = self._unfinished.pop(task, "") + re.sub(r"^<\.\.\. \w+ resumed>", "", text)
        call = _CALL.match(text)
        if call is None:
            return
        name, arguments, result = call.group(1), call.group(2), call.group(3)
        if result == "?" or int(result) < 0:
            return
        process = self._process(task)
        self.counts["calls"] += 1
        if name in ("clone", "clone3", "fork", "vfork"):
            self._begin(process, int(result), "CLONE_THREAD" in arguments, task)
        elif name == "execve":
            fresh = Process(arguments[:200], "--assume-closed" in arguments)
            self._processes[self._owner.get(task, task)] = fresh
        elif name == "fcntl":
            self._lock(process, arguments, line)
        elif name in ("open", "openat"):
            self._open(process, int(result), arguments, line)
        elif name == "close":
            self._close(process, arguments, line)
        elif name in ("write", "pwrite64", "pwritev", "ftruncate"):
            self._write(process, name, arguments, line)
        elif name in ("unlink", "unlinkat", "rename", "renameat", "renameat2"):
            self._name(process, name, arguments, line)

    def _begin(self, process, child, is_thread, task):
        if is_thread:
            self._owner[child] = self._owner.get(task, task)
            return
        # A child inherits no locks; leases belong to the parent's open file descriptions.
        if child not in self._processes:
            new = self._processes[child] = Process(process.name, process.assumes_closed)
            new.leases, new.open, new.made = dict(process.leases), dict(process.open), set(process.made)

    def _lock(self, process, arguments, line):
        file = _FILE.match(arguments)
        if not file:
            return
        descriptor, path = int(file.group(1)), file.group(2)
        if "F_SETLEASE" in arguments:
            if arguments.endswith("F_WRLCK"):
                process.leases[descriptor] = path
                self.counts["leases"] += 1
            else:
                process.leases.pop(descriptor, None)
            return
        lock = _LOCK.search(arguments)
        if not lock or "F_SETLK" not in arguments and "F_SETLKW" not in arguments or "OFD" in arguments:
            return
        kind, start, length = lock.group(1), int(lock.group(2)), int(lock.group(3))
        if path.endswith("-shm"):
            if kind == "F_WRLCK" and (start, length) == _CHECKPOINT_LOCK:
                self._report("a checkpoint beside other programs", process, line)
        elif kind == "F_WRLCK" and (start, length) == _SHARED:
            process.exclusive[path] = descriptor
            self.counts["exclusive locks"] += 1
        elif kind != "F_WRLCK" and start <= _SHARED[0] and (length == 0 or start + length > _SHARED[0]):
            process.exclusive.pop(path, None)

    def _open(self, process, descriptor, arguments, line):
        found = re.search(r"= (\d+)<(/.*?)>(?:\s|$)", line)
        path = found.group(2).split("<")[0] if found else None
        if path:
            process.open[descriptor] = path
            if "O_EXCL" in arguments or "O_TMPFILE" in arguments:
                process.made.add(path)

    def _close(self, process, arguments, line):
        number = re.match(r"^(\d+)", arguments)
        if not number:
            return
        descriptor = int(number.group(1))
        process.leases.pop(descriptor, None)
        path = process.open.pop(descriptor, None)
        # Closing any descriptor drops all of the process's locks on the file (howtocorrupt.html, 2.2).
        if path in process.exclusive:
            if process.exclusive[path] != descriptor:
                self._report("a close that drops SQLite's lock", process, line)
            del process.exclusive[path]

    def _is_ours(self, process, path):
        return "/.groupstore/" in path or path in process.made or process.assumes_closed

    def _is_alone(self, process, path):
        return path in process.leases.values() or path in process.exclusive

    def _database_of(self, path):
        for suffix in ("-wal", "-journal", "-shm"):
            if path.endswith(suffix):
                return path[: -len(suffix)]
        return path

    def _write(self, process, name, arguments, line):
        file = _FILE.match(arguments)
        if not file or self._is_ours(process, file.group(2)):
            return
        descriptor, path = int(file.group(1)), file.group(2)
        if path in self._databases:
            self.counts["writes to databases"] += 1
            if descriptor in process.leases:
                return
            if not self._is_alone(process, path):
                self._report("a database written without lease or exclusive lock", process, line)
            elif path + "-shm" in process.open.values():
                self._report("a database written beside a shared index", process, line)
        elif path.endswith("-wal") and name == "ftruncate":
            self.counts["logs truncated"] += 1
            if not self._is_alone(process, self._database_of(path)):
                self._report("a log truncated without lease or exclusive lock", process, line)

    def _name(self, process, name, arguments, line):
        for number, found in enumerate(_NAME.finditer(arguments)):
            directory, base = found.group(1) or found.group(2) or "", found.group(3)
            path = base if base.startswith("/") else directory + "/" + base
            # A renamed log is inspected under its new name, and comes back if it has content.
            if not path.endswith("-wal") or self._is_ours(process, path) or (number == 0 and name.startswith("rename")):
                continue
            self.counts["logs removed or replaced"] += 1
            if not process.leases and not self._is_alone(process, self._database_of(path)):
                self._report("a log removed without lease or exclusive lock", process, line)

    def _report(self, problem, process, line):
        self.problems.append(f"{problem}: {line.strip()}\n  by {process.name}")
