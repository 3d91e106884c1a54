"""Two agents and direct watchers on one store, with ten writers: all hear everything, and nobody disturbs anybody.

At the end a store is relocated into the group, by an agent or by a command, while direct watchers watch both of its places.
"""

import os
import signal
import subprocess
import threading
import time

from program import EXPECTED, PATIENCE, Watch
from store import MODES, Writer, connect, copy, make, once, remove
from views import Subscription, View, everything, start_agent


class Stage:
    """The store, the legacy place, and everybody who listens."""

    def __init__(self, round):
        self.round, r = round, round.chance
        self.group, self.legacy_directory = round.path("g"), round.path("l")
        for directory in (self.group, self.legacy_directory):
            os.mkdir(directory)
        self.store, self.legacy = os.path.join(self.group, "s.db"), os.path.join(self.legacy_directory, "s.db")
        self.mode, self.retire = r.choice(["wal", "wal", "wal", "delete"]), r.choice(["delete", "delete", "symlink", "archive"])
        self.mover = r.choice(["agent", "agent", "both_agents", "command"])
        if self.mover in round.without:
            self.mover = "agent"
        # Held by a view while it reads, and by whoever does what nobody may have the store open for.
        self.quiet = threading.Lock()
        self.agents, self.views, self.subscriptions, self.watches, self.former = [], [], [], [], []

    def begin(self):
        make(self.store, self.mode)
        for number in range(2):
            serves = self.mover == "both_agents" or self.mover == "agent" and number == 0
            agent = start_agent(self.round, f"agent{number}", self.group, self.legacy if serves else None, self.retire)
            if agent is None:
                return False
            self.agents.append(agent)
            subscription = Subscription(self.round, agent)
            self.subscriptions.append(subscription)
            self.views.append(View(self.round, subscription, self.store, self.quiet))
        for _ in range(2):
            self.watches.append(self.watch(self.store))
            self.views.append(View(self.round, self.watches[-1], self.store, self.quiet))
        both = self.watch(self.store, self.legacy)
        self.views.append(View(self.round, both, self.store, self.quiet))
        self.former = [self.watch(self.legacy), both]
        self.former_views = [View(self.round, watch, self.legacy, self.quiet) for watch in self.former]
        return not self.round.problems

    def watch(self, *paths):
        watch = self.round.watch(*paths)
        watch.ready()
        return watch

    def listeners(self):
        return [*self.subscriptions, *self.watches, self.former[1]]

    # Judgement

    def judge(self, what, writers=(), path=None):
        """Everybody must come to know what the store holds, by events alone; and each table's last commit be covered."""
        path = path or self.store
        views = self.views if path == self.store else self.former_views
        with self.quiet:
            truth = everything(path)
        for view in views:
            self.round.figures["views judged"] += 1
            if not view.knows(truth):
                wrong = [table for table in {*truth, *view.known} if truth.get(table) != view.known.get(table)]
                self.round.problem("missed", f"{what}: {name(view.listener)} doesn't know {wrong} of {path}; "
                                   f"last line: {view.last and view.last.text}; {view.listener.tail()}")  # fmt: skip
                return
        commits = [commit for writer in writers for commit in writer.commits]
        self.round.figures["commits"] += len(commits)
        for view in views:
            for table in {table for commit in commits for table in commit.tables}:
                last = max((commit for commit in commits if table in commit.tables), key=lambda commit: commit.before)
                names = lambda line: line.news and line.time >= last.before and (line.named is None or table in line.named)  # noqa: B023, E731
                line = view.listener.wait(names, PATIENCE)
                self.round.figures["commits judged"] += 1
                if line is None:
                    self.round.problem("missed", f"{what}: {name(view.listener)}: no line names {table} after {last.what}")
                elif line.time > last.after + EXPECTED:
                    self.round.problem("late", f"{what}: {name(view.listener)}: {line.time - last.after:.1f} s")
        for writer in writers:
            for failure in (each for each in writer.failures if "error" in each):
                self.round.problem("writer", f"{what}: {failure}")

    def lost(self, writers, path):
        """Each mark whose commit a writer has reported must be there."""
        with self.quiet:
            connection = connect(os.path.realpath(path))
            found = {text for (text,) in connection.execute("SELECT text FROM mark")}
            connection.close()
        for writer in writers:
            for commit in writer.commits:
                # An update may have overwritten one of the first five marks.
                if commit.what.partition(" ")[2] not in found and commit.what.startswith("insert"):
                    self.round.problem("lost", f"{commit.what} is not in {path}")
                    return

    # What happens

    def write(self, path=None, count=10, **settings):
        r, path = self.round.chance, path or self.store
        return [Writer(self.round, path, count=r.randrange(5, 25), pause=r.choice([0, 0.02, 0.2]), checkpoint=r.choice([4, 20]),
                       vacuum=r.choice([1, 6]), **{"reopen": r.choice([0, 0.3, 1]), **settings}) for _ in range(count)]  # fmt: skip

    def end_writers(self, writers):
        for writer in writers:
            writer.process.stdin.close()
            writer.wait()

    def writers_only(self):
        writers = self.write()
        self.end_writers(writers)
        return writers

    def killed_writers(self):
        writers = self.write()
        time.sleep(self.round.chance.random() * 0.5)
        for writer in writers:
            if self.round.chance.random() < 0.5:
                writer.kill()
        self.end_writers([writer for writer in writers if writer.process.poll() is None])
        return writers

    def killed_agent(self):
        writers = self.write()
        agent = self.round.chance.choice(self.agents)
        time.sleep(self.round.chance.random() * 0.3)
        agent.process.kill()
        agent.process.wait()
        time.sleep(self.round.chance.choice([0, 0.3]))
        if not agent.start():
            self.round.problem("no-start", agent.tail())
        self.end_writers(writers)
        return writers

    def killed_watcher(self):
        """Kills a watcher; another one resumes after the last event that it printed."""
        writers = self.write()
        number = self.round.chance.randrange(len(self.watches))
        old = self.watches[number]
        time.sleep(self.round.chance.random() * 0.3)
        old.kill()
        # The first line's token may be later than what has been reported: only an event's may be kept, or the first one's
        # of all, after which the view has read everything.
        tokens = [line.token for index, line in enumerate(old.lines) if line.token and (line.news or index == 0)]
        time.sleep(self.round.chance.choice([0, 0.3]))
        new = Watch(self.round, [self.store], "--since", tokens[-1], former=old)
        self.watches[number] = new
        for view in self.views:
            if view.listener is old:
                view.replace(new)
        new.ready()
        self.end_writers(writers)
        return writers

    def stopped(self):
        """Stops agents and watchers while others commit."""
        processes = [agent.process for agent in self.agents] + [watch.process for watch in self.watches]
        chosen = self.round.chance.sample(processes, 2)
        for process in chosen:
            process.send_signal(signal.SIGSTOP)
        writers = self.write()
        self.end_writers(writers)
        for process in chosen:
            process.send_signal(signal.SIGCONT)
        return writers

    def vacuumed(self):
        connection = connect(self.store)
        connection.execute("VACUUM")
        connection.close()
        return self.writers_only()

    def switched(self):
        with self.quiet:
            once(self.store, mode=self.round.chance.choice(MODES[:4]))
        return self.writers_only()

    def replaced(self):
        spare = self.round.path("spare.db")
        make(spare, self.round.chance.choice(["wal", "delete"]), rows=self.round.chance.randrange(1, 300))
        with self.quiet:
            if self.round.chance.random() < 0.5:
                # The next program to open it would take the old store's log or journal for the new one's.
                for side in ("-wal", "-shm", "-journal"):
                    if os.path.exists(self.store + side):
                        os.unlink(self.store + side)
                os.rename(spare, self.store)
            else:
                copy(spare, self.store)
                remove(spare)
        self.judge("replaced")
        return self.writers_only()

    def made_again(self):
        with self.quiet:
            remove(self.store)
            time.sleep(self.round.chance.choice([0, 0.01, 0.7]))
            make(self.store, self.round.chance.choice(["wal", "delete"]), rows=self.round.chance.randrange(1, 9))
        self.judge("deleted and made again")
        return self.writers_only()

    ACTS = [writers_only, killed_writers, killed_agent, killed_watcher, stopped, vacuumed, switched, replaced, made_again]

    # The relocation

    def relocate(self):
        """The group's store goes; one at the legacy place, with ten writers, is relocated into the group."""
        round, r = self.round, self.round.chance
        with self.quiet:
            remove(self.store)
        self.judge("deleted")
        serving = [agent for agent in self.agents if self.mover == "both_agents" or self.mover == "agent" and agent is self.agents[0]]
        for agent in serving:  # so that the writers come first
            agent.process.send_signal(signal.SIGSTOP)
        make(self.legacy, self.mode)
        writers = self.write(self.legacy, reopen=0, hold=True, delete=0)
        for writer in writers:
            writer.committed(60)
        for agent in serving:
            agent.process.send_signal(signal.SIGCONT)
        for writer in writers:
            writer.idle(60)
        self.judge("commits at the legacy place", writers, self.legacy)
        if round.problems:
            return
        moment, rows = time.monotonic(), everything(self.legacy)
        command = None
        if self.mover == "command":
            words = [round.program, "relocate", self.legacy, self.group, "--retire", self.retire, "--deadline", "60"]
            command = subprocess.Popen(words, env=round.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            time.sleep(r.random() * 0.5)
        self.end_writers(writers)
        if command is not None:
            said = command.communicate()[0]
            if command.returncode != 0:
                round.problem("relocate", f"{command.returncode}: {said!r}")
                return
        self.heard_of_relocation(moment, rows)
        if round.problems:
            return
        self.lost(writers, self.store)
        self.judge("relocated")
        for _ in range(2):
            writers = self.writers_only()
            self.judge("commits after the relocation", writers)
            if os.path.islink(self.legacy):
                self.judge("commits after the relocation, seen through the link", writers, self.legacy)

    def heard_of_relocation(self, moment, rows):
        round = self.round
        if self.mover != "command":
            relocated = lambda line: line.type == "relocated" and line.time >= moment  # noqa: E731
            heard = [each for each in self.subscriptions if each.wait(relocated, 60 if each is self.subscriptions[0] else 0.1)]
            if not heard and (self.mover == "agent" or not self.subscriptions[1].wait(relocated, 20)):
                round.problem("unmoved", f"no agent reports `relocated`; {self.agents[0].tail()}")
                return
        wanted = ["relocated"] if self.retire == "symlink" else ["reset"]
        for watch in self.former:
            path = os.fsencode(self.legacy)
            # While the relocation has the store to itself, it may be unreadable: that is not yet the end.
            told = lambda line: line.type in wanted and line.data.get("reason") != "unreadable" and line.time >= moment and line.store == path  # noqa: B023, E731, E501
            line = watch.wait(told, PATIENCE)
            if line is None:
                round.problem("missed", f"a watcher of the legacy path hears none of {wanted}; {watch.tail()}")
                return
            round.figures[f"heard at the former path: {line.type} {line.data.get('reason', '')}".strip()] += 1
        with self.quiet:
            if everything(self.store) != rows:
                round.problem("lost", "the relocated store holds something else")


def name(listener):
    return listener.name if isinstance(listener, Subscription) else f"watcher {listener.process.pid}"


def run(round):
    r = round.chance
    stage = Stage(round)
    round.title = f"{stage.mode} {stage.mover} {stage.retire}"
    if not stage.begin():
        return
    for act in r.sample(stage.ACTS, r.randrange(1, 5)):
        round.step(act.__name__)
        round.title += " " + act.__name__
        writers = act(stage)
        if not round.problems:
            stage.judge(act.__name__, writers)
        if round.problems:
            return
        round.figures[act.__name__] += 1
    if r.random() < 0.6:
        round.step("relocate")
        round.title += " relocate"
        stage.relocate()
        if not round.problems:
            round.figures["relocations"] += 1
