"""What `watch` does when the agent goes away."""

from __future__ import annotations

import asyncio
import os
import time
import unittest
from typing import Any, Callable
from unittest import mock

import groupstore

from .support import HELLO, PATIENCE, PROGRAM, Impostor, Places, children


class FallbackTests(Places):
    def setUp(self) -> None:
        super().setUp()
        self.set("ABSENCE", 0.2)
        self.set("LOOK_INTERVAL", 0.1)

    def set(self, name: str, value: float) -> None:
        patch = mock.patch(f"groupstore._fallback.{name}", value)
        patch.start()
        self.addCleanup(patch.stop)

    def take(self, events: groupstore.Watch, *kinds: type) -> Any:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            event = events.next(timeout=PATIENCE)
            if isinstance(event, kinds):
                return event
        raise AssertionError(f"no {kinds} in time")

    def quiet_until(self, events: groupstore.Watch, condition: Callable[[], bool]) -> None:
        """Waits for the condition, before which no event comes."""
        end = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), end)
            self.assertIsNone(events.next(timeout=0.05))

    def test_watches_the_file_until_the_agent_is_back(self) -> None:
        for store in (self.store, self.file):
            self.start_agent()
            with groupstore.watch(store, program=PROGRAM) as events, self.assertLogs("groupstore") as logged:
                self.take(events, groupstore.Reset)
                self.assertFalse(events.is_direct)
                self.end_agent()
                self.assertEqual(events.next(PATIENCE), groupstore.Disconnected())
                self.assertEqual(self.take(events, groupstore.Reset).reason, "epoch")
                self.assertTrue(events.is_direct)
                self.commit()
                self.take(events, groupstore.Changed)
                self.assertIn("the agent is away", logged.output[0])
                self.start_agent()
                self.take(events, groupstore.Connected)
                self.take(events, groupstore.Reset)
                self.assertFalse(events.is_direct)
                self.commit()
                self.take(events, groupstore.Changed)
                # A second time.
                self.end_agent()
                self.take(events, groupstore.Disconnected)
                self.take(events, groupstore.Reset)
                self.assertTrue(events.is_direct)
            self.assertEqual(children(), [])

    def test_with_asyncio(self) -> None:
        async def main() -> None:
            async with await groupstore.watch_async(self.store, program=PROGRAM) as events:
                self.assertIsInstance(await events.__anext__(), groupstore.Reset)
                self.end_agent()
                self.assertEqual(await events.__anext__(), groupstore.Disconnected())
                self.assertIsInstance(await asyncio.wait_for(events.__anext__(), PATIENCE), groupstore.Reset)
                self.assertTrue(events.is_direct)
                self.commit()
                self.assertIsInstance(await asyncio.wait_for(events.__anext__(), PATIENCE), groupstore.Changed)
                self.start_agent()
                event = await asyncio.wait_for(events.__anext__(), PATIENCE)
                # A commit may be told twice.
                while isinstance(event, groupstore.Changed):
                    event = await asyncio.wait_for(events.__anext__(), PATIENCE)
                self.assertIsInstance(event, groupstore.Connected)

        self.start_agent()
        asyncio.run(main())

    def test_an_interruption_loses_no_event(self) -> None:
        self.start_agent()
        with groupstore.watch(self.store, program=PROGRAM) as events:
            self.take(events, groupstore.Reset)
            self.end_agent()
            self.take(events, groupstore.Reset)
            with (
                mock.patch("groupstore._blocking._wait", side_effect=KeyboardInterrupt),
                self.assertRaises(KeyboardInterrupt),
            ):
                events.next(PATIENCE)
            self.commit()
            self.take(events, groupstore.Changed)

    def test_waits_for_the_agent_if_it_alone_is_wanted(self) -> None:
        for agent, wait in ((True, False), (None, True)):
            self.start_agent()
            with groupstore.watch(self.store, agent=agent, wait=wait, program=PROGRAM) as events:
                self.take(events, groupstore.Reset)
                self.end_agent()
                self.assertEqual(events.next(PATIENCE), groupstore.Disconnected())
                self.assertIsNone(events.next(timeout=0.5))
                self.assertFalse(events.is_direct)

    def test_waits_for_the_agent_if_it_cannot_watch_the_file(self) -> None:
        self.start_agent()
        with (
            groupstore.watch(self.store, program="/bin/false") as events,
            self.assertLogs("groupstore") as logged,
        ):
            self.take(events, groupstore.Reset)
            self.end_agent()
            self.assertEqual(events.next(PATIENCE), groupstore.Disconnected())
            self.quiet_until(events, lambda: "without the agent" in "".join(logged.output))
            self.assertFalse(events.is_direct)
            self.start_agent()
            self.take(events, groupstore.Connected)

    def test_a_place_that_is_not_to_be_seen_here_is_not_watched(self) -> None:
        status = b'{"type":"group","id":1,"group":"g","directory":"/absent"}\n{"id":1,"ok":true}\n'
        subscribed = b'{"id":1,"ok":true,"token":"t0","path":"/absent/s"}\n'
        with Impostor(self.socket, [HELLO + status, HELLO + subscribed, HELLO]) as impostor:
            events = groupstore.watch("g/s", program=PROGRAM)
            self.assertEqual(events.next(PATIENCE), groupstore.Reset("t0", "subscribed"))
            self.assertEqual(events.next(PATIENCE), groupstore.Disconnected())
            self.assertIsNone(events.next(timeout=0.5))
            self.quiet_until(events, lambda: len(impostor.requests) > 2)
            self.assertFalse(events.is_direct)
        events.close()
        self.assertFalse(os.path.exists("/absent"))


if __name__ == "__main__":
    unittest.main()
