"""A place with a legacy and a group directory, the programs that run in it, and the oracle that judges it afterwards."""

import dataclasses
import json
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

import stores
from notices import Notices

GROUP_ID = "group.com.example.torture"
TIME_LIMIT = 60
OTHER_USER = 65534


@dataclasses.dataclass(frozen=True)
class Scenario:
    kind: str = "wal"
    file_system: str = "same"  # or "another"
    by: str = "command"  # or "agent"
    retire: str = "delete"
    # The group directory's first content: nothing, "empty" (a store without rows), "same" (the same content), or "other"
    # rows, which are kept ("keep-group"), archived ("keep-legacy") or merged with the legacy store's ("merge").
    group: str = "nothing"
    on_conflict: str = "refuse"
    # The relocating user isn't root, and can't write to their support folder.
    closed: bool = False
    # The store is Core Data's, and is migrated: "inferred" or "mapped", on its way or in place, the group directory.
    change: str = ""
    at_its_place: bool = False

    def __str__(self):
        words = [self.by, self.kind, self.file_system, self.retire]
        words += [self.change] * bool(self.change) + ["at its place"] * self.at_its_place
        if self.group != "nothing":
            words.append(self.group if self.on_conflict == "refuse" else self.on_conflict)
        return "/".join(words + ["closed"] * self.closed)

    @property
    def publishes(self):
        return self.group in ("nothing", "empty") or self.on_conflict == "keep-legacy"

    @property
    def receipts(self):
        return 1 if (self.publishes or self.on_conflict == "merge") and not self.at_its_place else 0


class World:
    """One scenario's directories, set up again for each point."""

    def __init__(self, programs, scenario, here, other):
        self.programs = programs
        self.scenario = scenario
        self.here = tempfile.mkdtemp(prefix="torture.", dir=here)
        there = other if scenario.file_system == "another" else here
        self.there = tempfile.mkdtemp(prefix="torture.", dir=there)
        self.legacy = os.path.join(self.here, "legacy")
        self.group = os.path.join(self.there, "group")
        self.home = self.group if scenario.at_its_place else self.legacy
        self.socket = os.path.join(self.here, "agent.sock")
        self._templates = tempfile.mkdtemp(prefix="torture.", dir="/dev/shm")
        if scenario.closed:
            for place in (self.here, self.there):
                os.chown(place, OTHER_USER, OTHER_USER)
        self._prepare()
        self.wanted = self._wanted()

    def close(self):
        for directory in (self.here, self.there, self._templates):
            shutil.rmtree(directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # Setting up

    def _template(self, name):
        return os.path.join(self._templates, name)

    def _prepare(self):
        for place in ("legacy", "group"):
            os.mkdir(self._template(place), 0o755)
        stores.make(self.scenario.kind, self._template("legacy"))
        if self.scenario.closed:
            stores.close(self._template("legacy"))
        if self.scenario.group == "same":
            shutil.rmtree(self._template("group"))
            shutil.copytree(self._template("legacy"), self._template("group"))
        elif self.scenario.group != "nothing":
            stores.make(self.scenario.group, self._template("group"), support=False)
        if self.scenario.on_conflict == "merge":
            stores.merge(self._template("group"), self._template("legacy"), self._template("merged"))
        self.uses_log = stores.uses_log(self._template("legacy"))
        config = [
            f"socket: {{ path: {self.socket} }}", "groups:", f"  - id: {GROUP_ID}",
            f"    directory: {self.group}", "    stores:", f"      - name: {stores.NAME}",
            f"        legacy: [{self.legacy}/{stores.NAME}]", f"        on-conflict: {self.scenario.on_conflict}",
            f"        retire: {self.scenario.retire}", "        settle: 1ms"]
        with open(os.path.join(self.here, "config.yaml"), "w", encoding="utf-8") as file:
            file.write("\n".join(config) + "\n")

    def reset(self):
        for place in (self.legacy, self.group):
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(self._template(os.path.basename(place)), place)
        self.own()

    def own(self):
        """Gives the existing files to the relocating user."""
        if self.scenario.closed:
            owner = f"{OTHER_USER}:{OTHER_USER}"
            subprocess.run(["chown", "-hR", owner, self.legacy, self.group], check=True)

    # Running

    def _words(self):
        if self.scenario.by == "agent":
            return [self.programs.groupstore, "agent", "--config", os.path.join(self.here, "config.yaml")]
        return self._command_words()

    def program(self):
        user = str(OTHER_USER)
        become = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups"] if self.scenario.closed else []
        return become + [self.programs.groupstore]

    def _command_words(self):
        return self.program() + [
            "relocate", os.path.join(self.legacy, stores.NAME), self.group, "--json",
            "--retire", self.scenario.retire, "--on-conflict", self.scenario.on_conflict, "--deadline", "10"]

    def _environment(self):
        return dict(os.environ, GROUPSTORE_SOCKET=self.socket)

    def run(self, words):
        """Runs a command undisturbed. Returns its exit status, its last object, and its output."""
        return self._run(words, False)

    def step(self, *options, by=None, undo=False, words=None):
        """Runs a relocation, or other words, under the stepper. Returns its exit status, its last object, and its output."""
        is_agent = words is None and (by or self.scenario.by) == "agent"
        words = words or (self._words() if is_agent else self._command_words())
        if undo:
            words.append("--undo")
        stepper = [self.programs.stepper, "--marker", self.group, *map(str, options), "--"]
        return self._run(stepper + words, is_agent)

    def run_again(self, by):
        """Runs the relocation undisturbed."""
        if by == "agent":
            words = [self.programs.groupstore, "agent", "--config", os.path.join(self.here, "config.yaml")]
            return self._run(words, True)
        return self._run(self._command_words(), False)

    def recover(self):
        return self._run(self.program() + ["recover", self.group, "--json"], False)

    def _run(self, words, is_agent):
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=self._environment())
            status = self._await_agent(process) if is_agent else self._await(process)
            output.seek(0)
            errors.seek(0)
            lines = output.read().decode(errors="replace").splitlines()
            said = errors.read().decode(errors="replace")
        summary = {}
        if lines and not is_agent:
            try:
                summary = json.loads(lines[-1])
            except ValueError:
                pass
        return status, summary, said + "\n".join(lines)

    @staticmethod
    def _await(process):
        if process.poll() is not None:
            return process.returncode
        # With a timeout, `wait` polls at intervals, which takes longer than most runs.
        pidfd = os.pidfd_open(process.pid)
        try:
            has_ended, _, _ = select.select([pidfd], [], [], TIME_LIMIT)
        finally:
            os.close(pidfd)
        if has_ended:
            return process.wait()
        process.kill()
        process.wait()
        return "did not end"

    def _await_agent(self, process):
        """Ends an agent, which otherwise runs for ever, when it has nothing left to do."""
        deadline = time.monotonic() + TIME_LIMIT
        pidfd = os.pidfd_open(process.pid)
        try:
            with Notices() as notices:
                while time.monotonic() < deadline:
                    # The watch starts before the inspection, so nothing in between is missed.
                    notices.watch(self.legacy, self.group, os.path.join(self.group, ".groupstore"))
                    if self.is_over() or notices.wait(deadline - time.monotonic(), pidfd):
                        break
        finally:
            os.close(pidfd)
        if process.poll() is None:
            process.terminate()
        status = self._await(process)
        if not self.is_over():
            return status or "did not relocate"
        # An agent with nothing left to do may be asked to end before it could listen.
        return 0 if status == -signal.SIGTERM else status

    def is_over(self):
        """Returns whether nothing is under way, the old name is retired, and the group has a store."""
        old = os.path.join(self.legacy, stores.NAME)
        return (
            (not os.path.lexists(old) or os.path.islink(old))
            and not os.path.lexists(os.path.join(self.group, ".groupstore", "journal.json"))
            and os.path.isfile(os.path.join(self.group, stores.NAME)))

    # The oracle

    def _wanted(self):
        """Returns what must be there at the end: the group's content, and the archived stores'."""
        legacy = stores.content(self._template("legacy"))
        group = stores.content(self._template("group"))
        archived = [legacy] if self.scenario.retire == "archive" and self.scenario.publishes else []
        if self.scenario.on_conflict == "merge":
            return stores.content(self._template("merged")), [legacy, group]
        if self.scenario.on_conflict == "keep-group":
            return group, archived + [legacy]
        if self.scenario.group == "empty" or self.scenario.on_conflict == "keep-legacy":
            archived.append(group)
        return legacy, archived

    def problems_of_two(self):
        """Checks that two names are never the store at once. Applies only if one place held a store at first."""
        names = [os.path.join(place, stores.NAME) for place in (self.legacy, self.group)]
        both = all(os.path.isfile(name) and not os.path.islink(name) for name in names)
        return ["two stores at one instant"] if both and self.scenario.group == "nothing" else []

    def problems(self):
        """Returns what is wrong at the end; the list is empty after a correct run."""
        found = []
        published, archived = self.wanted
        if (is_now := stores.content(self.group)) != published:
            found.append(f"the group's store is not the one wanted: {_difference(is_now, published)}")
        found += self._problems_of_legacy() + self._problems_of_archive(archived) + self._problems_of_leftovers()
        if is_now and self.scenario.publishes and stores.uses_log(self.group) != self.uses_log:
            found.append("write-ahead logging is not as it was")
        if is_now and self.scenario.publishes:
            mode = os.stat(os.path.join(self.group, stores.NAME)).st_mode & 0o7777
            if mode != 0o640:
                found.append(f"the store's mode is {mode:o}")
        return found

    def _problems_of_legacy(self):
        names = sorted(os.listdir(self.legacy))
        if self.scenario.retire == "symlink" and (self.scenario.publishes or self.scenario.on_conflict == "merge"):
            link = os.path.join(self.legacy, stores.NAME)
            target = os.path.join(self.group, stores.NAME)
            if names != [stores.NAME] or not os.path.islink(link) or os.path.realpath(link) != target:
                return [f"the old place has no link alone, but {names}"]
            return []
        return [f"left at the old place: {names}"] if names else []

    def _problems_of_archive(self, wanted):
        directory = os.path.join(self.group, ".groupstore", "archive")
        found = []
        for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
            place = os.path.join(directory, name)
            if not os.path.isfile(os.path.join(place, "about.json")):
                found.append(f"an archive that doesn't say what it is: {os.listdir(place)}")
            found_content = stores.content(place)
            if found_content in wanted:
                wanted = [content for content in wanted if content is not found_content and content != found_content]
            else:
                found.append(f"an archive that nobody wanted: {os.listdir(place)}")
        return found + [f"{len(wanted)} archives are missing"] * bool(wanted)

    def _problems_of_leftovers(self):
        bookkeeping = os.path.join(self.group, ".groupstore")
        allowed = {stores.NAME, stores.NAME + "-wal", stores.NAME + "-shm", stores.SUPPORT, ".groupstore"}
        found = [f"left in the group: {name}" for name in os.listdir(self.group) if name not in allowed]
        if os.path.lexists(os.path.join(bookkeeping, "journal.json")):
            found.append("a journal is left")
        for directory, folders, files in os.walk(bookkeeping):
            found += [f"left: {name}" for name in files if name.endswith(".new")]
            if os.path.basename(directory) == "staging":
                found += [f"left in staging: {name}" for name in folders + files]
        receipts = os.path.join(bookkeeping, "receipts")
        count = len(os.listdir(receipts)) if os.path.isdir(receipts) else 0
        if count != self.scenario.receipts:
            found.append(f"{count} receipts")
        return found

    def problems_of_refusal(self):
        """Returns what is wrong after a run that said that it changed nothing."""
        found = []
        if os.path.lexists(os.path.join(self.group, ".groupstore", "journal.json")):
            return []  # It could not undo either, and reports this: it leaves the journal to the next run.
        for place in (self.legacy, self.group):
            template = self._template(os.path.basename(place))
            if stores.content(place) != stores.content(template):
                found.append(f"{os.path.basename(place)} is not what it was")
            names = {name for name in os.listdir(place) if name != ".groupstore"}
            side_files = {stores.NAME + suffix for suffix in stores.SIDE_FILES}
            if not names <= set(os.listdir(template)) | side_files:
                found.append(f"{os.path.basename(place)} has {sorted(names)}")
        if stores.content(self.home) and stores.uses_log(self.home) != self.uses_log:
            found.append("write-ahead logging is not as it was")
        if self.scenario.kind == "plain" and stores.tree(self.legacy) != stores.tree(self._template("legacy")):
            found.append("the legacy directory is not byte for byte what it was")
        archive = os.path.join(self.group, ".groupstore", "archive")
        if os.path.isdir(archive) and os.listdir(archive):
            found.append("an archive of what was not archived")
        return found

    def signature(self):
        """Returns the disk's state without what differs from run to run."""
        seen = []
        for place in (self.legacy, self.group):
            for name, (mode, data) in sorted((stores.tree(place) or {}).items()):
                state = ""
                if name.endswith("journal.json"):
                    state = ",".join(json.loads(data)["state"])
                size = 0 if name.endswith((".json", "lock", "-shm", ".new")) else len(data or b"")
                seen.append(re.sub(r"\d{9,}-[0-9a-z]+", "ID", f"{name} {mode} {size} {state}"))
        return "\n".join(seen)


def _difference(found, wanted):
    if not found or not wanted or "broken" in found:
        return f"{found}"[:300]
    words = []
    ids = [{row[0] for row in content["rows"]} for content in (found, wanted)]
    if lost := ids[1] - ids[0]:
        words.append(f"{len(lost)} rows lost")
    if more := ids[0] - ids[1]:
        words.append(f"{len(more)} rows too many")
    for key in ("rows", "schema", "support", "folder"):
        if found[key] != wanted[key]:
            words.append(f"another {key}")
    return ", ".join(words)
