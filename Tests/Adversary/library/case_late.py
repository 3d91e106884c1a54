"""The agent starts late, gets its group late, restarts, serves others, or never starts."""

import os
import signal
import time

from judge import judge_callbacks, judge_rows, judge_times
from stage import AMPLE, Over, commit, wait
from words import item_name, store_name

PATIENT = 30.0  # seconds for a client to reconnect: it tries every two


def run(round):
    rng = round.rng
    stories = [late_agent, late_group, restart, away_for_a_moment, regroup, never, others_beside, many, moved]
    story = rng.choice(stories)
    round.title = story.__name__
    scene = Scene(round)
    try:
        story(scene)
    except Over:
        pass
    judge_callbacks(round)
    judge_times(round, time.monotonic())


class Scene:
    def __init__(self, round):
        self.round, self.rng = round, round.rng
        self.name = store_name(self.rng)
        self.store = f"{round.group}/{self.name}"
        self.place = os.path.join(round.container, self.name)
        self.agent = round.agent()
        self.other = os.path.join(round.directory, "o")
        os.makedirs(self.other)
        self.count = 0

    # Configurations

    def serve(self, ours=True):
        groups = {"group.com.example.other": (self.other, {})}
        if ours:
            groups[self.round.group] = (self.round.container, {self.name: []})
        self.agent.configure(groups)
        return list(groups)

    # Users of the library

    def begin(self):
        """Starts one process that presents, watches and observes, and another that writes in turn with others."""
        round = self.round
        if self.rng.random() < 0.6:
            commit(self.place, "first")
        self.app, self.writer = round.actor(self.agent), round.actor(self.agent)
        members = round.of_group(name=self.name)
        self.refusals = {}
        for op, key in self.rng.sample([("present", "p"), ("watch", "w"), ("pool", "o")], 3):
            answer = self.app.ask(op, key=key, **members)
            if answer is None:
                round.problem("hang", f"{op} doesn't return")
                raise Over()
            if not answer["ok"]:
                self.refusals[key] = answer
                round.problem("refused", f"{op}: {answer.get('message')}")
            if op == "pool" and answer["ok"]:
                self.app.must("observe", key="o")
        # The first value comes from the store itself and needs no agent.
        if not self.app.wait_for(lambda e: e.get("event") == "observed"):
            round.problem("deaf", "the observation has no first value")

    def write_in_turn(self, hurry=20.0, may_ask=True):
        self.count += 1
        text = f"turn-{self.count}"
        answer = self.writer.ask(
            "coordinate", key=text, action="write", text=text, deadline=hurry, isBlocking=self.rng.random() < 0.5,
            intents=[{"path": self.place, "access": "write"}], timeout=hurry + AMPLE, **self.round.of_group())
        # If nobody can ask the presenter, it may hold the writer off; the error then names it.
        is_held_off = answer and self.app.pid in (answer.get("holders") or []) and not may_ask
        if answer is None or not (answer["ok"] or is_held_off):
            self.round.problem("not-coordinated", f"a coordinated write fails: {(answer or {}).get('message')}")
        return answer

    def write_beside(self):
        """No agent knows the presenter: an unpresented store can still be written."""
        self.write_in_turn(hurry=self.rng.choice([0, 0.5, 2]), may_ask=False)
        free = os.path.join(self.round.container, "free")
        answer = self.writer.ask(
            "coordinate", action="touch", text="x", deadline=10, isBlocking=self.rng.random() < 0.5,
            intents=[{"path": free, "access": "write"}], **self.round.of_group())
        if answer is None or not answer["ok"]:
            self.round.problem("not-coordinated", f"of what nobody presents: {(answer or {}).get('message')}")

    # Expectations

    def expect_reports(self, why):
        """Checks that the subscription and the observation report a commit, or that it was explicitly refused."""
        self.count += 1
        marks = self.app.event_count()
        text = f"commit-{self.count}"
        commit(self.place, text)
        refused = self.app.wait_for(lambda e: e.get("event") == "received-end", timeout=0)
        kinds = ("changed", "reset")
        if not refused and not self.app.wait_for(
                lambda e: e.get("event") == "received" and e["what"].startswith(kinds), PATIENT, marks):
            self.round.problem("deaf-watch", f"{why}: the subscription reports no commit")
        error = self.app.must("pool-error", key="o").get("message")
        if not error and not self.app.wait_for(lambda e: e.get("event") == "observed", PATIENT, marks):
            self.round.problem("deaf-observation", f"{why}: the observation reports no commit")
        return refused, error

    def must_be_asked(self, why):
        """Checks that the agent knows the presenters, and a coordinated write makes them let go."""
        pid = self.app.pid
        if not wait(lambda: self.agent.presenters(self.store).count(pid) >= 2, PATIENT):
            known = self.agent.presenters(self.store)
            if known.count(pid) < 2:
                self.round.problem("not-registered", f"{why}: the agent's presenters are {known}, not twice {pid}")
                return
        marks = self.app.event_count()
        # A refusal is one of timing only if the presenter was asked.
        answer = self.write_in_turn(may_ask=False)
        if answer and not self.app.wait_for(
                lambda e: e.get("event") == "closing" and e.get("key") == "p", 5, marks):
            self.round.problem("not-asked", f"{why}: a coordinated write didn't ask the presenter: {answer}")
        elif answer and not answer["ok"]:
            self.round.problem("not-coordinated", f"{why}: {answer}")

    def end(self):
        for op, key in (("end", "p"), ("pool-close", "o"), ("unwatch", "w")):
            answer = self.app.ask(op, key=key)
            if answer is None:
                self.round.problem("hang", f"{op} doesn't return")
            elif not answer["ok"]:
                self.round.problem("refused", f"{op}: {answer.get('message')}")
        def left():
            return [path for path in self.app.open_files() if path.startswith(self.place)]

        # An observation's last read may take a moment.
        if not wait(lambda: not left(), 5):
            self.round.problem("open-after-end", str(left()))
        texts = [f"turn-{n}" for n in range(1, self.count + 1) if self.is_written(n)]
        judge_rows(self.round, texts, self.round.container)

    def is_written(self, number):
        for request, _ in self.writer.asked.values():
            if request.get("text") == f"turn-{number}" and self.writer.replies.get(request["id"], {}).get("ok"):
                return True
        return False


def late_agent(scene):
    scene.serve()
    scene.begin()
    if not scene.app.wait_for(lambda e: e.get("event") == "received" and e["what"] == "disconnected"):
        scene.round.problem("deaf-watch", "nobody says that there is no agent")
    scene.write_beside()
    scene.agent.start()
    scene.expect_reports("the agent came late")
    scene.must_be_asked("the agent came late")
    scene.end()


def late_group(scene):
    """The agent serves others first; then its configuration includes our group."""
    scene.serve(ours=False)
    scene.agent.start()
    scene.begin()
    scene.write_beside()
    refused = scene.app.wait_for(lambda e: e.get("event") == "received-end", timeout=1)
    scene.agent.reload(scene.serve())
    if refused and refused.get("ok") is not False:
        scene.round.problem("silent-end", "the subscription to what isn't served ends without an error")
    scene.expect_reports("the group came late")
    scene.must_be_asked("the group came late")
    scene.end()


def restart(scene):
    scene.serve()
    scene.agent.start()
    scene.begin()
    scene.expect_reports("at first")
    for _ in range(scene.rng.randint(1, 3)):
        scene.agent.end(scene.rng.choice([signal.SIGKILL, signal.SIGTERM]))
        if scene.rng.random() < 0.5:
            scene.write_beside()
        if scene.rng.random() < 0.5:
            commit(scene.place, f"meanwhile-{scene.rng.random()}")
        scene.agent.start()
        scene.expect_reports("after a restart")
        scene.must_be_asked("after a restart")
    scene.end()


def away_for_a_moment(scene):
    """Checks that a refused access succeeds as soon as an agent knows the presenters."""
    scene.serve()
    if scene.rng.random() < 0.7:
        scene.agent.start()
    scene.begin()
    for _ in range(3):
        scene.agent.end(scene.rng.choice([signal.SIGKILL, signal.SIGTERM]))
        scene.write_in_turn(hurry=scene.rng.choice([0, 0.2, 0.2, 1]), may_ask=False)
        scene.agent.start()
        scene.must_be_asked("the agent was away for a moment")
    scene.end()


def regroup(scene):
    """Removes the group from the configuration, and restores it."""
    ours = scene.serve()
    scene.agent.start()
    scene.begin()
    scene.expect_reports("at first")
    scene.agent.reload(scene.serve(ours=False))
    scene.write_beside()
    scene.serve()
    scene.agent.reload(ours)
    scene.expect_reports("the group came back")
    scene.must_be_asked("the group came back")
    scene.end()


def never(scene):
    scene.begin()
    scene.write_beside()
    if not scene.app.wait_for(lambda e: e.get("event") == "received" and e["what"] == "disconnected"):
        scene.round.problem("deaf-watch", "nobody says that there is no agent")
    scene.app.must("write", key="p", text="alone")
    scene.end()


def others_beside(scene):
    """Checks that what works without an agent works beside an agent for other groups."""
    scene.serve(ours=False)
    scene.agent.start()
    scene.begin()
    for _ in range(3):
        scene.write_beside()
    path = os.path.join(scene.round.container, "folder")
    os.makedirs(path)
    scene.app.must("add", key="r", path=path, **scene.round.of_group())
    for access in ("read", "write"):
        answer = scene.writer.ask(
            "coordinate", action="none", deadline=10, intents=[{"path": path, "access": access}],
            isBlocking=scene.rng.random() < 0.5, **scene.round.of_group())
        if not answer or not answer["ok"]:
            message = (answer or {}).get("message")
            scene.round.problem("not-coordinated", f"{access} beside an agent of others: {message}")
    scene.app.must("remove", key="r", **scene.round.of_group())
    scene.end()


def many(scene):
    """Presents more in one process than a connection allows: each presenter is asked, or was refused."""
    scene.serve()
    if scene.rng.random() < 0.5:
        scene.agent.start()
    app, writer = scene.round.actor(scene.agent), scene.round.actor(scene.agent)
    count = scene.rng.choice([20, 257, 300])
    scene.round.title += f" {count}"
    numbers = []
    for index in range(count):
        path = os.path.join(scene.round.container, f"item{index}")
        with open(path, "w"):
            pass
        numbers.append(app.send("add", key=f"r{index}", path=path, **scene.round.of_group()))
    answers = [app.reply(number, AMPLE * 2) for number in numbers]
    if None in answers:
        scene.round.problem("hang", f"{answers.count(None)} of {count} presenters have no answer")
        return
    if scene.agent.process is None:
        scene.agent.start()
    loud = {index for index, answer in enumerate(answers) if not answer["ok"]}
    for index in sorted({0, count // 2, count - 2, count - 1} | set(scene.rng.sample(range(count), 5))):
        if index in loud:
            continue
        path = os.path.join(scene.round.container, f"item{index}")

        def is_asked():
            since = app.event_count()
            answer = writer.ask(
                "coordinate", action="none", deadline=10, intents=[{"path": path, "access": "write"}],
                **scene.round.of_group())
            return bool(answer and answer["ok"] and app.wait_for(
                lambda e: e.get("event") == "asked" and e.get("key") == f"r{index}", 1, since))

        if not wait(is_asked, PATIENT):
            scene.round.problem("not-asked", f"presenter {index} of {count} isn't asked and was not refused")
            return


def moved(scene):
    """Moves an item. After a restart, the agent knows its presenter at the item's new place."""
    scene.serve()
    scene.agent.start()
    app, writer = scene.round.actor(scene.agent), scene.round.actor(scene.agent)
    container = scene.round.container
    old, new = os.path.join(container, item_name(scene.rng)), os.path.join(container, "moved here")
    with open(old, "w"):
        pass
    of_group = scene.round.of_group
    app.must("add", key="r", path=old, **of_group())
    if scene.rng.random() < 0.3:
        scene.agent.end()  # the library then reports the move to the process's own presenters
        writer = app
    answer = writer.ask(
        "coordinate", action="rename", deadline=20, isBlocking=scene.rng.random() < 0.5,
        intents=[{"path": old, "access": "write", "options": ["moving"]},
                 {"path": new, "access": "write", "options": ["replacing"]}], **of_group())
    if not answer or not answer["ok"]:
        scene.round.problem("not-coordinated", f"a move of {old!r} fails: {(answer or {}).get('message')}")
        return
    if not app.wait_for(lambda e: e.get("event") == "asked" and e.get("what") == "moved", 10):
        scene.round.problem("not-told", "the presenter doesn't hear of the move")
        return
    scene.agent.end()
    scene.agent.start()
    writer = scene.round.actor(scene.agent)

    def is_asked():
        since = app.event_count()
        answer = writer.ask(
            "coordinate", action="none", deadline=10, intents=[{"path": new, "access": "write"}], **of_group())
        return bool(answer and answer["ok"] and app.wait_for(
            lambda e: e.get("event") == "asked" and "relinquish" in e.get("what", ""), 1, since))

    if not wait(is_asked, PATIENT):
        scene.round.problem("not-asked", "after the restart the presenter isn't asked about its item's new place")
