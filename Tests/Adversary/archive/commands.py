"""Runs commands of groupstore: plainly, killed, stopped in the middle, with a failing call, beside another program."""
import json, os, re, shutil, signal, subprocess, time

from checks import Checks
from stores import *


class Commands(Checks):
    """Makes commands, and runs them in one of several ways."""

    def plain(self, args):
        identities = dict(user=self.user, group=self.user, extra_groups=[]) if self.user else {}
        return subprocess.run([self.options.groupstore] + args, env=self.environment, cwd=self.top, capture_output=True,
                              timeout=60, **identities)

    def run(self, args, mode, places):
        """Runs groupstore in one of several ways. What it does to what is there is checked by the caller."""
        r, killed, stopped, stops, trace = self.random, False, None, 0, self.scratch + "/trace"
        number, calls, delay = int(2 ** r.uniform(0, 6)), r.choice(CALLS), r.uniform(0, 0.12)
        if mode == "fail":
            calls = r.choice([CHANGING, "unlinkat,unlink,rmdir", "renameat2", "fsync,fdatasync", "pwrite64,write"])
            number = int(2 ** r.uniform(0, 4))
        inject = {"kill": "signal=SIGKILL:when=%d", "stop": "signal=SIGSTOP:when=%d",
                  "fail": "error=%s:when=%%d%s" % (r.choice(["EIO", "ENOSPC", "EACCES"]), r.choice(["", "+"]))}.get(mode)
        command = [self.options.groupstore] + args
        if inject:
            inject %= number
            command = ["strace", "-f", "-o", trace, "-e", "trace=" + calls, "-e", "inject=%s:%s" % (calls, inject)] + command
            put(trace, b"")
            os.chmod(trace, 0o666)
        self.give_away()
        self.say("groupstore %s%s" % (" ".join(self.short(a) for a in args), "" if mode == "plain" else "   [%s%s]" % (
            mode, " %s %s" % (calls, inject) if inject else " after %.3f s" % delay if mode == "kill-late" else "")))
        identities = dict(user=self.user, group=self.user, extra_groups=[]) if self.user else {}
        with open(self.scratch + "/out", "w+b") as out, open(self.scratch + "/err", "w+b") as err:
            process = subprocess.Popen(command, env=self.environment, cwd=self.top, stdout=out, stderr=err,
                                       stdin=subprocess.DEVNULL, start_new_session=True, **identities)
            end = time.monotonic() + 60
            try:
                if mode == "kill-late":
                    time.sleep(delay)
                    killed = process.poll() is None
                    process.kill()
                while mode == "stop" and process.poll() is None and time.monotonic() < end:
                    found = re.findall(rb"^(\d+)\s+--- stopped by SIGSTOP", read_file(trace), re.M)
                    if len(found) > stops:      # each thread counts its own calls; only the first stop is used
                        stopped = stopped or self.in_the_middle(places)
                        os.kill(self.process_of(int(found[stops])), signal.SIGCONT)
                        stops += 1
                    time.sleep(0.003)
                process.wait(max(1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise Problem("HANG: no end after 60 s")
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except OSError:
                    pass
                process.wait()
            killed = killed or mode == "kill" and process.returncode in (-9, 137)
            out.seek(0), err.seek(0)
            output, error = out.read(), err.read().decode("utf-8", "replace")
        lines = [json.loads(line) for line in output.splitlines() if line.startswith(b"{")] if not killed else []
        if re.search(r"Fatal error|Illegal instruction", error) or process.returncode in (-4, -5, -6, -11, 132, 133, 134, 139):
            raise Problem("CRASH: %s" % error[-400:])
        summary = next((x for x in reversed(lines) if x.get("type") == "summary"), {})
        what, failure = self.name_of(args), summary.get("error") or {}
        outcome = "killed" if killed else summary.get("outcome", "exit %d" % process.returncode)
        self.count(what, outcome, failure.get("code", ""))
        if inject or mode in ("kill-late", "writer", "holder"):
            hit = killed or stopped or mode in ("writer", "holder") or mode == "fail" and b"INJECTED" in read_file(trace)
            self.count("mode:", mode, "hit" if hit else "missed")
        self.say("  -> %d %s %s" % (process.returncode, outcome, failure.get("code", "") and failure["code"] + ": " +
                                    failure.get("message", "")[:300]))
        for line in lines:
            if line.get("type") == "archive" and what == "archive purge":
                self.say("     %s purged=%s %s: %s" % (line["id"], line.get("purged"), line.get("value"), line.get("why")))
                self.count("purge said", str(line.get("purged")), str(line.get("value")))
        return Result(process.returncode, lines, error, killed, stopped)

    @staticmethod
    def process_of(thread):
        try:
            return int(re.search(r"Tgid:\s+(\d+)", open("/proc/%d/status" % thread).read()).group(1))
        except OSError:
            return thread

    @staticmethod
    def name_of(args):
        return " ".join(args[:2]) if args[0] in ("archive", "group", "history") else args[0] + " --undo" * ("--undo" in args)

    def in_the_middle(self, before):
        """groupstore is stopped. What was there must still be there; another program does something; then it goes on."""
        now, known = self.scan(), {p.inode for p in before}
        self.check(before, now, "in the middle", whole=False, released=self.released)
        if self.random.random() < 0.85:         # seldom a copy that was only just made
            now = [p for p in now if p.inode in known]
        name = None
        if self.random.random() < 0.35:
            place = self.pick(now, "plain", "archive", "archive", "purging")
            if place:
                self.write(place.path, self.random.randint(1, 3), self.random.choice(["close", "wal"]))
                name = "write"
        else:
            name = self.accident(now, limit=1.0)
        self.count("in the middle:", name or "nothing")
        self.middle = [p for p in self.scan(True) if p.kind != "staging" and (p.kind != "hidden" or p.inode in known)]
        return name or "nothing"

    def relocate_args(self, places):
        r, args = self.random, ["relocate", "--json", "--deadline", "700ms"]
        place = self.pick(places) if r.random() < 0.95 else None
        source = place.path if place else os.path.join(r.choice(self.directories), r.choice(NAMES))
        directory = r.choice(list(self.groups) * 2 + self.directories)
        same = [p for p in places if p.store and p.kind == "plain" and os.path.basename(p.path) == os.path.basename(source)
                and p.path != source]
        if same and r.random() < 0.4:           # where another one of that name is
            directory = os.path.dirname(r.choice(same).path)
        for chance, option in ((0.15, ["--name", r.choice(NAMES[:4])]), (0.1, ["--journal-mode", r.choice(["wal", "delete"])]),
                               (0.7, ["--retire", r.choice(["delete", "archive", "archive", "symlink"])]),
                               (0.4, ["--on-conflict", r.choice(["keep-group", "keep-legacy"])]), (0.06, ["--dry-run"]),
                               (0.2, r.choice([["--opaque"], ["--model", self.scratch + "/M2.xcdatamodel"]]))):
            args += option if r.random() < chance else []
        return args + ["--", source, directory]

    def undo_args(self, places):
        receipts = []
        for directory in self.directories:
            for file in files_in(directory + "/.groupstore/receipts"):
                try:
                    note = json.loads(read_file(file))
                    receipts.append((self.from_json(note["from"]), directory, self.from_json(note["name"])))
                except (ValueError, KeyError):
                    pass
        if not receipts:
            return self.relocate_args(places)
        source, directory, name = self.random.choice(receipts)
        return ["relocate", "--undo", "--json", "--deadline", "700ms"] + (
            ["--name", name] if name != os.path.basename(source) else []) + ["--", source, directory]

    def archive_args(self, places, verb, archives):
        r, chosen = self.random, self.random.choice(archives)
        group, identifier = chosen.split("/.groupstore/")[0], os.path.basename(chosen)
        if verb == "list":
            return ["archive", "list", "--json", "--", group]
        if verb == "show":
            return ["archive", "show", "--json", "--", group, identifier]
        args = ["archive", verb, "--json", "--deadline", "700ms"] + (["--dry-run"] if r.random() < 0.06 else [])
        if verb == "purge":
            args += ["--force"] if r.random() < 0.1 else []
            if r.random() < 0.6:
                return args + ["--older-than", "0s", "--", group]
            mine = [os.path.basename(a) for a in archives if a.startswith(group + "/.groupstore/")]
            return args + ["--", group] + ([a for a in mine if r.random() < 0.4] or [identifier])
        args += (["--move"] if r.random() < 0.3 else []) + (["--opaque"] if r.random() < 0.15 else [])
        if r.random() < 0.75:
            names = NAMES[:4] + [os.path.basename(p.path) for p in places if p.store] + ["R%d.db" % r.randint(0, 3)]
            directory = r.choice(self.directories)
            args += ["--to", directory if r.random() < 0.3 else os.path.join(directory, r.choice(names))]
        return args + ["--", group, identifier]

    def group_args(self, places):
        r, verb = self.random, self.random.choice(["remove", "remove", "remove", "create", "list"])
        directory = r.choice(list(self.groups) + (self.directories if r.random() < 0.1 else []))
        args = ["group", verb, "--json"]
        if verb == "list":
            return args
        if verb == "remove":
            args += (["--delete-stores"] if r.random() < 0.35 else []) + (["--dry-run"] if r.random() < 0.08 else [])
            if r.random() < 0.6:                # somebody has taken out what they know of
                for place in places:
                    if place.kind in ("plain", "archive") and os.path.exists(place.path) and place.path.startswith(directory + "/"):
                        try:
                            shutil.move(place.path, self.top + "/place/moved%d.db" % r.randrange(10**6))
                        except OSError:
                            pass
        return args + ["--directory", directory, self.groups.get(directory, "group.x")]
