"""Accidents: what other programs and people do to stores, archives, records and mounts."""
import json, os, shutil, sqlite3, subprocess, time

from stores import *
from world import World


class Accidents(World):
    """A world in which things happen that groupstore had no part in."""

    def accident(self, places, limit=2.0):
        """Something happens that groupstore had no part in. Returns its name, or None."""
        r, archives = self.random, self.archives()
        kept = set().union(*[p.content.items for p in places if p.kind == "archive"] or [()])
        covers = [p for p in places if p.store and p.kind == "plain" and p.content.items & kept]
        place = r.choice(covers) if covers and r.random() < 0.5 else self.pick(places, "plain", "plain", "archive", "purging")
        if not place:
            return None
        path, kind, chance = place.path, r.choice(ACCIDENTS), r.random()
        old = os.lstat(path)
        times = (old.st_atime_ns, old.st_mtime_ns) if r.random() < 0.5 else None
        others = [p.path for p in places if p.store and p.path != path and p.kind == "plain"]
        target, group, folder = self.counterpart(path), r.choice(sorted(self.groups)), support(path)
        assert all(p.startswith(self.top + "/") for p in (path, target, group)), (path, target)

        def sql(change):
            connection = connect(path, timeout=0.5)
            connection.execute("PRAGMA wal_autocheckpoint = %d" % (0 if chance < 0.5 else 1000))
            found = tables(connection)
            for name, _ in found if chance % 0.5 < 0.3 else [r.choice(found)]:
                connection.execute(change % quote(name))
            if chance < 0.5:
                os._exit(0)             # in WAL mode the change is in the log alone
            connection.close()
            if times:
                os.utime(path, ns=times)

        def page():
            with open(path, "r+b") as file:
                size = int.from_bytes(file.read(18)[16:18], "big") or 4096
                size = 65536 if size == 1 else size
                file.seek(size * r.randrange(1, max(2, old.st_size // size)))
                file.write(r.choice([b"\0", b"\xa5"]) * size)
            if times:
                os.utime(path, ns=times)

        def twin():
            copy = self.scratch + "/twin.db"
            remove_set(copy)
            for side in ("", "-wal", "-journal"):
                if os.path.exists(path + side):
                    shutil.copyfile(path + side, copy + side)
            if not self.make_twin(copy):
                return False
            for side in SIDES:
                if os.path.exists(path + side):
                    os.unlink(path + side)
            put(path, read_file(copy), times)

        def replace():
            shutil.copy2(r.choice(others), path + ".new")
            os.rename(path + ".new", path)

        def support_folder():
            if chance < 0.3:
                return shutil.rmtree(folder)
            if chance < 0.4:
                return os.rename(folder, folder + ".away")
            file = r.choice(files_in(folder))
            status = os.stat(file)
            os.unlink(file) if chance < 0.6 else put(file, read_file(file)[:-1] + b"Z", (status.st_atime_ns, status.st_mtime_ns))

        def copy():                     # with its folder; perhaps a little different
            self.make_room(target)
            for side in ("", "-wal", "-journal"):
                if os.path.exists(path + side):
                    shutil.copyfile(path + side, target + side)
            if os.path.isdir(folder) and not os.path.lexists(support(target)) and chance < 0.95:
                shutil.copytree(folder, support(target))
            if chance < 0.4:
                self.make_twin(target)
            elif chance < 0.6:
                file = r.choice(files_in(support(target)))
                os.unlink(file) if chance < 0.5 else put(file, read_file(file)[:-1] + b"Y")

        def link(make):
            self.make_room(target)
            make(path, target)
            if make == os.symlink and os.path.isdir(folder) and not os.path.lexists(support(target)):
                os.symlink(folder, support(target))

        def stray():
            base, archive = os.path.join(r.choice(self.directories), os.path.basename(path)), r.choice(archives or [""])
            token = self.token().encode()
            what = r.choice(["-wal", "-journal", "directory", "support", "file", "fifo", "record", "record", "in archive",
                             "store in archive", "removed", "removed", "purged", "purged", "staged", "hidden"])
            if not archives and what in ("fifo", "in archive", "store in archive", "purged"):
                return False            # nothing may be made outside of the round's directory
            if what in SIDES:
                put(base + what, token * 40)
            elif what == "directory":
                os.mkdir(base)
            elif what == "support":
                os.makedirs(support(base), exist_ok=True)
                put(support(base) + "/stray", token)
            elif what == "fifo":
                os.mkfifo(r.choice([base, base + "-wal", archive + "/fifo"]))
            elif what == "store in archive":
                shutil.copyfile(path, archive + "/Other.sqlite")
            elif what in ("file", "in archive", "record"):
                put({"file": os.path.dirname(base), "in archive": archive, "record": group + "/.groupstore/" + r.choice(
                    ["", "receipts", "claims", "claims/holders", "archive", "staging"])}[what] + "/notes.txt", token)
            else:                       # a directory with a name of groupstore's own kind, and a store in it
                place = {"removed": "%s/.%s.%s" % (os.path.dirname(group), self.groups[group], r.choice(
                    ["removed", "removing-1795763195-x"])), "purged": archive + ".purged",
                         "staged": group + "/.groupstore/staging/1795763195-x",
                         "hidden": os.path.dirname(base) + "/.groupstore-1795763195-x"}[what]
                os.mkdir(place)
                shutil.copyfile(path, place + "/" + os.path.basename(path))
                if chance < 0.6:
                    self.make_twin(place + "/" + os.path.basename(path))

        def clone():                    # a backup of a whole directory, records and all, beside it
            if place.kind != "plain" or self.mounts[1:]:
                return False
            shutil.copytree(os.path.dirname(path), clone_target, symlinks=True)

        def bind():                     # a directory has a second path; or a file has, where a copy would be looked for
            source, mount = (path, target) if chance < 0.4 else (os.path.dirname(path), os.path.join(
                r.choice([os.path.dirname(target)] + self.directories), "bound%d" % len(self.mounts)))
            if chance < 0.4:
                if os.path.islink(mount) or os.path.isdir(mount) or mount == source:
                    return False
                open(mount, "ab").close()
            else:
                if mount.startswith(source + "/"):
                    return False
                mount = os.path.dirname(target) if chance > 0.8 and not os.listdir(os.path.dirname(target)) else mount
                os.makedirs(mount, exist_ok=True)
            self.mounts.append(mount)
            return subprocess.run(["mount", "--bind", source, mount]).returncode == 0

        def backup():                   # an earlier state comes back, with its old times
            choices = [b for b in self.backups if b[0] == path] or self.backups
            _, data, stamp, log, external = r.choice(choices)
            for side in SIDES:
                if os.path.exists(path + side):
                    os.unlink(path + side)
            put(path, data, stamp)
            if log is not None:
                put(path + "-wal", log)
            shutil.rmtree(folder, ignore_errors=True)
            for name, content in external.items():
                os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                put(os.path.join(folder, name), content)
        if kind == "backup" and (not self.backups or chance < 0.4):
            log = read_file(path + "-wal") if os.path.isfile(path + "-wal") else None
            self.backups.append((path, read_file(path), (old.st_atime_ns, old.st_mtime_ns), log,
                                 {os.path.relpath(f, folder): read_file(f) for f in files_in(folder) if os.path.isfile(f)}))
            return None
        clone_target = "%s/clone%d" % (self.top, len(self.directories))
        moment = r.choice([0, 10**9, 4 * 10**18, time.time_ns()])
        work = {
            "drop": lambda: sql("DROP TABLE %s"), "emptied": lambda: sql("DELETE FROM %s"), "truncate": lambda: put(path, b"", times),
            "half": lambda: (os.truncate(path, old.st_size // 2), times and os.utime(path, ns=times)) and None, "page": page,
            "twin": twin, "replace": replace, "overwrite": lambda: put(path, read_file(r.choice(others)), times), "copy": copy,
            "support": support_folder, "backup": backup, "link": lambda: link(os.link), "symlink": lambda: link(os.symlink),
            "stray": stray, "note": lambda: self.spoil_record(archives, places), "clone": clone, "bind": bind,
            "times": lambda: os.utime(path, ns=(moment, moment)), "database_gone": lambda: os.unlink(path),
            "owner": lambda: os.chown(r.choice([path, os.path.dirname(path), folder]), 65533, 65533),
            "mode": lambda: os.chmod(r.choice([path, os.path.dirname(path), folder]), r.choice([0o400, 0o555, 0o777, 0])),
            "immutable": lambda: not path.startswith(self.other) and subprocess.run(
                ["chattr", "+i", path], stderr=subprocess.DEVNULL).returncode == 0,
            "remove": lambda: remove_set(path) if others else False,
            "lock_file": lambda: os.unlink(os.path.join(os.path.dirname(path), ".groupstore", "lock"))}[kind]
        if kind in ("bind", "immutable", "owner", "clone"):     # these need root, or leave something to remember
            try:
                done = work() is not False
            except OSError:
                done = False
            if kind == "clone" and done:
                self.directories.append(clone_target)
        else:
            done = self.in_child(work, limit)
            if done and kind in ("remove", "database_gone"):
                self.forgiven |= place.content.items        # removed by name
            if done and kind == "twin":
                # A program's own UPDATE or DELETE in its store: an archive may go that has the row as it was.
                self.forgiven |= place.content.items - self.reader.read(path).items
        if not done:
            return None
        self.say("accident: %s %s%s%s" % (kind, self.short(path), " (old times)" if times else "", " -> " + self.short(
            target) if kind in ("copy", "link", "symlink") else " -> " + self.short(self.mounts[-1]) if kind == "bind" else ""))
        return kind

    def make_twin(self, path):
        """Changes a store a little. Returns what was changed."""
        connection = connect(path)
        try:
            found = tables(connection)
            for _ in range(12):
                table, _ = self.random.choice(found)
                change = self.random.choice(TWINS).replace("{}", quote(table))
                if table == "ZNOTE":
                    change = "UPDATE ZNOTE SET ZTOK = ZTOK || 'q' WHERE Z_PK = (SELECT min(Z_PK) FROM ZNOTE)"
                try:
                    if connection.execute(change).rowcount > 0:
                        return change
                except sqlite3.Error:
                    pass
        finally:
            connection.close()

    def make_room(self, path):
        """Often a name is taken; another program then takes away what has it. That is not groupstore's doing."""
        if os.path.lexists(path) and self.random.random() < 0.7:
            remove_set(path)

    def counterpart(self, path):
        """A place where this store would be looked for: its old one, its new one, one that it was restored to; or any."""
        name, found = os.path.basename(path), []
        if "/.groupstore/archive/" in path:
            found.append(os.path.join(path.split("/.groupstore/")[0], name))
            try:
                note = json.loads(read_file(os.path.join(os.path.dirname(path), "about.json")))
                found += [self.from_json(p) for p in [note["from"]] + [x["to"] for x in note.get("restored", [])]]
            except (OSError, ValueError, KeyError):
                pass
        return self.random.choice(found if found and self.random.random() < 0.8 else
                                  [os.path.join(d, name) for d in self.directories])

    def spoil_record(self, archives, places):
        """A note or a receipt is lost, cut, or says what isn't so, as after a backup, or with an inode number used again."""
        r = self.random
        records = [f for d in self.directories for f in files_in(d + "/.groupstore/receipts")]
        record = r.choice([a + "/about.json" for a in archives if os.path.exists(a + "/about.json")] * 2 + records)
        way = r.choice(["remove", "cut", "lie", "lie", "lie"])
        if way == "remove":
            os.unlink(record)
        elif way == "cut":
            os.truncate(record, os.path.getsize(record) // 2)
        else:
            note, target = json.loads(read_file(record)), r.choice([p for p in places if p.store]).path
            status = os.stat(target)
            file = {"device": status.st_dev, "inode": status.st_ino}
            if record.endswith("about.json"):
                birth = subprocess.run(["stat", "-c", "%.9W", "--", target], capture_output=True, text=True).stdout
                note["restored"] = [{"at": note.get("at"), "birth": int(birth.strip().replace(".", "") or 0), "file": file,
                                     "to": self.to_json(target)}]
            elif "published" in note:
                note["published"] = {"file": file, "size": status.st_size, "modified": status.st_mtime_ns}
            if r.random() < 0.3:
                note["from"] = self.to_json(target)
            put(record, json.dumps(note).encode())
