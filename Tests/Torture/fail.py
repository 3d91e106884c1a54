"""Fails everywhere: each call of a relocation ends with each of its possible errors, once or from then on."""

import errno

import walk

_CHANGES_NAMES = {"openat", "open", "mkdirat", "mkdir", "renameat", "renameat2", "rename", "linkat", "link", "symlinkat"}
_LOOKS_UP = _CHANGES_NAMES | {"openat2", "unlinkat", "unlink", "rmdir", "newfstatat", "stat", "lstat", "readlink", "faccessat2"}
_WRITES = {"write", "pwrite64", "ftruncate", "fallocate", "fsync", "fdatasync"}
_READS = {"read", "pread64", "getdents64", "fstat"}
_INTERRUPTED = {"openat", "openat2", "open", "read", "pread64", "write", "pwrite64", "fsync", "fdatasync", "ftruncate", "fcntl"}

ERRORS = {
    errno.EIO: _LOOKS_UP | _WRITES | _READS | {"close", "fcntl", "fchmod", "fchown", "utimensat"},
    errno.ENOSPC: _CHANGES_NAMES | _WRITES,
    errno.EDQUOT: _CHANGES_NAMES | _WRITES,
    errno.EACCES: _LOOKS_UP,
    errno.EINTR: _INTERRUPTED,
    errno.EXDEV: {"renameat2", "renameat", "rename", "linkat", "link"},
    errno.EMFILE: {"openat", "openat2", "open"},
}
FOR_GOOD = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.EMFILE)

OUTCOMES = {"relocated", "already_relocated", "nothing_to_do", "conflict", "busy", "refused", "failed", "merged"}


def each_call(world, progress, for_good=False):
    world.reset()
    names = [name for name, _ in walk.calls(world)]
    points = [
        (index, error) for index, name in enumerate(names, 1) for error, calls in ERRORS.items()
        if name in calls and (not for_good or error in FOR_GOOD)]
    for index, error in progress.choose(points):
        world.reset()
        options = ["--fail", index, error] + ["--for-good"] * for_good
        status, summary, said = world.step(*options)
        word = "for good " if for_good else ""
        where = f"{world.scenario} {names[index - 1]} {index} of {len(names)} {word}{errno.errorcode[error]}"
        progress.judge(where, _judged(world, status, summary, said))


def _judged(world, status, summary, said):
    found = []
    if status == 0:
        # EINTR, or an error that nothing depends on.
        found += world.problems()
    elif status not in (64, 65, 69, 73, 74, 75, 77, 78):
        found.append(f"status {status}: {said}")
    else:
        found += _unclear(summary, said)
        clue = (summary.get("error") or {}).get("message", said)
        # Past the commit point, the program says so, and the next run completes the work.
        is_unfinished = (summary.get("error") or summary).get("code") == "unfinished"
        # On a disk that is gone, the program can't restore what it archived to make room: it must say so.
        if not is_unfinished and "stays in the archive" not in said:
            found += [f"{problem} ({clue})" for problem in world.problems_of_refusal()]
    status, summary, said = world.run_again("command")
    if status != 0:
        found.append(f"then {status}: {summary or said}")
    return found + world.problems()


def _unclear(summary, said):
    """Returns an error without its outcome, a code or a remedy, if it could be printed."""
    if not summary or summary.get("type") != "summary":
        return [] if "groupstore:" in said or "rror" in said else [f"it said nothing: {said!r}"]
    error = summary.get("error") or summary
    missing = [key for key in ("code", "message", "hint") if not error.get(key)]
    found = [f"no {', '.join(missing)} in {summary}"] if missing else []
    return found + ([] if summary.get("outcome") in OUTCOMES else [f"outcome {summary.get('outcome')}"])
