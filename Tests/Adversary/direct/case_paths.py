"""What may happen to a path and to the file at its end; then a writer commits at the place that the path leads to."""

import os
import shutil
import time

from store import MODES, SIDES, copy, make, once, remove

NAMES = [b"plain.db", b"\xff\xfebytes.db", b"two\nlines", b"-rf", b"--json", b" ", b"a,b", b"%s", b"'\"`$(id)", "\u8868.db".encode(), b".h",
         b"x" * 240, b"a#b?mode=ro", b"(deleted)", b"\x01\x7f", b"caf\xc3"]  # fmt: skip


class Place:
    def __init__(self, round):
        self.round, r = round, round.chance
        self.mode = r.choice(["wal", "wal", "delete", "persist"])
        self.home = os.fsencode(round.path("home"))
        self.target = os.path.join(self.home, r.choice(NAMES))
        self.exists, self.away = r.random() < 0.7, False
        os.mkdir(self.home) if self.exists or r.random() < 0.5 else None
        if self.exists:
            make(self.target, self.mode)
        self.names = [self.target]
        links = os.fsencode(round.path("links"))
        os.mkdir(links)
        if r.random() < 0.6:  # a link to the store, absolute or relative, and perhaps a link to that
            self.link = os.path.join(links, b"link-" + r.choice(NAMES)[:100])
            os.symlink(r.choice([self.target, os.path.relpath(self.target, links)]), self.link)
            self.names.append(self.link)
            if r.random() < 0.4:
                os.symlink(self.link, self.link + b"2")
                self.names.append(self.link + b"2")
        if r.random() < 0.4:  # a link to the directory
            os.symlink(self.home, os.path.join(links, b"dir"))
            self.names.append(os.path.join(links, b"dir", os.path.basename(self.target)))

    def write(self):
        """Commits by a random name; returns the moments."""
        name = self.round.chance.choice(self.names[:2])
        if not os.path.isdir(self.home):
            os.mkdir(self.home)
        if not os.path.exists(self.target):
            before = time.monotonic()
            make(self.target, self.mode)
            return before, time.monotonic(), "made"
        done = once(name)
        return done.before, done.after, "commit by " + repr(name[-20:])

    # What may happen. None of it is done while a writer has the store open.

    def nothing(self):
        pass

    def renamed_over(self):
        new = self.target[:-3] + b"new"
        make(new, self.mode)
        for side in SIDES[1:]:
            if os.path.exists(self.target + os.fsencode(side)):
                os.unlink(self.target + os.fsencode(side))
        os.rename(new, self.target)

    def copied_over(self):
        spare = os.fsencode(self.round.path("spare"))
        make(spare, self.mode, rows=self.round.chance.randrange(400))
        copy(os.fsdecode(spare), os.fsdecode(self.target))
        remove(os.fsdecode(spare))

    def removed(self):
        remove(os.fsdecode(self.target))

    def made_again(self):
        self.removed()
        make(self.target, self.mode)

    def directory_moved(self):
        os.rename(self.home, self.home + b"-away")
        time.sleep(self.round.chance.choice([0, 0.01, 0.5]))
        os.rename(self.home + b"-away", self.home)

    def directory_exchanged(self):
        shutil.copytree(self.home, self.home + b"-new")
        os.rename(self.home, self.home + b"-old")
        os.rename(self.home + b"-new", self.home)
        shutil.rmtree(self.home + b"-old")

    def directory_removed(self):
        shutil.rmtree(self.home)

    def moved_with_link(self):
        """The store moves, and a link to its new place is left behind, as after a relocation; later it moves back."""
        if os.path.islink(self.target):
            return
        new = os.fsencode(self.round.path("moved"))
        remove(os.fsdecode(new))
        os.rename(self.target, new)
        for side in map(os.fsencode, SIDES[1:]):
            if os.path.exists(self.target + side):
                os.rename(self.target + side, new + side)
        time.sleep(self.round.chance.choice([0, 0.3]))
        os.symlink(new, self.target)

    def link_exchanged(self):
        if len(self.names) > 1 and self.names[1].startswith(os.fsencode(self.round.path("links")) + b"/link"):
            other = self.names[1] + b"-other"
            os.symlink(self.target, other)
            os.rename(other, self.names[1])

    def hard_link(self):
        """Another name of the same file, by which only a rollback mode may be written."""
        if self.mode != "wal" and not os.path.islink(self.target):
            other = os.fsencode(self.round.path("hard"))
            if os.path.lexists(other):
                os.unlink(other)
            os.link(self.target, other)
            done = once(other)
            if self.watch.covers(done.before, done.after, None, "commit by a hard link made while watching") is not None:
                self.expect(done.before, done.after, "commit by a hard link")

    def expect(self, before, after, what):
        for name in self.names:
            if self.watch.covers(before, after, name, f"{what}, seen as {name[-40:]!r}") is None:
                return


def run(round):
    r = round.chance
    place = Place(round)
    round.title = f"{place.mode} {len(place.names)} names"
    place.watch = watch = round.watch(*place.names)
    if not watch.ready():
        return
    stores = {line.store for line in watch.lines if line.type == "watching"}
    if stores != set(place.names):
        round.problem("name", f"{stores} for {place.names}")
    acts = [place.nothing, place.renamed_over, place.copied_over, place.removed, place.made_again, place.directory_moved,
            place.directory_exchanged, place.directory_removed, place.moved_with_link, place.link_exchanged, place.hard_link]  # fmt: skip
    for _ in range(r.randrange(4, 12)):
        if os.path.exists(place.target):
            act = r.choice([each for each in acts if each.__name__ not in round.without])
            round.step(act.__name__)
            round.title += " " + act.__name__
            act()
            if act.__name__ in ("made_again", "renamed_over", "copied_over", "removed") and r.random() < 0.5:
                moment = time.monotonic()
                place.expect(moment - 1, moment, act.__name__)  # the event may be there already
        time.sleep(r.choice([0, 0, 0.05, 0.5]))
        before, after, what = place.write()
        round.step(f"{what} from {before - round.begun:.3f}", after)
        place.expect(before, after, what)
        if round.problems:
            return
