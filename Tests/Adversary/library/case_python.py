"""Runs the Python client, blocking and with asyncio, beside stopped, full and restarted agents."""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
import time
import warnings

from stage import AMPLE, SLACK, commit, fill_backlog, wait
from words import store_name

PATIENT = 30.0
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "..", "Clients", "python"))
import groupstore as client  # noqa: E402  (it lies there)

NEWS = (client.Changed, client.Reset, client.Relocated)


def run(round):
    rng = round.rng
    story = rng.choice([
        stopped, full, closed_elsewhere, resumed, many, restarts, async_timeouts, async_aclose, async_many, async_full,
        refused, without_an_agent, with_a_false_agent])
    round.title = story.__name__
    scene = Scene(round)
    done = threading.Event()

    def play():
        try:
            story(scene)
        except Exception as error:  # any exception that the client does not promise
            round.problem("exception", f"{story.__name__}: {type(error).__name__}: {error}")
        finally:
            done.set()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ResourceWarning)
        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        if not done.wait(240):
            round.problem("hang", f"{story.__name__} doesn't end")
            scene.agent.go_on()
            scene.agent.end()
            done.wait(20)
        gc.collect()
    for warning in said:
        if issubclass(warning.category, ResourceWarning) and "socket" in str(warning.message):
            round.problem("left-open", str(warning.message))
            break
    for connection in scene.held:
        connection.close()


class Scene:
    def __init__(self, round):
        self.round, self.rng = round, round.rng
        self.name = store_name(self.rng)
        self.store, self.place = f"{round.group}/{self.name}", os.path.join(round.container, self.name)
        self.agent = round.agent()
        self.agent.configure({round.group: (round.container, {})})
        self.agent.start()
        self.held, self.count = [], 0
        if self.rng.random() < 0.8:
            commit(self.place, "first")

    def commit(self):
        self.count += 1
        commit(self.place, f"row-{self.count}")

    def changes(self, kind=None, **wishes):
        """Returns a client that waits for an agent, however the round begins."""
        return (kind or client.Changes)(self.store, path=self.agent.socket, wait=True, **wishes)

    def in_time(self, start, limit, what):
        took = time.monotonic() - start
        if took > limit + SLACK:
            self.round.problem("slow-deadline", f"{what}: {limit} s took {took:.1f} s")

    def expect_event(self, changes, what):
        """Waits for an event that says to read again."""
        end, heard = time.monotonic() + PATIENT, []
        while time.monotonic() < end:
            event = changes.next(timeout=end - time.monotonic())
            heard.append(event)
            if isinstance(event, NEWS):
                return event
        self.round.problem("deaf", f"{what}: only {heard}")
        return None

    def drain(self, changes):
        while changes.next(timeout=0.3) is not None:
            pass


# Blocking


def stopped(scene):
    """Checks that time-outs hold beside a stopped agent, and nothing is missed when it continues."""
    rng, early = scene.rng, scene.changes()
    with_connection = rng.random() < 0.5
    if with_connection:
        scene.expect_event(early, "the first event")
        scene.drain(early)
    scene.agent.stop()
    for _ in range(3):
        limit, start = rng.choice([0, 0.05, 0.5, 1.5]), time.monotonic()
        event = early.next(timeout=limit)
        scene.in_time(start, limit, "next() beside a stopped agent")
        if event is not None and not isinstance(event, client.Disconnected):
            scene.round.problem("wrong-event", f"of a stopped agent: {event}")
    start, limit = time.monotonic(), rng.choice([0.1, 1])
    try:
        client.ask("status", timeout=limit, path=scene.agent.socket)
        scene.round.problem("wrong-answer", "a stopped agent answers")
    except client.NoAgent:
        pass
    scene.in_time(start, limit, "ask() beside a stopped agent")
    scene.commit()
    scene.agent.go_on()
    scene.expect_event(early, "the agent goes on")
    start = time.monotonic()
    early.close()
    scene.in_time(start, 0, "close()")


def full(scene):
    """Stops the agent until its backlog is full: connect then waits."""
    rng = scene.rng
    scene.agent.stop()
    scene.held = fill_backlog(scene.agent.socket)
    changes = scene.changes()
    for _ in range(3):
        limit, start = rng.choice([0, 0.1, 0.7, 1.5]), time.monotonic()
        changes.next(timeout=limit)
        scene.in_time(start, limit, "next() of an agent whose backlog is full")
    start, limit = time.monotonic(), rng.choice([0.2, 1])
    try:
        client.ask("status", timeout=limit, path=scene.agent.socket)
        scene.round.problem("wrong-answer", "a stopped agent answers")
    except client.NoAgent:
        pass
    scene.in_time(start, limit, "ask() of an agent whose backlog is full")
    for connection in scene.held:
        connection.close()
    scene.agent.go_on()
    scene.expect_event(changes, "the agent goes on")
    scene.drain(changes)
    scene.commit()
    scene.expect_event(changes, "a commit after that")
    changes.close()


def closed_elsewhere(scene):
    """Another thread ends the iteration, whatever it waits for."""
    rng = scene.rng
    state = rng.choice(["idle", "stopped", "full", "gone"])
    changes, ended, began = scene.changes(), threading.Event(), threading.Event()
    if state == "idle" or rng.random() < 0.5:
        scene.expect_event(changes, "the first event")
    if state in ("stopped", "full"):
        scene.agent.stop()
        if state == "full":
            scene.held = fill_backlog(scene.agent.socket)
    elif state == "gone":
        scene.agent.end()

    def iterate():
        began.set()
        try:
            for _ in changes:
                pass
        except Exception as error:
            scene.round.problem("exception", f"close() from another thread ({state}): {type(error).__name__}: {error}")
        ended.set()

    threading.Thread(target=iterate, daemon=True).start()
    began.wait(5)
    time.sleep(rng.uniform(0, 0.3))  # a random moment of its wait
    start = time.monotonic()
    changes.close()
    scene.in_time(start, 0, "close()")
    if not ended.wait(2 + SLACK):
        scene.round.problem("slow-close", f"the iteration goes on after close() ({state})")
    if changes.next(timeout=0.1) is not None:
        scene.round.problem("wrong-event", "an event after close()")


def resumed(scene):
    """Checks that with a token, earlier changes come first, from the same agent or another."""
    rng = scene.rng
    with scene.changes() as changes:
        event = scene.expect_event(changes, "the first event")
        scene.commit()
        event = scene.expect_event(changes, "a commit") or event
        token = changes.token
    if rng.random() < 0.5:
        scene.commit()
        has_news = True
    else:
        has_news = False
    restarted = rng.random() < 0.5
    if restarted:
        scene.agent.end(rng.choice([signal.SIGKILL, signal.SIGTERM]))
        scene.agent.start()
    with scene.changes(since=token) as changes:
        # Otherwise a reset is possible: nobody followed the store meanwhile.
        if has_news or restarted:
            scene.expect_event(changes, "what happened since the token")
        scene.drain(changes)
        scene.commit()
        scene.expect_event(changes, "a commit after that")


def many(scene):
    """Makes hundreds of subscriptions, each of which gets events."""
    rng = scene.rng
    descriptors = len(os.listdir("/proc/self/fd"))
    all_changes = [scene.changes() for _ in range(rng.choice([10, 100, 300]))]
    for changes in all_changes:
        scene.expect_event(changes, "the first event")
    if rng.random() < 0.5:
        scene.agent.end()
        scene.agent.start()
        for changes in all_changes:
            scene.expect_event(changes, "a restart")
    for changes in rng.sample(all_changes, 5):
        scene.drain(changes)
    scene.commit()
    for changes in all_changes:
        scene.expect_event(changes, "a commit")
        changes.close()
    left = len(os.listdir("/proc/self/fd")) - descriptors
    if left > 2:
        scene.round.problem("left-open", f"{left} descriptors of {len(all_changes)} closed subscriptions")


def restarts(scene):
    """Checks that every commit made while the agent is away is reported."""
    rng, changes = scene.rng, scene.changes()
    scene.expect_event(changes, "the first event")
    for _ in range(rng.randint(2, 5)):
        scene.agent.end(rng.choice([signal.SIGKILL, signal.SIGTERM]))
        if rng.random() < 0.7:
            scene.commit()
        for _ in range(rng.randint(0, 3)):
            limit, start = rng.choice([0.02, 0.3]), time.monotonic()
            changes.next(timeout=limit)
            scene.in_time(start, limit, "next() without an agent")
        scene.agent.start()
        scene.expect_event(changes, "the agent is back")
        scene.drain(changes)
        scene.commit()
        scene.expect_event(changes, "a commit after that")
    changes.close()


def refused(scene):
    """Checks that a store in no group is refused, in both forms, and stays so."""
    name = scene.rng.choice(["group.com.example.other/Notes.sqlite", "no slash", "", "/", scene.round.group + "/../x"])
    changes = client.Changes(name, path=scene.agent.socket)
    try:
        event = changes.next(timeout=20)
        scene.round.problem("not-refused", f"{name!r}: {event}")
    except client.Refused:
        pass
    if changes.next(timeout=0.2) is not None:
        scene.round.problem("wrong-event", "an event after the refusal")

    async def ask():
        changes = client.AsyncChanges(name, path=scene.agent.socket)
        try:
            event = await asyncio.wait_for(changes.__anext__(), 20)
            scene.round.problem("not-refused", f"{name!r}: {event}")
        except client.Refused:
            pass

    run_async(scene, ask())


def without_an_agent(scene):
    """Checks the client without an agent: one `Disconnected`, time-outs that hold, and news as soon as an agent starts."""
    scene.agent.end()
    if scene.rng.random() < 0.5 and os.path.exists(scene.agent.socket):
        os.remove(scene.agent.socket)
    try:
        event = client.Changes(scene.store, path=scene.agent.socket).next(timeout=5)
        scene.round.problem("wrong-event", f"of no agent: {event}")
    except client.NoAgent:
        pass
    with scene.changes() as changes:
        start, events = time.monotonic(), []
        for limit in (0.3, 0.3, 0):
            events.append(changes.next(timeout=limit))
        scene.in_time(start, 0.6, "three times next() without an agent")
        if [event for event in events if event is not None] != [client.Disconnected()]:
            scene.round.problem("wrong-event", f"without an agent: {events}")
        scene.agent.start()
        scene.expect_event(changes, "the agent came late")


def with_a_false_agent(scene):
    """Answers as a false agent, or stops within a line: time-outs hold, and no unexpected error is thrown."""
    rng = scene.rng
    scene.agent.end()
    false_agent = FalseAgent(scene.agent.socket, rng)
    changes = scene.changes()
    for _ in range(6):
        limit, start = rng.choice([0, 0.05, 0.3]), time.monotonic()
        changes.next(timeout=limit)
        scene.in_time(start, limit, "next() of what is no agent")
    start, limit = time.monotonic(), 0.3
    try:
        client.ask("status", timeout=limit, path=scene.agent.socket)
    except (client.NoAgent, client.Refused):
        pass
    scene.in_time(start, limit, "ask() of what is no agent")

    async def play():
        changes = scene.changes(client.AsyncChanges)
        for _ in range(6):
            limit = rng.choice([0.01, 0.3])
            await within(scene, changes.__anext__(), limit, "__anext__ of what is no agent")
        await within(scene, changes.aclose(), 2, "aclose() of what is no agent")

    run_async(scene, play())
    false_agent.end()
    os.remove(scene.agent.socket)
    scene.agent.start()
    scene.expect_event(changes, "there is an agent")
    scene.drain(changes)
    scene.commit()
    scene.expect_event(changes, "a commit after that")
    changes.close()


# With asyncio


def run_async(scene, coroutine):
    """Runs the coroutine; an uncaught exception is a problem."""
    def complain(_, context):
        scene.round.problem("uncaught", f"{context.get('message')}: {context.get('exception')!r}")

    async def main():
        asyncio.get_running_loop().set_exception_handler(complain)
        await coroutine
        gc.collect()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if left:
            scene.round.problem("left-open", f"tasks: {left}")

    asyncio.run(main())


async def within(scene, awaitable, limit, what):
    start = time.monotonic()
    try:
        return await asyncio.wait_for(awaitable, limit)
    except (asyncio.TimeoutError, TimeoutError):
        return None
    finally:
        scene.in_time(start, limit, what)


class FalseAgent:
    """Listens as an agent does, and answers something else."""

    def __init__(self, path, rng):
        if os.path.exists(path):
            os.remove(path)
        self.rng, self.server, self.held = rng, socket.socket(socket.AF_UNIX), []
        self.server.bind(path)
        self.server.listen(100)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        hello = b'{"type":"hello","proto":1,"agent":"0","max_line":32768}\n'
        taken = b'{"id":1,"ok":true,"token":"t","path":"/x"}\n'
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            self.held.append(connection)
            answers = [
                b"", hello, hello[:20], hello + taken[:-1], hello + b"\xff\xfe\n", hello + b"[]\n", hello + b"null\n",
                hello + taken + b'{"type":"change"}\n', b"x" * 70000, hello + b'{"ok":true,"id":1}\n',
                hello + taken + b'{"type":"relocating","token":"u","waiting_for":[{}]}\n',
                hello + taken + b'{"type":"news","token":"u"}\n' * 3, hello + taken + b"{" * 5000 + b"\n", b"\n" * 50,
            ]
            try:
                connection.sendall(self.rng.choice(answers))
                if self.rng.random() < 0.5:
                    connection.close()
            except OSError:
                pass

    def end(self):
        self.server.close()
        for connection in self.held:
            connection.close()


async def expect_event_async(scene, changes, what):
    end, heard = time.monotonic() + PATIENT, []
    while time.monotonic() < end:
        try:
            event = await asyncio.wait_for(changes.__anext__(), end - time.monotonic())
        except (asyncio.TimeoutError, TimeoutError):
            break
        except StopAsyncIteration:
            heard.append("the end")
            break
        heard.append(event)
        if isinstance(event, NEWS):
            return event
    scene.round.problem("deaf", f"{what}: only {heard}")
    return None


def async_timeouts(scene):
    """Checks that a `__anext__` that timed out neither ends the subscription nor loses a concurrent event."""
    rng = scene.rng

    async def play():
        changes = scene.changes(client.AsyncChanges)
        await expect_event_async(scene, changes, "the first event")
        for _ in range(rng.randint(3, 8)):
            what = rng.choice(["nothing", "commit", "commit", "restart", "stop"])
            limit = rng.choice([0, 0.001, 0.005, 0.02, 0.3])
            owed = what in ("commit", "restart")
            if what == "commit":
                scene.commit()
            elif what == "restart":
                scene.agent.end()
                scene.agent.start()
            elif what == "stop":
                scene.agent.stop()
            for _ in range(rng.randint(1, 4)):
                try:
                    event = await within(scene, changes.__anext__(), limit, f"__anext__ ({what})")
                    owed = owed and not isinstance(event, NEWS)
                except StopAsyncIteration:
                    scene.round.problem("ended", f"a time-out of {limit} s ends the subscription ({what})")
                    return
            scene.agent.go_on()
            if owed:
                await expect_event_async(scene, changes, f"what came while time-outs of {limit} s ran out ({what})")
            while True:
                try:
                    if await within(scene, changes.__anext__(), 0.4, "__anext__") is None:
                        break
                except StopAsyncIteration:
                    scene.round.problem("ended", f"a time-out of {limit} s ends the subscription ({what})")
                    return
            scene.commit()
            await expect_event_async(scene, changes, f"a commit after time-outs ({what})")
        await changes.aclose()

    run_async(scene, play())


def async_aclose(scene):
    """Checks that `aclose` quietly ends a pending wait, whatever the agent's state."""
    rng = scene.rng
    state = rng.choice(["idle", "stopped", "full", "gone", "new"])

    async def play():
        changes = scene.changes(client.AsyncChanges)
        if state == "idle" or (state != "new" and rng.random() < 0.5):
            await expect_event_async(scene, changes, "the first event")
        if state in ("stopped", "full"):
            scene.agent.stop()
            if state == "full":
                scene.held = fill_backlog(scene.agent.socket)
        elif state == "gone":
            scene.agent.end()

        async def iterate():
            async for _ in changes:
                pass

        task = asyncio.create_task(iterate())
        for _ in range(rng.randint(0, 5)):
            await asyncio.sleep(rng.choice([0, 0, 0.05]))
        for _ in range(rng.randint(1, 2)):
            await within(scene, changes.aclose(), 2, f"aclose() ({state})")
        done, _ = await asyncio.wait([task], timeout=2 + SLACK)
        if not done:
            scene.round.problem("slow-close", f"the iteration goes on after aclose() ({state})")
            task.cancel()
            await asyncio.wait([task], timeout=SLACK)
        elif task.cancelled() or task.exception() is not None:
            error = "it is cancelled" if task.cancelled() else repr(task.exception())
            scene.round.problem("not-quiet", f"aclose() while somebody iterates ({state}): {error}")
        try:
            event = await asyncio.wait_for(changes.__anext__(), 5)
            scene.round.problem("wrong-event", f"after aclose(): {event}")
        except StopAsyncIteration:
            pass
        except (asyncio.TimeoutError, TimeoutError):
            scene.round.problem("hang", "__anext__ after aclose()")

    run_async(scene, play())
    scene.agent.go_on()


def async_many(scene):
    """Runs many subscriptions in one loop, some cancelled, through a restart."""
    rng = scene.rng

    async def listen(changes, heard):
        async for event in changes:
            if isinstance(event, NEWS):
                heard.set()

    async def play():
        all_changes = [scene.changes(client.AsyncChanges) for _ in range(rng.choice([10, 100]))]
        events = [asyncio.Event() for _ in all_changes]
        tasks = [asyncio.create_task(listen(*pair)) for pair in zip(all_changes, events)]

        async def expect_all_events(what):
            done = await asyncio.wait([asyncio.create_task(event.wait()) for event in events], timeout=PATIENT)
            for task in done[1]:
                task.cancel()
            if done[1]:
                scene.round.problem("deaf", f"{what}: {len(done[1])} of {len(events)} hear nothing")
            await asyncio.sleep(0.2)  # late events of the last case don't count for the next
            for event in events:
                event.clear()

        await expect_all_events("the first event")
        scene.commit()
        await expect_all_events("a commit")
        if rng.random() < 0.6:
            scene.agent.end()
            scene.agent.start()
            await expect_all_events("a restart")
            scene.commit()
            await expect_all_events("a commit after a restart")
        for task, changes in zip(tasks, all_changes):
            if rng.random() < 0.5:
                task.cancel()
            else:
                await changes.aclose()
        done, left = await asyncio.wait(tasks, timeout=SLACK + 2)
        if left:
            scene.round.problem("slow-close", f"{len(left)} of {len(tasks)} go on after aclose() or their cancellation")
        for task in left:
            task.cancel()
        for task in done:
            if not task.cancelled() and task.exception() is not None:
                scene.round.problem("not-quiet", repr(task.exception()))
                break

    descriptors = len(os.listdir("/proc/self/fd"))
    run_async(scene, play())
    gc.collect()
    if len(os.listdir("/proc/self/fd")) > descriptors + 2:
        scene.round.problem("left-open", "descriptors after asyncio.run")


def async_full(scene):
    """Checks that an agent that accepts no connection blocks nobody else in the loop."""
    rng = scene.rng
    scene.agent.stop()
    scene.held = fill_backlog(scene.agent.socket)

    async def play():
        changes = scene.changes(client.AsyncChanges)
        ticks, over = [time.monotonic()], asyncio.Event()

        async def tick():
            while not over.is_set():
                await asyncio.sleep(0.05)
                ticks.append(time.monotonic())

        clock = asyncio.create_task(tick())
        for _ in range(3):
            limit = rng.choice([0.1, 0.5, 1.2])
            try:
                await within(scene, changes.__anext__(), limit, "__anext__ of an agent whose backlog is full")
            except StopAsyncIteration:
                scene.round.problem("ended", "a time-out ends the subscription (full)")
                over.set()
                await clock
                return
        over.set()
        await clock
        longest = max(second - first for first, second in zip(ticks, ticks[1:])) if len(ticks) > 1 else 0
        if longest > SLACK:
            scene.round.problem("slow-deadline", f"the loop stands still for {longest:.1f} s")
        for connection in scene.held:
            connection.close()
        scene.agent.go_on()
        await expect_event_async(scene, changes, "the agent goes on")
        await changes.aclose()

    run_async(scene, play())
