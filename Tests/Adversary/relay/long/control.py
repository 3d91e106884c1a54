"""What the processes of one run share: a page of counters, and a lock.

Writers hold the lock together while they commit. Who needs a home without writers takes it alone, and sets PAUSE before, so
that they let go.
"""

import contextlib
import fcntl
import mmap
import os
import struct
import time

ALLOWED, STOP, PAUSE, UNWATCH, UNWATCHED, STATES, SEEN_NUMBER, FULL = range(8)
COMMITS = 16  # and the slots after it: the commits of each writer
SLOTS = 64


class Control:
    def __init__(self, directory):
        path = os.path.join(directory, "control")
        with open(path, "ab") as file:
            if file.tell() == 0:
                file.write(bytes(8 * SLOTS))
        with open(path, "r+b") as file:
            self.page = mmap.mmap(file.fileno(), 8 * SLOTS)
        self.lock = open(os.path.join(directory, "lock"), "a")
        self.queue = open(os.path.join(directory, "queue"), "a")

    def __getitem__(self, slot):
        return struct.unpack_from("<q", self.page, 8 * slot)[0]

    def __setitem__(self, slot, value):
        struct.pack_into("<q", self.page, 8 * slot, value)

    def commits(self):
        """Returns how many commits the writers have made."""
        return sum(struct.unpack_from(f"<{SLOTS - COMMITS}q", self.page, 8 * COMMITS))

    @contextlib.contextmanager
    def shared(self):
        while self[PAUSE] and not self[STOP]:
            time.sleep(0.002)
        fcntl.flock(self.lock, fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self.lock, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def in_turn(self):
        """Lets one writer after the other commit: SQLite's own waiting for a lock is slow among many commits."""
        fcntl.flock(self.queue, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self.queue, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def alone(self):
        self[PAUSE] = 1
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self.lock, fcntl.LOCK_UN)
            self[PAUSE] = 0
