"""Commits in every journal mode, by up to ten writers, some of which are killed; each must be covered by an event."""

import os
import time

from store import MODES, Writer, connect, insert, make, once


def run(round):
    r = round.chance
    kind = r.choice(["serial", "serial", "burst", "burst", "kill", "exclusive", "attach", "switch"])
    mode = r.choice(MODES[:1] * 4 + MODES)
    round.title = f"{kind} {mode}"
    path = round.path("s.db")
    make(path, mode, page=r.choice([None, None, 512, 65536]), vacuum=r.choice([None, None, "full", "incremental"]))
    if kind == "attach":
        return attach(round, path, mode)
    watch = round.watch(path)
    if not watch.ready():
        return
    {"serial": serial, "burst": burst, "kill": burst, "exclusive": exclusive, "switch": switch}[kind](round, watch, path, mode, kind)


def pragmas(round, mode):
    r = round.chance
    chosen = [f"PRAGMA synchronous={r.choice(['off', 'normal', 'full'])}", f"PRAGMA cache_size={r.choice([5, 100, 2000])}"]
    # A rollback mode other than DELETE belongs to a connection, not to the file.
    return chosen + ([f"PRAGMA journal_mode={mode}"] if mode != "wal" or r.random() < 0.5 else [])


def serial(round, watch, path, mode, kind):
    """One commit at a time, each after the last one's event: the sharpest check."""
    r = round.chance
    connection = None
    for number in range(r.randrange(8, 25)):
        if connection is None:
            connection = connect(path)
            for pragma in pragmas(round, mode):
                connection.execute(pragma).fetchall()
        done = insert(connection, r.choice(["mark", "other", "third"]), "y" * r.choice([1, 50, 20000]))
        round.step(f"commit {number} from {done.before - round.begun:.3f}", done.after)
        if r.random() < 0.3:
            connection.close()
            connection = None
            round.step("closed")
        elif r.random() < 0.2 and mode == "wal":
            connection.execute(f"PRAGMA wal_checkpoint({r.choice(['PASSIVE', 'RESTART', 'TRUNCATE'])})").fetchall()
            round.step("checkpoint")
        if watch.covers(done.before, done.after, path, f"commit {number}") is None:
            return
        time.sleep(r.choice([0, 0.01, 0.1, r.random() * 0.7]))
    if connection is not None:
        connection.close()


def judge(round, watch, path, writers, killed=()):
    """The last commit of a burst must be covered, and each of its commits soon."""
    commits = [commit for writer in writers for commit in writer.commits]
    for number, pending in killed:
        connection = connect(path)
        found = connection.execute("SELECT 1 FROM mark WHERE text = ?", (pending["mark"],)).fetchone()
        connection.close()
        if found:
            round.figures["commits of killed writers"] += 1
            watch.covers(pending["before"], time.monotonic(), path, "commit of a killed writer")
    round.figures["commits"] += len(commits)
    if not commits:
        return
    last = max(commits, key=lambda commit: commit.before)
    watch.covers(last.before, last.after, path, f"last of {len(commits)} commits")
    times = sorted(line.time for line in watch.news(path))
    for commit in commits:
        covering = next((moment for moment in times if moment >= commit.before), None)
        if covering is not None and covering > commit.after + 5:
            round.problem("late", f"{commit.what}: {covering - commit.after:.1f} s")
            return


def burst(round, watch, path, mode, kind):
    r = round.chance
    # A checkpoint would wait for the reader, and hold the other writers up.
    reader = None
    if mode == "wal" and r.random() < 0.3:  # an old snapshot keeps the log from being restarted
        reader = connect(path)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM mark").fetchone()
    for turn in range(r.randrange(2, 5)):
        count = r.choice([1, 2, 3, 10])
        writers = [Writer(round, path, pragmas=pragmas(round, mode), count=r.randrange(2, 40), reopen=r.choice([0, 0.2, 1]),
                          pause=r.choice([0, 0.02, 0.2]), hold=r.random() < 0.3,
                          checkpoint=0 if reader else 4, vacuum=0 if reader else 1) for _ in range(count)]  # fmt: skip
        killed = []
        if kind == "kill":
            for writer in writers:
                if r.random() < 0.6:
                    time.sleep(r.random() * 0.3)
                    if pending := writer.kill():
                        killed.append((writer.process.pid, pending))
        for writer in writers:
            writer.process.stdin.close()
            writer.wait()
        # In these modes, a killed writer leaves a broken store: that is SQLite's documentation, not a defect.
        if killed and mode in ("memory", "off"):
            return
        judge(round, watch, path, writers, killed)
        if round.problems:
            return
        time.sleep(r.random())


def exclusive(round, watch, path, mode, kind):
    """Locks that are never released, and a log without a shared index."""
    r = round.chance
    for _ in range(2):
        lock = ["PRAGMA locking_mode=EXCLUSIVE"]
        writer = Writer(round, path, pragmas=lock + pragmas(round, mode) if r.random() < 0.5 else pragmas(round, mode) + lock,
                        count=r.randrange(1, 12), pause=r.choice([0.1, 1.0]), hold=True)  # fmt: skip
        time.sleep(r.random() * 2)
        if r.random() < 0.3:
            writer.kill()
        elif r.random() < 0.5:
            writer.process.stdin.close()
            writer.wait()
        else:
            time.sleep(2)
        judge(round, watch, path, [writer])
        writer.kill()
        if mode not in ("memory", "off"):
            done = once(path)
            watch.covers(done.before, done.after, path, "commit after an exclusive writer")


def switch(round, watch, path, mode, kind):
    """The journal mode changes between the commits, which a change of mode alone is not."""
    r = round.chance
    for number in range(r.randrange(6, 14)):
        mode = r.choice(MODES)
        connection = connect(path)
        connection.execute(f"PRAGMA journal_mode={mode}").fetchall()
        round.step(f"mode {mode}")
        if r.random() < 0.5:
            time.sleep(r.random() * 0.5)
        for _ in range(r.randrange(1, 4)):
            done = insert(connection)
            round.step(f"commit {number} from {done.before - round.begun:.3f}", done.after)
        if r.random() < 0.5:
            connection.close()
        watch.covers(done.before, done.after, path, f"commit {number} in mode {mode}")
        connection.close()
        if round.problems:
            return
        time.sleep(r.random() * 0.5)


def attach(round, path, mode):
    """Transactions over two stores."""
    r = round.chance
    second = round.path("t.db")
    make(second, r.choice(MODES[:4]))
    watch = round.watch(path, second)
    if not watch.ready():
        return
    for number in range(r.randrange(5, 12)):
        connection = connect(path)
        connection.execute("ATTACH ? AS two", (second,))
        connection.execute("BEGIN")
        connection.execute("INSERT INTO main.mark (text) VALUES ('one')")
        connection.execute("INSERT INTO two.other (text) VALUES ('two')")
        before = time.monotonic()
        connection.execute("COMMIT")
        after = time.monotonic()
        round.step(f"attached commit {number} from {before - round.begun:.3f}", after)
        if r.random() < 0.5:
            connection.close()
        for each in (path, second):
            watch.covers(before, after, each, f"attached commit {number} in {os.path.basename(each)}")
        connection.close()
        if round.problems:
            return
        time.sleep(r.random() * 0.5)
