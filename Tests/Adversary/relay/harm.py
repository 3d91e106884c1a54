#!/usr/bin/env python3
"""Does harm to a home's relay, a broker and a follower while the home is written, and checks each state of the replica.

Each commit at home also writes how many notes there are, and a sum over them: every state that the replica shows must
agree with what its own commit says, and none may be older than the one before. In the end, both must be equal.

usage: harm.py GROUPSTORE GROUPSTORE_RELAY [--seconds 60] [--seed 1] [--broker nats-server] [--keep DIRECTORY]
"""

import argparse
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE Note (id INTEGER PRIMARY KEY, weight INTEGER NOT NULL, body BLOB);
CREATE TABLE State (id INTEGER PRIMARY KEY, number, notes, total);
INSERT INTO State VALUES (1, 0, 0, 0);
"""
ACTUAL = "SELECT count(*), coalesce(sum(weight * id % 1000003), 0) FROM Note"


class Hosts:
    def __init__(self, arguments, directory):
        self.arguments, self.directory = arguments, directory
        self.home, self.group = f"{directory}/Notes.sqlite", f"{directory}/group"
        self.replica = f"{self.group}/Notes.sqlite"
        os.mkdir(self.group)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        with open(f"{directory}/nats.conf", "w") as file:
            file.write(f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{directory}/data" }}\n')
        descriptor = os.open(f"{directory}/key", os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(descriptor, os.urandom(16).hex().encode())
        os.close(descriptor)
        self.running = {}

    def start(self, name):
        options = ["--server", f"nats://127.0.0.1:{self.port}", "--stream", "Notes", "--key", f"{self.directory}/key", "--json"]
        command = {
            "broker": [self.arguments.broker, "-c", f"{self.directory}/nats.conf"],
            "publish": [self.arguments.relay, "publish", self.home, *options],
            "follow": [self.arguments.relay, "follow", self.group, "--follower", "other", *options],
        }[name]
        variables = {**os.environ, "XDG_RUNTIME_DIR": self.directory, "XDG_CACHE_HOME": f"{self.directory}/cache",
                     "GROUPSTORE_SOCKET": "/nonexistent/agent.sock"}
        with open(f"{self.directory}/{name}.out", "ab") as out, open(f"{self.directory}/{name}.err", "ab") as err:
            self.running[name] = subprocess.Popen(command, stdout=out, stderr=err, env=variables)

    def stop(self, name, number=signal.SIGKILL):
        self.running[name].send_signal(number)
        return self.running[name].wait()

    def check(self):
        for name, process in self.running.items():
            if process.poll() is not None:
                raise SystemExit(f"harm: {name} ended with {process.returncode}; see {self.directory}/{name}.err")


def write(path, seconds, seed, counts):
    chance, number = random.Random(seed), 0
    with sqlite3.connect(path, timeout=60, isolation_level=None) as home:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            number += 1
            home.execute("BEGIN IMMEDIATE")
            for _ in range(chance.randint(1, 6)):
                key = chance.randint(1, 3000)
                if chance.random() < 0.7:
                    home.execute("REPLACE INTO Note VALUES (?, ?, randomblob(?))", (key, chance.randint(0, 9999), chance.randint(0, 200)))
                else:
                    home.execute("DELETE FROM Note WHERE id = ?", (key,))
            home.execute(f"UPDATE State SET number = ?, (notes, total) = ({ACTUAL})", (number,))
            home.execute("COMMIT")
            time.sleep(0.002)
    counts["commits"] = number


def watch(path, done, counts):
    """Reads the replica again and again."""
    last = states = 0
    while not done.is_set():
        time.sleep(0.005)
        if not os.path.exists(path):
            continue
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60, isolation_level=None) as replica:
            replica.execute("BEGIN")
            number, *said = replica.execute("SELECT number, notes, total FROM State").fetchone()
            found = replica.execute(ACTUAL).fetchone()
            replica.execute("COMMIT")
        replica.close()
        if tuple(said) != found:
            counts["failure"] = f"commit {number} has {said}, the replica shows {found}"
        if number < last:
            counts["failure"] = f"commit {number} came after {last}"
        states += number > last
        last = number
    counts["states"] = states


def harm(hosts, chance):
    kind = chance.choice(["publish", "follow", "both", "broker", "stopped", "set back"])
    if kind in ("publish", "follow"):
        hosts.stop(kind)
        hosts.start(kind)
    elif kind == "both":
        for name in ("publish", "follow"):
            hosts.stop(name)
        for name in ("publish", "follow"):
            hosts.start(name)
    elif kind == "broker":
        hosts.stop("broker")
        time.sleep(chance.random())
        hosts.start("broker")
    elif kind == "stopped":
        hosts.running["broker"].send_signal(signal.SIGSTOP)
        time.sleep(chance.random())
        hosts.running["broker"].send_signal(signal.SIGCONT)
    else:
        hosts.stop("broker", signal.SIGTERM)
        data, saved = f"{hosts.directory}/data", f"{hosts.directory}/saved"
        source, destination = (saved, data) if os.path.exists(saved) and chance.random() < 0.5 else (data, saved)
        shutil.rmtree(destination, ignore_errors=True)
        shutil.copytree(source, destination)
        hosts.start("broker")


def last_token(path):
    """Returns the token of a store's last change; None while there is no store."""
    if not os.path.exists(path):
        return None
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60) as store:
        identifier, number, nonce = store.execute(
            "SELECT identifier, number, printf('%x', nonce) FROM GS_HISTORY, GS_CHANGE ORDER BY number DESC LIMIT 1").fetchone()
    return f"h1.{identifier}.{number}.{nonce}"


def run(arguments, directory):
    chance, counts, done = random.Random(arguments.seed), {}, threading.Event()
    hosts = Hosts(arguments, directory)
    with sqlite3.connect(hosts.home, isolation_level=None) as home:
        home.executescript(SCHEMA)
    home.close()
    subprocess.run([arguments.groupstore, "history", "enable", "--quiet", hosts.home], check=True)
    for name in ("broker", "publish", "follow"):
        hosts.start(name)
    threads = [threading.Thread(target=write, args=(hosts.home, arguments.seconds, arguments.seed, counts)),
               threading.Thread(target=watch, args=(hosts.replica, done, counts))]
    for thread in threads:
        thread.start()
    try:
        harms = 0
        while threads[0].is_alive() and "failure" not in counts:
            time.sleep(0.3 + chance.random())
            hosts.check()
            harm(hosts, chance)
            harms += 1
        threads[0].join()
        token, deadline = last_token(hosts.home), time.monotonic() + 120
        while last_token(hosts.replica) != token:
            hosts.check()
            if time.monotonic() > deadline:
                raise SystemExit(f"harm: the replica doesn't reach {token}")
            time.sleep(0.1)
        peak = {name: next(line.split()[1] for line in open(f"/proc/{hosts.running[name].pid}/status") if "VmHWM" in line)
                for name in ("publish", "follow")}
    finally:
        done.set()
        threads[1].join()
        for process in hosts.running.values():
            process.kill()
            process.wait()
    with sqlite3.connect(hosts.home) as home, sqlite3.connect(hosts.replica) as replica:
        for table in ("Note", "State", "GS_CHANGE"):
            query = f"SELECT * FROM {table} ORDER BY 1"
            if home.execute(query).fetchall() != replica.execute(query).fetchall():
                counts["failure"] = f"{table} differs in the end"
    if "failure" in counts:
        raise SystemExit(f"harm: {counts['failure']}")
    with open(f"{directory}/follow.out") as file:
        resets = sum(json.loads(line)["type"] == "reset" for line in file if line.endswith("\n"))
    print(f"harm: {counts['commits']} commits, {harms} harms, {counts['states']} states seen, {resets} snapshots; "
          f"peak memory {peak['publish']} and {peak['follow']} kB; equal")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groupstore")
    parser.add_argument("relay")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--broker", default=shutil.which("nats-server", path=os.environ["PATH"] + ":/usr/sbin"))
    parser.add_argument("--keep")
    arguments = parser.parse_args()
    directory = arguments.keep or tempfile.mkdtemp()
    os.makedirs(directory, exist_ok=True)
    try:
        run(arguments, directory)
    finally:
        if not arguments.keep:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
