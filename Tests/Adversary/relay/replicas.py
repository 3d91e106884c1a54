"""Replicas with a story: written by hand, promoted, without room; and other keys and servers."""

import os
import sqlite3
import subprocess
import time

import checks
import digests
from programs import program
from round import Problem
from special import steady, superseded


WRITES = ["INSERT INTO tick VALUES (99, 99)", "UPDATE tick SET n=-1", "DELETE FROM tick", "CREATE TABLE tick_more (x)", "ALTER TABLE tick ADD COLUMN x",
          "INSERT INTO tick VALUES (99, 99); DELETE FROM tick WHERE id=99", "DROP TABLE tick"]


def handwritten(self, seconds):
    """A replica that somebody wrote to is diverged: exit code 73, its table named, nothing overwritten."""
    steady(self)
    follower = self.followers[0]
    running = self.chance.random() < 0.6
    if not running:
        follower.now.stop()
    write = self.chance.choice(WRITES)
    connection = sqlite3.connect(follower.replica, timeout=20)
    connection.executescript("BEGIN IMMEDIATE;" + write + ";COMMIT")
    connection.close()
    before = digests.read(follower.replica)
    self.count("handwritten " + ("running" if running else "stopped"))
    follower.start()
    self.execute("UPDATE parent SET x=x")
    self.execute("UPDATE tick SET n=n+1")
    code = follower.now.wait(40)
    said = follower.now.of("diverged")
    if code != 73 or not said:
        raise Problem("not diverged", f"after {write!r} ({'running' if running else 'stopped'}): {code} {follower.last_words()}",
                      "If anybody else has, it is diverged: the follower stops with exit code 73")
    if "tick" not in said[-1].get("message", "") and not write.startswith(("CREATE", "ALTER", "DROP")):
        raise Problem("no table", f"after {write!r}: {said[-1]}", "names the tables")
    found = digests.difference(before, digests.read(follower.replica))
    if found:
        raise Problem("overwritten", f"after {write!r}: {found}", "leaves everything as it is")
    again = follower.start().wait(20)
    if again != 73:
        raise Problem("not diverged again", f"after {write!r}: {again} {follower.last_words()}", "leaves everything as it is")
    self.stop_writers()
    self.stop_watchers()
    for name in os.listdir(os.path.dirname(follower.replica)):
        if name.startswith(os.path.basename(follower.replica)):
            os.rename(os.path.join(os.path.dirname(follower.replica), name), os.path.join(self.directory, "moved-" + name))
    follower.start()
    self.execute("UPDATE tick SET n=n+1")
    checks.caught_up(self, follower)
    checks.equal(self, follower)


def promoted(self, seconds):
    """A promoted replica is a home of its own; the old one is superseded, and old tokens are answered with a reset."""
    steady(self)
    follower = self.followers[0]
    self.execute("UPDATE tick SET n=n+1")
    checks.reached(self, follower)
    old = self.token()
    code, lines, errors = program([self.relay, "promote", follower.replica, "--json"], self.environment)
    if code == 0 and follower.alive:
        code = follower.now.wait(40)
        if code is None:
            raise Problem("promoted under a follower", f"promote succeeded and the follower goes on: {follower.last_words()}", "Only the follower may write to a replica")
    else:
        follower.now.stop()
        code, lines, errors = program([self.relay, "promote", follower.replica, "--json"], self.environment)
        if code:
            raise Problem("promote", f"{code} {lines} {errors}", "promote makes a replica a home")
    code, lines, errors = program([self.groupstore, "changes", follower.replica, "--since", old, "--json"], self.environment)
    if not any(line.get("type") == "reset" for line in lines):
        raise Problem("old token", f"{code} {lines} {errors}", "older tokens are answered with a reset")
    code, lines, errors = program([self.relay, "promote", follower.replica], self.environment)
    if code != 65:
        raise Problem("promote twice", f"{code} {errors}", "65: is no replica")
    again = follower.start().wait(20)
    if again in (None, 0):
        raise Problem("follow into a home", f"{again} {follower.last_words()}", "73: a file of that name is something else")
    second = self.new_publisher("second", follower.replica, self.publisher_proxy.port)
    second.start()
    superseded(self, second)
    self.stop_writers()
    for _ in range(6):
        self.take_over(second)
        if second.now.wait(3) is None:
            break
    else:
        raise Problem("take-over", f"{second.last_words()}", "start it once with --take-over and that token")
    with self.locked():
        connection = sqlite3.connect(self.home, isolation_level=None, timeout=20)
        connection.execute("UPDATE tick SET n=n+1")
        connection.close()
    superseded(self, self.publisher)
    third = self.new_follower("f9")
    third.start()
    connection = sqlite3.connect(follower.replica, isolation_level=None, timeout=20)
    connection.execute("UPDATE tick SET n=-77")
    connection.close()
    limit = time.monotonic() + 45
    while not os.path.exists(third.replica) or digests.difference(digests.read(follower.replica), digests.read(third.replica)):
        if time.monotonic() > limit:
            raise Problem("unequal", f"{third.last_words()}", "promote makes a replica a home")
        time.sleep(0.3)
    for role in (second, third):
        role.now.stop()
    self.stop_watchers()


def full(self, seconds):
    """A replica's file system that is full, and has room again."""
    group = os.path.join(self.directory, "rep-small")
    os.makedirs(group)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", group], stderr=subprocess.DEVNULL).returncode:
        print("full: left out: nothing can be mounted here")
        return
    try:
        self.followers = [self.new_follower("small", group)]
        steady(self)
        readonly = self.chance.random() < 0.4
        if readonly:
            self.followers[0].now.kill()
            self.stop_watchers()
            readonly = subprocess.run(["mount", "-o", "remount,ro", group], stderr=subprocess.DEVNULL).returncode == 0
        if not readonly:
            ballast = os.open(os.path.join(group, "ballast"), os.O_WRONLY | os.O_CREAT)
            try:
                while os.write(ballast, b"x" * 4096):
                    pass
            except OSError:
                pass
            os.close(ballast)
        follower = self.followers[0]
        if readonly:
            follower.start()
        self.execute(*["INSERT INTO parent VALUES (random(), randomblob(20000))"] * 40)
        time.sleep(4)
        code = follower.now.code
        if code not in (None, 74, 77):
            raise Problem("full", f"{'read-only' if readonly else 'full'}: {code} {follower.last_words()}", "74: I/O; 77: not permitted")
        if code is None and not follower.now.of("error"):
            raise Problem("full", f"silent: {follower.last_words()}", "never silence; an error after which the program goes on")
        if code is not None:
            follower.now.killed = True
        if readonly:
            subprocess.run(["mount", "-o", "remount,rw", group])
        else:
            os.unlink(os.path.join(group, "ballast"))
        checks.end(self)
    finally:
        for role in self.followers:
            if role.alive:
                role.now.kill()
        for each in self.watchers:
            each.kill()
            each.wait()
        subprocess.run(["umount", "-l", group])


def wrong_key(self, seconds):
    """A follower with another key takes nothing, and says so."""
    steady(self)
    other = os.path.join(self.directory, "other-key")
    with open(other, "wb", opener=lambda p, f: os.open(p, f, 0o600)) as file:
        file.write(b"another key of somebody else\n")
    stranger = self.new_follower("stranger")
    stranger.words[stranger.words.index("--key") + 1] = other
    stranger.start()
    bare = self.new_follower("bare")
    index = bare.words.index("--key")
    del bare.words[index:index + 2]
    bare.start()
    time.sleep(6)
    if os.path.exists(stranger.replica):
        raise Problem("wrong key", f"a replica was made: {stranger.last_words()}", "With one, a follower leaves out every message without a right digest")
    if stranger.alive and not stranger.now.of("error") or stranger.unexpected_end() == 0:
        raise Problem("wrong key", f"silence: {stranger.last_words()}", "never silence")
    for role in (stranger, bare):
        if role.alive:
            role.now.kill()
    os.chmod(other, 0o644)
    open_key = self.new_follower("open")
    open_key.words[open_key.words.index("--key") + 1] = other
    code = open_key.start().wait(10)
    if code != 78 and code != 77:
        raise Problem("readable key", f"{code} {open_key.last_words()}", "must not be readable by everybody; 77, 78")
    checks.end(self)


def no_server(self, seconds):
    """No broker at the first attempt is exit code 69; one that is no loopback address needs TLS."""
    steady(self, 1)
    for words, codes, promise in [
        (["--server", "nats://127.0.0.1:1", "--stream", "X"], (69,), "69: no broker, at the first attempt"),
        (["--server", "nats://192.0.2.1:4222", "--stream", "X"], (64, 69, 78), "TLS is required unless the server's address is a loopback address"),
        (["--server", f"nats://127.0.0.1:{self.broker.port}", "--stream", "a.b"], (64,), "letters, digits, - and _"),
        (["--server", f"nats://127.0.0.1:{self.broker.port}", "--stream", ""], (64,), "letters, digits, - and _"),
        (["--server", f"http://127.0.0.1:{self.broker.port}", "--stream", "X"], (64,), "64: a wrong argument"),
    ]:
        for command in (["publish", self.home], ["follow", os.path.join(self.directory, "rep-f1")]):
            code, lines, errors = program([self.relay, *command, *words, "--json"], self.environment, 20)
            if code not in codes:
                raise Problem("exit code", f"{command[0]} {words}: {code} {lines} {errors}", promise)
    checks.end(self)
