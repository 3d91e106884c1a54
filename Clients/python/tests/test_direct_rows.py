"""The changed rows of a store that is watched without an agent."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import unittest
from typing import Optional
from unittest import mock

import groupstore

from .support import PATIENCE, PROGRAM, Places, children, eventually

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
AUTHOR = "me, too\\"
"""A name that has to be escaped in a list."""


class DirectRowTests(Places):
    def setUp(self) -> None:
        super().setUp()
        subprocess.run([PROGRAM, "history", "enable", "--quiet", self.file], check=True)
        # The last connection that is closed removes the log. A change whose log is gone has no rows.
        other = sqlite3.connect(self.file, timeout=PATIENCE)
        self.addCleanup(other.close)
        other.execute("SELECT count(*) FROM note").fetchall()
        # The program's own agent has its directory there.
        environment = mock.patch.dict(os.environ, XDG_RUNTIME_DIR=self.scratch)
        environment.start()
        self.addCleanup(environment.stop)
        self.addCleanup(self.check_nothing_remains)

    def private_agents(self) -> list[str]:
        """Returns the agents of the programs that this test has started."""
        words = ["pgrep", "-f", f"agent .*--private .*{self.group}"]
        return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout.split()

    def check_nothing_remains(self) -> None:
        self.assertEqual(self.private_agents(), [])
        self.assertEqual([each for each in os.listdir(self.scratch) if each.startswith("groupstore-watch")], [])

    def write(self, *statements: str, author: Optional[str] = None) -> None:
        """Runs the statements in one transaction."""
        store = sqlite3.connect(self.file, timeout=PATIENCE)
        try:
            with store:
                store.execute("UPDATE GS_AUTHOR SET name = ?", (author,))
                for statement in statements:
                    store.execute(statement)
                store.execute("UPDATE GS_AUTHOR SET name = NULL")
        finally:
            store.close()

    def rows(self, events: groupstore.Watch, count: int) -> list[groupstore.ChangedRow]:
        """Returns the next rows, which may come in several changes."""
        rows: list[groupstore.ChangedRow] = []
        while len(rows) < count:
            change = events.next(PATIENCE)
            assert isinstance(change, groupstore.Changed), change
            assert change.rows is not None, change
            rows += change.rows
        return rows

    def operations(self, events: groupstore.Watch, count: int) -> list[tuple[str, groupstore.Value]]:
        return [(row.operation, row.key[0]) for row in self.rows(events, count)]

    def test_delivers_rows(self) -> None:
        for agent in (None, False):
            with groupstore.watch(self.file, agent=agent, rows=True, program=PROGRAM) as events:
                self.assertTrue(events.is_direct)
                self.assertEqual(getattr(events.next(PATIENCE), "reason", None), "subscribed")
                self.assertEqual((len(children()), len(self.private_agents())), (1, 1))
                self.write("INSERT INTO note (rowid, text) VALUES (7, 'bread')")
                (row,) = self.rows(events, 1)
                self.assertEqual((row.table, row.operation, row.key), ("note", "insert", (7,)))
                self.write("UPDATE note SET text = 'butter' WHERE rowid = 7")
                (row,) = self.rows(events, 1)
                self.assertEqual((row.operation, row.key, row.columns), ("update", (7,), ["text"]))
                self.write("DELETE FROM note WHERE rowid = 7")
                self.assertEqual(self.operations(events, 1), [("delete", 7)])
            self.assertEqual(children(), [])
            self.check_nothing_remains()

    def test_delivers_rows_with_asyncio(self) -> None:
        async def main() -> None:
            async with await groupstore.watch_async(
                self.file, rows=True, operations=["delete"], program=PROGRAM
            ) as events:
                self.assertTrue(events.is_direct)
                self.assertIsInstance(await asyncio.wait_for(events.__anext__(), PATIENCE), groupstore.Reset)
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(events.__anext__(), 0.1)
                self.write("INSERT INTO note (rowid, text) VALUES (7, 'bread')")
                self.write("DELETE FROM note WHERE rowid = 7")
                change = await asyncio.wait_for(events.__anext__(), PATIENCE)
                assert isinstance(change, groupstore.Changed) and change.rows is not None, change
                self.assertEqual([(row.operation, row.key) for row in change.rows], [("delete", (7,))])
                token = events.token
            self.assertEqual(children(), [])
            self.check_nothing_remains()
            self.write("INSERT INTO note (rowid, text) VALUES (8, 'butter')")
            self.write("DELETE FROM note WHERE rowid = 8")
            async with groupstore.AsyncDirectChanges(
                self.file, token, operations=["delete"], rows=True, durable=True, program=PROGRAM
            ) as events:
                change = await asyncio.wait_for(events.__anext__(), PATIENCE)
                assert isinstance(change, groupstore.Changed) and change.rows is not None, change
                self.assertEqual([(row.operation, row.key) for row in change.rows], [("delete", (8,))])

        asyncio.run(main())

    def test_a_durable_token_continues(self) -> None:
        file = os.path.join(self.scratch, "token")

        def watch() -> groupstore.Watch:
            return groupstore.watch(
                self.file, rows=True, durable=True, operations=["delete"], token_file=file, program=PROGRAM
            )

        with watch() as events:
            self.assertIsInstance(events.next(PATIENCE), groupstore.Reset)
            self.write("INSERT INTO note (rowid, text) VALUES (7, 'bread')")
            self.write("DELETE FROM note WHERE rowid = 7")
            self.assertEqual(self.operations(events, 1), [("delete", 7)])
        self.write("INSERT INTO note (rowid, text) VALUES (8, 'butter'), (9, 'jam')")
        self.write("DELETE FROM note WHERE rowid = 9")
        self.write("DELETE FROM note WHERE rowid = 8")
        # What wasn't handled comes again.
        with self.assertRaises(RuntimeError), watch() as events:
            self.assertEqual(self.operations(events, 2), [("delete", 9), ("delete", 8)])
            raise RuntimeError("not handled")
        with watch() as events:
            self.assertEqual(self.operations(events, 2), [("delete", 9), ("delete", 8)])
        with watch() as events:
            self.assertIsNone(events.next(timeout=0.3))

    def test_a_durable_token_of_an_agent_continues_without_one(self) -> None:
        self.start_agent()
        with groupstore.watch(self.file, rows=True, durable=True) as events:
            self.assertFalse(events.is_direct)
            self.assertIsInstance(events.next(PATIENCE), groupstore.Reset)
            token = events.token
        self.end_agent(signal.SIGTERM)
        self.write("INSERT INTO note (rowid, text) VALUES (7, 'bread')")
        with groupstore.watch(self.file, rows=True, durable=True, since=token, program=PROGRAM) as events:
            self.assertTrue(events.is_direct)
            self.assertEqual(self.operations(events, 1), [("insert", 7)])

    def test_filters_by_author(self) -> None:
        def write() -> None:
            self.write("INSERT INTO note (rowid, text) VALUES (7, 'mine')", author=AUTHOR)
            self.write("INSERT INTO note (rowid, text) VALUES (8, 'theirs')", author="them")
            self.write("DELETE FROM note WHERE rowid IN (7, 8)", author="a cleaner")

        with groupstore.watch(self.file, rows=True, except_authors=[AUTHOR, "a cleaner"], program=PROGRAM) as events:
            self.assertIsInstance(events.next(PATIENCE), groupstore.Reset)
            write()
            self.assertEqual(self.operations(events, 1), [("insert", 8)])
        with groupstore.watch(self.file, rows=True, authors=["x", AUTHOR], program=PROGRAM) as events:
            self.assertIsInstance(events.next(PATIENCE), groupstore.Reset)
            write()
            self.assertEqual(self.operations(events, 1), [("insert", 7)])

    def test_passes_every_option_on(self) -> None:
        with groupstore.watch(
            self.file,
            tables=["note"],
            entities=["Note", "a,b"],
            operations=("insert", "update"),
            authors=iter([AUTHOR]),
            except_authors={"them"},
            rows=True,
            durable=True,
            program=PROGRAM,
        ) as events:
            self.assertIsInstance(events.next(PATIENCE), groupstore.Reset)
            with open(f"/proc/{children()[0]}/cmdline", "rb") as file:
                words = file.read().split(b"\0")[4:-3]
        self.assertEqual(
            words,
            [
                b"--tables=note",
                b"--entities=Note,a\\,b",
                b"--operations=insert,update",
                b"--authors=me\\, too\\\\",
                b"--except-authors=them",
                b"--rows",
                b"--durable",
            ],
        )

    def test_says_what_is_wrong_with_a_filter(self) -> None:
        with self.assertRaises(groupstore.InvalidOption) as caught:
            groupstore.watch(self.file, operations=["replace"], program=PROGRAM)
        self.assertIn("insert, update, delete", caught.exception.remedy)
        with self.assertRaises(TypeError):
            groupstore.watch(self.file, agent=False, authors="me", program=PROGRAM)

    def test_a_store_without_a_history_has_changes_without_rows(self) -> None:
        other = os.path.join(self.group, "Other.sqlite")
        with groupstore.watch(other, rows=True, operations=["delete"], program=PROGRAM) as events:
            self.assertIsInstance(events.next(PATIENCE), groupstore.Reset)
            self.commit(file=other)
            event = events.next(PATIENCE)
            self.assertIsInstance(event, (groupstore.Changed, groupstore.Reset))
            self.assertIsNone(getattr(event, "rows", None))

    def test_an_interruption_loses_no_row(self) -> None:
        with groupstore.watch(self.file, rows=True, durable=True, program=PROGRAM) as events:
            events.next(PATIENCE)
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                events.next(PATIENCE)
            timer.join()
            self.write("INSERT INTO note (rowid, text) VALUES (7, 'bread')")
            self.assertEqual(self.operations(events, 1), [("insert", 7)])

    def test_nothing_remains_of_a_program_that_was_killed(self) -> None:
        events: groupstore.Watch = groupstore.DirectChanges(self.file, rows=True, program=PROGRAM)
        events.next(PATIENCE)
        del events
        self.assertEqual(children(), [])
        eventually(lambda: self.private_agents() == [], "the agent ends after its program")
        with groupstore.DirectChanges(self.file, rows=True, program=PROGRAM) as events:
            events.next(PATIENCE)
            os.kill(children()[0], signal.SIGKILL)
            with self.assertRaises(groupstore.ProgramFailed):
                events.next(PATIENCE)
        eventually(lambda: self.private_agents() == [], "the agent ends after its program")
        for form in ([], ["--async"]):
            reader = subprocess.Popen(
                [sys.executable, "-u", "-m", "groupstore", *form, "--rows", "--program", PROGRAM, self.file],
                env={**os.environ, "PYTHONPATH": ROOT},
                stdout=subprocess.PIPE,
                text=True,
            )
            assert reader.stdout is not None
            self.assertIn("Reset", reader.stdout.readline())
            self.assertEqual(len(self.private_agents()), 1)
            reader.kill()
            reader.wait()
            reader.stdout.close()
            # Without a reader, the program ends by itself, and its agent with it.
            eventually(lambda: self.private_agents() == [], "the agent ends after its program's reader")


if __name__ == "__main__":
    unittest.main()
