"""Uses really full disks: the group's, or the store's own, has room for only a part of what is needed."""

import os
import subprocess
import tempfile

import stores
from world import Scenario, World

_STEP = 4096


def each_size(programs, progress, here):
    """Tries small file systems in memory, from one that is full at once to one where all fits."""
    if os.geteuid() != 0:
        print("torture: full: it is skipped: mounting needs root", flush=True)
        return
    for kind in ("wal", "journal"):
        for retire in ("delete", "archive"):
            for where in ("group", "both"):
                _walk(programs, progress, here, Scenario(kind, "another", "command", retire), where)


def _walk(programs, progress, here, scenario, where):
    with tempfile.TemporaryDirectory(prefix="torture.", dir=here) as mount:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", mount], check=True)
        try:
            place = mount if where == "both" else here
            with World(programs, scenario, place, mount) as world:
                for free in progress.choose(range(0, 40 * _STEP, _STEP)):
                    world.reset()
                    filler = os.path.join(mount, "filler")
                    _fill(mount, filler, free)
                    status, summary, said = world.run_again("command")
                    found = world.problems() if status == 0 else world.problems_of_refusal()
                    if status == 0 or (summary.get("error") or {}).get("code") == "unfinished":
                        found = []
                    elif status not in (74, 75):
                        found.append(f"status {status}: {said}")
                    os.unlink(filler)
                    status, summary, said = world.run_again("command")
                    if status != 0:
                        found.append(f"then {status}: {summary or said}")
                    progress.judge(f"{scenario} {where} with {free} bytes free", found + world.problems())
        finally:
            subprocess.run(["umount", mount], check=True)


def _fill(mount, filler, free):
    """Fills the file system except `free` bytes."""
    with open(filler, "wb") as file:
        available = os.statvfs(mount)
        wanted = available.f_bavail * available.f_frsize - free
        try:
            while wanted > 0:
                wanted -= file.write(b"\0" * min(wanted, 1 << 16))
        except OSError:
            pass
