"""A path whose components are directories and symbolic links, and what can happen to them."""

import os
import shutil
import stat

from names import directory_name
from program import exchange


class Tree:
    """`top` is the tree's own directory. `path` is what a configuration names, below it."""

    def __init__(self, round, top, owner=None, depth=None):
        self.r, self.round, self.owner = round.rng, round, owner
        self.top, self.count, self.undo, self.taken = os.fsencode(top), 0, [], set()
        os.makedirs(self.top)
        self.own(self.top)
        self.path = self.top
        for _ in range(depth or self.r.randint(1, 4)):
            self.grow()

    def grow(self):
        """Adds a component: a directory, a link to a directory, or a link to such a link."""
        place = self.fresh(self.path)
        links = self.r.choice([0, 0, 0, 0, 1, 1, 2])
        if not links:
            os.mkdir(place)
        else:
            target = self.fresh(self.top)
            os.mkdir(target)
            for n in range(links):
                name = place if n == links - 1 else self.fresh(self.top)
                os.symlink(self.spelled(target, name), name)
                target = name
        self.path = place
        self.own(self.top)

    def fresh(self, directory):
        """Returns a name that isn't there yet."""
        while True:
            name = directory_name(self.r)
            self.count += 1
            if len(directory) + len(name) > 330 or os.path.lexists(os.path.join(directory, name)) or self.r.random() < 0.1:
                name = b"%d-" % self.count + name[:20]  # SQLite opens no path of more than 512 bytes
            path = os.path.join(directory, name)
            if not os.path.lexists(path) and path not in self.taken:
                self.taken.add(path)
                return path

    def spelled(self, target, link):
        """Returns a link's content: absolute, relative, or with needless parts."""
        relative = os.path.relpath(target, os.path.realpath(os.path.dirname(link)))
        return self.r.choice([target, target, relative, b"./" + relative, target + b"/."])

    def own(self, top):
        if self.owner is None:
            return
        os.lchown(top, self.owner, self.owner)
        for place, directories, files in os.walk(top):
            for name in directories + files:
                os.lchown(os.path.join(place, name), self.owner, self.owner)

    def steps(self):
        """Returns what the kernel resolves on the way, as (path, kind), within the tree and below its top."""
        found, todo, now = [], self.path.split(b"/"), b"/"
        for _ in range(200):
            if not todo:
                break
            name = todo.pop(0)
            if name in (b"", b"."):
                continue
            if name == b"..":
                now = os.path.dirname(now)
                continue
            place = os.path.join(now, name)
            try:
                mode = os.lstat(place).st_mode
            except OSError:
                found.append((place, "missing"))
                break
            if stat.S_ISLNK(mode):
                found.append((place, "link"))
                target = os.readlink(place)
                todo = target.split(b"/") + todo
                now = b"/" if target.startswith(b"/") else now
            elif stat.S_ISDIR(mode):
                found.append((place, "directory"))
                now = place
            else:
                found.append((place, "file"))
                break
        return [(p, k) for p, k in found if p.startswith(self.top + b"/")]

    def leads(self):
        return os.path.isdir(self.path)

    # Changes

    def happen(self):
        """Changes one component; returns the change for the record."""
        steps = [s for s in self.steps() if s[1] in ("directory", "link")]
        if self.undo and (not steps or not self.leads() or self.r.random() < 0.3):
            return self.undo_last()
        if not steps:
            return self.rebuild()
        place, kind = self.r.choice(steps)
        events = [self.away, self.away_and_back, self.file_instead, self.recreated, self.swapped]
        events += [self.retargeted, self.dangling, self.link_becomes_directory] if kind == "link" else [self.becomes_link, self.removed]
        if kind == "directory" and self.owner is not None:
            events += [self.closed] * 2
        return self.r.choice(events)(place)

    def undo_last(self):
        name, act = self.undo.pop()
        try:
            act()
        except OSError as error:
            return f"not put back: {name}: {error.strerror}"
        return f"put back: {name}"

    def aside(self, place):
        self.count += 1
        return os.path.join(os.path.dirname(place), b"aside-%d" % self.count)

    def away(self, place):
        to = self.r.choice([self.aside(place), os.path.join(self.top, b"elsewhere-%d" % self.count)])
        os.rename(place, to)

        def back():
            self.clear(place)
            os.rename(to, place)

        self.undo.append((f"renamed {place!r}", back))
        return f"renamed {place!r}"

    def away_and_back(self, place):
        to = self.aside(place)
        os.rename(place, to)
        os.rename(to, place)
        return f"renamed and back at once {place!r}"

    def file_instead(self, place):
        text = self.away(place)
        with open(place, "wb") as file:
            file.write(b"no directory")
        return text + ", a file in its place"

    def copied(self, place):
        to = self.aside(place)
        if os.path.islink(place):
            os.symlink(os.readlink(place), to)
        else:
            shutil.copytree(place, to, symlinks=True)
        self.own(to)
        return to

    def recreated(self, place):
        """Removes a component and gives its name to another with the same content."""
        new = self.copied(place)
        self.clear(place)
        os.rename(new, place)
        return f"removed and recreated {place!r}"

    def swapped(self, place):
        new = self.copied(place)
        exchange(place, new)
        self.undo.append((f"swapped {place!r}", lambda: exchange(place, new)))
        return f"swapped for a copy {place!r}"

    def retargeted(self, place):
        """Points a link to a copy of its target, or to the target by another way, atomically."""
        if not os.path.isdir(place):
            return self.dangling(place)
        real, old = os.path.realpath(place), os.readlink(place)
        if self.r.random() < 0.7:
            target = self.copied(real)
        else:
            target = self.aside(self.top + b"/x")
            os.symlink(real, target)
            self.own(target)
        self.link(target, place)
        self.undo.append((f"retargeted {place!r}", lambda: self.link(old, place)))
        return f"retargeted {place!r} to {target!r}"

    def link(self, target, place):
        name = self.aside(place)
        os.symlink(target, name)
        self.own(name)
        os.rename(name, place)

    def dangling(self, place):
        old = os.readlink(place)
        self.link(self.r.choice([b"nowhere", os.path.join(self.top, b"no", b"where"), os.path.basename(place)]), place)
        self.undo.append((f"dangling {place!r}", lambda: self.link(old, place)))
        return f"dangling {place!r}"

    def link_becomes_directory(self, place):
        if not os.path.isdir(place):
            return self.dangling(place)
        new = self.copied(os.path.realpath(place))
        os.unlink(place)
        os.rename(new, place)
        return f"a directory instead of the link {place!r}"

    def becomes_link(self, place):
        """Moves the directory and gives its name to a link to it, so that every path still resolves."""
        to = self.aside(place)
        os.rename(place, to)
        os.symlink(self.r.choice([to, os.path.basename(to)]), place)
        self.own(place)
        return f"a link instead of the directory {place!r}"

    def removed(self, place):
        copy = self.copied(place)
        self.clear(place)
        self.undo.append((f"removed {place!r}", lambda: (self.clear(place), os.rename(copy, place))))
        return f"removed {place!r}"

    def closed(self, place):
        before = stat.S_IMODE(os.lstat(place).st_mode)
        mode = self.r.choice([0, 0, 0o111, 0o600, 0o444])
        os.chmod(place, mode)

        def opened():
            if os.path.isdir(place) and not os.path.islink(place):
                os.chmod(place, before)

        self.undo.append((f"closed {place!r}", opened))
        return f"mode {mode:o} of {place!r}"

    def clear(self, place):
        if os.path.islink(place) or os.path.isfile(place):
            os.unlink(place)
        elif os.path.isdir(place):
            shutil.rmtree(place)

    def rebuild(self):
        """Makes what is missing, so that the path leads to a directory again."""
        for _ in range(20):
            if self.leads():
                break
            place, kind = self.steps()[-1] if self.steps() else (self.path, "missing")
            if kind == "missing":
                os.makedirs(place)
            else:
                self.clear(place)
                os.makedirs(place, exist_ok=True)
        self.own(self.top)
        return "made what was missing"

    def put_all_back(self):
        """Restores modes only; otherwise a directory without access stays closed."""
        for name, act in reversed([u for u in self.undo if u[0].startswith("closed")]):
            act()
        self.undo = [u for u in self.undo if not u[0].startswith("closed")]
        # Closes a directory that has moved or been copied at its present place.
        for directory, names, _ in os.walk(self.top):
            for place in (os.path.join(directory, name) for name in names):
                if not os.path.islink(place) and stat.S_IMODE(os.stat(place).st_mode) & 0o700 != 0o700:
                    os.chmod(place, 0o755)
