import ChangeFeed
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

/// Commits and copies that no counter and no index tells of, and locks that stand for none.
@Suite(.serialized) struct UncountedWriteTests {
    private func rig(_ mode: String = "DELETE") throws -> ObserverRig {
        try ObserverRig { store in
            try ObserverRig.once(
                store, "PRAGMA journal_mode = \(mode); CREATE TABLE note (id INTEGER PRIMARY KEY, text)")
            try ObserverRig.once(store, "INSERT INTO note (text) VALUES ('one')")
        }
    }

    private func copy(_ from: FilePath, to: FilePath) throws { try run("cp", [Word(from), Word(to)]) }

    private func counter(_ store: FilePath) throws -> UInt32? {
        let file = try Descriptor(opening: store, flags: 0)
        return DatabaseHeader(try file.read(count: DatabaseHeader.length, at: 0))?.changeCounter
    }

    /// Another store with as many commits, and as many bytes.
    @Test(arguments: ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF"])
    func aCopyThatCountedAsFarIsFound(_ mode: String) throws {
        let rig = try rig()
        let other = rig.directory.path.appending("other")
        try copy(rig.store, to: other)
        try ObserverRig.once(other, "UPDATE note SET text = 'two'")
        try rig.once("PRAGMA journal_mode = \(mode); UPDATE note SET text = 'six'")
        #expect(try rig.findings() == [.changed])
        #expect(try counter(rig.store) == counter(other))
        try copy(other, to: rig.store)
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
        // And it is followed on.
        try rig.once("PRAGMA journal_mode = \(mode); UPDATE note SET text = 'ten'")
        #expect(try rig.findings() == [.changed])
    }

    /// Both were written in one tick of the clock by which the kernel dates files.
    @Test func aCopyWithTheSameTimeIsFound() throws {
        for _ in 1...20 {
            let rig = try rig()
            let other = rig.directory.path.appending("other")
            try copy(rig.store, to: other)
            try ObserverRig.once(other, "UPDATE note SET text = 'two'")
            try rig.once("UPDATE note SET text = 'six'")
            var now = timespec()
            clock_gettime(CLOCK_REALTIME, &now)
            func setTime() { #expect(utimensat(AT_FDCWD, rig.store.string, [now, now], 0) == 0) }
            setTime()
            #expect(try rig.findings() == [.changed])
            try copy(other, to: rig.store)
            setTime()
            if try rig.findings() == [.changed] { return }
            // On a busy machine, the first look came when the tick was long over.
        }
        Issue.record("a copy was not found")
    }

    /// Restored and written before anybody looks: the counter is what it was.
    @Test(arguments: ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF"])
    func aBackupThatWasWrittenSinceIsFound(_ mode: String) throws {
        let rig = try rig()
        let backup = rig.directory.path.appending("backup")
        try copy(rig.store, to: backup)
        try rig.once("PRAGMA journal_mode = \(mode); INSERT INTO note (text) VALUES ('after the backup')")
        #expect(try rig.findings() == [.changed])
        let known = try counter(rig.store)
        try copy(backup, to: rig.store)
        try rig.once("PRAGMA journal_mode = \(mode); INSERT INTO note (text) VALUES ('another one')")
        #expect(try counter(rig.store) == known)
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
    }

    /// A copy in another journal mode, which counts otherwise.
    @Test func aCopyInAnotherModeIsFound() throws {
        let rig = try rig("WAL")
        let other = rig.directory.path.appending("other")
        try ObserverRig.once(other, "CREATE TABLE note (id INTEGER PRIMARY KEY, text)")
        while try counter(other) ?? 0 < counter(rig.store) ?? 0 {
            try ObserverRig.once(other, "INSERT INTO note (text) VALUES ('two')")
        }
        try copy(other, to: rig.store)
        #expect(try rig.findings().contains(.changed))
        #expect(try rig.findings() == [])
    }

    /// What it writes beyond is known when it lets go.
    @Test func aProgramThatIsExclusiveFromTheStartIsNotSilent() throws {
        let rig = try rig()
        let shell = try rig.shell("PRAGMA journal_mode = MEMORY; PRAGMA locking_mode = EXCLUSIVE")
        try shell.execute("INSERT INTO note (text) VALUES ('counted')")
        try rig.attach()
        try shell.execute("INSERT INTO note (text) VALUES ('not counted')")
        try shell.kill()
        #expect(try rig.findings().contains(.changed))
        #expect(try rig.findings() == [])
    }

    /// Its index was in its own memory, and nobody has opened the store since.
    @Test func whatAKilledProgramInExclusiveModeCommittedIsFound() throws {
        let rig = try rig("WAL")
        let shell = try rig.shell("PRAGMA locking_mode = EXCLUSIVE")
        try shell.execute("INSERT INTO note (text) VALUES ('x')")
        try shell.kill()
        #expect(try rig.findings() == [.changed])
        // Who recovers the log brings nothing new.
        let reader = try rig.shell()
        #expect(try rig.findings() == [])
        try reader.execute("SELECT count(*) FROM note")
        #expect(try rig.findings() == [])
        try reader.execute("INSERT INTO note (text) VALUES ('y')")
        #expect(try rig.findings() == [.changed])
        try reader.close()
        #expect(try rig.findings() == [])
    }

    /// What it had not committed is none.
    @Test func anOpenTransactionOfAKilledExclusiveProgramIsNone() throws {
        let rig = try rig("WAL")
        let shell = try rig.shell("PRAGMA locking_mode = EXCLUSIVE")
        try shell.execute("PRAGMA cache_size = 5; BEGIN")
        try shell.execute(
            """
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
            INSERT INTO note (text) SELECT hex(randomblob(200)) FROM n
            """)
        try shell.kill()
        #expect(try rig.findings() == [])
    }

    /// The index on the disk is of a program that crashed before.
    @Test func soIsWhatItCommittedBehindAnOlderIndex() throws {
        let rig = try rig("WAL")
        let crashed = try rig.shell()
        try crashed.execute("INSERT INTO note (text) VALUES ('x')")
        try crashed.kill()
        #expect(try rig.findings() == [.changed])
        let shell = try rig.shell("PRAGMA locking_mode = EXCLUSIVE")
        try shell.execute("INSERT INTO note (text) VALUES ('y')")
        try shell.kill()
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
    }

    /// The last program to close a store keeps everybody out while it checkpoints: on a slow disk for seconds.
    @Test func aSlowLastCheckpointIsNotUnreadable() throws {
        let rig = try rig("WAL")
        let shell = try rig.shell()
        try shell.execute("INSERT INTO note (text) VALUES ('x')")
        #expect(try rig.findings() == [.changed])
        let locks = try RangeLocks(Descriptor(opening: rig.store, flags: 2))
        let shared: Range<Int64> = 0x4000_0002..<0x4000_0200
        try shell.execute("PRAGMA locking_mode = NORMAL; PRAGMA wal_checkpoint")
        try shell.kill()
        #expect(try locks.lock(.exclusive, shared))
        try run("dd", ["if=/dev/null", "of=" + Word(rig.store), "conv=notrunc"])
        #expect(try rig.findings() == [])
        locks.unlock(shared)
        #expect(try rig.findings() == [])
    }
}
