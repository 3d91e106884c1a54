"""Several processes present one store and write, while it is replaced, moved and relocated, and they are killed."""

import os
import threading
import time

from judge import judge_callbacks, judge_rows, judge_times
from stage import AMPLE, commit, wait
from words import store_name


class Scene:
    def __init__(self, round):
        self.round, self.rng = round, round.rng
        self.flavour = self.rng.choice(["replace", "replace", "replace", "relocate", "move", "mixed"])
        self.name = store_name(self.rng)
        self.legacy_directory = round.path("legacy")
        os.makedirs(self.legacy_directory)
        self.legacy = os.path.join(self.legacy_directory, self.name) if self.flavour in ("relocate", "mixed") else None
        self.place = os.path.join(round.container, self.name)
        self.other = os.path.join(round.container, "other-" + self.name[:40])
        self.acknowledged, self.lock = [], threading.Lock()
        self.presented = []  # (actor, key)
        self.pools = set()  # the keys of GRDB pools
        self.ended = set()
        self.writers, self.over = [], threading.Event()
        self.number = 0
        self.pending = []

    def text(self, what):
        self.number += 1
        return f"{what}-{self.number}"

    def acknowledge(self, text):
        with self.lock:
            self.acknowledged.append(text)

    def members(self, **members):
        members = self.round.of_group(name=self.name, **members)
        return {**members, "legacy": self.legacy} if self.legacy else members

    def present(self, actor):
        key = self.text("p")
        # Slow opens and closes provoke races.
        pause = self.rng.choice([0, 0, 0, 1, 5, 30])
        if self.rng.random() < 0.3:
            self.pools.add(key)
        op = "pool" if key in self.pools else "present"
        number = actor.send(op, key=key, milliseconds=pause, **self.members())
        self.pending.append((actor, number, key))
        writer = threading.Thread(target=self.write, args=(actor, number, key), daemon=True)
        writer.start()
        self.writers.append(writer)

    def write(self, actor, number, key):
        """Writes as long as the process lives; an answer acknowledges a row."""
        answer = actor.reply(number, AMPLE * 2)
        if not answer or not answer["ok"]:
            return
        with self.lock:
            self.presented.append((actor, key))
        count = 0
        while not self.over.is_set() and actor.is_alive:
            text, count = f"{actor.name}-{key}-{count}", count + 1
            op = "pool-write" if key in self.pools else "write"
            answer = actor.ask(op, key=key, text=text, timeout=AMPLE)
            if answer is None:
                if actor.is_alive and not actor.is_stopped and not self.over.is_set():
                    self.round.problem("hang", f"{actor.name} answers no write of {key}")
                return
            if answer["ok"]:
                self.acknowledge(text)
            elif "there is no" in answer["message"] or (answer.get("kind") == "Unavailable" and key in self.ended):
                return
            elif not any(word in answer["message"] for word in ("closed", "busy", "interrupted", "SQLITE_MISUSE")):
                self.round.problem("write-failed", f"{actor.name}/{key}: {answer.get('message')}")
                return
            self.over.wait(0.002 if answer["ok"] else 0.01)

    def end_of(self, key):
        return "pool-close" if key in self.pools else "end"

    # Random events

    def access(self, actor, action, paths):
        rng = self.rng
        options = {
            "replace": rng.choice([["replacing"], [], ["merging"]]), "write": rng.choice([[], ["merging"]]),
            "move": ["moving"],
        }[action]
        intents = [{"path": path, "access": "write", "options": options} for path in paths]
        if action == "move":
            intents[1]["options"] = ["replacing"]
        text = self.text("c")
        deadline = rng.choice([0, 0.1, 1, 5, 5, 20])
        number = actor.send(
            "coordinate", key=text, intents=intents, action=action, text=text, deadline=deadline,
            isBlocking=rng.random() < 0.5, milliseconds=rng.choice([0, 0, 5, 40]), **self.round.of_group())
        self.pending.append((actor, number, None if action == "move" else text))
        threading.Thread(target=self.check_answer, args=(actor, number, text, action, deadline), daemon=True).start()
        return number

    def check_answer(self, actor, number, text, action, deadline):
        answer = actor.reply(number, AMPLE * 2)
        if answer and answer["ok"] and action != "move":
            self.acknowledge(text)
        elif answer and not answer["ok"] and answer.get("kind") not in ("FileCoordinationError", "GroupStoreError") \
                and "makes no sense" not in answer["message"]:
            self.round.problem("access-failed", f"{action}: {answer.get('message')}")

    def relocate(self):
        arguments = ["relocate", self.legacy, self.round.container, "--deadline", str(self.rng.choice([1, 5, 15]))]
        code, summary = self.round.command(*arguments)
        if code not in (0, 75):
            self.round.problem("relocation", f"exit {code}: {summary}")


def run(round):
    rng, scene = round.rng, Scene(round)
    agent = round.agent()
    serves_legacy = scene.legacy and rng.random() < 0.5
    late_legacy = serves_legacy and rng.random() < 0.5
    if scene.legacy:
        commit(scene.legacy, "first")
        scene.acknowledge("first")
    elif rng.random() < 0.7:
        commit(scene.place, "first")
        scene.acknowledge("first")
    stores = {scene.name: [scene.legacy] if serves_legacy and not late_legacy else []}
    agent.configure({round.group: (round.container, stores)})
    agent.start()
    actors = [round.actor(agent) for _ in range(rng.randint(2, 4))]
    round.title = f"{scene.flavour} {scene.name!r} {len(actors)} actors"
    bare = round.actor(agent)
    for actor in actors:
        scene.present(actor)
    end = time.monotonic() + rng.uniform(2, 6)
    relocation = threading.Thread(target=scene.relocate, daemon=True)
    is_relocating = False
    moves, here, is_moving = 0, scene.place, None
    while time.monotonic() < end:
        living = [actor for actor in actors if actor.is_alive]
        kind = rng.random()
        able = [actor for actor in living if not actor.is_stopped] or [bare]
        if scene.flavour == "move":
            # After a move the name is free; a new presenter would make another store, and there is none.
            if is_moving is not None and (answer := bare.reply(is_moving, 0)):
                if answer["ok"]:
                    here = scene.other if here == scene.place else scene.place
                is_moving = None
            if kind < 0.3 and is_moving is None:
                there = scene.other if here == scene.place else scene.place
                is_moving = scene.access(bare, "move", [here, there])
                moves += 1
        elif kind < 0.35 and not (scene.legacy and scene.flavour == "relocate"):
            if os.path.exists(scene.place):
                scene.access(rng.choice(able + [bare]), rng.choice(["replace", "replace", "write"]), [scene.place])
        elif kind < 0.5 and len(scene.pending) < 60:
            scene.present(rng.choice(able) if able != [bare] else bare)
        if 0.5 < kind < 0.6 and len(living) > 1:
            rng.choice(living).kill()
        elif 0.6 < kind < 0.7 and len(living) < 4 and scene.flavour != "move":
            actor = round.actor(agent)
            actors.append(actor)
            scene.present(actor)
        elif 0.7 < kind < 0.8 and able != [bare]:
            rng.choice(able).stop()
        elif 0.8 < kind < 0.95:
            for actor in living:
                actor.go_on()
        elif scene.presented and kind > 0.95:
            with scene.lock:
                actor, key = rng.choice(scene.presented)
            for _ in range(rng.choice([1, 1, 2])):
                scene.ended.add(key)
                scene.pending.append((actor, actor.send(scene.end_of(key), key=key), None))
        if scene.legacy and not is_relocating and rng.random() < 0.06:
            is_relocating = True
            if late_legacy:
                agent.configure({round.group: (round.container, {scene.name: [scene.legacy]})})
                agent.reload([round.group])
            elif not serves_legacy:
                relocation.start()
        # The pause waits for nothing: it sets how dense the accidents are.
        time.sleep(rng.choice([0, 0.005, 0.02, 0.1]))
    scene.over.set()
    finish(round, scene, actors + [bare], agent, relocation)


def finish(round, scene, actors, agent, relocation):
    for actor in actors:
        actor.go_on()
    for writer in scene.writers:
        writer.join(AMPLE)
    if relocation.is_alive() or relocation.ident:
        relocation.join(AMPLE * 2)
    for actor, number, _ in scene.pending:
        if actor.is_alive and actor.reply(number, AMPLE) is None and actor.is_alive:
            request = actor.asked.get(number, ({},))[0]
            what = f"{request.get('op')} {request.get('action')} #{number}"
            round.problem("hang", f"{actor.name} has no answer to {what}")
    for actor, key in dict.fromkeys(scene.presented):
        if actor.is_alive:
            answer = actor.ask(scene.end_of(key), key=key)
            if answer is None:
                round.problem("hang", f"{actor.name}/{key} doesn't end")
            elif not answer["ok"]:
                if "there is no" not in answer["message"]:  # it has ended before
                    round.problem("refused", f"{actor.name}/{key} doesn't end: {answer.get('message')}")
            elif answer.get("what", "closed") != "closed":
                round.problem("open-after-end", f"{actor.name}/{key} is open after end()")
    for actor in actors:
        if actor.is_alive:
            names = {scene.place, scene.other, scene.legacy}
            left = [path for path in actor.open_files() if path.replace(" (deleted)", "").replace("-wal", "") in names]
            if left:
                round.problem("open-after-end", f"{actor.name} still has {left}")
    gone = {actor.pid for actor in actors}
    if not wait(lambda: not set(agent.presenters(f"{round.group}/{scene.name}")) & gone, AMPLE):
        round.problem("presented-after-end", f"the agent still has {agent.presenters(f'{round.group}/{scene.name}')}")
    now = time.monotonic()
    for actor in actors:
        actor.leave()
    # An agent that finds the legacy store free relocates it now; the check follows.
    agent.end(15)
    judge_callbacks(round)
    judge_times(round, now)
    judge_moves(round, actors)
    with scene.lock:
        judge_rows(round, list(scene.acknowledged), round.container, scene.legacy_directory)
    failed = [event for actor in actors for event in actor.events if event.get("event") == "failed"]
    if failed:
        round.problem("reopening-failed", failed[0])


def judge_moves(round, actors):
    """Checks that each presenter that let go for a move reopens the store where that move or a later move put it."""
    moves = sorted((move for actor in actors for move in moves_of(actor)), key=lambda move: move["at"])
    for index, move in enumerate(moves):
        for actor in actors:
            for key in {each.get("key") for each in actor.events if each.get("event") == "opening"}:
                own = [each for each in actor.events if each.get("key") == key and "event" in each]
                before = [each for each in own if each["event"] == "closed" and each["at"] <= move["at"]]
                after = [each for each in own if each["event"] == "opening" and each["at"] >= move["at"]]
                was = [each for each in own if each["event"] == "opening" and each["at"] <= move["at"]]
                had_it = was and was[-1]["path"] == move["paths"][0]
                relinquished = had_it and before and before[-1]["at"] > was[-1]["at"]
                if not relinquished or not after:
                    continue
                new = move["paths"][1]
                for later in moves[index + 1:]:
                    if later["paths"][0] == new and later["at"] <= after[0]["at"]:
                        new = later["paths"][1]
                if after[0]["path"] != new:
                    text = f"{actor.name}/{key} opens {after[0]['path']!r} after a move to {new!r}"
                    round.problem("not-followed", text)
                    return


def moves_of(actor):
    """Returns the moves that took place, with the time of each grant."""
    for event in actor.events:
        if event.get("event") == "granted" and event.get("what") == "move":
            if (actor.replies.get(event["id"]) or {}).get("ok"):
                yield event
