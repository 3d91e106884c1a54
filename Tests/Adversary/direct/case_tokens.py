"""Commits while nobody watches, and efforts to hide them; `--since` with any earlier token must tell."""

import os
import time

from store import MODES, SIDES, Writer, commit, connect, copy, insert, make, once, remove


class Gap:
    """What happens while nobody watches; each method commits at least once, and records it."""

    def __init__(self, round, path):
        self.round, self.path, self.commits, self.kept, self.restored = round, path, [], [], 0

    def note(self, done):
        self.commits.append(done)
        self.round.step(f"committed {done.what}", done.after)
        return done

    def plain(self):
        for _ in range(self.round.chance.randrange(1, 4)):
            self.note(once(self.path, self.round.chance.choice(["mark", "other"])))

    def leaf(self):
        """An update of one row: in WAL mode, the store's first page stays as it is."""
        connection = connect(self.path)
        text = self.round.chance.choice("pqrst") * 6
        self.note(commit(connection, [("UPDATE mark SET text = ? WHERE id = 1", (text,))], ["mark"], "leaf"))
        connection.close()

    def timed_leaf(self):
        status = os.stat(self.path)
        self.leaf()
        os.utime(self.path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def checkpointed(self):
        connection = connect(self.path)
        self.note(insert(connection))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.kept.append(connection)

    def kept_open(self):
        connection = connect(self.path)
        self.note(insert(connection))
        self.kept.append(connection)

    def killed(self):
        writer = Writer(self.round, self.path, count=3, pause=0.01, hold=True)
        time.sleep(0.5)
        writer.kill()
        self.commits += writer.commits

    def many(self):
        connection = connect(self.path)
        for number in range(400):
            done = insert(connection, "mark", "z" * 4000)
        self.note(done)
        connection.close()

    def version(self):
        connection = connect(self.path)
        self.note(commit(connection, [f"PRAGMA user_version={self.round.chance.randrange(1 << 20)}"], [], "user_version"))
        connection.close()

    def mode(self):
        for mode in self.round.chance.choices(MODES, k=2):
            self.note(once(self.path, mode=mode))

    def there_and_back(self):
        """The store commits in another mode, and returns to its own."""
        self.note(once(self.path, mode="delete"))
        self.note(once(self.path, mode="wal"))

    def vacuum(self):
        self.plain()
        connection = connect(self.path)
        connection.execute("VACUUM")
        connection.close()

    def copied_back(self):
        """Commits, then the bytes and times of before: a client may have read the commit."""
        spare = self.path + ".spare"
        copy(self.path, spare)
        self.plain()
        copy(spare, self.path)
        self.restored = time.monotonic()
        remove(spare)

    def renamed_back(self):
        spare = self.path + ".spare"
        copy(self.path, spare)
        self.plain()
        remove(self.path)
        for side in reversed(SIDES):
            if os.path.exists(spare + side):
                os.rename(spare + side, self.path + side)
        self.restored = time.monotonic()

    def old_copy(self):
        """An old copy, over the store's own file, and as many commits as the copy lacks."""
        backup = self.path + ".backup"
        if not os.path.exists(backup):
            return self.plain()
        copy(backup, self.path)
        self.restored = time.monotonic()
        self.round.step("the backup is restored")
        for number in range(self.round.lacking):
            self.note(once(self.path, "other", f"other {number}"))

    def made_again(self):
        """Deleted and made again with as many commits; the kernel may give the same file number."""
        connection = connect(self.path)
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
        connection.close()
        remove(self.path)
        make(self.path, mode)
        self.note(once(self.path, "third", "again"))

    def run(self):
        # Only one who is alone may copy, replace or switch: what others have open would be lost or locked.
        alone = [self.plain, self.leaf, self.timed_leaf, self.killed, self.many, self.version, self.mode, self.there_and_back,
                 self.vacuum, self.copied_back, self.renamed_back, self.old_copy, self.old_copy, self.made_again]  # fmt: skip
        shared = [self.plain, self.leaf, self.version, self.killed, self.checkpointed, self.kept_open, self.many]
        for _ in range(self.round.chance.choice([1, 1, 1, 2])):
            known = self.round.without
            what = self.round.chance.choice(shared if self.kept else [each for each in alone if each.__name__ not in known])
            self.round.step(f"gap: {what.__name__}")
            self.round.title += " " + what.__name__
            what()

    def close(self):
        for connection in self.kept:
            connection.close()
        self.kept = []


def run(round):
    r = round.chance
    mode = r.choice(["wal", "wal", "wal", "delete", "delete", "truncate", "persist"])
    path = round.path("s.db")
    round.title, round.lacking = mode, 0
    make(path, mode)
    gap, tokens = Gap(round, path), []
    for turn in range(r.randrange(1, 4)):
        options = ["--since", tokens[-1][0]] if tokens and r.random() < 0.5 else []
        watch = round.watch(path, options=options)
        if not watch.ready():
            return
        # The copy of now is what `old_copy` restores later, and then commits as often as the watched writer did.
        if not gap.kept:
            copy(path, path + ".backup")
            round.lacking = 0
        connection = connect(path) if r.random() < 0.5 else None
        for _ in range(r.randrange(0, 4)):
            done = gap.note(insert(connection, r.choice(["mark", "third"]))) if connection else gap.note(once(path))
            round.lacking += 1
            if r.random() < 0.6 and watch.covers(done.before, done.after, path) is None:
                return
        if connection:
            gap.kept.append(connection)
            if r.random() < 0.7:
                gap.close()
        if r.random() < 0.5:
            watch.settle(0.3)
        watch.end(r.choice([9, 9, 15]))
        tokens += [(line.token, line.time) for line in watch.lines if line.token]
        if r.random() < 0.25:
            round.title += " nothing"
        else:
            gap.run()
        if r.random() < 0.5:
            gap.close()
        judge(round, path, tokens, gap)
        if round.problems:
            return
    gap.close()


def judge(round, path, tokens, gap):
    chosen = dict(round.chance.sample(tokens, min(2, len(tokens))) + tokens[-2:])
    for token in chosen:
        moment = max(time for each, time in tokens if each == token)
        missed = [commit for commit in gap.commits if commit.before > moment]
        start = time.monotonic()
        watch = round.watch(path, options=["--since", token, "--once", "--timeout", "2"])
        code = watch.code(30)
        news = watch.news()
        if not missed:
            round.figures["resumptions without a commit"] += 1
            round.figures["of these, spurious"] += bool(news)
            if news:
                round.step(f"spurious: {token} -> {news[0].text}")
            continue
        round.figures["resumptions after a commit"] += 1
        if not news:
            again = round.watch(path, options=["--since", token, "--once", "--timeout", "15"])
            again.code(40)
            kind = "late" if again.news() else "silent"
            # Two reasons are told apart: a restored copy has what a client may know, a touched file doesn't.
            if kind == "silent" and all(each.after < gap.restored for each in missed):
                kind = "silent-restored"
            elif kind == "silent" and "timed_leaf" in round.title:
                kind = "silent-touched"
            whats = ", ".join(each.what for each in missed[:6])
            round.problem(kind, f"{len(missed)} commits ({whats}) after {token}, {start - moment:.1f} s ago; code {code}; {watch.tail()}; now "
                          f"{[line.token for line in watch.lines][:1]}")  # fmt: skip
            continue
        first = news[0]
        if first.named is not None:
            wrote = set().union(*(each.tables for each in missed))
            if not wrote <= first.named:
                round.problem("tables", f"{first.text} for {sorted(wrote)} after {token}")
            round.figures["resumptions with all tables"] += 1
