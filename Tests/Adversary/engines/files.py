"""Steps that work on the files themselves: copies, renames, plain writes, leftovers. See steps.py."""
import os
import shutil
import sqlite3


def pause(store, most=0.3):
    store.world.pump(store.rng.choice([0, 0, 0.02, store.rng.random() * most]))


class Files:
    def reader(s):
        child = s.open(pragmas=["SELECT count(*) FROM note"], timeout=1)
        if child:
            child.call(do="run", sql=["BEGIN", "SELECT count(*) FROM note"])
            pause(s)
            s.rng.choice([s.close, s.kill])(child)
        return None

    def keep_leftovers(s):
        for suffix in ("-shm", "-wal", "-journal"):
            if os.path.exists(s.path + suffix) and s.rng.random() < 0.7:
                s.attic[suffix] = os.path.join(s.scratch, "attic" + suffix)
                shutil.copyfile(s.path + suffix, s.attic[suffix])

    def donor(s):
        """Another database with the same tables, sometimes with the same number of commits and bytes."""
        path = os.path.join(s.scratch, "donor")
        if s.rng.random() < 0.4 and s.whole():
            shutil.copyfile(s.path, path)
        elif os.path.exists(path):
            os.unlink(path)
        connection = sqlite3.connect(path)
        try:
            connection.execute("CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, tag TEXT, body BLOB)")
            connection.execute("CREATE TABLE IF NOT EXISTS tag (name TEXT)")
            connection.execute("INSERT INTO note (tag, body) VALUES ('donor', randomblob(50))")
            connection.commit()
            if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error:
            pass
        connection.close()
        return path

    def raw_save(s):
        if s.whole():
            s.saved = os.path.join(s.scratch, "saved")
            shutil.copy2(s.path, s.saved)
        return False

    def raw_copy_over(s):
        """cp, cp -p, a slow cp, mv, and rsync's way (a temporary name, then a rename), of another or an older store."""
        source = s.saved if s.saved and s.rng.random() < 0.6 else Files.donor(s)
        times = os.stat(s.rng.choice([source, s.path])) if os.path.exists(s.path) and s.rng.random() < 0.4 else None
        if s.rng.random() < 0.3:
            for suffix in ("-wal", "-shm", "-journal"):
                if os.path.exists(s.path + suffix):
                    os.unlink(s.path + suffix)
        data = open(source, "rb").read()
        directly = s.rng.random() < 0.5
        s.note("saved" if source == s.saved else "other", "in place" if directly else "renamed", "old time" if times else "")
        target = s.path if directly else os.path.join(s.world.group, ".%s.Xy12" % s.name[:100])
        with open(target, "r+b" if directly and os.path.exists(target) and s.rng.random() < 0.5 else "wb") as file:
            step = s.rng.choice([len(data), len(data), 40000, 1 + len(data) // 5])
            for start in range(0, len(data), step):
                file.write(data[start:start + step])
                if step != len(data):
                    file.flush()
                    s.world.pump(0.05 if start < 10 * step else 0)
            file.truncate()
        if times:
            os.utime(target, ns=(times.st_atime_ns, times.st_mtime_ns))
        if not directly:
            if s.rng.random() < 0.3 and os.path.exists(s.path):
                os.unlink(s.path)
            os.rename(target, s.path)
        return None

    def raw_write(s):
        """Some bytes of a row, with a plain write; sometimes with the time set back. Not beside a log: there, nobody can
        tell it from a checkpoint."""
        if not s.whole():
            return False
        before = os.stat(s.path)
        with open(s.path, "r+b") as file:
            data = file.read()
            place = data.find(s.name[:8].encode() + b".") if not s.key else len(data) // 2
            if place < 0:
                return False
            file.seek(place)
            file.write(bytes([97 + (data[place] + 1) % 26]))
        if s.rng.random() < 0.5:
            os.utime(s.path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return None

    def raw_leftover(s):
        """A side file of another moment, of another database, of zeros, cut short, or gone; then somebody opens the store."""
        suffix = s.rng.choice(["-shm", "-shm", "-wal", "-journal"])
        path = s.path + suffix
        how = s.rng.choice(["attic", "other", "zeros", "cut", "gone", "empty"])
        s.note("of %d bytes" % os.path.getsize(path) if os.path.exists(path) else "of none")
        other = s.rng.choice(s.world.stores)
        source = s.attic.get(suffix) if how == "attic" else other.attic.get(suffix) if how == "other" else None
        if source:
            shutil.copyfile(source, path)
        elif how == "zeros":
            open(path, "wb").write(bytes(s.rng.choice([32768, 4152, 512])))
        elif how == "cut" and os.path.exists(path):
            os.truncate(path, os.path.getsize(path) // 2)
        elif how == "gone" and os.path.exists(path):
            os.unlink(path)
        elif how == "empty":
            open(path, "wb").close()
        s.world.count("leftover " + suffix)
        s.note(suffix, how, "(taken)" if source else "")
        s.forget()
        if suffix == "-journal" or s.rng.random() < 0.5:
            pause(s)
            Files.reader(s)
        return None

    def raw_away_and_back(s):
        if not os.path.exists(s.path):
            return False
        os.rename(s.path, s.path + ".away")
        pause(s, 1)
        os.rename(s.path + ".away", s.path)
        return None

    def raw_anew(s):
        """The store is removed and made again by its program."""
        for suffix in ("", "-wal", "-shm", "-journal"):
            if os.path.exists(s.path + suffix):
                os.unlink(s.path + suffix)
        pause(s)
        if s.rng.random() < 0.3:
            os.mkfifo(s.path)
            pause(s)
            os.unlink(s.path)
        s.create()
        return True

    def raw_emptied(s):
        if os.path.exists(s.path):
            os.truncate(s.path, 0)
            s.forget()
            pause(s)
            Files.raw_copy_over(s)
        return None
