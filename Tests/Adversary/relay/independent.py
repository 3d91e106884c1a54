#!/usr/bin/env python3
"""An independent client: rebuilds a store from the stream by its documented format alone, with nats-py.

    python3 independent.py GROUPSTORE RELAY [--seed S] [--commits N] [--snapshot] [--no-key]

A home is published while writers commit. The copy begins with the empty store's schema, and applies every batch from the
stream's first message on; with --snapshot it begins with a snapshot, requested as the format says. It must equal the home.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time

import nats

import checks
import digests
import wire
from copying import Copy, Unfit
from round import Problem, Round


async def read_batches(play, copy, upto, seconds=60):
    """Reads the stream with an ordered consumer, and applies its batches until the copy is at a token."""
    client = await nats.connect(f"nats://127.0.0.1:{play.broker.port}")
    stream, key = "GS_" + play.stream, wire.read_key(play.key) if play.key else None
    subscription = await client.jetstream().subscribe(f"gs.{play.stream}.changes", ordered_consumer=True)
    parts, previous, first, messages = [], "-", True, 0
    end = time.monotonic() + seconds
    while copy.position != upto:
        if time.monotonic() > end:
            raise Problem("rebuild", f"the copy is at {copy.position} after {messages} messages, not at {upto}", "rebuilds the store, equal")
        try:
            message = await subscription.next_msg(timeout=1)
        except nats.errors.TimeoutError:
            continue
        messages += 1
        headers = message.headers or {}
        if len(message.data) > 768 * 1024:
            raise Problem("part size", f"{len(message.data)} bytes", "A part has at most 768 KiB")
        if key:
            if headers.get("Gs-Mac") != wire.batch_mac(key, stream, headers, message.data):
                raise Problem("digest", f"{headers}", "Gs-Mac is the digest of GS_NAME, Gs-From, Gs-Upto, Gs-Part, Gs-Schema, Gs-Prev, and the body")
            if headers.get("Gs-Prev") != previous:
                raise Problem("previous", f"message {messages}: {headers} after {previous}", "Gs-Prev is the Gs-Mac of the message before; - in the first one")
            previous = headers["Gs-Mac"]
        elif "Gs-Prev" in headers or "Gs-Mac" in headers:
            raise Problem("no key", f"{headers}", "Without a key, the last two are missing")
        number, _, last = headers["Gs-Part"].partition(" ")
        if number == "1":
            parts = []
        elif int(number) != len(parts) + 1:
            continue
        parts.append(message.data)
        if last == "last":
            play.count("batches")
            play.count("parts", len(parts))
            try:
                copy.apply(headers, b"".join(parts))
            except Unfit as error:
                if first:
                    raise Problem("unfit", f"{error}: {headers}", "rebuilds the store from the first message of a fresh stream")
                raise
            first, parts = False, []
    await client.close()


async def snapshot(play, path):
    """Requests a snapshot and its chunks."""
    client = await nats.connect(f"nats://127.0.0.1:{play.broker.port}")
    stream, key, subject = "GS_" + play.stream, wire.read_key(play.key) if play.key else None, f"gs.{play.stream}.snapshot"

    def check(answer, *fields):
        if key and (answer.headers or {}).get("Gs-Mac") != wire.mac(key, [stream, *fields], answer.data):
            raise Problem("digest", f"{fields} {answer.headers} {answer.data[:200]}", "Gs-Mac is the digest of GS_NAME, snapshot, the nonce, and the body")

    async def request(members):
        body, reply = json.dumps(members).encode(), client.new_inbox()
        answers = await client.subscribe(reply, max_msgs=1)
        await client.publish(subject, body, reply=reply, headers={"Gs-Mac": wire.request_mac(key, stream, reply, body)} if key else None)
        return await answers.next_msg(timeout=5)

    challenges = []
    for _ in range(100):
        nonce = os.urandom(8).hex()
        answer = await request({"op": "begin", "nonce": nonce, "challenges": challenges})
        check(answer, "snapshot", nonce)
        begun = json.loads(answer.data)
        if begun["state"] == "challenge":
            challenges = challenges[-3:] + [begun["challenge"]]
        elif begun["state"] != "preparing":
            break
        else:
            await asyncio.sleep(0.1)
    if begun["state"] != "ready":
        raise Problem("snapshot", f"{begun}", "the answer's state isn't preparing")
    data, lines = b"", ""
    while len(data) < begun["size"]:
        index = len(data) // begun["chunk_size"]
        answer = await request({"op": "chunk", "id": begun["id"], "index": index, "size": begun["chunk_size"]})
        sha256 = hashlib.sha256(answer.data).hexdigest()
        lines += sha256 + "\n"
        if key and (answer.headers or {}).get("Gs-Mac") != wire.mac(key, [stream, "chunk", begun["id"], str(index), sha256], b""):
            raise Problem("digest", f"chunk {index} {answer.headers}", "Gs-Mac is the digest of GS_NAME, chunk, the id, the index, and its SHA-256")
        if "Gs-Error" in (answer.headers or {}) or not answer.data:
            raise Problem("chunk", f"{index}: {answer.headers}", "The body of the answer is the chunk")
        data += answer.data
    if hashlib.sha256(lines.encode()).hexdigest() != begun["chunks_sha256"]:
        raise Problem("snapshot", "another SHA-256", "chunks_sha256 is the SHA-256 of the chunks' SHA-256s, a line each")
    with open(path, "wb") as file:
        file.write(data)
    await client.close()
    return begun


def play_round(options, directory):
    play = Round(options.groupstore, options.relay, directory, options.seed, "rebuild", 0, ("big", "fast"), not options.no_key)
    try:
        play.make_home()
        empty = os.path.join(directory, "copy.sqlite")
        shutil.copy(play.home, empty)
        for suffix in ("-wal",):
            if os.path.exists(play.home + suffix):
                shutil.copy(play.home + suffix, empty + suffix)
        start = play.token()
        play.publisher.start()
        limit = time.monotonic() + 30
        while not play.publisher.now.of("publishing"):
            if time.monotonic() > limit:
                raise Problem("publish", f"{play.publisher.last_words()}", "publishing")
            time.sleep(0.05)
        play.start_writers(2)
        begun = None
        if options.snapshot:
            time.sleep(2)
            os.unlink(empty)
            begun = asyncio.run(snapshot(play, empty))
            start = begun["upto"]
        time.sleep(options.seconds)
        play.stop_writers()
        play.execute("UPDATE tick SET n=n+1")
        copy = Copy(empty, start)
        if begun and copy.schema() != begun["schema"]:
            raise Problem("schema", f"{begun} instead of {copy.schema()}", "the digest of the schema")
        copy.state = begun and begun["schema_state"]
        asyncio.run(read_batches(play, copy, play.token()))
        found = digests.difference(digests.read(play.home), digests.read(empty))
        if found:
            raise Problem("rebuild", found, "rebuilds the store, equal")
        for (mine, other) in zip(checks.history(play.home), checks.history(empty)):
            if mine != other:
                raise Problem("rebuild", f"history: {str(mine)[:300]} {str(other)[:300]}", "The copy then has the state of the home's commit upto")
        return play.counts
    finally:
        play.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groupstore")
    parser.add_argument("relay")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--seconds", type=float, default=5, help="of writing")
    parser.add_argument("--snapshot", action="store_true")
    parser.add_argument("--no-key", action="store_true")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="independent-")
    try:
        counts = play_round(options, directory)
    except (Problem, Unfit) as problem:
        print(f"independent --seed {options.seed}: {problem}".encode("utf-8", "backslashreplace").decode())
        return 1
    finally:
        if not os.environ.get("RELAY_KEEP"):
            shutil.rmtree(directory, ignore_errors=True)
    print(f"independent --seed {options.seed}: {counts.get('batches', 0)} batches in {counts.get('parts', 0)} parts, equal")
    return 0


if __name__ == "__main__":
    sys.exit(main())
