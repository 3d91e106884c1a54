"""Tests the feed under everything that happens to it: writers in several languages, killed agents, subscribers that are
killed, stopped and restarted, a store that is relocated away and back, an overflow of the kernel's queue.

usage: feed.py GROUPSTORE LEGACY_WRITER CLIENT_DIRECTORY [--direct] [--commits N] [--kills K] [--seed S]

With --direct there is no agent: each subscriber runs `groupstore watch --direct`, and what would happen to the agent happens
to all of these.

At each checkpoint the writers pause, and every subscriber must come to know all commits by events alone: it
reads a table only when an event says so. The store's history must also match the writers' reports, row by row.
Then something happens to the agent or to the subscribers, and they go on. Prints actions and observations; exits with 1 at
the first subscriber that misses a commit, and at the first row of the history that differs.
"""

import argparse
import collections
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

from feeds import GROUP, PATIENCE, AgentFeed, DirectFeed, resources, send
from rows import Rows
from writers import AUTHORS, TABLES, write


class Pause:
    """Writers run a batch each under `batch`; `quiet` waits for them and keeps them out."""

    def __init__(self):
        self.condition = threading.Condition()
        self.running = 0
        self.is_quiet = False

    @contextlib.contextmanager
    def batch(self):
        with self.condition:
            self.condition.wait_for(lambda: not self.is_quiet)
            self.running += 1
        try:
            yield
        finally:
            with self.condition:
                self.running -= 1
                self.condition.notify_all()

    @contextlib.contextmanager
    def quiet(self):
        with self.condition:
            self.is_quiet = True
            self.condition.wait_for(lambda: self.running == 0)
        try:
            yield
        finally:
            with self.condition:
                self.is_quiet = False
                self.condition.notify_all()


class Subscriber:
    def __init__(self, world, number):
        self.world, self.number = world, number
        self.counts = collections.Counter()
        self.known = {}
        self.news = threading.Condition()
        self.is_stopped = False
        self.start()

    def start(self):
        here = os.path.dirname(os.path.abspath(__file__))
        words = [sys.executable, here + "/subscriber.py", self.world.client, f"{GROUP}/Notes.sqlite", self.world.group]
        words += [f"{self.world.scratch}/state-{self.number}"]
        if self.world.is_direct:
            words += ["--direct", self.world.program]
        elif self.number % 2:
            words += ["--async"]
        self.process = subprocess.Popen(words, env=self.world.environment, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.listen, args=(self.process,), daemon=True).start()

    def listen(self, process):
        for line in process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue  # a kill truncated it
            if message["event"] == "Watching":
                if process is self.process:
                    self.world.feed.learn(self.number, message["pid"])
                continue
            with self.news:
                self.counts[message["event"] + (f" {message['reason']}" if message.get("reason") else "")] += 1
                if "known" in message and process is self.process:
                    self.known = message["known"]
                self.news.notify_all()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.world.feed.forget(self.number)
        self.start()

    def stop(self):
        """Stops the subscriber between reads: a process stopped with SQLite's locks blocks all writers."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            self.process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
            descriptors = f"/proc/{self.process.pid}/fd"
            opened = [os.readlink(f"{descriptors}/{each}") for each in os.listdir(descriptors)]
            if not any("Notes.sqlite" in path for path in opened):
                self.is_stopped = True
                return
            self.process.send_signal(signal.SIGCONT)
            # It prints a line after each read.
            with self.news:
                self.news.wait(0.05)
        raise SystemExit("feed: a subscriber reads without end")

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)
        self.is_stopped = False

    def knows(self, truth):
        with self.news:
            return self.news.wait_for(lambda: self.known == truth, PATIENCE)


class World:
    def __init__(self, options):
        self.program, self.legacy_writer = map(os.path.abspath, (options.groupstore, options.legacy_writer))
        self.client = os.path.abspath(options.client)
        self.scratch = tempfile.mkdtemp(prefix="groupstore-soak-")
        self.group, self.legacy, self.away = (f"{self.scratch}/{name}" for name in ("group", "legacy", "away"))
        for directory in (self.group, self.legacy, self.away):
            os.mkdir(directory)
        self.is_direct = options.direct
        self.place = self.store = f"{self.group}/Notes.sqlite"
        self.elsewhere = f"{self.away}/Notes.sqlite"
        self.pause = Pause()
        self.lock = threading.Lock()
        self.committed = collections.Counter()
        # Each table's writers' reports, in order: ("insert", 5).
        self.logs = {table: [] for table in TABLES}
        self.failures = []
        self.is_over = False
        self.make_store()
        self.compile()
        socket_path = f"{self.scratch}/agent.sock"
        if options.direct:
            self.feed = DirectFeed(self.program, self.group, socket_path)
        else:
            self.feed = AgentFeed(self.program, self.group, socket_path, [self.legacy + "/None.sqlite"])
        self.environment = self.feed.environment

    def make_store(self):
        store = sqlite3.connect(self.store, isolation_level=None)
        store.execute("PRAGMA journal_mode = WAL")
        for table in TABLES[:-1]:
            store.execute(f"CREATE TABLE {table} (number INTEGER PRIMARY KEY, text TEXT)")
        store.execute(
            "CREATE TABLE note (id INTEGER PRIMARY KEY, title TEXT NOT NULL, text TEXT NOT NULL,"
            " written TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)"
        )
        store.close()
        subprocess.run([self.program, "history", "enable", "--quiet", self.store], check=True)

    def compile(self):
        here = os.path.dirname(os.path.abspath(__file__))
        compiler = shutil.which("cc") or shutil.which("clang")
        self.c_writer = f"{self.scratch}/writer"
        subprocess.run([compiler, "-O2", "-o", self.c_writer, here + "/writer.c", "-lsqlite3"], check=True)

    def truth(self):
        """Returns what the store holds; nobody writes now."""
        if not os.path.exists(self.store):
            return {}
        store = sqlite3.connect(f"file:{self.store}?mode=rw", uri=True, isolation_level=None)
        found = {name: store.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES}
        # Each commit has one row of history: an update, too, counts.
        found["GS_CHANGE"] = store.execute("SELECT coalesce(max(number), 0) FROM GS_CHANGE").fetchone()[0]
        store.close()
        return found


# --- Actions -------------------------------------------------------------------------------------------------------


class Soak:
    def __init__(self, options):
        self.options = options
        self.rng = random.Random(options.seed)
        self.world = World(options)
        self.rows = Rows(self.world.program, AUTHORS)
        self.feed = self.world.feed
        self.subscribers = [Subscriber(self.world, number) for number in range(options.subscribers)]
        self.done = collections.Counter()
        self.checkpoints = 0
        self.started = time.monotonic()
        self.next_word = options.commits // 10

    def checkpoint(self):
        """Checks that every running subscriber knows everything, and so does the history. Nobody writes meanwhile."""
        self.committed()  # a writer that failed is the first thing to say: its rows are in no report
        truth = self.world.truth()
        for subscriber in self.subscribers:
            if not subscriber.is_stopped and not subscriber.knows(truth):
                raise SystemExit(
                    f"soak: seed {self.options.seed}: subscriber {subscriber.number} knows {subscriber.known}, "
                    f"and the store holds {truth}; it was told {dict(subscriber.counts)}"
                )
        problem = self.rows.compare(self.world.place, self.world.logs)
        if problem:
            raise SystemExit(f"soak: seed {self.options.seed}: history: {problem}")
        self.checkpoints += 1
        self.print_result()

    def print_result(self):
        """Prints the rate, for people who wait for hours."""
        while self.rows.compared >= self.next_word:
            rate = self.rows.compared / (time.monotonic() - self.started)
            print(f"soak: {self.rows.compared} commits, {rate:.0f}/s", file=sys.stderr, flush=True)
            self.next_word += max(1, self.options.commits // 10)

    def kill_feed(self):
        self.feed.kill()

    def kill_subscriber(self):
        subscriber = self.rng.choice(self.subscribers)
        if subscriber.is_stopped:
            subscriber.go_on()
        subscriber.kill()

    def stop_subscriber(self):
        """Stops a subscriber until another one's turn, many thousand commits later."""
        for subscriber in self.subscribers:
            if subscriber.is_stopped:
                subscriber.go_on()
        self.rng.choice(self.subscribers).stop()

    def overflow(self):
        """Makes more file events than the kernel keeps, while nobody who watches the store takes them."""
        with open("/proc/sys/fs/inotify/max_queued_events", encoding="ascii") as file:
            most = int(file.read())
        stopped = self.feed.pids()
        for pid in stopped:
            send(pid, signal.SIGSTOP)
        # Each makes two events with different names: the kernel merges equal events in a row.
        for number in range(most // 2 + 100):
            name = f"{self.world.group}/scratch-{number % 2}"
            os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
            os.unlink(name)
        for pid in stopped:
            send(pid, signal.SIGCONT)

    def relocate(self, store, directory):
        """Relocates; reading subscribers hold it off for an instant."""
        words = [self.world.program, "relocate", store, directory, "--json", "--deadline", "30"]
        done = subprocess.run(words, env=self.world.environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"soak: seed {self.options.seed}: relocate: {done.stdout}{done.stderr}")

    def move_away(self):
        """Moves the store away while nobody has it open. Resumes stopped subscribers first, because they may."""
        for subscriber in self.subscribers:
            if subscriber.is_stopped:
                subscriber.go_on()
        self.checkpoint()
        self.relocate(self.world.store, self.world.away)
        self.world.place = self.world.elsewhere

    def move_back(self):
        self.relocate(self.world.elsewhere, self.world.group)
        self.world.place = self.world.store

    def plan(self):
        """Returns what happens at which share of the commits."""
        steps = [(0.30, "move_away"), (0.34, "move_back")]
        for name, count in [
            ("kill_feed", self.options.kills), ("kill_subscriber", 12), ("stop_subscriber", 8), ("overflow", 3),
        ]:
            steps += [(self.moment(), name) for _ in range(count)]
        return sorted(steps)

    def moment(self):
        """Does the next action. While the store is away nothing else happens, and at the end nothing at all."""
        share = self.rng.uniform(0.02, 0.66)
        return share if share < 0.30 else share + 0.04

    def committed(self):
        with self.world.lock:
            if self.world.failures:
                raise SystemExit(f"soak: seed {self.options.seed}: {self.world.failures[0]}")
            return sum(self.world.committed.values())

    def until(self, share):
        while self.committed() < share * self.options.commits:
            with self.world.pause.condition:
                self.world.pause.condition.wait(1)

    def perform(self, name):
        # Half of the actions happen during writes, half while it is quiet.
        if name.startswith("move_") or self.rng.random() < 0.5:
            with self.world.pause.quiet():
                getattr(self, name)()
                self.checkpoint()
        else:
            getattr(self, name)()
            with self.world.pause.quiet():
                self.checkpoint()
        self.done[name] += 1

    def run(self):
        # Two programs write notes.
        names = [*TABLES, "note"]
        each = [self.options.commits // len(names)] * len(names)
        each[0] += self.options.commits - sum(each)
        writers = []
        for name, total in zip(names, each):
            words = (self.world, name, total, random.Random(self.rng.random()))
            writers.append(threading.Thread(target=write, args=words, daemon=True))
            writers[-1].start()
        try:
            for share, name in self.plan():
                self.until(share)
                self.perform(name)
            memory = self.last_stretch(writers)
        except BaseException:
            self.world.is_over = True
            raise
        self.report(time.monotonic() - self.started, memory)

    def last_stretch(self, writers):
        """Leaves the feed alone: its resources must not grow. Returns them of one process, before and after."""
        self.until(0.75)
        for subscriber in self.subscribers:
            if subscriber.is_stopped:
                subscriber.go_on()
        with self.world.pause.quiet():
            self.checkpoint()
            self.feed.wait_for(len(self.subscribers))
            before = {pid: resources(pid) for pid in self.feed.pids()}
        for writer in writers:
            while writer.is_alive():
                self.committed()
                writer.join(1)
        self.checkpoint()
        if self.rows.compared != self.options.commits:
            words = f"{self.options.commits} were committed, and the history has {self.rows.compared}"
            raise SystemExit(f"soak: seed {self.options.seed}: {words}")
        problem = self.rows.compare_content(self.world.store)
        if problem:
            raise SystemExit(f"soak: seed {self.options.seed}: {problem}")
        if self.feed.pids() != list(before):
            raise SystemExit(f"soak: seed {self.options.seed}: {list(before)} watched, and now {self.feed.pids()} do")
        after = {pid: resources(pid) for pid in before}
        for pid in before:
            if after[pid][0] > before[pid][0] + self.feed.growth or after[pid][1] > before[pid][1] + 8:
                words = f"memory and descriptors went from {before[pid]} to {after[pid]}"
                raise SystemExit(f"soak: seed {self.options.seed}: {words}")
        largest = max(after, key=after.get)
        return before[largest], after[largest]

    def report(self, seconds, memory):
        counts = sum((subscriber.counts for subscriber in self.subscribers), collections.Counter())
        told = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        what = "feed, watched directly" if self.options.direct else "feed"
        print(f"soak: {what}: seed {self.options.seed}: {self.options.commits} commits of 8 writers in {seconds:.0f} s")
        print(f"  history: {self.rows.compared} rows are what the writers did, in {self.rows.reads} reads")
        print(f"  done: {', '.join(f'{name} {count}' for name, count in sorted(self.done.items()))}")
        print(f"  {self.checkpoints} checkpoints; {len(self.subscribers)} subscribers were told: {told}")
        who = "watchers'" if self.options.direct else "agent's"
        print(f"  {who} own memory {memory[0][0]} to {memory[1][0]} KiB, descriptors {memory[0][1]} to {memory[1][1]}")

    def end(self):
        for subscriber in self.subscribers:
            subscriber.process.kill()
            subscriber.process.wait()
        self.feed.end()
        shutil.rmtree(self.world.scratch, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description="Does harm to the feed, and looks whether a commit goes missing.")
    parser.add_argument("groupstore")
    parser.add_argument("legacy_writer")
    parser.add_argument("client", help="the directory of the Python package")
    parser.add_argument("--direct", action="store_true", help="subscribers watch the store without an agent")
    parser.add_argument("--commits", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--subscribers", type=int, default=6)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    soak = Soak(options)
    try:
        soak.run()
    finally:
        soak.end()


main()
