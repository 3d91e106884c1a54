"""The events of an agent."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import groupstore

from .support import CHANGE, HELLO, PATIENCE, SUBSCRIBED, Impostor, Places


class AgentTests(Places):
    def take(self, events: groupstore.Watch, *kinds: type) -> groupstore.Event:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            event = events.next(timeout=PATIENCE)
            if event is not None and isinstance(event, kinds):
                return event
        raise AssertionError(f"no {kinds} in time")

    def test_receives_changes_of_a_served_file(self) -> None:
        self.start_agent()
        for store in (self.file, os.fsencode(self.file), self.store):
            with groupstore.watch(store) as events:
                self.assertFalse(events.is_direct)
                first = events.next(PATIENCE)
                self.assertIsInstance(first, groupstore.Reset)
                self.commit()
                change = self.take(events, groupstore.Changed)
                self.assertEqual(getattr(change, "token", None), events.token)

    def test_follows_a_relocation_with_names_that_are_not_utf8(self) -> None:
        legacy = os.path.join(os.fsencode(self.scratch), b"old-\xff")
        os.mkdir(legacy)
        source = os.path.join(legacy, b"Old.sqlite")
        self.start_agent("--legacy", os.fsdecode(source))
        with groupstore.watch(f"{self.store[:-12]}Old.sqlite") as events:
            self.take(events, groupstore.Reset)
            self.commit(file=os.fsdecode(source))
            event = self.take(events, groupstore.Relocated)
        assert isinstance(event, groupstore.Relocated)
        self.assertEqual(os.fsencode(event.origin), source)
        self.assertTrue(os.path.exists(event.to))

    def test_subscribes_to_a_name_that_is_not_utf8(self) -> None:
        self.start_agent()
        file = os.path.join(os.fsencode(self.group), b"Not\xe9s.sqlite")
        self.commit(file=os.fsdecode(file))
        with groupstore.watch(file) as events:
            self.take(events, groupstore.Reset)
            self.commit(file=os.fsdecode(file))
            self.take(events, groupstore.Changed)

    def test_continues_after_a_restart(self) -> None:
        self.start_agent()
        with groupstore.Changes(self.store) as events:
            self.take(events, groupstore.Reset)
            self.end_agent()
            self.assertEqual(self.take(events, groupstore.Disconnected), groupstore.Disconnected())
            self.assertIsNone(events.next(timeout=0.1))
            self.start_agent()
            event = self.take(events, groupstore.Reset)
            assert isinstance(event, groupstore.Reset)
            self.assertEqual(event.reason, "epoch")

    def test_a_wrong_socket_path_is_an_error(self) -> None:
        file = os.path.join(self.scratch, "file")
        with open(file, "w", encoding="ascii"):
            pass
        dead = os.path.join(self.scratch, "dead.sock")
        with socket.socket(socket.AF_UNIX) as ended:
            ended.bind(dead)
        for path in ("/nonexistent/agent.sock", file, file + "/x", dead, self.scratch, "/" + "x" * 200, "a\0b"):
            with self.subTest(path=path[:40]):
                start = time.monotonic()
                with self.assertRaises(groupstore.NoAgent) as caught:
                    groupstore.Changes(self.store, path=path).next()
                self.assertEqual(caught.exception.code, "no_agent")
                self.assertTrue(caught.exception.message and caught.exception.remedy)
                with self.assertRaises(groupstore.NoAgent):
                    groupstore.watch(self.store, path=path, agent=True)
                with self.assertRaises(groupstore.NoAgent):
                    groupstore.watch(self.file, path=path, agent=True)
                with self.assertRaises(groupstore.NoAgent):
                    groupstore.ask("status", path=path)
                with self.assertRaises(groupstore.NoAgent):
                    asyncio.run(self.first(groupstore.AsyncChanges(self.store, path=path)))
                with self.assertRaises(groupstore.NoAgent):
                    asyncio.run(groupstore.ask_async("status", path=path))
                self.assertLess(time.monotonic() - start, PATIENCE / 2)

    def test_names_the_variables_that_are_missing(self) -> None:
        with mock.patch.dict(os.environ):
            os.environ.pop("GROUPSTORE_SOCKET")
            os.environ.pop("XDG_RUNTIME_DIR", None)
            with self.assertRaisesRegex(groupstore.NoAgent, "GROUPSTORE_SOCKET"):
                groupstore.watch(self.store, agent=True)

    def test_waits_for_an_agent_if_asked_to(self) -> None:
        with groupstore.watch(self.store, wait=True) as events:
            self.assertEqual(events.next(PATIENCE), groupstore.Disconnected())
            self.start_agent()
            self.take(events, groupstore.Reset)
        with self.assertRaises(ValueError):
            groupstore.watch(self.file, wait=True)

    def test_refusals_end_the_iteration(self) -> None:
        self.start_agent()
        name = "group.nobody/Notes.sqlite"
        for events in (groupstore.Changes(name), groupstore.watch(name, agent=True)):
            with self.assertRaises(groupstore.Refused) as caught, events:
                events.next(PATIENCE)
            self.assertEqual(caught.exception.code, "unknown_store")
            self.assertIsNone(events.next(PATIENCE))
        with self.assertRaises(groupstore.Refused) as caught:
            groupstore.watch("/nonexistent/directory/Notes.sqlite")
        self.assertEqual(caught.exception.code, "not_served")

    def test_a_peer_that_is_no_agent(self) -> None:
        for answer, code in {
            b"HTTP/1.1 400 Bad Request\r\n\r\n": "not_understood",
            b"x" * 40000: "not_understood",
            b'{"a":"' + b"x" * 33000 + b'"}\n': "not_understood",
            b"\xff\xfe\n": "not_understood",
            b"[" * 20000 + b"\n": "not_understood",
            b"9" * 20000 + b"\n": "not_understood",
            b'{"type":"hello","proto":2}\n': "not_understood",
            b'{"ok":true,"token":[]}\n': "not_understood",
            b'{"ok":false,"error":7}\n': "not_understood",
            b"": "agent_lost",
            HELLO[:20]: "agent_lost",
        }.items():
            with (
                self.subTest(answer=answer[:30]),
                Impostor(self.socket, [answer]),
                mock.patch("groupstore._protocol.MAX_ENDED_GREETINGS", 2),
            ):
                for number in range(2):
                    with self.assertRaises(groupstore.NoAgent) as caught:
                        if number == 0:
                            list(groupstore.Changes(self.store))
                        else:
                            asyncio.run(self.first(groupstore.AsyncChanges(self.store)))
                    self.assertEqual(caught.exception.code, code)

    def test_a_peer_that_is_silent(self) -> None:
        with Impostor(self.socket, [b""], is_silent=True), mock.patch("groupstore._protocol.GREETING_TIMEOUT", 0.1):
            for number in range(2):
                with self.assertRaises(groupstore.NoAgent) as caught:
                    if number == 0:
                        groupstore.Changes(self.store).next()
                    else:
                        asyncio.run(self.first(groupstore.AsyncChanges(self.store)))
                self.assertEqual(caught.exception.code, "agent_silent")

    def test_an_agent_that_dies_within_a_line(self) -> None:
        answers = [HELLO + SUBSCRIBED + CHANGE[:30], HELLO + SUBSCRIBED + CHANGE]
        for number in range(2):
            with Impostor(self.socket, answers) as impostor:
                if number == 0:
                    with groupstore.Changes(self.store) as events:
                        kinds = [type(events.next(PATIENCE)).__name__ for _ in range(4)]
                else:
                    kinds = asyncio.run(self.kinds(groupstore.AsyncChanges(self.store), 4))
                self.assertEqual(kinds, ["Reset", "Disconnected", "Connected", "Changed"])
                self.assertIn(b'"since":"t0"', impostor.requests[1])

    def test_an_unreadable_line_is_a_lost_connection(self) -> None:
        for bad in (b"x" * 40000, b"nonsense\n", CHANGE.replace(b"true", b"7"), CHANGE.replace(b'["note"]', b"[1]")):
            with (
                Impostor(self.socket, [HELLO + SUBSCRIBED + bad, HELLO + SUBSCRIBED + CHANGE]),
                groupstore.Changes(self.store) as events,
            ):
                kinds = [type(events.next(PATIENCE)).__name__ for _ in range(4)]
                self.assertEqual(kinds, ["Reset", "Disconnected", "Connected", "Changed"])

    def test_numbers_of_64_bits_and_unknown_members(self) -> None:
        row = b'{"key":9223372036854775807,"number":1,"table":"note","op":"insert","new":2}'
        rows = b'{"type":"change","token":"t1","new":[1],"rows":[' + row + b"]}\n"
        with (
            Impostor(self.socket, [HELLO + b'{"type":"later"}\n' + SUBSCRIBED + rows]),
            groupstore.Changes(self.store) as events,
        ):
            events.next(PATIENCE)
            change = events.next(PATIENCE)
            assert isinstance(change, groupstore.Changed) and change.rows is not None
            self.assertEqual(change.rows[0].key, (2**63 - 1,))

    def test_progress_comes_if_it_is_asked_for(self) -> None:
        start = b'{"type":"relocating","token":"t1","waiting_for":[]}\n'
        copying = b'{"type":"relocating","token":"t1","waiting_for":[],"fraction":0.5,"doing":"copying"}\n'
        migrating = b'{"type":"migrating","token":"t1","fraction":1,"doing":"validating"}\n'
        with (
            Impostor(self.socket, [HELLO + SUBSCRIBED + start + copying + migrating]) as impostor,
            groupstore.Changes(self.store, progress=True) as events,
        ):
            found = [events.next(PATIENCE) for _ in range(4)]
            self.assertIn(b'"progress":true', impostor.requests[0])
        self.assertEqual(
            found[1:],
            [
                groupstore.Relocating("t1", []),
                groupstore.Progress("t1", "relocating", 0.5, "copying"),
                groupstore.Progress("t1", "migrating", 1.0, "validating"),
            ],
        )
        asked = asyncio.run(self.kinds(groupstore.AsyncChanges(self.store, wait=True, progress=True), 1))
        self.assertEqual(asked, ["Disconnected"])

    def test_a_commit_to_a_branch_is_no_change_of_the_store(self) -> None:
        commit = b'{"type":"change","tables":["note"],"complete":true,"branch":7,"token":"t1"}\n'
        warning = b'{"type":"hazard","code":"hidden_writers","warning":true,"path":"/s","inode":1,"token":"t2"}\n'
        with (
            Impostor(self.socket, [HELLO + SUBSCRIBED + commit + warning]),
            groupstore.Changes(self.store) as events,
        ):
            found = [events.next(PATIENCE) for _ in range(3)][1:]
        self.assertEqual(found[0], groupstore.BranchChanged("t1", 7, ["note"], True))
        assert isinstance(found[1], groupstore.Hazard)
        self.assertTrue(found[1].warning)
        self.assertEqual(found[1].holder.pid, 0)

    def test_several_threads_share_the_events(self) -> None:
        self.start_agent()
        events = groupstore.Changes(self.store)
        taken: list[groupstore.Event] = []
        threads = [threading.Thread(target=lambda: taken.extend(events)) for _ in range(4)]
        for thread in threads:
            thread.start()
        # What is committed before the subscription is part of its first event, the reset.
        deadline = time.monotonic() + PATIENCE
        while not any(isinstance(each, groupstore.Changed) for each in taken):
            self.assertLess(time.monotonic(), deadline)
            self.commit()
            time.sleep(0.02)
        events.close()
        for thread in threads:
            thread.join(PATIENCE)
            self.assertFalse(thread.is_alive())
        self.assertEqual([type(each) for each in taken].count(groupstore.Reset), 1)

    def test_a_token_file_delivers_what_was_not_handled(self) -> None:
        self.start_agent()
        # The agent follows the store all the time.
        other = groupstore.Changes(self.store)
        self.take(other, groupstore.Reset)
        file = os.path.join(self.scratch, "token")
        with groupstore.watch(self.store, token_file=file) as events:
            self.assertIsInstance(events.next(PATIENCE), groupstore.Reset)
        self.commit()
        with self.assertRaises(RuntimeError), groupstore.watch(self.store, token_file=file) as events:
            self.assertIsInstance(events.next(PATIENCE), groupstore.Changed)
            raise RuntimeError("not handled")
        with groupstore.watch(self.store, token_file=file) as events:
            self.assertIsInstance(events.next(PATIENCE), groupstore.Changed)
        with groupstore.watch(self.store, token_file=file) as events:
            self.assertIsNone(events.next(timeout=0.2))
        other.close()
        self.assertEqual(os.stat(file).st_mode & 0o777, 0o600)
        with open(file, "w", encoding="ascii") as broken:
            broken.write("two words\n")
        with self.assertRaises(groupstore.GroupStoreError) as caught:
            groupstore.watch(self.store, token_file=file)
        self.assertEqual(caught.exception.code, "bad_token_file")

    def test_an_interruption_loses_no_event(self) -> None:
        self.start_agent()
        with groupstore.Changes(self.store) as events:
            self.take(events, groupstore.Reset)
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                events.next(PATIENCE)
            timer.join()
            self.commit()
            self.take(events, groupstore.Changed, groupstore.Reset)

    def test_cancelling_ends_nothing(self) -> None:
        self.start_agent()

        async def main() -> None:
            async with await groupstore.watch_async(self.file, agent=True) as events:
                self.assertIsInstance(await events.__anext__(), groupstore.Reset)
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(events.__anext__(), 0.1)
                self.commit()
                self.assertIsInstance(await asyncio.wait_for(events.__anext__(), PATIENCE), groupstore.Changed)

        asyncio.run(main())

    def test_asks_and_finds_rows(self) -> None:
        self.start_agent()
        with self.assertRaises(ValueError) as caught:
            groupstore.ask("state")
        self.assertIsInstance(caught.exception, groupstore.UnknownOperation)
        self.assertIn("state", str(caught.exception))
        reply, rows = groupstore.ask("status")
        self.assertEqual(reply["agent"], groupstore.__version__)
        self.assertEqual(asyncio.run(groupstore.ask_async("status"))[1][0]["type"], "group")
        self.assertEqual(rows[0]["group"], self.store[:-13])

    def test_one_text_is_no_list_of_names(self) -> None:
        with self.assertRaises(TypeError):
            groupstore.watch(self.store, tables="note")

    def test_runs_as_a_program(self) -> None:
        words = [sys.executable, "-m", "groupstore"]
        place = {"PYTHONPATH": os.path.dirname(os.path.dirname(os.path.abspath(groupstore.__file__)))}
        environment = mock.patch.dict(os.environ, place)
        environment.start()
        self.addCleanup(environment.stop)
        done = subprocess.run([*words, "--version"], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, groupstore.__version__ + "\n")
        for form in (["--agent"], ["--agent", "--async"]):
            done = subprocess.run([*words, *form, self.store], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 69)
            self.assertIn("start one: groupstore agent", done.stderr)

    async def first(self, events: groupstore.AsyncWatch) -> groupstore.Event:
        """Returns the first event that isn't Disconnected."""
        async for event in events:
            if event != groupstore.Disconnected():
                return event
        raise AssertionError("ended")

    async def kinds(self, events: groupstore.AsyncWatch, count: int) -> list[str]:
        async with events:
            return [type(await events.__anext__()).__name__ for _ in range(count)]


if __name__ == "__main__":
    unittest.main()
