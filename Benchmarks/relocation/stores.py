"""Makes stores to relocate, and places for them."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile

MIB = 1 << 20
NAME = "Store.sqlite"


def make_store(path, mebibytes):
    """Makes about `mebibytes` of blobs that no file system can compress."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA page_size = 4096")
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE photo (id INTEGER PRIMARY KEY, bytes BLOB)")
    connection.execute("BEGIN")
    for _ in range(mebibytes):
        connection.execute("INSERT INTO photo (bytes) VALUES (randomblob(1040000))")
    connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


def command(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"relocation: {' '.join(words)}: {done.returncode}: {done.stdout}{done.stderr}")


@contextlib.contextmanager
def loop_mount(here, kind, mebibytes):
    """Mounts a private file system in a file that takes real space from the beginning. Root only."""
    with tempfile.TemporaryDirectory(prefix="groupstore-bench-loop-", dir=here) as place:
        image, mount = os.path.join(place, "image"), os.path.join(place, "mount")
        os.mkdir(mount)
        command("fallocate", "-l", f"{max(mebibytes, 512)}M", image)
        options = ["-E", "lazy_itable_init=0,lazy_journal_init=0"] if kind == "ext4" else []
        command(f"mkfs.{kind}", "-q", *options, image)
        command("mount", "-o", "loop", image, mount)
        try:
            yield mount
        finally:
            command("umount", mount)


def other_directory(options):
    """Returns a directory on another file system than `options.here`."""
    has_room = shutil.disk_usage("/dev/shm").free > 3 * options.size * MIB
    other = options.other or ("/dev/shm" if has_room else "ext4")
    if other in ("ext4", "xfs", "btrfs"):
        return loop_mount(options.here, other, 3 * options.size + 128)
    return contextlib.nullcontext(other)
