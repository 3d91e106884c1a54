"""The steps: what can happen to a store. Each is a method that returns whether its listeners must be told.

True: at least one commit was acknowledged. None: the content decides; if a reader finds something else than before the
step, the listeners must be told. False: nothing that anybody needs to hear of. A method whose name begins with `raw` works
on the files themselves (files.py), after the tester's own writer was closed.
"""
import shutil
import subprocess
import time

from files import Files, pause


class Steps(Files):
    """Methods take the store; the weight of each is in `WEIGHTS`."""

    # Commits

    def commit_and_close(s):
        if "shell" in s.engines and s.rng.random() < 0.3:
            sql = "INSERT INTO note (tag, body) VALUES ('%s', randomblob(%d))" % (
                s.tags(1)[0].replace("'", "''"), s.rng.choice([10, 5000]))
            s.forget()
            result = subprocess.run(["sqlite3", "-cmd", ".timeout 3000", s.path, sql], capture_output=True)
            return result.returncode == 0 or None
        child = s.open()
        if not child:
            return None
        done = any([s.commit(child, s.rng.choice([1, 1, 20])) for _ in range(s.rng.choice([1, 1, 2, 5]))])
        pause(s)
        s.rng.choice([s.close, s.close, s.kill])(child)
        return done or None

    def commit_and_keep(s):
        child = s.writer or s.open(keep=True)
        done = False
        for _ in range(s.rng.choice([1, 1, 2, 4])):
            done = bool(child) and s.commit(child) or done
            pause(s)
        return done or None

    def commit_beside(s):
        """Another process commits while the first one has the store open."""
        if not s.writer and s.rng.random() < 0.7:
            s.open(keep=True)
        return Steps.commit_and_close(s)

    def exclusive(s):
        if s.writer:
            s.close()
        engine = s.rng.choice([e for e in s.engines if e not in ("shell", "turso")] or ["cipher" if s.key else "sqlite"])
        s.open(engine, ["PRAGMA locking_mode=EXCLUSIVE"] + s.rng.choice([[], ["PRAGMA journal_mode=" + s.mode]]), keep=True)
        return Steps.commit_and_keep(s)

    def mmap(s):
        child = s.open(pragmas=["PRAGMA mmap_size=100000000"], keep=not s.writer)
        return (s.commit(child) if child else False) or None

    def burst(s):
        child = s.writer or s.open(keep=True)
        if not child:
            return None
        answer = child.call(do="burst", tags=s.tags(s.rng.choice([50, 300, 900])))
        s.forget()
        pause(s)
        return ("error" not in answer and s.commit(child)) or None

    def big(s):
        child = s.writer or s.open(keep=s.rng.random() < 0.5)
        if not child:
            return None
        done = s.commit(child, rows=s.rng.choice([300, 1500]), size=s.rng.choice([3000, 9000]))
        s.world.count("big transactions")
        if child is not s.writer:
            s.close(child)
        child = s.writer or s.open()
        if child:
            child.call(do="run", sql=["DELETE FROM note WHERE length(body) >= 3000"])
            if child is not s.writer:
                s.close(child)
        s.forget()
        return done or None

    def schema(s):
        child = s.writer or s.open()
        if not child:
            return None
        s.counter += 1
        answer = child.call(do="run", sql=s.rng.choice([
            ["CREATE TABLE IF NOT EXISTS new%d (a)" % s.counter, "INSERT INTO new%d VALUES (1)" % s.counter],
            ["PRAGMA user_version=%d" % s.counter], ["CREATE INDEX IF NOT EXISTS byTag%d ON note (tag)" % s.counter],
            ["UPDATE note SET tag = tag || '!' WHERE id % 7 = 0"], ["DELETE FROM note WHERE id % 5 = 1"]]))
        if child is not s.writer:
            s.close(child)
        s.forget()
        return None

    def blob(s):
        child = s.open(s.rng.choice([e for e in s.engines if e in ("sqlite", "apsw")] or ["sqlite"])) if not s.key else None
        answer = child.call(do="blob") if child else {"error": 1}
        if child:
            s.close(child)
        s.forget()
        return None if "error" in answer or answer.get("skipped") else True

    def odd_locks(s):
        """A SQLite that locks in another way, or not at all."""
        if "apsw" not in s.world.engines or s.key:
            return False
        if s.writer:
            s.close()
        child = s.open("apsw", vfs=s.rng.choice(["unix-dotfile", "unix-none", "unix-excl"]),
                       pragmas=s.rng.choice([[], ["PRAGMA locking_mode=EXCLUSIVE"]]))
        done = False
        for _ in range(s.rng.choice([1, 3])):
            done = bool(child) and s.commit(child) or done
            pause(s)
        if child:
            s.rng.choice([s.close, s.kill])(child)
        shutil.rmtree(s.path + ".lock", ignore_errors=True)
        return done or None

    def across_stores(s):
        """One transaction over two attached stores."""
        other = s.rng.choice(s.world.stores)
        child = s.writer if s.writer and not s.held else s.open("sqlite") if not s.key else None
        if not child or other is s or other.key or other.held:
            if child and child is not s.writer:
                s.close(child)
            return False
        moment = time.monotonic()
        answer = child.call(do="run", sql=[
            "ATTACH '%s' AS other" % other.path.replace("'", "''"), "BEGIN IMMEDIATE",
            "INSERT INTO main.note (tag) VALUES ('both')", "INSERT INTO other.note (tag) VALUES ('both')", "COMMIT"])
        done = "error" not in answer
        if not done:
            child.call(do="run", sql=["ROLLBACK"])
        child.call(do="run", sql=["DETACH other"])
        if child is not s.writer:
            s.close(child)
        s.forget()
        other.forget()
        other.tokens = {}
        if done:
            s.world.judge(other, moment, "the other half of a transaction over two stores")
        return done or None

    # What changes no content

    def reader_without_rights_to_write(s):
        if s.key or s.writer and s.held:
            return False
        child = s.open("sqlite", read_only=True, timeout=1)
        if child:
            child.call(do="run", sql=["SELECT count(*) FROM note"])
            s.rng.choice([s.close, s.kill])(child)
        return None

    def rolled_back(s):
        child = s.writer or s.open()
        if not child:
            return None
        child.call(do="spill", rows=s.rng.choice([10, 2000]))
        pause(s)
        if child is s.writer or s.rng.random() < 0.5:
            child.call(do="run", sql=["ROLLBACK"])
        if child is not s.writer:
            s.kill(child)
        s.forget()
        return None if Steps.can_undo(s) else False

    def can_undo(s):
        """Without a journal on the disk, SQLite leaves half a transaction behind when it is killed: no commit, and nobody
        is promised to hear of it."""
        with open(s.path, "rb") as file:
            wal = file.read(20)[18:] == b"\2\2"
        return wal or s.mode not in ("memory", "off")

    def checkpoint(s):
        child = s.open("cipher" if s.key else s.rng.choice([e for e in s.engines if e != "shell"] or ["sqlite"]), timeout=1)
        if child:
            child.call(do="run", sql=["PRAGMA wal_checkpoint(%s)" % s.rng.choice(
                ["PASSIVE", "FULL", "RESTART", "TRUNCATE"])])
            s.close(child)
        return None

    def commit_and_checkpoint(s):
        child = s.writer or s.open()
        done = bool(child) and s.commit(child)
        if child:
            child.call(do="run", sql=["PRAGMA wal_checkpoint(%s)" % s.rng.choice(["RESTART", "TRUNCATE"])])
            done = s.rng.random() < 0.5 and s.commit(child) or done
            if child is not s.writer:
                s.close(child)
        return done or None

    def another_mode(s):
        if s.writer and s.held:
            return False
        s.mode = s.rng.choice(["wal", "delete", "truncate", "persist", "memory", "off"])
        child = s.open("cipher" if s.key else "sqlite", timeout=1)
        if child:
            child.call(do="run", sql=["PRAGMA journal_mode=" + s.mode])
            done = s.rng.random() < 0.6 and s.commit(child)
            s.close(child)
            return done or None
        return None

    def vacuum(s):
        child = s.open("cipher" if s.key else "sqlite", timeout=1)
        if child:
            child.call(do="run", sql=s.rng.choice([["VACUUM"], ["PRAGMA incremental_vacuum"], [
                "PRAGMA page_size=%d" % s.rng.choice([1024, 4096, 8192]), "VACUUM"]]))
            s.close(child)
        return None

    def backup_api(s):
        if s.key:
            return False
        child = s.open(s.rng.choice([e for e in s.engines if e in ("sqlite", "apsw")] or ["sqlite"]))
        if child:
            child.call(do="backup", source=Steps.donor(s))
            s.close(child)
        return None

    # Killed, with what that leaves

    def killed_writer(s):
        child = s.writer or s.open(keep=True)
        if not child:
            return None
        child.send(do="storm", prefix="storm%d" % s.counter, pause=s.rng.choice([0, 0, 0.005]))
        s.counter += 1
        moments, end = [time.monotonic()], time.monotonic() + s.rng.random() * 0.8
        while time.monotonic() < end:
            answer = child.line(1)
            if "error" in answer:
                break
            moments.append(time.monotonic())
            if len(moments) % 8 == 0:
                s.world.pump(0)
        Steps.keep_leftovers(s)
        s.kill(child)
        # An event for the last acknowledged commit can't have come before the one before it was acknowledged.
        if len(moments) > 2:
            s.moment = moments[-3]
            s.world.count("commits", len(moments))
            return True
        return None

    def killed_in_transaction(s):
        child = s.writer or s.open(keep=True)
        done = bool(child) and s.commit(child)
        if child:
            child.call(do="spill", rows=s.rng.choice([5, 1500]))
            Steps.keep_leftovers(s)
            s.kill(child)
        return done or (None if Steps.can_undo(s) else False)

    def last_one_leaves_a_log(s):
        if "apsw" not in s.world.engines or s.key or s.held:
            return False
        child = s.open("apsw")
        if child:
            child.call(do="keep_wal")
            done = s.commit(child)
            s.close(child)
            return done or None
        return None

    def let_go(s):
        if s.writer:
            s.rng.choice([s.close, s.close, s.kill])()
        return None


WEIGHTS = {
    "commit_and_close": 6, "commit_and_keep": 6, "commit_beside": 4, "exclusive": 4, "mmap": 1, "burst": 2, "big": 1,
    "schema": 3, "blob": 1, "odd_locks": 3, "across_stores": 1, "reader": 2, "reader_without_rights_to_write": 2,
    "rolled_back": 2, "checkpoint": 3, "commit_and_checkpoint": 3, "another_mode": 3, "vacuum": 2, "backup_api": 2,
    "killed_writer": 3, "killed_in_transaction": 3, "last_one_leaves_a_log": 2, "raw_save": 2, "raw_copy_over": 5,
    "raw_write": 3, "raw_leftover": 6, "raw_away_and_back": 1, "raw_anew": 1, "raw_emptied": 1, "let_go": 4,
}


def choose(store):
    """The next step's name. A writer that keeps others out only writes on, or lets go."""
    if store.writer and store.held:
        return store.rng.choice(["commit_and_keep", "commit_and_keep", "burst", "let_go", "let_go", "killed_writer",
                                 "killed_in_transaction"])
    if store.content() == "absent" or store.content().startswith("bytes ") and store.rng.random() < 0.7:
        return store.rng.choice(["raw_anew", "raw_copy_over"]) if not store.key else "raw_anew"
    names = list(WEIGHTS)
    name = store.rng.choices(names, [WEIGHTS[n] for n in names])[0]
    return name
