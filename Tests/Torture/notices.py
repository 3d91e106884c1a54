"""Waits for notices of changes in directories (inotify(7)), without polling."""

import ctypes
import os
import select

_LIBC = ctypes.CDLL(None, use_errno=True)
_CHANGES = 0x8 | 0x40 | 0x80 | 0x100 | 0x200  # IN_CLOSE_WRITE, IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE


class Notices:
    def __init__(self):
        self.descriptor = _LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.descriptor)

    def watch(self, *directories):
        """Watches directories that exist; an existing watch stays."""
        for directory in directories:
            _LIBC.inotify_add_watch(self.descriptor, os.fsencode(directory), _CHANGES)

    def wait(self, seconds, other):
        """Waits until something changes, `other` can be read, or time is up. Returns whether `other` can."""
        ready, _, _ = select.select([self.descriptor, other], [], [], max(seconds, 0))
        if self.descriptor in ready:
            os.read(self.descriptor, 1 << 16)
        return other in ready
