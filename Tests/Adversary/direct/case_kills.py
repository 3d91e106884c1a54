"""The watcher is killed at random moments while others commit; the last token that it printed must lose nothing."""

import os
import shlex
import time

from store import MODES, Writer, connect, make, once


def run(round):
    r = round.chance
    mode = r.choice(["wal", "wal"] + MODES[:4])
    path = round.path("s.db")
    make(path, mode)
    if r.random() < 0.4:
        return exec_kills(round, path, mode)
    round.title = f"since {mode}"
    token, moment = None, 0
    writers = [Writer(round, path, reopen=r.choice([0, 0.3, 1]), pause=r.choice([0.02, 0.3, 1.5]), mode=r.choice([0, 0, 2]))
               for _ in range(r.choice([1, 1, 2, 4]))]  # fmt: skip
    for turn in range(r.randrange(4, 10)):
        if turn and r.random() < 0.3:
            for writer in writers:
                writer.kill() if mode not in ("memory", "off") else None
            writers += [Writer(round, path, reopen=0.5, pause=0.3)] if r.random() < 0.5 else []
        due = [commit for writer in writers for commit in writer.commits if commit.before > moment]
        watch = round.watch(path, options=["--since", token] if token else [])
        if token and due:
            round.figures["resumptions after a commit"] += 1
            if watch.wait(lambda line: line.news, PATIENCE) is None:
                round.problem("silent", f"{due[-1].what} after {token}; {watch.tail()}")
                return
        else:
            watch.ready()
        time.sleep(r.choice([0, r.random() * 0.05, r.random() * 1.5]))
        watch.kill()
        for line in watch.lines:
            if line.token:
                token, moment = line.token, line.time
    for writer in writers:
        writer.end()


PATIENCE = 25


def exec_kills(round, path, mode):
    """A command that reads the store for each event: at the end, it must have read the last commit."""
    r = round.chance
    round.title = f"exec {mode}"
    log, file = round.path("log"), round.path("token")
    # The command reads first and writes then, so that what it wrote is what it surely knew.
    script = f"n=$(sqlite3 -cmd '.timeout 20000' {shlex.quote(path)} 'SELECT count(*) FROM mark') && echo $n >> {shlex.quote(log)}"
    options = ["--token-file", file, "--exec", script]
    writer = Writer(round, path, reopen=r.choice([0, 0.5]), pause=r.choice([0.05, 0.5]), big=0, delete=0)
    for _ in range(r.randrange(2, 7)):
        watch = round.watch(path, options=options)
        time.sleep(r.choice([0.02, 0.2, 1.5]) * (0.5 + r.random()))
        if r.random() < 0.5:
            writer.kill()
            writer = Writer(round, path, reopen=0.5, pause=0.3, big=0)
        watch.kill()
    if not os.path.exists(file):
        watch = round.watch(path, options=options)
        watch.ready()
        watch.kill()
    time.sleep(r.random())
    writer.kill()
    if not os.path.exists(file):
        return
    once(path)
    round.watch(path, options=options)
    connection = connect(path)
    count = connection.execute("SELECT count(*) FROM mark").fetchone()[0]
    connection.close()
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if os.path.exists(log) and open(log).read().split()[-1:] == [str(count)]:
            round.figures["commands that caught up"] += 1
            return
        time.sleep(0.1)
    round.problem("behind", f"the command's last count is not {count}: {open(log).read()[-60:] if os.path.exists(log) else 'none'}")
