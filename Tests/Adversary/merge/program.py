"""Runs the program under test, and judges what every run must hold whatever the stores are."""

import json
import os
import subprocess
import time

import stores


BUSY = 300  # seconds that a build may take


class Problem(Exception):
    """What was promised and isn't so."""


def demand(condition, text):
    if not condition:
        raise Problem(text)


class Outcome:
    def __init__(self, code, lines, errors, arguments):
        self.code, self.lines, self.errors, self.arguments = code, lines, errors, arguments

    @property
    def summary(self):
        demand(
            self.lines and self.lines[-1].get("type") == "summary",
            f"no summary: exit {self.code}, {self.errors[-800:]}",
        )
        return self.lines[-1]

    @property
    def error(self):
        return self.summary.get("error", {}).get("code")

    def plan(self):
        """Returns the lines on matching: for a dry run and the run the same."""
        return [line for line in self.lines if line.get("type") in ("merge", "merge_links")]

    def __str__(self):
        last = self.lines[-1] if self.lines else None
        return f"exit {self.code}, {json.dumps(last, ensure_ascii=False)[:900]}, stderr {self.errors[-300:]!r}"


class Program:
    """The program with surroundings of its own: no agent, no configuration."""

    def __init__(self, path, directory):
        self.path, self.directory = path, directory
        self.log, self.last = [], ""
        home = os.path.join(directory, "home")
        self.temporary = os.path.join(directory, "tmp")
        for each in (home, self.temporary):
            os.makedirs(each, exist_ok=True)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": home,
            "XDG_RUNTIME_DIR": home,
            "TMPDIR": self.temporary,
            "GROUPSTORE_STRICT": "1",
            "LANG": "C.UTF-8",
        }

    def note(self, text):
        """Names what the round does, for its report."""
        self.log.append(text)
        self.last = text

    def start(self, *arguments):
        for _ in range(BUSY):
            try:
                return subprocess.Popen(
                    [self.path, *arguments],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    stdin=subprocess.DEVNULL,
                    env=self.environment,
                    cwd=self.directory,
                )
            except OSError:  # it is just being built
                time.sleep(1)
        raise Problem(f"{self.path} can't be run")

    def ended(self, process, arguments):
        try:
            output, errors = process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Problem(f"no end within 240 s: {arguments}") from None
        lines = []
        for line in output.decode("utf-8", "replace").splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError as error:
                raise Problem(f"not a JSON line: {line[:300]!r}") from error
        outcome = Outcome(process.returncode, lines, errors.decode("utf-8", "replace"), arguments)
        self.last = str(outcome.error or outcome.lines[-1].get("outcome")) if lines else f"exit {outcome.code}"
        self.log.append(f"{arguments}\n{outcome}\n" + output.decode("utf-8", "replace"))
        return outcome

    def run(self, *arguments):
        outcome = self.ended(self.start(*arguments), arguments)
        demand(outcome.code >= 0, f"the program died of signal {-outcome.code}: {arguments}: {outcome.errors[-600:]}")
        return outcome


class Stage:
    """A private directory with the legacy store, and a group container with its own."""

    def __init__(self, directory, program):
        self.directory, self.program = directory, program
        self.old, self.group = os.path.join(directory, "old"), os.path.join(directory, "group")
        for each in (self.old, self.group):
            os.makedirs(each)
        self.legacy_store = os.path.join(self.old, "S.sqlite")
        self.group_store = os.path.join(self.group, "S.sqlite")

    def remember(self):
        """Remembers both originals."""
        self.legacy = stores.content(self.legacy_store)
        self.original = stores.content(self.group_store)

    def arguments(self, *more):
        return ("relocate", self.legacy_store, self.group, "--on-conflict", "merge", "--json", *more)

    def dry_run(self, *more):
        """Runs a dry run, which must change nothing."""
        before = (stores.tree(self.old), stores.tree(self.group))
        outcome = self.program.run(*self.arguments("--dry-run", *more))
        after = (stores.tree(self.old), stores.tree(self.group))
        demand(before == after, f"the dry run changed files: {difference(before, after)}")
        left = os.listdir(self.program.temporary)
        demand(not left, f"the dry run left files under TMPDIR: {left}")
        return outcome

    def run(self, *more):
        return self.program.run(*self.arguments(*more))

    def unchanged(self, outcome):
        """After a refusal: both stores are as they were."""
        demand(outcome.code != 0, f"a refusal was due: {outcome}")
        for path, before in ((self.legacy_store, self.legacy), (self.group_store, self.original)):
            demand(os.path.exists(path), f"the refusal took {path} away: {outcome}")
            demand(stores.content(path) == before, f"the refusal changed {path}: {outcome}")
        work = os.path.join(self.group, ".groupstore")
        left = [os.path.join(part, n) for part in ("staging", "archive") for n in listed(os.path.join(work, part))]
        demand(not left, f"the refusal left {left}: {outcome}")
        demand(not os.path.exists(os.path.join(work, "journal.json")), "the refusal left a journal")

    def refused(self, code, *more):
        """Both the dry run and the run must be refused with this code (one of several)."""
        codes = code if isinstance(code, tuple) else (code,)
        for run in (self.dry_run, self.run):
            outcome = run(*more)
            demand(outcome.code != 0, f"{codes} was due, but it ended well: {outcome} {more}")
            demand(outcome.error in codes, f"{codes} was due: {outcome} {more}")
            self.unchanged(outcome)

    def archived(self, outcome):
        """Both originals are in the archive, as they were."""
        archives = outcome.summary.get("merge", {}).get("archives")
        demand(archives, f"the summary names no archives: {outcome}")
        for side, before in (("group", self.original), ("legacy", self.legacy)):
            path = os.path.join(archives[side], "S.sqlite")
            demand(os.path.exists(path), f"the {side}'s archive has no store: {archives[side]}")
            now = stores.content(path)
            demand(now == before, f"the {side}'s archive differs: {content_difference(before, now)}")
        demand(not os.path.lexists(self.legacy_store), "the legacy store is still at its place")

    def in_archives(self):
        """Without a summary: both originals are in some archive."""
        archive = os.path.join(self.group, ".groupstore", "archive")
        found = [stores.content(os.path.join(archive, n, "S.sqlite")) for n in listed(archive)]
        demand(self.original in found, "the group's original is in no archive")
        demand(self.legacy in found, "the legacy original is in no archive")


def listed(directory):
    return os.listdir(directory) if os.path.isdir(directory) else []


def difference(before, after):
    changed = []
    for one, other in zip(before, after):
        changed += [n for n in sorted(one.keys() | other.keys()) if one.get(n) != other.get(n)]
    return changed[:10]


def content_difference(one, other):
    for part in one:
        if one[part] != other[part]:
            if part == "rows":
                for table in one[part].keys() | other[part].keys():
                    a, b = one[part].get(table), other[part].get(table)
                    if a != b:
                        gone, new = ([r for r in x or [] if r not in (y or [])][:3] for x, y in ((a, b), (b, a)))
                        return f"rows of {table!r}: {gone} became {new}"
            return f"{part}: {str(one[part])[:300]} became {str(other[part])[:300]}"
    return "nothing"
