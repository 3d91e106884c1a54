"""Homes with a story: restored, deleted, superseded, purged."""

import os
import shutil
import sqlite3
import time

import checks
import digests
from programs import program
from round import Problem


def steady(self, writers=2):
    self.start(writers)
    time.sleep(3)
    self.look_after()
    self.tokens.append(self.token())


def backup(self, to):
    with self.locked():
        connection = sqlite3.connect(self.home, timeout=20)
        connection.execute("BEGIN IMMEDIATE").fetchall()  # so that the three files are of one moment
        for suffix in ("", "-wal"):
            if os.path.exists(self.home + suffix):
                shutil.copy(self.home + suffix, to + suffix)
        connection.close()
        connection = sqlite3.connect(to)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()


def put_back(self, path):
    with self.locked():
        for suffix in ("-wal", "-shm", "-journal"):
            if os.path.exists(self.home + suffix):
                os.unlink(self.home + suffix)
        os.replace(path, self.home)
        self.note()


def superseded(self, role, seconds=45):
    code = role.now.wait(seconds)
    if code != 73 or not role.now.of("superseded"):
        raise Problem("not superseded", f"{role.name}: {code} {role.last_words()}",
                      "A publisher that finds a last message which leads to a token outside its own history stops, superseded")
    said = role.now.of("superseded")[-1]
    if not said.get("message") or not said.get("hint"):
        raise Problem("no hint", f"{said}", "superseded: it ends: message, hint")
    if role.now.lines[-1].get("type") != "summary" or role.now.lines[-1].get("outcome") != "superseded":
        raise Problem("summary", f"{role.last_words()}", "the last line: outcome is superseded")


def restored(self, seconds):
    """A home restored from a backup finds itself superseded, and its followers take a snapshot after --take-over."""
    steady(self)
    old = os.path.join(self.directory, "home", "backup")
    backup(self, old)
    time.sleep(2)
    running = self.chance.random() < 0.6
    self.execute("UPDATE tick SET n=n+1")
    checks.reached(self, self.followers[0])
    if not running:
        self.publisher.now.kill()
    put_back(self, old)
    if not running:
        time.sleep(self.chance.choice([0, 3]))  # perhaps until the new numbers exceed the old ones
        self.publisher.start()
    superseded(self, self.publisher)
    self.tokens = []
    self.take_over()
    self.tokens.append(self.token())
    time.sleep(2)
    checks.end(self)
    if not self.followers[0].count("reset"):
        raise Problem("no reset", f"{self.followers[0].last_words()}", "followers then take a snapshot; it is announced as a reset")


def restored_quiet(self, seconds):
    """As `restored`, but the home writes little after it: its numbers stay below those that the followers have."""
    steady(self)
    old = os.path.join(self.directory, "home", "backup")
    backup(self, old)
    time.sleep(3)
    self.stop_writers()
    self.execute("UPDATE tick SET n=n+1", "INSERT INTO parent VALUES (1000, 'lost')")
    checks.reached(self, self.followers[0])
    put_back(self, old)
    superseded(self, self.publisher)
    self.tokens = []
    self.take_over()
    checks.end(self)


def remade(self, seconds):
    """A home that is deleted and made again is another store."""
    self.page_size, self.encoding = self.chance.choice([1024, 4096]), self.chance.choice(["UTF-8", "UTF-16le"])
    steady(self)
    with self.locked():
        running = self.chance.random() < 0.5
        if not running:
            self.publisher.now.kill()
        for suffix in ("", "-wal", "-shm", "-journal"):
            if os.path.exists(self.home + suffix):
                os.unlink(self.home + suffix)
        time.sleep(self.chance.choice([0, 1.5]))
        if running and self.publisher.unexpected_end() is not None:
            raise Problem("ended", f"{self.publisher.last_words()}", "a home that doesn't exist yet is waited for")
        self.make_home()
    self.publisher.start()
    superseded(self, self.publisher)
    self.tokens = []
    self.take_over()
    checks.end(self)


def two_homes(self, seconds):
    """Another store may not publish to the stream; with --take-over it does, and the first one stops."""
    steady(self)
    self.execute("UPDATE tick SET n=n+1")
    checks.reached(self, self.followers[0])
    other = os.path.join(self.directory, "home", "other.sqlite")
    connection, source = sqlite3.connect(other), sqlite3.connect(self.home)
    for name in ("page_size", "encoding", "auto_vacuum"):
        (value,) = source.execute(f"PRAGMA {name}").fetchone()
        connection.execute(f"PRAGMA {name}='{value}'")
    source.close()
    connection.execute("CREATE TABLE stranger (x)")
    connection.close()
    program([self.groupstore, "history", "enable", other], self.environment)
    second = self.new_publisher("second", other, self.publisher_proxy.port)
    second.start()
    superseded(self, second)
    self.look_after()
    self.stop_writers()
    self.execute("UPDATE tick SET n=n+1")
    checks.caught_up(self, self.followers[0])
    for attempt in range(5):
        self.take_over(second)
        if second.now.wait(3) is None:
            break
    else:
        raise Problem("take-over", f"{second.last_words()}", "start it once with --take-over and that token")
    sqlite3.connect(other, isolation_level=None).execute("INSERT INTO stranger VALUES (1)")
    if not self.publisher.now.wait(0.1):
        with self.locked():
            connection = sqlite3.connect(self.home, isolation_level=None, timeout=20)
            connection.execute("UPDATE tick SET n=n+1")
            connection.close()
    superseded(self, self.publisher)
    limit = time.monotonic() + 45
    while digests.difference(digests.read(other), digests.read(self.followers[0].replica)):
        if time.monotonic() > limit:
            raise Problem("unequal", f"{digests.difference(digests.read(other), digests.read(self.followers[0].replica))}; {self.followers[0].last_words()}", "followers then take a snapshot")
        time.sleep(0.3)
    second.now.stop()
    self.stop_watchers()


def page_size(self, seconds):
    """The home gets another page size: followers take a snapshot."""
    steady(self)
    with self.locked():
        connection = sqlite3.connect(self.home, isolation_level=None, timeout=20)
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        connection.execute(f"PRAGMA page_size={2048 if size != 2048 else 8192}")
        connection.execute("VACUUM")
        connection.close()
    self.token()
    checks.end(self)


def away_from_history(self, seconds):
    """The home's history is purged while publisher and follower are away: followers are told a reset."""
    self.words.append("purge")
    steady(self)
    follower = self.followers[0]
    self.publisher.now.kill()
    follower.now.kill()
    time.sleep(2)
    self.execute(*["UPDATE tick SET n=n+1"] * 5)
    code, lines, errors = program([self.groupstore, "history", "purge", self.home, "--keep", "1", "--force", "--json"], self.environment)
    if code:
        raise Problem("purge", f"{code} {lines} {errors}", "history purge")
    self.tokens = []
    self.look_after()
    checks.end(self)
    if not follower.count("reset"):
        raise Problem("no reset", f"{follower.last_words()}", "Every recorded commit arrives, or a reset does")


def no_ghost(self):
    """An acknowledgement without a right digest makes no subscriber."""
    connection = digests.opened(self.home)
    names = [digests.text(name) for (name,) in connection.execute("SELECT name FROM GS_SUBSCRIBER")]
    connection.close()
    if any("ghost" in name for name in names):
        raise Problem("forged acknowledgement", f"{names}", "hostile batches (… forged MAC …) change nothing")
