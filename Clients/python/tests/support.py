"""A store, an agent of its own, and programs that are no agents."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import unittest
from collections.abc import Sequence
from typing import Any, Callable, Optional

PROGRAM = os.path.abspath(os.environ.get("GROUPSTORE") or shutil.which("groupstore") or "groupstore")
GROUP = "group.com.example.python"
PATIENCE = 60.0
"""The seconds that anything may take on a busy machine."""


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Waits until the condition is true."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not in time: {what}")
        time.sleep(0.005)


def children() -> list[int]:
    """Returns the processes that this one has started and not waited for."""
    found: list[int] = []
    for task in os.listdir("/proc/self/task"):
        # A thread may have ended meanwhile.
        with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{task}/children", encoding="ascii") as file:
            found += map(int, file.read().split())
    return found


class Places(unittest.TestCase):
    """A directory with a store, and perhaps an agent that serves it."""

    def setUp(self) -> None:
        self.scratch = tempfile.mkdtemp(prefix="groupstore-python-")
        self.addCleanup(shutil.rmtree, self.scratch)
        self.group = os.path.join(self.scratch, "group")
        os.mkdir(self.group)
        self.file = os.path.join(self.group, "Notes.sqlite")
        self.store = f"{GROUP}/Notes.sqlite"
        self.socket = os.path.join(self.scratch, "agent.sock")
        self.commit()
        self.settle()
        former = os.environ.get("GROUPSTORE_SOCKET")
        os.environ["GROUPSTORE_SOCKET"] = self.socket
        self.addCleanup(self._restore, former)
        self.assertEqual(children(), [])
        self.descriptors = len(os.listdir("/proc/self/fd"))
        self.agent: Optional[subprocess.Popen[bytes]] = None
        self.addCleanup(self._check_ends)

    @staticmethod
    def _restore(former: Optional[str]) -> None:
        os.environ.pop("GROUPSTORE_SOCKET")
        if former is not None:
            os.environ["GROUPSTORE_SOCKET"] = former

    def _check_ends(self) -> None:
        if self.agent is not None:
            self.end_agent(signal.SIGTERM)
        self.assertEqual(children(), [], "a child process is left")
        self.assertEqual(len(os.listdir("/proc/self/fd")), self.descriptors, "a descriptor is left open")

    def settle(self) -> None:
        """Waits until a later write must change the file's times. A token from before can't rule one out."""

        def is_settled() -> bool:
            return time.time() - os.stat(self.file).st_mtime > 0.02

        eventually(is_settled, "the file's times are old")

    def commit(self, text: str = "milk", file: Optional[str] = None) -> None:
        """Commits a row."""
        store = sqlite3.connect(file or self.file, timeout=PATIENCE)
        try:
            store.executescript("PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS note (text);")
            with store:
                store.execute("INSERT INTO note VALUES (?)", (text,))
        finally:
            store.close()

    def start_agent(self, *words: str) -> None:
        """Starts an agent, and waits until it listens."""
        self.agent = subprocess.Popen(
            [PROGRAM, "agent", "--group", f"{GROUP}={self.group}", *words], stderr=subprocess.DEVNULL
        )

        def listens() -> bool:
            with socket.socket(socket.AF_UNIX) as attempt:
                try:
                    attempt.connect(self.socket)
                except OSError:
                    return False
            return True

        eventually(listens, "the agent listens")

    def end_agent(self, number: int = signal.SIGKILL) -> None:
        """Ends the agent."""
        if self.agent is not None:
            self.agent.send_signal(number)
            self.agent.wait()
        self.agent = None


class Impostor:
    """Listens at a socket. Each client gets the next of the answers, and then the end of the connection."""

    def __init__(self, path: str, answers: Sequence[bytes], is_silent: bool = False) -> None:
        self.path, self.answers, self.is_silent = path, list(answers), is_silent
        self.requests: list[bytes] = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(100)
        self.connections: list[socket.socket] = []
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            if self.is_silent:
                continue
            try:
                self.requests.append(connection.recv(65536))
                connection.sendall(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    def __enter__(self) -> Impostor:
        return self

    def __exit__(self, *_: Any) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()
        for connection in self.connections:
            connection.close()
        os.unlink(self.path)


HELLO = b'{"type":"hello","proto":1,"agent":"0","max_line":32768}\n'
SUBSCRIBED = b'{"id":1,"ok":true,"token":"t0","path":"/x"}\n'
CHANGE = b'{"type":"change","store":"x","tables":["note"],"complete":true,"token":"t1"}\n'
