#!/usr/bin/env python3
"""A random, hostile tester of everything that removes, moves back or overwrites stores and archives. See README.md."""
import argparse, collections, os, re, sqlite3, subprocess, sys, time, traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from commands import Commands  # noqa: E402
from stores import *  # noqa: E402


class Round(Commands):
    """A few directories, and random steps in them."""

    def step(self):
        r, places = self.random, self.scan()
        for _ in range(r.choice([0, 1, 1, 2, 2])):
            choice, name = r.random(), None
            place = self.pick(places, "plain", "plain", "archive")
            if choice < 0.2:
                self.create(r.choice(self.directories))
            elif choice < 0.35 and place:
                self.write(place.path, r.randint(1, 4))
            elif choice < 0.42 and place and place.kind == "plain":
                self.delete_by_name(place)
            elif "accident" not in self.options.without:
                name = self.accident(places)
            self.count("accident:", name) if name else None
            places = self.scan(True)
        archives, choice = self.archives(), r.random()
        if archives and choice < 0.27 and "purge" not in self.options.without:
            args = self.archive_args(places, "purge", archives)
        elif archives and choice < 0.42:
            args = self.archive_args(places, "restore", archives)
        elif archives and choice < 0.46:
            args = self.archive_args(places, r.choice(["list", "show", "show"]), archives)
        elif choice < 0.74:
            args = self.relocate_args(places)
        elif choice < 0.83:
            args = self.undo_args(places)
        elif choice < 0.87:
            args = ["recover", "--json", "--deadline", "700ms", "--", r.choice(self.directories)]
        elif choice < 0.94:
            args = self.group_args(places)
        else:
            return self.history(places)
        mode = r.choice(["plain"] * 8 + ["kill", "kill", "kill-late", "stop", "stop", "stop", "stop", "fail", "fail", "holder", "writer"])
        reading = args[:2] in (["group", "list"], ["archive", "list"], ["archive", "show"])
        self.perform(args, "plain" if reading or mode in self.options.without else mode)

    def perform(self, args, mode):
        """One command of groupstore, and all that must hold after it."""
        r, places, held, what = self.random, self.scan(True), None, self.name_of(args)
        if mode in ("holder", "writer"):
            held = self.pick(places, "plain", "plain", "archive")
            mode = mode if held and getattr(self, mode)(held.path) else "plain"
        before = self.scan(True) if mode != "writer" else places
        unfinished, released = self.unfinished(), []
        reading = "--dry-run" in args or args[1] in ("list", "show")
        if what == "group remove" and "--delete-stores" in args and not reading:
            released = [args[-2]]       # its directories, by path and by inode; but no file system that is mounted below
            for top, directories, _ in os.walk(args[-2]):
                directories[:] = [d for d in directories if os.path.join(top, d) not in self.mounts]
                released.append(identity(top))
        if what == "archive purge" and "--force" in args and not reading:
            group, *named = args[args.index("--") + 1:]
            forced = [a for a in self.archives() if a.startswith(group + "/.groupstore/")
                      and (not named or os.path.basename(a) in named)]
            self.forced |= {os.path.basename(a).split(".purged")[0] for a in named or forced}
            self.asked_away.update(identity(a) for a in forced)     # whatever path leads there
        self.released = released
        self.source, self.middle = os.path.realpath(args[-2]) if what.startswith("relocate") else "", None
        snapshot = self.snapshot() if reading and mode == "plain" else None
        try:
            result = self.run(args, mode, before)
        finally:
            if mode == "writer" or mode == "holder" and r.random() < 0.7:
                self.end_children()
        if released and (result.killed or result.code not in (64, 73, 75)):
            self.asked_away.update(released[1:])
        if self.agent and mode != "plain":      # it goes on with what a killed command has asked for
            self.agent.kill(), self.agent.wait()
            result = result._replace(killed=True)
            self.say("the agent is killed")
            self.start_agent()
        after = self.scan(True)
        if snapshot is not None:
            now = self.snapshot()
            changed = [self.short(k) for k in set(now) | set(snapshot) if now.get(k) != snapshot.get(k)]
            if changed:
                raise Problem("CHANGED by what changes nothing (%s): %s" % (what, changed[:6]))
        if mode == "writer" and held and not held.content.damaged and not self.is_released(held, released):
            acknowledged = set(read_file(self.scratch + "/acknowledged").split())
            lost = acknowledged - tokens_of(i for p in after for i in p.content.items)
            self.count("writer's rows:", "some" if acknowledged else "none")
            if lost:
                raise Problem("LOST: %d of %d rows that a program had committed to %s meanwhile, such as %s" % (
                    len(lost), len(acknowledged), self.short(held.path), sorted(lost)[:3]))
        if unfinished and what == "group remove" and result.code == 0 and not reading and any(
                u.startswith(args[-2] + "/") for u in unfinished):
            raise Problem("LOST: group remove removed a group with an unfinished relocation, %s" % self.short(unfinished[0]))
        self.check(before if self.middle is None else self.middle, after, "after " + what,
                   whole=not result.killed and mode != "fail", released=released)
        if mode in ("plain", "holder") and not unfinished:
            self.check_outcome(what, args, result, before, after, held if mode == "holder" and self.children else None)
        for directory in self.groups:
            os.makedirs(directory, exist_ok=True)
        if (result.killed or mode == "fail") and r.random() < 0.6:
            self.count("unfinished" if self.unfinished() else "finished", "after a kill or failure")
            again = args if r.random() < 0.5 else ["recover", "--json", "--deadline", "700ms", "--", r.choice(
                [d for d in self.directories if os.path.isdir(d + "/.groupstore")] or self.directories)]
            self.perform(again, "plain" if r.random() < 0.7 else "kill")
        elif self.unfinished():
            self.count("unfinished, left so")

    def history(self, places):
        """History of a store: enabled, acknowledged, purged. The app's rows stay, and what isn't acknowledged does."""
        r, place, copy = self.random, self.pick(places, "plain"), self.scratch + "/h.db"
        if not place:
            return
        path, before = place.path, self.scan(True)

        def numbers():
            remove_set(copy)
            for side in ("", "-wal", "-journal"):
                if os.path.isfile(path + side):
                    put(copy + side, read_file(path + side))
            try:
                connection = connect(copy)
                return ([n for n, in connection.execute("SELECT number FROM GS_CHANGE ORDER BY number")],
                        connection.execute("SELECT min(number) FROM GS_SUBSCRIBER").fetchone()[0])
            except sqlite3.Error:
                return [], None
        self.give_away()
        enabled = self.plain(["history", "enable", "--json", "--", path])
        self.say("history enable %s -> %d" % (self.short(path), enabled.returncode))
        self.count("history enable", "exit %d" % enabled.returncode)
        self.check(before, self.scan(True), "after history enable")
        self.write(path, r.randint(1, 5))
        if enabled.returncode == 0 and r.random() < 0.6:
            token = re.search(rb'"token"\s*:\s*"(h1[^"]+)"', self.plain(["history", "show", "--json", "--", path]).stdout)
            if token:
                self.plain(["history", "acknowledge", "--subscriber", "s", "--token", token.group(1).decode(), "--", path])
                self.write(path, r.randint(1, 5))
        before, (old, least) = self.scan(True), numbers()
        args = ["history", "purge", "--json"] + r.choice([["--older-than", "0s"], ["--keep", "2"], ["--acknowledged"]])
        args += ["--force"] if r.random() < 0.2 else []
        self.run(args + ["--", path], r.choice(["plain", "plain", "kill", "kill-late", "fail"]), before)
        self.check(before, self.scan(True), "after history purge")
        new, _ = numbers()
        kept = [n for n in old if least is not None and n > least] if "--force" not in args else []
        if set(kept) - set(new) or old and old[-1:] != new[-1:]:
            raise Problem("LOST: history purge left %s of %s, acknowledged up to %s" % (new, old, least))
        if r.random() < 0.3:
            self.plain(["history", "disable", "--", path])
            self.check(before, self.scan(True), "after history disable")

    def start_agent(self):
        command = [self.options.groupstore, "agent"]
        for directory, identifier in self.groups.items():
            command += ["--group", "%s=%s" % (identifier, directory)]
        self.agent = subprocess.Popen(command, env=self.environment, cwd=self.top, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        end = time.monotonic() + 5
        while not os.path.exists(self.scratch + "/agent.sock") and time.monotonic() < end:
            time.sleep(0.02)
        self.say("an agent serves the groups")
        self.count("agent started")

    def play(self):
        r = self.random
        for directory in r.sample(self.directories, r.randint(2, 4)):
            self.create(directory)
        if r.random() < 0.1 and not self.user and "agent" not in self.options.without:
            self.start_agent()
        for _ in range(2):              # something is archived early
            if r.random() < 0.7:
                self.perform(["relocate", "--json", "--retire", "archive"] + self.relocate_args(self.scan())[-3:], "plain")
        for number in range(r.randint(8, 18)):
            self.step()
            if self.agent and r.random() < 0.15:
                self.agent.kill(), self.agent.wait()
                self.say("the agent is killed")
                self.start_agent()
        self.settle()

    def settle(self):
        """The end: nobody holds anything, and recover finishes what is unfinished."""
        self.end_children()
        subprocess.run(["chattr", "-R", "-i", self.top], stderr=subprocess.DEVNULL)
        before, clean = self.scan(True), True
        for directory in [d for d in self.directories if os.path.isdir(d + "/.groupstore")]:
            done = self.plain(["recover", "--json", "--", directory])
            clean = clean and done.returncode == 0
            self.say("recover %s -> %d %s" % (self.short(directory), done.returncode, done.stderr.decode("utf-8", "replace")[-200:]))
        after = self.scan(True)
        self.check(before, after, "at the end", whole=clean)
        if clean and not self.unfinished() and not any("accident: note" in line or "backup" in line for line in self.log):
            for place in [p for p in after if p.kind == "hidden" and "1795763195-x" not in p.path]:
                if not any(place.content.items - self.forgiven <= q.content.items for q in after if q.kind in ("plain", "archive")):
                    raise Problem("STRANDED at the end: %s" % self.short(place.path))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("groupstore")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10**9)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", help="keep what a round with a problem left, and its log, in this directory")
    parser.add_argument("--base", default="/tmp/adversary-archive")
    parser.add_argument("--without", default="", help="leave out some of: purge accident stop kill fail holder writer agent")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.groupstore = os.path.abspath(options.groupstore)
    os.nice(10)
    os.makedirs(options.base, exist_ok=True)
    reached, problems, end, number = collections.Counter(), collections.Counter(), time.monotonic() + options.seconds, options.first
    while number < options.first + options.rounds and time.monotonic() < end:
        current = Round(options, number, reached)
        try:
            current.play()
        except Problem as problem:
            text = str(problem).encode("utf-8", "backslashreplace").decode()
            problems[re.split("[: ]", text)[0]] += 1
            print("PROBLEM round %d: %s\n  repeat: %s %s --seed %d --first %d --rounds 1 --verbose" % (
                number, text, sys.argv[0], options.groupstore, options.seed, number))
            print("\n".join("    " + l.encode("utf-8", "backslashreplace").decode() for l in current.log[-12:]), flush=True)
            if options.keep:
                target = os.path.join(options.keep, "s%d-r%d" % (options.seed, number))
                os.makedirs(target, exist_ok=True)
                subprocess.run(["cp", "-a", current.top, target], stderr=subprocess.DEVNULL)
                put(target + "/LOG", ("\n".join(current.log) + "\n" + text + "\n").encode("utf-8", "backslashreplace"))
        except Exception:
            problems["TESTER"] += 1
            print("TESTER'S OWN ERROR in round %d:\n%s" % (number, traceback.format_exc()))
            print("\n".join("    " + l.encode("utf-8", "backslashreplace").decode() for l in current.log[-5:]), flush=True)
        finally:
            current.close()
        number += 1
    print("states reached:")
    for name, count in sorted(reached.items()):
        print("  %6d %s" % (count, name))
    print("%d rounds with seed %d: %s" % (number - options.first, options.seed, dict(problems) or "no problem"), flush=True)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
