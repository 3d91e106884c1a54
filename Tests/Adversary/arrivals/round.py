"""One round: an agent, its places, what arrives there, and the presenters beside it."""
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from agent import GROUPS, Agent, Connection, mount, unmount
from judge import Judge
from manners import (comes_again, created_and_closed_later, folder_comes, made_in_place, moved_in, slow_copy,
                     temporary_name, with_a_command)
from obstacles import (away_and_back, conflict, group_name_taken, half_a_store, hard_link, immutable, locked, mounted,
                       no_database, no_room, rights, while_held)
from places import Place
from presenters import MOODS, Presenter

# A case that is named twice is as likely as two.
CASES = [made_in_place, made_in_place, slow_copy, created_and_closed_later, temporary_name, moved_in, folder_comes,
         while_held, while_held, hard_link, rights, rights, rights, no_database, no_database, half_a_store, conflict,
         group_name_taken, mounted, immutable, locked, away_and_back, comes_again, with_a_command, no_room]
LOCK = """
import fcntl, os, struct, sys, time
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.fcntl(file, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))   # F_OFD_SETLK
print("locked", flush=True)
time.sleep(600)
"""


class Round(Judge):
    def __init__(self, options, number, totals):
        self.options, self.number, self.totals = options, number, totals
        self.rng = random.Random("%s/%d" % (options.seed, number))
        self.user, self.mounts = options.user, options.mounts
        self.base = tempfile.mkdtemp(prefix="adv-arrivals-")
        os.chmod(self.base, 0o755)
        self.begun, self.problems = time.monotonic(), 0
        self.directories = {kind: os.path.join(self.base, kind) for kind in GROUPS}
        self.mounted, self.immutable, self.rights_taken, self.lockers = [], [], False, []
        for kind, path in self.directories.items():
            os.mkdir(path, 0o700)
            if kind == "far" and self.mounts and mount("tmpfs", path, "tmpfs"):
                self.mounted.append(path)
                os.chmod(path, 0o700)
            if self.user:
                os.chown(path, *self.user)
        self.agent = Agent(options.program, self.base, self.user)
        cases = [c for c in CASES if not options.only or c.__name__ in options.only]
        self.places = []
        for index in range(options.places):
            place = Place(self, index)
            place.case = self.rng.choice(cases)
            place.steps = place.case(place)
            place.due = time.monotonic() + self.rng.random() * 4
            self.places.append(place)
        self.presenters = []
        self.stubborn = self.rng.random() < 0.5      # look at an idle agent while everything is in the way
        self.listener = None
        self.frozen = False        # while an idle agent is looked at, presenters open nothing of themselves

    def elapsed(self):
        return time.monotonic() - self.begun

    def count(self, what, number=1):
        self.totals[what] += number

    def problem(self, place, text):
        self.problems += 1
        self.count("problems")
        print("PROBLEM round %d: %s" % (self.number, text))
        if place:
            print("    case %s, place %r (%s): %s" % (place.case.__name__, place.name, place.kind, "; ".join(place.notes)))
            print("    heard: " + "; ".join("%.1f %s" % (at, " ".join(str(e.get(k)) for k in (
                "type", "reason", "outcome", "waiting_for") if e.get(k))) for at, e in place.events[-6:]))
            for presenter in (p for p in self.presenters if p.place is place):
                print("    presenter, now %s: asked %d times, of them %d on this connection with %d `reacquire`" % (
                    presenter.mood, len(presenter.times), presenter.asked, presenter.reacquired))
            for line in [l for l in self.agent.log_lines() if place.name in l][-4:]:
                print("    log: " + line[:300])
            if self.agent.process:
                for row in self.agent.status(place).values():
                    print("    status: " + str({k: v for k, v in row.items() if k in (
                        "type", "state", "detail", "relocation", "code")})[:400])
        print("    again: adversary.py %s --seed %s --first %d --rounds 1 --places %d%s" % (
            self.options.program, self.options.seed, self.number, self.options.places,
            "".join(" --only " + c for c in self.options.only or []) + " --no-presenters" * self.options.no_presenters), flush=True)

    # What cases need

    def command(self, *arguments):
        """Runs groupstore as the agent's user, while the round goes on; the generator returns the exit code."""
        def become():
            if self.user:
                os.setgroups([])
                os.setgid(self.user[1])
                os.setuid(self.user[0])
        process = subprocess.Popen([self.options.program] + list(arguments), stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, preexec_fn=become, cwd="/",
                                   env=self.agent.environment)
        end = time.monotonic() + 120
        while process.poll() is None:
            if time.monotonic() > end:
                self.problem(None, "a command has not ended after 120 s: " + " ".join(arguments))
                process.kill()
            yield 0.1
        return process.returncode

    def lock(self, path):
        """Another program that locks one of groupstore's lock files."""
        process = subprocess.Popen([sys.executable, "-c", LOCK, path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        process.stdout.readline()
        process.stdout.close()
        self.lockers.append(process)
        if self.user and os.path.exists(path):
            os.chown(path, *self.user)
        return process

    def fill(self, directory):
        """Takes all the room of a file system; returns the file to be removed."""
        path = os.path.join(directory, "filler%d" % self.rng.randrange(1 << 30))
        with open(path, "wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 16))
                    file.flush()
            except OSError:
                pass
        return path

    # The round's clockwork

    def subscribe(self):
        self.listener = Connection(self.agent.socket)
        self.by_store = {}
        for place in self.places:
            store = GROUPS[place.kind] + "/" + place.name
            self.by_store[store] = place
            self.listener.send(op="subscribe", store=store)
            place.events.append((self.elapsed(), {"type": "reset", "reason": "(subscribed)"}))

    def tick(self):
        for line in self.listener.read():
            place = self.by_store.get(line.get("store"))
            if place and line.get("type"):
                place.events.append((self.elapsed(), line))
                self.count("event " + line["type"])
        for presenter in self.presenters:
            presenter.tend()
            if not self.frozen and not presenter.is_open and presenter.mood != "dies" and not presenter.let_go and self.rng.random() < 0.01:
                presenter.open()
        now = time.monotonic()
        for place in self.places:
            if place.steps and place.due is not None and place.due <= now:
                place.arrived = False
                try:
                    wait = next(place.steps)
                    if wait == "cause":
                        place.arrived = True
                        self.count("causes: " + place.case.__name__)
                        place.due = None if self.stubborn else now + 0.5 + self.rng.random() * 6
                    else:
                        place.due = now + wait
                except StopIteration:
                    place.steps = None
                    place.arrived = True
        time.sleep(0.02)

    def spend(self, seconds, until=lambda: False):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.tick()
            if until():
                return True
        return until()

    def restart(self):
        self.count("agents killed")
        self.agent.stop(self.rng.choice([signal.SIGKILL, signal.SIGTERM]))
        self.listener.close()
        time.sleep(self.rng.random())
        self.agent.start()
        self.subscribe()

    def run(self):
        self.agent.configure(self.directories, self.places)
        self.agent.start()
        self.subscribe()
        with_presenters = self.rng.random() < 0.7 and not self.options.no_presenters
        changes = []
        for place in self.places if with_presenters else []:
            for _ in range(self.rng.choice([0, 0, 1, 1, 2])):
                presenter = Presenter(self, place, self.rng.choice(MOODS), self.rng.random() < 0.5)
                self.presenters.append(presenter)
                self.count("presenters: " + presenter.mood)
                changes.append((time.monotonic() + 3 + self.rng.random() * 15, presenter))
        kill_at = time.monotonic() + self.rng.random() * 15 if self.rng.random() < 0.35 else None
        hup_at = time.monotonic() + self.rng.random() * 15 if self.rng.random() < 0.3 else None
        end = time.monotonic() + 240
        while any(p.steps for p in self.places):
            self.tick()
            now = time.monotonic()
            for when, presenter in [c for c in changes if c[0] <= now and not self.stubborn]:
                changes.remove((when, presenter))
                presenter.becomes("polite")
            if kill_at and now > kill_at and not self.rights_taken:   # an agent needn't start without rights to its group
                kill_at = None
                self.restart()
            if hup_at and now > hup_at:
                hup_at = None
                os.kill(self.agent.process.pid, signal.SIGHUP)
            if self.stubborn and all(not p.steps or p.due is None for p in self.places):
                if any(p.steps for p in self.places):
                    self.judge_idle("before the remedies")
                self.stubborn = False
                for place in self.places:
                    place.due = now if place.due is None else place.due
                changes = [(now + self.rng.random() * 5, presenter) for _, presenter in changes]
            if now > end:
                raise RuntimeError("the cases don't end: " + ", ".join(p.case.__name__ for p in self.places if p.steps))
        for presenter in self.presenters:
            presenter.becomes("polite")
        self.judge_places()
        self.judge_idle("at the end")
        self.judge_talk()

    def end(self):
        for presenter in self.presenters:
            presenter.end()
        for place in self.places:
            for holder in place.holders:
                holder.end(kill=True)
        for process in self.lockers:
            process.kill()
            process.wait()
        self.agent.stop()
        self.agent.log.close()
        if self.listener:
            self.listener.close()
        for path in self.immutable:
            if os.path.exists(path):
                subprocess.run(["chattr", "-i", path], capture_output=True)
        if self.options.keep and self.problems:
            subprocess.run(["cp", "-a", self.base, os.path.join(
                self.options.keep, "%s-%d-%s" % (self.options.seed, self.number, os.path.basename(self.base)[13:]))])
        for path in reversed(self.mounted):
            unmount(path)
        shutil.rmtree(self.base, ignore_errors=True)
