"""Watching a store without an agent: `groupstore watch --direct` as a child process."""

from __future__ import annotations

import os
import re
import select
import shlex
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Optional

from . import _protocol as protocol
from ._core import ProgramOutput
from ._protocol import Path, Selection
from ._sources import Source, Wish
from .errors import DirectoryMissing, GroupStoreError, ProgramFailed, ProgramMissing
from .events import Event

PROGRAM = "groupstore"
ADDRESS = re.compile(rb"[^/]+/[^/]+")
"""The form of a store's name, GROUP_ID/NAME. A path in a directory beside has it, too."""
END_TIMEOUT = 2.0
"""The seconds that the program may take to end."""
NO_GROUP = "no_container"
"""The program's error code for a group that doesn't exist."""
POLL_INTERVAL = 0.005
"""The seconds between looks at a program that is about to end."""
NO_PROGRAM = "install the package groupstore, or pass the path of the program: program=…"


def _escaped(names: Iterable[str]) -> str:
    return ",".join(each.replace("\\", "\\\\").replace(",", "\\,") for each in names)


def _arguments(selection: Selection) -> list[bytes]:
    """Returns the program's options for a selection."""
    words = [f"--{name.replace('_', '-')}={_escaped(value)}" for name, value in selection.lists().items()]
    words += [f"--{name}" for name in ("rows", "durable") if getattr(selection, name)]
    return [word.encode() for word in words]


def names_group(store: bytes) -> bool:
    """Returns True if the store can only be one of a group, GROUP_ID/NAME: there is no such directory here."""
    return ADDRESS.fullmatch(store) is not None and not os.path.exists(os.path.dirname(os.path.abspath(store)))


def check_directory(store: bytes) -> None:
    """Raises DirectoryMissing if a store can't appear at this path."""
    directory = os.path.dirname(os.path.abspath(store))
    if os.path.isdir(directory):
        return
    name = os.fsdecode(directory)
    remedy = f"make it: mkdir -p {shlex.quote(name)}"
    if os.path.exists(directory):
        message, remedy = f"{name} is not a directory", "name a file in a directory"
    else:
        message = f"there is no directory {name}"
    raise DirectoryMissing("no_directory", message, remedy, name)


class Child:
    """The program that watches a store. Only `wait` waits, and not for long."""

    def __init__(self, program: Path, words: list[bytes], directory: Optional[bytes] = None) -> None:
        try:
            # In a session of its own: the terminal's Ctrl-C is for this program, which ends the child.
            self._process = subprocess.Popen(
                [os.fsencode(program), *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                cwd=directory,
            )
        except FileNotFoundError as error:
            if directory is not None and not os.path.isdir(directory):
                gone = os.fsdecode(directory)
                message = f"the working directory {gone} has gone"
                raise DirectoryMissing("no_directory", message, "change to another one", gone) from error
            name = os.fsdecode(program)
            where = "" if os.sep in name else " on $PATH"
            raise ProgramMissing("no_program", f"there is no program {name}{where}", NO_PROGRAM, name) from error
        except OSError as error:
            message = f"can't start {os.fsdecode(program)}: {error.strerror or error}"
            raise ProgramFailed("no_program", message, NO_PROGRAM) from error
        assert self._process.stdout is not None and self._process.stderr is not None
        self.output, self.errors = self._process.stdout, self._process.stderr
        for pipe in (self.output, self.errors):
            os.set_blocking(pipe.fileno(), False)

    def descriptors(self) -> Mapping[int, int]:
        """Returns what to wait for."""
        return {pipe.fileno(): select.POLLIN for pipe in (self.output, self.errors) if not pipe.closed}

    @staticmethod
    def read(pipe: IO[bytes]) -> Optional[bytes]:
        """Returns what has arrived; None if nothing has, no bytes at the end."""
        try:
            return os.read(pipe.fileno(), protocol.CHUNK)
        except BlockingIOError:
            return None

    def wait(self) -> int:
        """Returns the exit status of a program that is about to end."""
        try:
            return self._process.wait(END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def end(self) -> Iterator[float]:
        """Ends the program, at the latest after some seconds, and frees everything. Yields the seconds to sleep."""
        try:
            if self._process.poll() is None:
                self._process.terminate()
            deadline = time.monotonic() + END_TIMEOUT
            while self._process.poll() is None and time.monotonic() < deadline:
                yield POLL_INTERVAL
        finally:
            self._kill()

    def _kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self.output.close()
        self.errors.close()

    def __del__(self) -> None:
        # After an iteration that nobody closed. A constructor that failed has no process.
        if hasattr(self, "_process"):
            self._kill()


class DirectSource(Source):
    """The events of the program that watches a store."""

    def __init__(self, store: Path, since: Optional[str], selection: Selection, program: Optional[Path]) -> None:
        # A later change of the working directory doesn't move the store. The program resolves a group's name.
        self._store, self._directory = os.fsencode(store), os.getcwdb()
        self._names_group = names_group(self._store)
        if not self._names_group:
            self._store = os.path.abspath(self._store)
        self._selection = selection
        self._program = program or PROGRAM
        self._output = ProgramOutput(since)
        self._child: Optional[Child] = None

    @property
    def is_direct(self) -> bool:
        return True

    @property
    def token(self) -> Optional[str]:
        return self._output.token

    def step(self, is_ready: bool) -> Optional[Event]:
        if self._child is None:
            if not self._names_group:
                check_directory(self._store)
            self._child = Child(self._program, self._words(), self._directory if self._names_group else None)
        elif is_ready:
            self._read(self._child)
        return self._output.event()

    def _words(self) -> list[bytes]:
        words = [b"watch", b"--json", b"--direct"]
        if self.token is not None:
            words.append(b"--since=" + self.token.encode())
        return [*words, *_arguments(self._selection), b"--", self._store]

    def _read(self, child: Child) -> None:
        self._read_errors(child)
        data = child.read(child.output)
        if data:
            self._output.receive(data)
        elif data is not None:
            status = child.wait()
            self._read_errors(child)
            raise self._failure(self._output.end(status))

    def _failure(self, failure: ProgramFailed) -> GroupStoreError:
        """Returns the error for the program's end: there is no such group, or another one."""
        if failure.code != NO_GROUP:
            return failure
        path = os.path.join(self._directory, os.path.dirname(self._store))
        name, remedy = os.fsdecode(path), failure.remedy
        if not self._store.startswith(b"group."):
            # Rather a directory than a group. A directory with a group's name would hide the group.
            remedy = f"make it: mkdir -p {shlex.quote(name)}"
        return DirectoryMissing(failure.code, failure.message, remedy, name)

    def _read_errors(self, child: Child) -> None:
        while not child.errors.closed:
            data = child.read(child.errors)
            if data is None:
                return
            self._output.warn(data)
            if not data:
                child.errors.close()

    def wish(self) -> Wish:
        return Wish(self._child.descriptors() if self._child is not None else {})

    def rewind(self, token: Optional[str]) -> None:
        self._output.rewind(token)

    def end(self) -> Iterator[float]:
        child, self._child = self._child, None
        return child.end() if child is not None else iter(())
