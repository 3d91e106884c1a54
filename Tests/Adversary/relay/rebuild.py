#!/usr/bin/env python3
"""Rebuilds a published store from its stream, by Documentation/Relay.md alone: with nats-py and Python's sqlite3, and
without a line of the relay's code. With --home, compares the result with the home, row by row.

usage: rebuild.py --server nats://HOST:PORT --stream NAME [--key FILE] [--home STORE] [--upto TOKEN] COPY

Needs nats-py (PyPI). Exit codes: 0 equal, 1 different, 2 the stream isn't what the document says.
"""

import argparse
import asyncio
import base64
import hashlib
import hmac
import json
import math
import os
import secrets
import sqlite3
import sys

import nats


class Broken(Exception):
    pass


def fail(condition, text):
    if condition:
        raise Broken(text)


class Stream:
    def __init__(self, connection, name, key):
        self.connection, self.name, self.key = connection, name, key

    def digest(self, fields, body):
        head = b"".join(field.encode() + b"\n" for field in fields)
        return hmac.new(self.key, head + body, hashlib.sha256).hexdigest()

    def check(self, headers, fields, body, what):
        if self.key:
            given = (headers or {}).get("Gs-Mac", "")
            fail(not hmac.compare_digest(given, self.digest(["GS_" + self.name] + fields, body)), what + ": wrong digest")

    async def request(self, members):
        inbox, body = self.connection.new_inbox(), json.dumps(members, separators=(",", ":")).encode()
        headers = {"Gs-Mac": self.digest(["GS_" + self.name, "request", inbox], body)} if self.key else None
        answers = await self.connection.subscribe(inbox, max_msgs=1)
        await self.connection.publish(f"gs.{self.name}.snapshot", body, reply=inbox, headers=headers)
        return await answers.next_msg(timeout=10)

    async def snapshot(self, path):
        """Section "Snapshots". Returns the token that it leads to, and the state of the schema."""
        challenges = []
        while True:
            nonce = secrets.token_hex(8)
            answer = await self.request({"op": "begin", "nonce": nonce, "challenges": challenges})
            self.check(answer.headers, ["snapshot", nonce], answer.data, "snapshot")
            found = json.loads(answer.data)
            if found["state"] == "ready":
                break
            if found["state"] == "challenge":
                challenges = challenges[-3:] + [found["challenge"]]
                continue
            fail(found["state"] != "preparing", f"snapshot: {found}")
            await asyncio.sleep(0.1)
        content, digests, size = b"", "", found["chunk_size"]
        for index in range(math.ceil(found["size"] / size)):
            chunk = await self.request({"op": "chunk", "id": found["id"], "index": index, "size": size})
            fail("Gs-Error" in (chunk.headers or {}), "chunk: it is gone")
            sha256 = hashlib.sha256(chunk.data).hexdigest()
            self.check(chunk.headers, ["chunk", found["id"], str(index), sha256], b"", "chunk")
            digests += sha256 + "\n"
            content += chunk.data
        fail(len(content) != found["size"], "snapshot: another size")
        fail(hashlib.sha256(digests.encode()).hexdigest() != found["chunks_sha256"], "snapshot: another hash")
        with open(path, "wb") as file:
            file.write(content)
        return found["upto"], found["schema_state"]

    async def messages(self):
        """The stream's messages by number, without those that have no right digest."""
        jetstream = self.connection.jetstream()
        state = (await jetstream.stream_info("GS_" + self.name)).state
        for number in range(state.first_seq, state.last_seq + 1):
            message = await jetstream.get_msg("GS_" + self.name, number)
            headers = message.headers or {}
            names = ["Gs-From", "Gs-Upto", "Gs-Part", "Gs-Schema"] + (["Gs-Prev"] if self.key else [])
            try:
                fields = [headers[name] for name in names]
                self.check(headers, fields, message.data or b"", f"message {number}")
            except (KeyError, Broken) as error:
                print(f"left out: message {number}: {error}", file=sys.stderr)
                continue
            yield headers, message.data or b""


def value(encoded):
    """Section "Rows with values" of WireProtocol.md."""
    if not isinstance(encoded, dict):
        return encoded
    [(kind, text)] = encoded.items()
    if kind == "integer":
        return int(text)
    if kind == "real":
        return float(text)
    if kind == "base64":
        return base64.b64decode(text)
    fail(kind != "text_b64", f"a value of the kind {kind}")
    # Python's texts are UTF-8: the caller casts it.
    return Malformed(base64.b64decode(text))


class Malformed(bytes):
    """The bytes of a text that isn't UTF-8."""


def name(identifier):
    return '"' + identifier.replace('"', '""') + '"'


class Copy:
    def __init__(self, path, token, schema):
        self.database = sqlite3.connect(path, isolation_level=None)
        self.database.execute("PRAGMA foreign_keys = OFF")
        for (trigger,) in self.all("SELECT name FROM sqlite_schema WHERE type = 'trigger'"):
            self.database.execute(f"DROP TRIGGER {name(trigger)}")
        self.schema = schema
        self.number, self.nonce = self.parsed(token)[1:]

    def all(self, sql, *values):
        return self.database.execute(sql, values).fetchall()

    @staticmethod
    def parsed(token):
        kind, history, number, nonce = token.split(".")
        nonce = int(nonce, 16)
        return history, int(number), nonce - (1 << 64) if nonce >= 1 << 63 else nonce

    def apply(self, batch):
        """Applies a whole batch in one transaction. Returns False if the copy has it already."""
        lines = batch.split(b"\n")
        fail(lines.pop() != b"", "the last line has no end")
        first, last = json.loads(lines[0]), json.loads(lines[-1])
        fail((first["type"], last["type"]) != ("batch", "end"), "no beginning or no end")
        before = batch[: len(batch) - len(lines[-1]) - 1]
        fail(hashlib.sha256(before).hexdigest() != last["sha256"], "the batch has another hash")
        fail(first["schema"] != self.schema, "the batch is of another schema")
        since, upto = self.parsed(first["from"]), self.parsed(first["upto"])
        if upto[1] < self.number:
            return False
        fail(since[1] > self.number, "there is a gap")
        self.database.execute("BEGIN IMMEDIATE")
        table, rows, changes, known = None, 0, 0, since[1] == self.number and since[2] == self.nonce
        for line in lines[1:-1]:
            line = json.loads(line)
            if line["type"] == "history":
                for row in line["rows"]:
                    changes += 1
                    row = [value(field) for field in row]
                    known = known or (row[0], row[5]) == (self.number, self.nonce)
                    marks = ",".join("?" * len(row))
                    columns = "number, table_id, operation, key, columns, nonce, time, author"
                    self.database.execute(f"INSERT OR REPLACE INTO GS_CHANGE ({columns}) VALUES ({marks})", row)
            elif line["type"] == "history_tables":
                self.database.execute("DELETE FROM GS_TABLE")
                for row in line["rows"]:
                    self.database.execute("INSERT INTO GS_TABLE (id, name, key_columns, columns, installed) "
                                          "VALUES (?, ?, ?, ?, ?)", [value(field) for field in row])
            elif line["type"] == "sequence":
                self.database.execute("DELETE FROM sqlite_sequence")
                self.database.executemany("INSERT INTO sqlite_sequence VALUES (?, ?)", line["rows"])
            elif line["type"] in ("table", "contents"):
                table = line
                if line["type"] == "contents":
                    self.database.execute(f"DELETE FROM {name(line['table'])}")
            else:
                fail(line["type"] != "row", f"a line of the type {line['type']}")
                self.write(table, line)
                rows += 1
        fail((rows, changes) != (last["rows"], last["changes"]), "the batch has another number of rows")
        fail(not known, "the position isn't in the batch's line")
        self.database.execute(f"PRAGMA user_version = {int(first['user_version'])}")
        self.database.execute("COMMIT")
        self.number, self.nonce = upto[1:]
        return True

    def write(self, table, row):
        key = row["key"] if isinstance(row["key"], list) else [row["key"]]
        key = [value(field) for field in key]
        columns = [table["rowid"]] if "rowid" in table else table["key"]
        condition = " AND ".join(f"{name(column)} IS ? COLLATE BINARY" for column in columns)
        if row.get("op") == "delete":
            self.database.execute(f"DELETE FROM {name(table['table'])} WHERE {condition}", key)
            return
        columns, values = list(table["columns"]), [value(field) for field in row["values"]]
        if "rowid" in table and not table["key"]:
            columns, values = [table["rowid"]] + columns, key + values
        marks = ",".join("CAST(? AS TEXT)" if isinstance(field, Malformed) else "?" for field in values)
        names = ",".join(map(name, columns))
        self.database.execute(f"INSERT OR REPLACE INTO {name(table['table'])} ({names}) VALUES ({marks})", values)


def content(database):
    """All rows of the app's tables and of the history, by table."""
    tables = database.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN "
                              "('GS_REPLICA', 'GS_SUBSCRIBER', 'GS_HISTORY', 'GS_REPLACED') AND name NOT LIKE 'sqlite_stat%'")
    virtual = database.execute("SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL%'").fetchall()
    found = {}
    for (table,) in tables.fetchall():
        # Two full-text indexes of the same rows may be laid out differently.
        if any(table.startswith(owner + "_") for (owner,) in virtual):
            continue
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({name(table)})")]
        parts = ", ".join(f"typeof({name(column)}), hex({name(column)}), hex(quote({name(column)}))" for column in columns)
        found[table] = sorted(database.execute(f"SELECT {parts} FROM {name(table)}").fetchall())
    found["user_version"] = database.execute("PRAGMA user_version").fetchall()
    return found


async def run(arguments):
    key = b""
    if arguments.key:
        with open(arguments.key, "rb") as file:
            key = file.read().removesuffix(b"\n").removesuffix(b"\r")
    connection = await nats.connect(arguments.server)
    stream = Stream(connection, arguments.stream, key)
    if os.path.exists(arguments.copy):
        os.remove(arguments.copy)
    copy = Copy(arguments.copy, *await stream.snapshot(arguments.copy))
    applied = 0
    deadline = asyncio.get_running_loop().time() + 60
    while True:
        batch, awaited = b"", 1
        async for headers, body in stream.messages():
            number, _, mark = headers["Gs-Part"].partition(" ")
            if int(number) == 1:
                batch, awaited = b"", 1
            if int(number) != awaited:
                awaited = 0
                continue
            batch, awaited = batch + body, awaited + 1
            if mark == "last":
                applied += copy.apply(batch)
                awaited = 0
        token = arguments.upto and Copy.parsed(arguments.upto)[1:]
        if not token or (copy.number, copy.nonce) == token:
            break
        fail(asyncio.get_running_loop().time() > deadline, f"the stream doesn't lead to {arguments.upto}")
        await asyncio.sleep(0.2)
    await connection.close()
    print(f"rebuilt up to change {copy.number}, {applied} batches")
    if not arguments.home:
        return 0
    with sqlite3.connect(arguments.home) as home:
        expected, found = content(home), content(copy.database)
    for table in sorted(set(expected) | set(found)):
        if expected.get(table) != found.get(table):
            print(f"{table} differs: {len(expected.get(table, []))} rows at home, {len(found.get(table, []))} here")
    return 0 if expected == found else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--stream", required=True)
    parser.add_argument("--key")
    parser.add_argument("--home")
    parser.add_argument("--upto")
    parser.add_argument("copy")
    try:
        return asyncio.run(run(parser.parse_args()))
    except Broken as error:
        print(f"rebuild: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
