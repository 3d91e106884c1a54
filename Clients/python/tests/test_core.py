"""The core's transitions, without a program, a socket or a clock."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import sys
import tempfile
import threading
import unittest
from typing import Any, Callable, Optional, Union
from unittest import mock

import groupstore
from groupstore import Changed, Connected, Disconnected, NoAgent, ProgramFailed, Refused, Reset
from groupstore._choice import Choice
from groupstore._core import Exchange, ProgramOutput, Subscription
from groupstore._fallback import FallbackSource
from groupstore._protocol import GREETING_TIMEOUT, MAX_ENDED_GREETINGS, NotUnderstood, Selection
from groupstore._sources import AgentSource, Connection

from .support import CHANGE, HELLO, SUBSCRIBED, Impostor

BOOKMARK = b'{"type":"bookmark","token":"t2"}\n'
REFUSED = b'{"id":1,"ok":false,"error":{"code":"unknown_store","message":"no"}}\n'
REFUSED_CONNECTION = ConnectionRefusedError(111, "refused")
BUSY = BlockingIOError(11, "busy")
ENDED = ConnectionError("ended")
CHANGED = Changed("t1", ["note"], True)
NOW = 1000.0

Outcome = Union[groupstore.Event, str, None]


def outcome(function: Callable[[], Optional[groupstore.Event]]) -> Outcome:
    """Returns the event, or the code of the error."""
    try:
        return function()
    except groupstore.GroupStoreError as error:
        return error.code
    except NotUnderstood:
        return "not understood"


class SubscriptionTests(unittest.TestCase):
    def start(self, since: Optional[str] = None, wait: bool = False) -> Subscription:
        return Subscription("g/s", since, Selection(rows=True, tables=["note"]), "/socket", wait)

    def play(self, core: Subscription, *steps: object) -> list[Outcome]:
        """Connects, receives bytes or loses the connection by an error. Returns the events and the errors' codes."""
        found: list[Outcome] = []
        for step in steps:
            if isinstance(step, bytes):
                core.receive(step)
                while (event := outcome(lambda: core.event(NOW))) is not None:
                    found.append(event)
                    if isinstance(event, str):
                        break
            elif isinstance(step, Exception):
                found.append(outcome(lambda error=step: core.lose(error, NOW)))  # type: ignore[misc]
            else:
                core.connect(NOW)
        return found

    def test_transitions(self) -> None:
        rows: list[tuple[str, dict[str, Any], list[object], list[Outcome], Optional[str]]] = [
            ("first event", {}, ["connect", HELLO + SUBSCRIBED], [Reset("t0", "subscribed")], "t0"),
            ("after a token", {"since": "t"}, ["connect", HELLO + SUBSCRIBED, CHANGE], [CHANGED], "t1"),
            ("in parts", {"since": "t"}, ["connect", HELLO, SUBSCRIBED[:9], SUBSCRIBED[9:] + CHANGE], [CHANGED], "t1"),
            ("a bookmark", {"since": "t"}, ["connect", HELLO + SUBSCRIBED + BOOKMARK], [], "t2"),
            ("no member", {"since": "t"}, ["connect", HELLO + SUBSCRIBED + b'{"type":"later"}\n'], [], "t"),
            ("refused", {}, ["connect", HELLO + REFUSED], ["unknown_store"], None),
            ("no agent", {}, [REFUSED_CONNECTION], ["no_agent"], None),
            ("waits", {"wait": True}, [REFUSED_CONNECTION, REFUSED_CONNECTION], [Disconnected(), None], None),
            ("busy", {}, [BUSY, BUSY], [Disconnected(), None], None),
            ("another protocol", {}, ["connect", b'{"type":"hello","proto":2}\n'], ["not understood"], None),
            ("no line", {}, ["connect", NotUnderstood("nonsense")], ["not_understood"], None),
            ("lost before it answers", {}, ["connect", ENDED, REFUSED_CONNECTION], [Disconnected(), None], None),
            ("lost", {}, ["connect", HELLO, ENDED, REFUSED_CONNECTION], [Disconnected(), None], None),
            (
                "back",
                {"since": "t"},
                ["connect", HELLO + SUBSCRIBED, ENDED, "connect", HELLO + SUBSCRIBED, CHANGE, ENDED],
                [Disconnected(), Connected("t"), CHANGED, Disconnected()],
                "t1",
            ),
            (
                "back before the first event",
                {"wait": True},
                [REFUSED_CONNECTION, "connect", HELLO + SUBSCRIBED],
                [Disconnected(), Reset("t0", "subscribed")],
                "t0",
            ),
            (
                "unreadable after a greeting",
                {},
                ["connect", HELLO + SUBSCRIBED, NotUnderstood("nonsense")],
                [Reset("t0", "subscribed"), Disconnected()],
                "t0",
            ),
        ]
        for name, options, steps, expected, token in rows:
            with self.subTest(name):
                core = self.start(**options)
                self.assertEqual(self.play(core, *steps), expected)
                self.assertEqual(core.token, token)

    def test_gives_up_what_ends_each_connection(self) -> None:
        core = self.start()
        steps = ["connect", ENDED] * (MAX_ENDED_GREETINGS + 2)
        self.assertEqual(self.play(core, *steps), [Disconnected(), *[None] * MAX_ENDED_GREETINGS, "agent_lost"])

    def test_gives_up_what_has_never_answered_and_stays_away(self) -> None:
        core = self.start()
        self.assertEqual(self.play(core, "connect", ENDED, REFUSED_CONNECTION), [Disconnected(), None])
        with self.assertRaises(NoAgent) as caught:
            core.lose(REFUSED_CONNECTION, NOW + GREETING_TIMEOUT)
        self.assertEqual(caught.exception.code, "no_agent")

    def test_waits_no_longer_than_it_may(self) -> None:
        core = self.start()
        self.assertEqual((core.is_online, core.until), (False, 0.0))
        core.connect(NOW)
        self.assertEqual((core.is_online, core.until), (True, NOW + GREETING_TIMEOUT))
        self.assertIsNone(core.event(NOW + GREETING_TIMEOUT - 1))
        with self.assertRaises(NoAgent) as caught:
            core.event(NOW + GREETING_TIMEOUT)
        self.assertEqual(caught.exception.code, "agent_silent")
        core.receive(HELLO)
        self.assertIsNone(core.event(NOW + GREETING_TIMEOUT))
        self.assertIsNone(core.until)
        core.lose(ENDED, NOW)
        self.assertEqual((core.is_online, core.until), (False, NOW), "at once after a report")
        with mock.patch.object(random, "uniform", max):
            for pause in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0):
                core.lose(REFUSED_CONNECTION, NOW)
                self.assertEqual(core.until, NOW + pause)

    def test_continues_after_the_token_of_an_interruption(self) -> None:
        core = self.start("t")
        self.assertIn(b'"since":"t","tables":["note"],"rows":true', core.connect(NOW))
        core.receive(HELLO + SUBSCRIBED + CHANGE[:20])
        self.assertIsNone(core.event(NOW))
        core.rewind("t")
        self.assertEqual((core.is_online, core.until), (False, 0.0))
        self.assertEqual(self.play(core, "connect", HELLO + SUBSCRIBED + CHANGE), [CHANGED])


class ExchangeTests(unittest.TestCase):
    def test_answers(self) -> None:
        row, part = b'{"id":1,"type":"row"}\n', b'{"id":1,"type":"part","data":"{\\"a\\":","last":false}\n'
        last, reply = b'{"id":1,"type":"part","data":"1}","last":true}\n', b'{"id":1,"ok":true}\n'
        for name, received, expected in (
            ("nothing yet", HELLO + row, None),
            ("a reply", HELLO + reply, []),
            ("rows", HELLO + row + row + reply, [{"id": 1, "type": "row"}] * 2),
            ("rows in parts", HELLO + (part + last) * 2 + reply, [{"a": 1}] * 2),
            ("another's line", HELLO + b'{"id":2,"type":"row"}\n' + reply, []),
        ):
            with self.subTest(name):
                exchange = Exchange("status", {}, lambda _, rows: rows)
                # However the bytes are cut.
                answers = [exchange.receive(bytes([byte])) for byte in received]
                self.assertEqual(answers[-1], expected)
        with self.assertRaises(Refused):
            Exchange("status", {}, lambda *_: 0).receive(HELLO + REFUSED)
        with self.assertRaises(NotUnderstood):
            Exchange("status", {}, lambda *_: 0).receive(b"nonsense\n")

    def test_failures(self) -> None:
        for error, was_online, code in (
            (BUSY, False, "agent_silent"),
            (REFUSED_CONNECTION, False, "no_agent"),
            (ENDED, True, "agent_lost"),
            (NotUnderstood("nonsense"), True, "not_understood"),
        ):
            self.assertEqual(Exchange.failure("/socket", error, was_online).code, code)


class ProgramOutputTests(unittest.TestCase):
    def test_transitions(self) -> None:
        watching, summary = b'{"type":"watching","token":"t0"}\n', b'{"type":"summary"}\n'
        rows: list[tuple[Optional[str], bytes, list[Outcome], Optional[str]]] = [
            (None, watching + CHANGE, [Reset("t0", "subscribed"), CHANGED], "t1"),
            ("t", watching, [None], "t"),
            ("t", watching + CHANGE + summary, [CHANGED, None], "t1"),
            ("t", CHANGE[:20], [None], "t"),
            ("t", b'{"type":"later"}\n' + CHANGE, [CHANGED], "t1"),
            ("t", b"nonsense\n", ["not_understood"], "t"),
            ("t", b'{"type":"summary","error":{"code":7}}\n', ["not_understood"], "t"),
        ]
        for since, received, expected, token in rows:
            with self.subTest(received):
                core = ProgramOutput(since)
                core.receive(received)
                self.assertEqual([outcome(core.event) for _ in expected], expected)
                self.assertEqual(core.token, token)

    def test_says_why_it_ended(self) -> None:
        summary = b'{"type":"summary","error":{"code":"not_a_file","message":"it is none","hint":"name one"}}\n'
        for received, errors, status, code, text in (
            (summary, b"ignored", 65, "not_a_file", "it is none (name one)"),
            (b"", b" no \n", 1, "program_failed", "ended with exit status 1: no"),
            (b"", b"", -9, "program_failed", "ended by SIGKILL"),
            (b"", b"", -99, "program_failed", "ended by signal 99"),
        ):
            core = ProgramOutput(None)
            core.receive(received)
            core.warn(errors)
            self.assertIsNone(core.event())
            failed = core.end(status)
            self.assertIsInstance(failed, ProgramFailed)
            self.assertEqual((failed.code, failed.exit_status), (code, status))
            self.assertIn(text, str(failed))

    def test_logs_warnings_before_an_event_and_keeps_the_last_for_the_end(self) -> None:
        core = ProgramOutput("t")
        core.warn(b"one\ntwo\n")
        core.receive(CHANGE)
        with self.assertLogs("groupstore") as logged:
            core.event()
        self.assertEqual([each.getMessage() for each in logged.records], ["one", "two"])
        core.warn(b"three\n")
        self.assertRegex(core.end(1).message, "1: three$")

    def test_warns_of_a_store_that_does_not_exist(self) -> None:
        core = ProgramOutput(None)
        core.receive(b'{"type":"watching","path":"/x/nix.sqlite","exists":false,"token":"t0"}\n')
        with self.assertLogs("groupstore") as logged:
            self.assertEqual(core.event(), Reset("t0", "subscribed"))
        self.assertEqual(
            [each.getMessage() for each in logged.records], ["/x/nix.sqlite doesn't exist yet; waiting for it"]
        )

    def test_another_program_continues_after_the_token(self) -> None:
        core = ProgramOutput(None)
        core.receive(b'{"type":"watching","token":"t0"}\n' + CHANGE[:20])
        self.assertEqual(core.event(), Reset("t0", "subscribed"))
        core.rewind("t0")
        core.receive(b'{"type":"watching","token":"t9"}\n' + CHANGE)
        self.assertEqual(core.event(), CHANGED)


class ChoiceTests(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = self.enter(tempfile.TemporaryDirectory())
        self.file = os.path.join(self.directory, "s")
        self.rows = [{"type": "group", "group": "g", "directory": self.directory}, {"type": "later"}]

    def enter(self, directory: tempfile.TemporaryDirectory[str]) -> str:
        self.addCleanup(directory.cleanup)
        return directory.name

    def choice(
        self, store: str, agent: Optional[bool] = None, wait: bool = False, program: str = sys.executable
    ) -> Choice:
        arguments = dict.fromkeys(groupstore.watch.__annotations__)
        return Choice({**arguments, "store": store, "agent": agent, "wait": wait, "since": "t", "program": program})

    def test_decides(self) -> None:
        absent = os.path.join(self.directory, "absent", "s")
        rows: list[tuple[str, Optional[bool], list[dict[str, Any]], Union[bytes, str, None]]] = [
            ("g/s", None, self.rows, b"g/s"),
            (self.file, None, self.rows, b"g/s"),
            (os.path.join(self.directory, "x", "..", "s"), None, self.rows, b"g/s"),
            (self.file, True, self.rows, b"g/s"),
            (self.file, None, [], None),
            (self.file, True, [], "not_served"),
            (absent, None, [], "not_served"),
            ("other-group/s", None, self.rows, None),
            ("other-group/s", True, self.rows, b"other-group/s"),
        ]
        for store, agent, groups, expected in rows:
            with self.subTest(store=store, agent=agent):
                choice = self.choice(store, agent)
                self.assertTrue(choice.needs_lookup)
                try:
                    found: Union[bytes, str, None] = choice.decide({}, groups).address
                except Refused as error:
                    found = error.code
                self.assertEqual(found, expected)

    def test_needs_no_agent_to_decide_what_the_caller_said(self) -> None:
        waiting, direct = self.choice("g/s", wait=True), self.choice(self.file, agent=False)
        self.assertEqual((waiting.needs_lookup, waiting.address), (False, b"g/s"))
        self.assertEqual((direct.needs_lookup, direct.address), (False, None))
        for store, agent in ((self.file, None), ("g/s", False)):
            with self.assertRaises(ValueError):
                self.choice(store, agent, wait=True)

    def test_watches_directly_without_an_agent_only_if_it_may(self) -> None:
        for store, agent, code, may in (
            (self.file, None, "no_agent", True),
            (self.file, None, "agent_silent", False),
            (self.file, True, "no_agent", False),
            ("absent-directory/s", None, "no_agent", True),
            ("absent-directory/s", True, "no_agent", False),
        ):
            with self.subTest(store=store, agent=agent, code=code):
                try:
                    self.choice(store, agent).absent(NoAgent(code, "none"))
                except NoAgent:
                    self.assertFalse(may)
                else:
                    self.assertTrue(may)

    def test_leaves_a_group_to_the_agent_if_there_is_no_program(self) -> None:
        self.assertEqual(
            self.choice("other-group/s", program="/absent").decide({}, self.rows).address, b"other-group/s"
        )
        with self.assertRaises(NoAgent):
            self.choice("other-group/s", program="/absent").absent(NoAgent("no_agent", "none"))

    def test_falls_back_to_the_file_unless_only_an_agent_is_wanted(self) -> None:
        for agent, wait, kind in ((None, False, FallbackSource), (True, False, AgentSource), (None, True, AgentSource)):
            choice = self.choice(self.file if not wait else "g/s", agent, wait)
            if not wait:
                choice.decide({}, self.rows)
            with mock.patch.dict(os.environ, {"GROUPSTORE_SOCKET": "/socket"}):
                source, tokens = choice.source()
            self.assertIs(type(source), kind)
            self.assertEqual((source.token, source.is_direct, tokens), ("t", False, None))
        self.assertTrue(self.choice(self.file, agent=False).source()[0].is_direct)


class ConnectionTests(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "agent.sock")

    def test_sends_a_long_request_in_parts(self) -> None:
        names = ["x" * 1000] * 2000
        received: list[int] = []

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                received.append(len(lines.readline()))
                connection.sendall(HELLO + b'{"id":1,"ok":true}\n')

        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.path)
            listener.listen()
            for form in ("blocking", "asyncio"):
                thread = threading.Thread(target=serve)
                thread.start()
                if form == "blocking":
                    groupstore.ask("later", path=self.path, names=names)
                else:
                    asyncio.run(groupstore.ask_async("later", path=self.path, names=names))
                thread.join()
        self.assertEqual(received, [received[0]] * 2)
        self.assertGreater(received[0], 2_000_000)

    def test_an_agent_whose_queue_is_full_is_silent(self) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.path)
            listener.listen(0)
            waiting: list[Connection] = []
            with self.assertRaises(BlockingIOError):
                while True:
                    waiting.append(Connection(self.path))
            with self.assertRaises(NoAgent) as caught:
                groupstore.ask("status", path=self.path)
            self.assertEqual(caught.exception.code, "agent_silent")
            with self.assertRaises(NoAgent) as caught:
                asyncio.run(groupstore.ask_async("status", path=self.path))
            self.assertEqual(caught.exception.code, "agent_silent")
            for each in waiting:
                each.close()

    def test_an_answer_of_another_form_is_no_agents(self) -> None:
        answer = HELLO + b'{"id":1,"type":"row","number":1}\n' + b'{"id":1,"ok":true,"token":"t"}\n'
        with Impostor(self.path, [answer]), self.assertRaises(NoAgent) as caught:
            groupstore.read_changes("g/s", path=self.path)
        self.assertEqual(caught.exception.code, "not_understood")
        group = HELLO + b'{"id":1,"type":"group","group":"g","directory_b64":"!"}\n' + b'{"id":1,"ok":true}\n'
        with Impostor(self.path, [group]), self.assertRaises(NoAgent) as caught:
            groupstore.watch("g/s", path=self.path)
        self.assertEqual(caught.exception.code, "not_understood")


if __name__ == "__main__":
    unittest.main()
