"""Models a disk that loses its power: which states may it come back in, after these calls?

It covers what POSIX leaves open and journalling file systems (ext4, xfs, btrfs) allow. Assumptions:

- what fsync(2) returned for is there: for a file its bytes and length, for a directory its names;
- a rename, an exchange, a link and an unlink each happen whole or not at all, both of their names together;
- a file's mode is there with its next sync;
- of everything not synced, any part may be there: any subset of names that doesn't need an earlier change to the
  same name, any of a file's writes, and any length that it had.
"""

import dataclasses
import hashlib
import itertools
import os
import stat


@dataclasses.dataclass
class File:
    """A file, directory or symbolic link; `synced` is its certain content."""

    kind: str
    mode: int
    number: tuple  # (device, inode) that identifies it in the record
    target: bytes = b""
    synced: bytes = b""
    pending: list = dataclasses.field(default_factory=list)  # ("write", offset, bytes) or ("truncate", length)
    names: dict = dataclasses.field(default_factory=dict)  # for a directory: the certain names


@dataclasses.dataclass
class Change:
    """One uncertain change to names: what each (directory, name) stands for afterwards, None for nothing."""

    effects: dict


def apply(content, change):
    if change[0] == "truncate":
        length = change[1]
        return content[:length] + b"\0" * (length - len(content))
    _, offset, written = change
    content += b"\0" * (offset - len(content))
    return content[:offset] + written + content[offset + len(written):]


class Disk:
    """The files below the two roots, as calls change them."""

    def __init__(self, roots):
        self.files = []
        self.by_number = {}  # current (device, inode): a number may be reused
        self.changes = []  # not certain yet, in order
        self._shapes = {}  # digests of shapes that recur between two syncs
        self._digests = {}
        self.roots = [self._load(root) for root in roots]

    def _add(self, number, file):
        self.files.append(file)
        self.by_number[number] = len(self.files) - 1
        return len(self.files) - 1

    def _load(self, path):
        status = os.lstat(path)
        number = (status.st_dev, status.st_ino)
        if number in self.by_number:
            return self.by_number[number]
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(status.st_mode):
            return self._add(number, File("link", mode, number, target=os.fsencode(os.readlink(path))))
        if stat.S_ISDIR(status.st_mode):
            index = self._add(number, File("directory", mode, number))
            for name in os.listdir(os.fsencode(path)):
                self.files[index].names[name] = self._load(os.path.join(os.fsencode(path), name))
            return index
        with open(path, "rb") as file:
            return self._add(number, File("file", mode, number, synced=file.read()))

    # Names as the running system sees them: all changes applied

    def _now(self, directory, name):
        for change in reversed(self.changes):
            if (directory, name) in change.effects:
                return change.effects[directory, name]
        return self.files[directory].names.get(name)

    def do(self, words):
        """Applies one line of the stepper's record. Ignores calls on other files. Returns True if it is a sync."""
        number = [tuple(map(int, word.split(b":"))) if b":" in word else None for word in words]
        hexadecimal = [None if word == b"-" else word for word in words]

        def entry(index):
            directory = self.by_number.get(number[index])
            return None if directory is None else (directory, bytes.fromhex(hexadecimal[index + 1].decode()))

        if words[0] == b"unknown":
            raise ValueError(f"a call that this model doesn't know: {words}")
        if words[0] == b"create":
            place = entry(2)
            if place is not None:
                target = bytes.fromhex(hexadecimal[6].decode()) if hexadecimal[6] else b""
                file = File(words[1].decode(), int(words[5], 8), number[4], target=target)
                self.changes.append(Change({place: self._add(number[4], file)}))
        elif words[0] == b"hardlink":
            place = entry(1)
            if place is not None:
                self.changes.append(Change({place: self.by_number[number[3]]}))
        elif words[0] == b"unlink":
            place = entry(1)
            if place is not None:
                self.changes.append(Change({place: None}))
        elif words[0] == b"rename":
            source, target = entry(2), entry(4)
            if source is not None and target is not None:
                replaced = self._now(*target) if words[1] == b"exchange" else None
                self.changes.append(Change({target: self._now(*source), source: replaced}))
        elif number[1] in self.by_number:
            self._do_on_file(words, self.by_number[number[1]])
            return words[0] == b"sync"
        return False

    def _do_on_file(self, words, index):
        file = self.files[index]
        if words[0] == b"write":
            written = b"" if words[3] == b"-" else bytes.fromhex(words[3].decode())
            file.pending.append(("write", int(words[2]), written))
        elif words[0] == b"mode":
            file.mode = int(words[2], 8)
        elif words[0] == b"truncate":
            file.pending.append(("truncate", int(words[2])))
        elif words[0] == b"sync" and file.kind == "directory":
            self._sync_names(index)
        elif words[0] == b"sync":
            for change in file.pending:
                file.synced = apply(file.synced, change)
            file.pending = []

    def _sync_names(self, directory):
        """Makes the directory's changes certain, and all that they depend on."""
        wanted = set()
        for position in reversed(range(len(self.changes))):
            places = set(self.changes[position].effects)
            if any(place[0] == directory for place in places) or places & {
                    place for later in wanted for place in self.changes[later].effects}:
                wanted.add(position)
        for position in sorted(wanted):
            for (where, name), index in self.changes[position].effects.items():
                if index is None:
                    self.files[where].names.pop(name, None)
                else:
                    self.files[where].names[name] = index
        self.changes = [change for position, change in enumerate(self.changes) if position not in wanted]

    # States after a crash

    def states(self, limit, random):
        """Returns (how many there are, some of them): all up to the limit, else a sample of that size, extremes included. A
        state is (the positions of the changes to names that are there, {file: which of its writes are there})."""
        self._shapes, self._digests = {}, {}
        names = self._subsets_of_changes(limit, random)
        dirty = [index for index, file in enumerate(self.files) if file.pending]
        contents = [_versions(len(self.files[index].pending), random) for index in dirty]
        total = len(names)
        for versions in contents:
            total *= len(versions)
        if total <= limit:
            chosen = itertools.product(names, *contents)
        else:
            extremes = [(names[0], *(v[0] for v in contents)), (names[-1], *(v[-1] for v in contents))]
            sample = ((random.choice(names), *(random.choice(v) for v in contents)) for _ in range(limit - 2))
            chosen = itertools.chain(extremes, sample)
        return total, [(state[0], dict(zip(dirty, state[1:]))) for state in chosen]

    def _subsets_of_changes(self, limit, random):
        """Returns sets of changes, each with all that it depends on: the earlier ones to the same names."""
        needs = []
        for position, change in enumerate(self.changes):
            needs.append({
                earlier for earlier in range(position) if set(self.changes[earlier].effects) & set(change.effects)})
        found = [frozenset()]
        for position, needed in enumerate(needs):
            found += [subset | {position} for subset in found if needed <= subset]
            if len(found) > 4 * limit:
                everything = frozenset(range(len(needs)))
                prefixes = [frozenset(range(length)) for length in range(position + 1, len(needs))]
                return random.sample(found, limit) + prefixes + [everything]
        return sorted(found, key=len)

    def signature(self, state):
        """Returns the same value for two states that a program can't distinguish."""
        present, versions = state
        shape, files = self._shape(present)
        return hashlib.sha256(shape + b"".join(self._digest(index, versions.get(index, ())) for index in files)).digest()

    def _shape(self, present):
        """Returns (a digest of all but the files' content, the files in their order) when these changes are there."""
        if present not in self._shapes:
            names = self._names(present)
            digest = hashlib.sha256()
            met = {}

            def add(index, path):
                file = self.files[index]
                digest.update(repr((path, index, file.kind, file.mode, file.target)).encode())
                met[index] = file.kind == "file"
                for name in sorted(names.get(index, ())):
                    add(names[index][name], path + b"/" + name)

            for place, root in enumerate(self.roots):
                add(root, b"%d" % place)
            self._shapes[present] = digest.digest(), [index for index, is_file in met.items() if is_file]
        return self._shapes[present]

    def _digest(self, index, version):
        if (index, version) not in self._digests:
            self._digests[index, version] = hashlib.sha256(self._content(index, version)).digest()
        return self._digests[index, version]

    def _names(self, present):
        """Returns what each directory holds when these changes are there."""
        names = {index: dict(file.names) for index, file in enumerate(self.files) if file.kind == "directory"}
        for position in sorted(present):
            for (directory, name), index in self.changes[position].effects.items():
                if index is None:
                    names[directory].pop(name, None)
                else:
                    names[directory][name] = index
        return names

    def _content(self, index, version):
        content = self.files[index].synced
        for position in version:
            content = apply(content, self.files[index].pending[position])
        return content

    def write_out(self, state, roots):
        """Writes the disk's content in that state to empty directories.

        Returns the new inode number of each old (device, inode), by the file's kind: a file system gives a removed
        directory's number to the next file, and without a sync the state may have both.
        """
        present, versions = state
        names = self._names(present)
        made = {}
        for index, path in zip(self.roots, roots):
            made[index] = path
            self._write_directory(names, names[index], os.fsencode(path), versions, made)
        numbers = {}
        # Among files of one kind, a reused number belongs to the later one.
        for index in sorted(made):
            file = self.files[index]
            numbers.setdefault(file.number, {})[file.kind] = os.lstat(made[index]).st_ino
        return numbers

    def _write_directory(self, names, entries, path, versions, made):
        for name, index in entries.items():
            file, below = self.files[index], os.path.join(path, name)
            if index in made:
                os.link(made[index], below)
                continue
            made[index] = below
            if file.kind == "link":
                os.symlink(file.target, below)
            elif file.kind == "directory":
                os.mkdir(below)
                self._write_directory(names, names[index], below, versions, made)
                os.chmod(below, file.mode)
            else:
                with open(below, "wb") as output:
                    output.write(self._content(index, versions.get(index, ())))
                os.chmod(below, file.mode)


def _versions(count, random):
    """Returns which of a file's writes may be there: none, each prefix, each one missing, and a few at random."""
    everything = tuple(range(count))
    found = {everything[:length] for length in range(count + 1)}
    found |= {everything[:skipped] + everything[skipped + 1:] for skipped in everything}
    found |= {tuple(p for p in everything if random.random() < 0.5) for _ in range(4 if count > 2 else 0)}
    return sorted(found, key=lambda version: (len(version), version))
