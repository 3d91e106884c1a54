"""Mounts in a mount namespace of the adversary's own: nothing is visible outside, and all of it goes with the process."""

import ctypes
import os

from program import LIBC

NEW_NAMESPACE, BIND, RECURSIVE, PRIVATE, REMOUNT, READ_ONLY, DETACH = 0x20000, 4096, 16384, 1 << 18, 32, 1, 2


def _check(result, path):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


def private_namespace():
    _check(LIBC.unshare(NEW_NAMESPACE), "unshare")
    _check(LIBC.mount(b"none", b"/", None, RECURSIVE | PRIVATE, None), "/")


def tmpfs(path):
    _check(LIBC.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, b"size=16m,mode=755"), path)


def bind(source, path):
    _check(LIBC.mount(os.fsencode(source), os.fsencode(path), None, BIND, None), path)


def unmount(path):
    """Unmounts as a person does, and lazily if that fails as busy. Returns whether it was busy."""
    if LIBC.umount2(os.fsencode(path), 0) == 0:
        return False
    _check(LIBC.umount2(os.fsencode(path), DETACH), path)
    return True
