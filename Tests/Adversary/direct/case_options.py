"""The options, and the ways to end."""

import os
import signal
import sqlite3
import time

from store import insert, make, once, connect


def run(round):
    r = round.chance
    path = round.path("s.db")
    make(path)
    chosen = r.choice([once_code, timeout, interrupted, filtered, executed, epoch, refused, appearing])
    round.title = chosen.__name__
    chosen(round, path)


def expect(round, what, found, wanted):
    if found not in wanted:
        round.problem("code", f"{what}: {found!r}, not {wanted!r}")


def once_code(round, path):
    watch = round.watch(path, options=["--once"])
    watch.ready()
    once(path)
    expect(round, "--once", watch.code(30), [0])
    if len(watch.news()) != 1:
        round.problem("lines", f"{[line.text for line in watch.lines]}")


def timeout(round, path):
    seconds = round.chance.choice(["0.2", "1", "1.5"])
    watch = round.watch(path, options=["--timeout", seconds])
    expect(round, "--timeout", watch.code(30), [75])
    took = time.monotonic() - watch.begun
    if not float(seconds) - 0.05 <= took <= float(seconds) + 5:
        round.problem("slow", f"--timeout {seconds} took {took:.2f} s")


def interrupted(round, path):
    watch = round.watch(path)
    watch.ready() if round.chance.random() < 0.7 else time.sleep(round.chance.random() * 0.1 + 0.05)
    number = round.chance.choice([signal.SIGTERM, signal.SIGINT])
    wait_until_handled(watch, number)
    code = watch.end(number)
    expect(round, "a signal", code, [130])
    if code == 130 and (not watch.lines or watch.lines[-1].type != "summary"):
        round.problem("lines", f"no summary: {[line.text for line in watch.lines]}")


def wait_until_handled(watch, number):
    """Waits until the program blocks or catches the signal: on a busy machine it may not have begun yet."""
    end = time.monotonic() + 25
    while time.monotonic() < end and watch.process.poll() is None:
        with open(f"/proc/{watch.process.pid}/status", encoding="ascii", errors="replace") as file:
            masks = [int(line.split()[1], 16) for line in file if line.startswith(("SigBlk", "SigCgt"))]
        if any(mask >> (number - 1) & 1 for mask in masks):
            return
        time.sleep(0.005)


def filtered(round, path):
    """Tables in any case of letters; a change of others is left out while its tables are known."""
    connection = connect(path)
    insert(connection, "third")
    watch = round.watch(path, options=["--tables", round.chance.choice(["MARK,Third", "mark,third", "Mark,THIRD"])])
    watch.ready()
    for _ in range(12):
        table = round.chance.choice(["mark", "other", "third"])
        watch.settle(0.2)
        seen = len(watch.lines)
        done = insert(connection, table)
        if table != "other":
            watch.covers(done.before, done.after, path, f"insert into {table}")
        else:
            time.sleep(0.7)
            for line in watch.lines[seen:]:
                if line.named is not None:
                    round.problem("filter", line.text)
    connection.close()


def executed(round, path):
    out = round.path("out")
    script = f'printf "%s|%s|%s|%s\\n" "$GROUPSTORE_EVENT" "$(echo $GROUPSTORE_TABLES)" "$GROUPSTORE_TOKEN" "$GROUPSTORE_PATH" >> {out}'
    watch = round.watch(path, options=["--exec", script])
    watch.ready()
    once(path)
    end = time.monotonic() + 20
    while time.monotonic() < end and not os.path.exists(out):
        time.sleep(0.05)
    time.sleep(0.2)
    text = open(out).read() if os.path.exists(out) else ""
    fields = text.split("\n")[0].split("|")
    if len(fields) != 4 or fields[0] != "change" or not fields[2] or fields[3] != path:
        round.problem("exec", f"{text!r}; {watch.tail()}")


def epoch(round, path):
    token = round.chance.choice(["a token of another agent", "x", "file1", "file9-1.2", "1-2-3", "file1-zz.zz", "file1-....."])
    watch = round.watch(path, options=["--since", token, "--once", "--timeout", "15"])
    code = watch.code(30)
    news = watch.news()
    if not news or news[0].type != "reset" or news[0].data.get("reason") != "epoch":
        round.problem("epoch", f"{token!r}: {code} {[line.text for line in watch.lines]} {watch.tail()}")


def refused(round, path):
    words = round.chance.choice([
        ([round.directory], []), ([], []), ([path], ["--timeout", "x"]), ([path], ["--timeout", "-1"]), ([path], ["--agent"]), ([""], []),
        ([path, round.path("t.db")], ["--token-file", round.path("f")]), ([path], ["--nonsense"]), ([path], ["--tables", ""]),
        ([path, round.path("t.db")], ["--since", "file1-"]),
    ])  # fmt: skip
    watch = round.watch(*words[0], options=words[1])
    try:
        code = watch.process.wait(4)
        expect(round, f"{words}", code, [64, 65])
        if code in (64, 65) and not watch.errors:
            time.sleep(0.3)
            if not watch.errors and not any("error" in line.data for line in watch.lines):
                round.problem("unsaid", f"{words}")
    except Exception:
        round.problem("accepted", f"{words}: {[line.text for line in watch.lines]}")


def appearing(round, path):
    """Nothing of the path exists yet, not even its directories."""
    deep = round.path("a/b/c/s.db")
    watch = round.watch(deep)
    watch.ready()
    os.makedirs(os.path.dirname(deep))
    time.sleep(round.chance.choice([0, 0.3]))
    before = time.monotonic()
    make(deep, round.chance.choice(["wal", "delete"]))
    watch.covers(before, time.monotonic(), deep, "made")
    os.chmod(os.path.dirname(deep), 0o700)
    try:
        done = once(deep)
        watch.covers(done.before, done.after, deep)
    except sqlite3.Error as error:
        round.problem("exception", str(error))
