#!/usr/bin/env python3
"""Other engines and other ways to write, against the feed.

    adversary.py GROUPSTORE [--seconds N] [--seed S] [--rounds N] [--first M] [--stores N] [--steps N] [--keep DIR]

A round makes some stores in a group directory, starts an agent with a subscriber and one `groupstore watch --direct` for
all of them, and lets things happen to the stores (steps.py): commits by SQLite of two versions, its shell, SQLCipher and
Turso, in exclusive mode, without locks, by a program that is killed; checkpoints and changes of the journal mode; copies,
renames and plain writes over the file; leftovers of another moment or another store. What is held against the documents:

  - each commit, and each change of what a reader would find, brings both listeners an event that follows it;
  - `unreadable` is followed by another event once the program that kept readers out is gone;
  - a token taken before says `change` or `reset`, from the agent (with or without subscribers meanwhile) and directly;
  - `groupstore changes` with a token taken before rows were inserted has rows, or a reset;
  - on an idle machine nothing is told any more, nothing runs, and a token of now says nothing.

What is true is read on a private copy of the files, never through groupstore. The packages apsw, sqlcipher3-wheels and
pyturso are used if Python finds them. Ends with one summary line, and exit code 1 if there was a problem.
"""
import argparse
import collections
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from listeners import GROUP, Agent, Watch, calls_of, direct_answer, direct_token, own_mounts, work_done
from steps import Steps, choose
from stores import LATE, Child, Store

PACKAGES = {"sqlite": "sqlite3", "apsw": "apsw", "cipher": "sqlcipher3-wheels", "turso": "pyturso"}
RECORDED = {"commit_and_close", "commit_and_keep", "commit_beside", "burst", "mmap", "killed_writer"}


class World:
    """One round: the stores, their listeners, and what was found."""

    def __init__(self, options, number, totals):
        self.options, self.number, self.totals = options, number, totals
        self.program = options.program
        self.engines = options.engines
        self.rng = random.Random("%s/%d" % (options.seed, number))
        self.base = tempfile.mkdtemp(prefix="adv-engines-")
        self.group = os.path.join(self.base, "group")
        os.mkdir(self.group, 0o700)
        self.children, self.stores, self.problems = [], [], 0
        self.agent = Agent(self.program, self.base, self.group)
        self.watch = None
        self.by_name = {}

    # Bookkeeping

    def count(self, what, number=1):
        self.totals[what] += number

    def delay(self, seconds):
        """How long after a step began its event came."""
        if seconds > 3600:
            return  # asked without a step
        self.totals["longest delay, ms"] = max(self.totals["longest delay, ms"], int(seconds * 1000))
        if seconds > LATE:
            self.count("late")

    def problem(self, store, text):
        self.problems += 1
        self.count("problems")
        print("PROBLEM round %d: %s" % (self.number, text))
        if store:
            print("    store %r%s, journal mode %s, engines %s; its last steps: %s" % (
                store.name, " (encrypted)" if store.key else "", store.mode, ",".join(store.engines), ", ".join(store.steps[-8:])))
            for listener, events in store.events.items():
                print("    %s heard: %s" % (listener, "; ".join("%.1f s ago %s" % (time.monotonic() - at, " ".join(
                    str(e.get(k)) for k in ("type", "reason", "tables") if e.get(k) is not None)) for at, e in events[-4:])))
        print("    again: adversary.py %s --seed %s --first %d --rounds 1 --stores %d --steps %d" % (
            self.program, self.options.seed, self.number, self.options.stores, self.options.steps), flush=True)

    # Listening

    def listens(self, listener, store):
        return self.watch is not None if listener == "direct" else self.agent.connection is not None and not store.dormant

    def begin_listening(self):
        """Subscribes to all stores but the dormant ones, after their last tokens."""
        for store in self.stores:
            if store.dormant:
                continue
            since = store.events["agent"][-1][1]["token"] if store.events["agent"] else None
            request = {"op": "subscribe", "store": GROUP + "/" + store.name}
            if since:
                request["since"] = since
            if self.rng.random() < 0.3:
                request["detail"] = False
            reply, events = self.agent.connection.ask(**request)
            self.take("agent", events)
            if not reply or not reply.get("ok"):
                self.problem(store, "the agent refuses a subscription: %s" % reply)
            elif not store.events["agent"]:
                store.events["agent"].append((0, dict(reply, type="subscribed")))

    def take(self, listener, lines):
        now = time.monotonic()
        for line in lines:
            name = line.get("store", "").split("/")[-1]
            store = self.by_name.get(name)
            if store and line.get("token") and line.get("type") not in (None, "bookmark"):
                store.events[listener].append((now, line))
                self.count("events")
            elif line.get("type") == "garbage":
                self.problem(None, "%s sends a line that is no JSON: %s" % (listener, line["line"]))

    def pump(self, seconds):
        """Reads what the listeners were told, for so many seconds; with 0, what is there."""
        end = time.monotonic() + seconds
        while True:
            sources = []
            if self.agent.connection:
                self.take("agent", self.agent.connection.lines.read())
                sources.append(self.agent.connection.lines)
            if self.watch:
                self.take("direct", self.watch.lines.read())
                sources.append(self.watch.lines)
            left = end - time.monotonic()
            if left <= 0:
                return
            for source in sources:
                if source.ended:
                    raise RuntimeError("a listener has ended: see agent.log, watch.log in " + self.base)
            select.select([s.descriptor for s in sources], [], [], left)

    # Judging

    def judge(self, store, moment, why):
        """Every listener must have been told after this moment."""
        for listener in store.listeners():
            if store.held and store.unreadable(listener):
                self.count("commits of a program that keeps readers out")
                continue  # it knows that it can't read, and is told when it can
            event = store.await_told(listener, moment, settled=not store.held)
            if event is None:
                if store.held and store.unreadable(listener):
                    continue
                what = "was told last that it is unreadable" if store.unreadable(listener) else "was told nothing"
                self.problem(store, "%s: the %s %s" % (why, "subscriber of the agent" if listener == "agent" else
                                                       "direct watcher", what))
            else:
                self.count("told: " + listener)

    def judge_readable(self, store):
        """`unreadable` doesn't stay the last word when nobody keeps readers out."""
        if store.held or store.content() == "absent" or store.content().startswith("bytes "):
            return
        for listener in store.listeners():
            if store.unreadable(listener) and store.await_told(listener, 0, settled=True) is None:
                self.problem(store, "unreadable stays the last word for the %s listener, though nobody holds it" % listener)

    def tokens_before(self, store):
        """Tokens of now, once for each series of steps until they are looked at."""
        if store.tokens or store.held:
            return
        if self.rng.random() < (0.9 if store.dormant else 0.25):
            if store.dormant and self.agent.connection:
                store.tokens["agent"] = self.agent.token_of(store.name)
            elif not store.dormant and store.events["agent"]:
                store.tokens["agent"] = store.events["agent"][-1][1]["token"]
            store.tokens["direct"] = (store.events["direct"][-1][1]["token"] if store.events["direct"]
                                      else direct_token(self.program, store.path))

    def judge_tokens(self, store, why):
        """Tokens of before something that must be told don't say that nothing was written."""
        tokens, store.tokens = store.tokens, {}
        for listener, token in tokens.items():
            if not token or listener == "agent" and not self.agent.connection:
                continue  # there is nobody to ask
            if listener == "agent":
                event = self.agent.answer_to(store.name, token)
            else:
                event = direct_answer(self.program, store.path, token)
            self.count("tokens " + (("dormant" if store.dormant else "followed") if listener == "agent" else "direct"))
            if event is None:
                self.problem(store, "%s: the %s token %s of before says that nothing was written" % (why, listener, token))
            elif event["type"] == "refused":
                self.problem(store, "%s: a subscriber that returns is refused: %s" % (why, event["reply"]))

    def history(self, store, since=None):
        """The summary of `groupstore changes`, and the number of rows."""
        arguments = ["--since", since, "--limit", "5"] if since else ["--now"]
        result = subprocess.run([self.program, "changes", "--json"] + arguments + [store.path], capture_output=True)
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        summary = lines[-1] if lines else {}
        return summary, sum(line.get("type") == "row" for line in lines)

    def judge_history(self, store, since, name):
        summary, rows = self.history(store, since)
        if summary.get("outcome") == "changes" and not rows:
            self.problem(store, "rows were inserted (%s), and `changes --since %s` says that there are none" % (name, since))
        self.count("histories read: " + str(summary.get("outcome")))

    # A step

    def step(self, store):
        name = choose(store)
        if name.startswith("raw") and store.writer:
            store.close()
        since = None
        if store.history and name in RECORDED and not store.held and self.rng.random() < 0.5:
            since = self.history(store)[0].get("token")
            store.forget()
        self.tokens_before(store)
        before = store.content()
        self.pump(0)
        store.steps.append(name)
        store.moment = moment = time.monotonic()
        must = getattr(Steps, name)(store)
        store.forget()
        moment = max(moment, store.moment)
        if must is None and store.content() != before:
            must = True
            store.note("(content %.12s → %.12s)" % (before, store.content()))
        self.count(name if must else name + " (nothing to tell)")
        why = name
        if must:
            self.judge(store, moment, why)
        self.judge_readable(store)
        if must and store.tokens and not store.held:
            self.judge_tokens(store, why)
        elif not must and name != "reader":
            store.tokens = dict(store.tokens) if self.rng.random() < 0.7 else {}
        if since and must and not store.held:
            self.judge_history(store, since, name)
        self.pump(self.rng.choice([0, 0, 0, 0.1, 0.6]))

    def another_agent(self):
        """The agent is killed, and another one starts: whoever returns is told `reset`."""
        self.count("agents killed")
        self.pump(0)
        self.agent.kill(self.rng.choice([signal.SIGKILL, signal.SIGTERM]))
        self.step(self.rng.choice([s for s in self.stores if not s.dormant] or self.stores))
        self.agent.start()
        moment = time.monotonic()
        for store in self.stores:
            store.tokens = {}
        self.begin_listening()
        for store in self.stores:
            if not store.dormant and store.await_told("agent", moment, settled=False) is None:
                self.problem(store, "a subscriber that returns to another agent is told nothing")

    # The end of a round

    def judge_idle(self):
        """Nothing happens any more: then nothing is told, and nothing runs."""
        for store in self.stores:
            store.close()
        last, end = time.monotonic(), time.monotonic() + 100
        while time.monotonic() - last < 20 and time.monotonic() < end:
            heard = sum(len(e) for s in self.stores for e in s.events.values())
            self.pump(0.5)
            if sum(len(e) for s in self.stores for e in s.events.values()) != heard:
                last = time.monotonic()
        if time.monotonic() >= end:
            for store in self.stores:
                recent = [e for events in store.events.values() for at, e in events if at > time.monotonic() - 60]
                if recent:
                    self.problem(store, "an idle store was told of %d times within the last minute" % len(recent))
        processes = {"agent": self.agent.process.pid, "direct watcher": self.watch.process.pid}
        before = {who: work_done(pid) for who, pid in processes.items()}
        self.pump(12)
        for who, pid in processes.items():
            switches, seconds = (now - then for now, then in zip(work_done(pid), before[who]))
            self.totals["most runs of an idle " + who] = max(self.totals["most runs of an idle " + who], switches)
            if switches > 8 or seconds > 0.1:
                self.problem(None, "the idle %s ran %d times in 12 s, %.2f s of processor time; stores: %s\n%s" % (
                    who, switches, seconds, ", ".join("%r after %s" % (s.name, s.steps[-1:]) for s in self.stores),
                    calls_of(pid)))
        tokens = {store: self.agent.token_of(store.name) for store in self.stores}
        self.pump(7)
        for store, token in tokens.items():
            event = self.agent.answer_to(store.name, token, 1)
            self.count("tokens of an idle store")
            if event and event.get("reason") == "lagged" and not store.configured:
                self.count("tokens of an idle store that say `lagged`")  # "the agent did not follow the store since"
            elif event is not None:
                self.problem(store, "nothing was written for 30 s, and a token of 7 s ago says %s" % event)

    def run(self):
        for number in range(self.options.stores):
            store = Store(self, number)
            self.stores.append(store)
            self.by_name[store.name] = store
        self.agent.configure([s.name for s in self.stores if s.configured])
        self.agent.start()
        with open(os.path.join(self.base, "watch.log"), "wb") as log:
            self.watch = Watch(self.program, [s.path for s in self.stores], log)
        end = time.monotonic() + 60
        while any(not s.events["direct"] for s in self.stores):
            self.pump(0.2)
            if time.monotonic() > end:
                raise RuntimeError("the direct watcher doesn't begin: see watch.log")
        self.begin_listening()
        for _ in range(self.options.steps * self.options.stores):
            if self.rng.random() < 0.012:
                self.another_agent()
            self.step(self.rng.choice(self.stores))
        self.judge_idle()

    def end(self):
        for child in self.children:
            if child.process.poll() is None:
                child.kill()
        self.agent.kill()
        if self.watch:
            self.watch.kill()
        self.agent.log.close()
        if self.options.keep and self.problems:
            shutil.copytree(self.base, os.path.join(self.options.keep, "%s-%d-%s" % (
                self.options.seed, self.number, os.path.basename(self.base)[12:])), symlinks=True,
                            ignore=lambda folder, names: [n for n in names if n == "s"])
        shutil.rmtree(self.base, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--stores", type=int, default=6)
    parser.add_argument("--steps", type=int, default=12, help="steps a store")
    parser.add_argument("--keep", help="copy the files of rounds with a problem here")
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    totals = collections.Counter()
    own_mounts()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left running
    probe = Child(argparse.Namespace(count=lambda what: None))
    options.engines = probe.call(do="has", engines=list(PACKAGES))["engines"]
    probe.kill()
    if shutil.which("sqlite3"):
        options.engines["shell"] = "sqlite3"
    print("engines: " + ", ".join("%s %s" % pair for pair in options.engines.items()), flush=True)
    for engine, package in PACKAGES.items():
        if engine not in options.engines:
            print("skipping %s: Python finds no package %s" % (engine, package), flush=True)
    end = time.monotonic() + options.seconds if options.seconds else None
    number = options.first
    while (end is None or time.monotonic() < end) and number < options.first + (options.rounds or (1 << 30)):
        world = World(options, number, totals)
        try:
            world.run()
        except Exception:
            world.problem(None, "the round broke off: " + traceback.format_exc())
        finally:
            world.end()
        number += 1
        if end is None and not options.rounds:
            break
    print("engines: %d rounds, %d problems; reached: %s" % (number - options.first, totals["problems"], "; ".join(
        "%s %d" % pair for pair in sorted(totals.items()))), flush=True)
    return 1 if totals["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
