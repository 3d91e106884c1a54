"""Pages of changed rows with their values."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import subprocess

import groupstore

from .support import PATIENCE, PROGRAM, Places

VALUES: list[tuple[str, groupstore.Value]] = [
    ("NULL", None),
    ("9223372036854775807", 9223372036854775807),
    ("-9223372036854775808", -9223372036854775808),
    ("9007199254740993", 9007199254740993),
    ("7", 7),
    ("7.0", 7.0),
    ("-0.0", -0.0),
    ("0.1", 0.1),
    ("1e300", 1e300),
    ("9e999", math.inf),
    ("-9e999", -math.inf),
    ("'milk'", "milk"),
    ("'a' || char(0) || char(10) || '\"\\'", 'a\0\n"\\'),
    ("char(128512) || 'e' || char(769)", "\U0001f600e\u0301"),
    ("CAST(X'ff41' AS TEXT)", groupstore.MalformedText(b"\xffA")),
    ("X'00ff'", b"\0\xff"),
    ("X''", b""),
]


class ValueTests(Places):
    def setUp(self) -> None:
        super().setUp()
        # Each change of the schema makes the rows of a table without an INTEGER PRIMARY KEY doubtful.
        self.write("DROP TABLE note", "CREATE TABLE item (id INTEGER PRIMARY KEY, value)")
        subprocess.run([PROGRAM, "history", "enable", "--quiet", self.file], check=True)
        self.start_agent()

    def write(self, *statements: str) -> None:
        store = sqlite3.connect(self.file, timeout=PATIENCE)
        try:
            with store:
                for statement in statements:
                    store.execute(statement)
        finally:
            store.close()

    def test_every_value_arrives_exactly(self) -> None:
        self.write(*(f"INSERT INTO item (value) VALUES ({sql})" for sql, _ in VALUES))
        page = groupstore.read_changes(self.store, values=True)
        found = [row.values["value"] for row in page.rows if row.values is not None]
        self.assertEqual([repr(value) for value in found], [repr(value) for _, value in VALUES])
        self.assertEqual([row.key for row in page.rows], [(number,) for number in range(1, len(VALUES) + 1)])
        self.assertEqual((page.more, page.reset, page.encoding, page.unrecorded), (False, None, "UTF-8", []))

    def test_a_row_comes_once_as_it_is_now_or_that_it_is_gone(self) -> None:
        token = groupstore.read_changes(self.store).token
        self.write(
            "INSERT INTO item VALUES (1, 'a'), (2, 'b')", "UPDATE item SET value = 'c'", "DELETE FROM item WHERE id = 2"
        )
        page = groupstore.read_changes(self.store, token, values=True)
        self.assertEqual(
            [(row.operation, row.key, row.values) for row in page.rows],
            [("insert", (1,), {"id": 1, "value": "c"}), ("delete", (2,), None)],
        )
        self.assertEqual(groupstore.read_changes(self.store, page.token, values=True).rows, [])

    def test_a_row_longer_than_a_line_arrives_whole(self) -> None:
        text = '"\\\n\u00e9' * 100_000
        store = sqlite3.connect(self.file)
        with store:
            store.execute("INSERT INTO item VALUES (1, ?)", (text,))
            store.execute("INSERT INTO item VALUES (2, ?)", (bytes(range(256)) * 1000,))
        store.close()
        page = asyncio.run(groupstore.read_changes_async(self.store, values=True))
        self.assertEqual([row.values and row.values["value"] for row in page.rows], [text, bytes(range(256)) * 1000])

    def test_a_row_longer_than_an_answer_is_an_error(self) -> None:
        self.write("INSERT INTO item VALUES (1, zeroblob(9000000))")
        with self.assertRaises(groupstore.Refused) as refused:
            groupstore.read_changes(self.store, values=True)
        self.assertEqual(refused.exception.code, "row_too_large")

    def test_another_schema_is_a_reset(self) -> None:
        page = groupstore.read_changes(self.store, values=True)
        self.write("ALTER TABLE item ADD COLUMN more DEFAULT 7", "INSERT INTO item VALUES (1, 'a', 'b')")
        reset = groupstore.read_changes(self.store, page.token, values=True, schema=page.schema)
        self.assertEqual((reset.reset, reset.rows), ("schema_changed", []))
        self.assertNotEqual(reset.schema, page.schema)

    def test_values_of_a_table_that_is_not_recorded_are_refused(self) -> None:
        self.write("CREATE TABLE other (id INTEGER PRIMARY KEY)")
        with self.assertRaises(groupstore.Refused) as refused:
            groupstore.read_changes(self.store, values=True)
        self.assertEqual(refused.exception.code, "outdated_history")
