"""The events of a store that is watched without an agent."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
import time
import unittest
from unittest import mock

import groupstore

from .support import GROUP, PATIENCE, PROGRAM, Places, children, eventually


class DirectTests(Places):
    def test_watches_a_file_if_there_is_no_agent(self) -> None:
        for agent in (None, False):
            with groupstore.watch(self.file, agent=agent, program=PROGRAM) as events:
                self.assertTrue(events.is_direct)
                self.assertIsInstance(events.next(PATIENCE), groupstore.Reset)
                self.commit()
                change = events.next(PATIENCE)
                self.assertIsInstance(change, groupstore.Changed)
                self.assertEqual(len(children()), 1)
            self.assertEqual(children(), [])

    def test_watches_a_file_that_no_agent_serves(self) -> None:
        self.start_agent()
        other = os.path.join(self.scratch, "Other, \udcff\n.sqlite")
        with groupstore.watch(other, program=PROGRAM, tables=["note", "a,b\\"]) as events:
            self.assertTrue(events.is_direct)
            self.assertIsInstance(events.next(PATIENCE), groupstore.Reset)
            self.commit(file=other)
            self.assertIsInstance(events.next(PATIENCE), (groupstore.Changed, groupstore.Reset))
        with groupstore.watch(self.file, agent=False, program=PROGRAM) as events:
            self.assertTrue(events.is_direct)
            self.assertIsInstance(events.next(PATIENCE), groupstore.Reset)

    def test_continues_after_a_token_file(self) -> None:
        file = os.path.join(self.scratch, "token")
        with groupstore.watch(self.file, program=PROGRAM, token_file=file) as events:
            self.assertIsInstance(events.next(PATIENCE), groupstore.Reset)
        with groupstore.watch(self.file, program=PROGRAM, token_file=file) as events:
            self.assertIsNone(events.next(timeout=0.3))
            self.commit()
            self.assertIsInstance(events.next(PATIENCE), groupstore.Changed)
        self.commit()
        with groupstore.watch(self.file, program=PROGRAM, token_file=file) as events:
            self.assertIsInstance(events.next(PATIENCE), groupstore.Changed)

    def test_says_why_the_program_ended(self) -> None:
        with self.assertRaises(groupstore.ProgramFailed) as caught:
            groupstore.watch(self.group, program=PROGRAM).next(PATIENCE)
        self.assertEqual(caught.exception.code, "not_a_file")
        self.assertEqual(caught.exception.exit_status, 65)
        self.assertIn("name the database file", caught.exception.remedy)
        with self.assertRaises(groupstore.ProgramFailed) as caught:
            groupstore.watch(self.file, program=self.scratch).next(PATIENCE)
        self.assertEqual(caught.exception.code, "no_program")
        self.assertNotIsInstance(caught.exception, FileNotFoundError)
        with self.assertRaises(groupstore.ProgramFailed) as caught:
            groupstore.watch(self.file, program="/bin/false").next(PATIENCE)
        self.assertEqual((caught.exception.code, caught.exception.exit_status), ("program_failed", 1))
        with self.assertRaises(groupstore.ProgramFailed) as caught:
            groupstore.watch(self.file, program="/bin/echo").next(PATIENCE)
        self.assertEqual(caught.exception.code, "not_understood")

    def test_a_missing_program_is_a_missing_file(self) -> None:
        for program, where in ((PROGRAM + "-absent", f"{PROGRAM}-absent"), ("groupstore-absent", "on $PATH")):
            with self.assertRaises(groupstore.ProgramMissing) as caught:
                groupstore.watch(self.file, program=program).next(PATIENCE)
            error = caught.exception
            self.assertIsInstance(error, groupstore.ProgramFailed)
            self.assertIsInstance(error, FileNotFoundError)
            self.assertEqual((error.code, error.errno, error.filename), ("no_program", errno.ENOENT, program))
            self.assertIn(where, str(error))
            self.assertIn("program=", str(error))

    def test_a_missing_directory_is_a_missing_file(self) -> None:
        directory = os.path.join(self.scratch, "no such")
        for agent in (None, False):
            with self.assertRaises(groupstore.DirectoryMissing) as caught:
                groupstore.watch(os.path.join(directory, "app.db"), agent=agent, program=PROGRAM).next(PATIENCE)
            error = caught.exception
            self.assertIsInstance(error, FileNotFoundError)
            self.assertEqual((error.code, error.errno, error.filename), ("no_directory", errno.ENOENT, directory))
            self.assertIn(f"mkdir -p '{directory}'", str(error))
        with self.assertRaisesRegex(groupstore.DirectoryMissing, "is not a directory"):
            groupstore.watch(os.path.join(self.file, "app.db"), program=PROGRAM)
        # Only an agent is wanted.
        for store in (os.path.join(directory, "app.db"), "group.com.example.none/app.db"):
            with self.assertRaises(groupstore.NoAgent):
                groupstore.watch(store, agent=True, program=PROGRAM)

    def in_containers(self) -> str:
        """Makes the directory of groups, and returns an empty working directory beside it."""
        containers, empty = os.path.join(self.scratch, "containers"), os.path.join(self.scratch, "empty")
        for each in (containers, empty):
            os.mkdir(each)
        os.rename(self.group, os.path.join(containers, GROUP))
        self.group = os.path.join(containers, GROUP)
        self.file = os.path.join(self.group, "Notes.sqlite")
        environment = mock.patch.dict(os.environ, {"GROUPSTORE_CONTAINERS": containers})
        environment.start()
        self.addCleanup(environment.stop)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(empty)
        return empty

    def test_finds_a_group_as_the_command_does(self) -> None:
        empty = self.in_containers()
        for agent in (None, False):
            with groupstore.watch(self.store, agent=agent, program=PROGRAM) as events:
                # A later change of the working directory, and what lies there, doesn't move the store.
                other = os.path.join(self.scratch, f"other-{agent}")
                os.makedirs(os.path.join(other, GROUP))
                os.chdir(other)
                self.assertIsInstance(events.next(PATIENCE), groupstore.Reset)
                os.chdir(empty)
                self.assertTrue(events.is_direct)
                self.commit()
                self.assertIsInstance(events.next(PATIENCE), groupstore.Changed)
        self.assertEqual(os.listdir(empty), [])

        async def main() -> None:
            async with await groupstore.watch_async(self.store, program=PROGRAM) as events:
                self.assertIsInstance(await events.__anext__(), groupstore.Reset)

        asyncio.run(main())

    def test_finds_a_group_that_the_agent_does_not_serve(self) -> None:
        self.in_containers()
        self.start_agent()
        os.mkdir(os.path.join(self.scratch, "containers", "group.com.example.other"))
        with groupstore.watch("group.com.example.other/Notes.sqlite", program=PROGRAM) as events:
            self.assertIsInstance(events.next(PATIENCE), groupstore.Reset)
            self.assertTrue(events.is_direct)

    def test_says_that_there_is_no_such_group(self) -> None:
        empty = self.in_containers()
        for agent in (None, False):
            for name, remedy in (
                ("group.com.example.none", "groupstore group create group.com.example.none"),
                ("none", f"make it: mkdir -p {os.path.join(empty, 'none')}"),
            ):
                with self.assertRaises(groupstore.DirectoryMissing) as caught:
                    groupstore.watch(f"{name}/app.db", agent=agent, program=PROGRAM).next(PATIENCE)
                error = caught.exception
                self.assertEqual((error.code, error.remedy), ("no_container", remedy))
                self.assertEqual((error.errno, error.filename), (errno.ENOENT, os.path.join(empty, name)))
                self.assertIn(f"there is no group {name}", error.message)

    def test_a_store_that_does_not_exist_is_a_warning(self) -> None:
        self.in_containers()
        for store in (f"{GROUP}/Nots.sqlite", os.path.join(self.group, "Nots.sqlite")):
            with groupstore.watch(store, program=PROGRAM) as events, self.assertLogs("groupstore") as logged:
                self.assertIsInstance(events.next(PATIENCE), groupstore.Reset)
            self.assertIn("Nots.sqlite doesn't exist yet", logged.output[0])

    def test_a_wrong_operation_is_a_wrong_value(self) -> None:
        for function in (groupstore.watch, groupstore.Changes, groupstore.DirectChanges, groupstore.read_changes):
            with self.assertRaises(ValueError) as caught:
                function(self.file, operations=["inserted"])
            self.assertEqual(
                str(caught.exception), ("there is no operation 'inserted' (operations takes insert, update, delete)")
            )

    def test_says_that_the_program_was_killed(self) -> None:
        with groupstore.watch(self.file, program=PROGRAM) as events:
            events.next(PATIENCE)
            os.kill(children()[0], signal.SIGKILL)
            with self.assertRaises(groupstore.ProgramFailed) as caught:
                events.next(PATIENCE)
            self.assertEqual(caught.exception.exit_status, -signal.SIGKILL)
            self.assertIsNone(events.next(PATIENCE))

    def test_another_thread_closes_it(self) -> None:
        for is_stopped in (False, True):
            events = groupstore.watch(self.file, program=PROGRAM)
            events.next(PATIENCE)
            thread = threading.Thread(target=lambda watch=events: list(watch))
            thread.start()
            if is_stopped:
                os.kill(children()[0], signal.SIGSTOP)
            time.sleep(0.05)
            with mock.patch("groupstore._direct.END_TIMEOUT", 0.2 if is_stopped else PATIENCE):
                events.close()
                thread.join(PATIENCE)
            self.assertFalse(thread.is_alive())
            eventually(lambda: children() == [], "the child ends")

    def test_an_interruption_loses_no_event(self) -> None:
        with groupstore.watch(self.file, program=PROGRAM) as events:
            events.next(PATIENCE)
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                events.next(PATIENCE)
            timer.join()
            self.commit()
            self.assertIsInstance(events.next(PATIENCE), groupstore.Changed)

    def test_nothing_remains_of_one_that_nobody_closed(self) -> None:
        events = groupstore.DirectChanges(self.file, program=PROGRAM)
        events.next(PATIENCE)
        del events
        self.assertEqual(children(), [])

    def test_with_asyncio(self) -> None:
        async def main() -> None:
            async with await groupstore.watch_async(self.file, program=PROGRAM) as events:
                self.assertTrue(events.is_direct)
                self.assertIsInstance(await events.__anext__(), groupstore.Reset)
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(events.__anext__(), 0.1)
                self.commit()
                self.assertIsInstance(await asyncio.wait_for(events.__anext__(), PATIENCE), groupstore.Changed)

                async def rest() -> list[groupstore.Event]:
                    return [event async for event in events]

                task = asyncio.create_task(rest())
                await asyncio.sleep(0.05)
                await events.aclose()
                self.assertEqual(await task, [])
                self.assertEqual(children(), [])
            async with groupstore.AsyncDirectChanges(self.group, program=PROGRAM) as failing:
                with self.assertRaises(groupstore.ProgramFailed) as caught:
                    await failing.__anext__()
            self.assertEqual(caught.exception.exit_status, 65)

        asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
