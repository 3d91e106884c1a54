import ChangeFeed
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@Suite(.ownThreads) struct StoreObserverTests {
    private static let modes = ["WAL", "DELETE", "TRUNCATE", "PERSIST", "MEMORY"]
    private static let spill = """
        PRAGMA cache_size = 5; BEGIN; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
        INSERT INTO note (text) SELECT hex(randomblob(200)) FROM n
        """

    private func rig(_ mode: String) throws -> ObserverRig {
        try ObserverRig { store in
            let stored = mode == "WAL" ? "WAL" : "DELETE"
            try ObserverRig.once(
                store, "PRAGMA journal_mode = \(stored); CREATE TABLE note (id INTEGER PRIMARY KEY, text)")
        }
    }

    private func open(_ rig: ObserverRig, _ mode: String) throws -> Shell {
        let shell = try rig.shell()
        try shell.execute("PRAGMA journal_mode = \(mode)")
        return shell
    }

    @Test(arguments: modes) func findsEachCommit(_ mode: String) throws {
        let rig = try rig(mode)
        let shell = try open(rig, mode)
        _ = try rig.findings()
        for number in 1...50 {
            try shell.execute("INSERT INTO note (text) VALUES ('\(number)')")
            #expect(try rig.findings() == [.changed], "commit \(number)")
        }
        try shell.close()
        #expect(try rig.findings() == [])
    }

    @Test(arguments: modes) func findsAShortLivedProgramOnce(_ mode: String) throws {
        let rig = try rig(mode)
        for number in 1...20 {
            try rig.once("PRAGMA journal_mode = \(mode); INSERT INTO note (text) VALUES ('\(number)')")
            #expect(try rig.findings() == [.changed], "program \(number)")
        }
    }

    /// The events of a program that closed the store are lost, and must not be awaited: those of a later program, which
    /// comes and goes between two others, would be taken for them.
    @Test func findsAShortLivedProgramAfterLostEvents() throws {
        let rig = try rig("WAL")
        let first = try open(rig, "WAL")
        _ = try rig.findings()
        try first.execute("INSERT INTO note (text) VALUES ('x')")
        #expect(try rig.findings() == [.changed])
        try first.close()
        try rig.loseEvents()
        _ = try rig.findings()
        let second = try open(rig, "WAL")
        _ = try rig.findings()
        try second.close()
        try rig.once("INSERT INTO note (text) VALUES ('y')")
        let third = try open(rig, "WAL")
        #expect(try rig.findings() == [.changed])
        try third.close()
    }

    @Test(arguments: modes) func ignoresAReader(_ mode: String) throws {
        let rig = try rig(mode)
        try rig.once("INSERT INTO note (text) VALUES ('x')")
        _ = try rig.findings()
        for _ in 1...10 {
            try rig.once("SELECT count(*) FROM note")
            #expect(try rig.findings() == [])
        }
        let shell = try rig.shell()
        #expect(try rig.findings() == [])
        try shell.execute("BEGIN; SELECT count(*) FROM note")
        #expect(try rig.findings() == [])
        try shell.close()
        #expect(try rig.findings() == [])
    }

    @Test(arguments: modes) func ignoresARollback(_ mode: String) throws {
        let rig = try rig(mode)
        let shell = try open(rig, mode)
        try shell.execute("INSERT INTO note (text) VALUES ('x')")
        _ = try rig.findings()
        try shell.execute("BEGIN; DELETE FROM note; ROLLBACK")
        #expect(try rig.findings() == [])
        // A transaction that has spilled pages to the WAL or the database before its rollback.
        try shell.execute(Self.spill)
        #expect(try rig.findings() == [])
        try shell.execute("ROLLBACK")
        #expect(try rig.findings() == [])
        try shell.execute("INSERT INTO note (text) VALUES ('y')")
        #expect(try rig.findings() == [.changed])
        try shell.close()
        #expect(try rig.findings() == [])
    }

    @Test(arguments: ["PASSIVE", "FULL", "RESTART", "TRUNCATE"]) func ignoresACheckpoint(_ kind: String) throws {
        let rig = try rig("WAL")
        let shell = try rig.shell()
        for _ in 1...5 {
            try shell.execute("INSERT INTO note (text) VALUES ('x')")
            #expect(try rig.findings() == [.changed])
            try shell.execute("PRAGMA wal_checkpoint(\(kind))")
            #expect(try rig.findings() == [])
        }
        try shell.execute("INSERT INTO note (text) VALUES ('y'); PRAGMA wal_checkpoint(\(kind))")
        #expect(try rig.findings() == [.changed])
        try shell.close()
        #expect(try rig.findings() == [])
    }

    @Test func findsOnlyTheCommitsOfACrashedProgram() throws {
        for mode in ["WAL", "DELETE"] {
            let rig = try rig(mode)
            let shell = try open(rig, mode)
            try shell.execute("INSERT INTO note (text) VALUES ('kept')")
            #expect(try rig.findings() == [.changed])
            try shell.execute(Self.spill)
            try shell.kill()
            #expect(try rig.findings() == [])
            // The next program recovers the WAL, or rolls the journal back.
            let next = try rig.shell()
            #expect(try rig.findings() == [], "recovery in \(mode)")
            try next.execute("INSERT INTO note (text) VALUES ('new')")
            #expect(try rig.findings() == [.changed])
            try next.close()
            #expect(try rig.findings() == [])
        }
    }

    @Test func includesAnExistingWALInTheBaseline() throws {
        let rig = try ObserverRig { store in
            try ObserverRig.once(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (id INTEGER PRIMARY KEY, text)")
            let shell = try Shell(store)
            try shell.execute("INSERT INTO note (text) VALUES ('in the log')")
            try shell.kill()
            try FileSystemCommand.remove(FilePath(store.string + "-shm"))
        }
        let shell = try rig.shell()
        #expect(try rig.findings() == [])
        try shell.execute("INSERT INTO note (text) VALUES ('new')")
        #expect(try rig.findings() == [.changed])
        try shell.close()
    }

    @Test func findsAVacuumWithAnotherPageSize() throws {
        let rig = try rig("DELETE")
        try rig.once("INSERT INTO note (text) VALUES ('x'); PRAGMA page_size = 8192; VACUUM")
        #expect(try rig.findings().contains(.changed))
        try rig.once("INSERT INTO note (text) VALUES ('y')")
        #expect(try rig.findings() == [.changed])
    }

    @Test func findsCommitsAcrossJournalModeSwitches() throws {
        let rig = try rig("DELETE")
        let shell = try rig.shell()
        for mode in ["WAL", "DELETE", "WAL", "TRUNCATE", "WAL"] {
            try shell.execute("PRAGMA journal_mode = \(mode)")
            _ = try rig.findings()
            try shell.execute("INSERT INTO note (text) VALUES ('\(mode)')")
            #expect(try rig.findings() == [.changed], "\(mode)")
        }
        try shell.close()
    }

    @Test func findsACommitBeforeAModeSwitch() throws {
        let rig = try rig("WAL")
        try rig.once("INSERT INTO note (text) VALUES ('x'); PRAGMA journal_mode = DELETE")
        #expect(try rig.findings().contains(.changed))
    }

    @Test func reportsAReplacedStoreAsDiscontinued() throws {
        let rig = try rig("DELETE")
        let other = FilePath(rig.store.string + ".other")
        try ObserverRig.once(other, "CREATE TABLE other (id INTEGER PRIMARY KEY)")
        #expect(try rig.findings() == [])
        try FileSystemCommand.move(other, to: rig.store)
        #expect(try rig.findings() == [.discontinued(.replaced)])
        try rig.once("INSERT INTO other DEFAULT VALUES")
        #expect(try rig.findings() == [.changed])
    }

    @Test func reportsAStoreThatVanishesAndReappears() throws {
        let rig = try rig("DELETE")
        try FileSystemCommand.remove(rig.store)
        #expect(try rig.findings() == [.discontinued(.vanished)])
        try rig.once("CREATE TABLE note (id INTEGER PRIMARY KEY)")
        #expect(try rig.findings().first == .discontinued(.appeared))
        try rig.once("INSERT INTO note DEFAULT VALUES")
        #expect(try rig.findings() == [.changed])
    }

    @Test func reportsExclusiveModeAsUnreadable() throws {
        let rig = try rig("WAL")
        let shell = try rig.shell("PRAGMA locking_mode = EXCLUSIVE")
        try shell.execute("INSERT INTO note (text) VALUES ('x')")
        #expect(try rig.findings() == [.discontinued(.unreadable)])
        try shell.execute("INSERT INTO note (text) VALUES ('y')")
        #expect(try rig.findings() == [])
        try shell.close()
        #expect(try rig.findings() == [.changed])
        try rig.once("INSERT INTO note (text) VALUES ('z')")
        #expect(try rig.findings() == [.changed])
    }

    /// The change counter counts only the first commit of such a program.
    @Test(arguments: Tier.cases(["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF"], quick: ["DELETE"]))
    func findsCommitsInExclusiveMode(_ mode: String) throws {
        let rig = try rig(mode)
        let shell = try rig.shell("PRAGMA journal_mode = \(mode); PRAGMA locking_mode = EXCLUSIVE")
        try shell.execute("INSERT INTO note (text) VALUES ('x')")
        #expect(try rig.findings().last == .discontinued(.unreadable))
        for number in 1...3 {
            try shell.execute("INSERT INTO note (text) VALUES ('\(number)')")
            #expect(try rig.findings() == [], "nobody can read")
        }
        try shell.close()
        #expect(try rig.findings() == [.changed])
        try rig.once("INSERT INTO note (text) VALUES ('z')")
        #expect(try rig.findings() == [.changed])
        try rig.once("SELECT * FROM note")
        #expect(try rig.findings() == [])
    }

    /// Polled between two of its commits, and closed before its lock counts as exclusive mode.
    @Test(arguments: ["DELETE", "TRUNCATE", "PERSIST"])
    func findsCommitsOfAShortExclusiveProgram(_ mode: String) throws {
        let rig = try rig(mode)
        let shell = try rig.shell("PRAGMA journal_mode = \(mode); PRAGMA locking_mode = EXCLUSIVE")
        try shell.execute("INSERT INTO note (text) VALUES ('x')")
        #expect(try rig.findings(polls: 1) == [.changed])
        try shell.execute("INSERT INTO note (text) VALUES ('y')")
        try shell.close()
        #expect(try rig.findings() == [.changed])
    }

    /// With its index in shared memory, it takes no WAL lock and commits after the last event.
    @Test func findsCommitsOfAProgramThatBecomesExclusive() throws {
        let rig = try rig("WAL")
        let shell = try rig.shell()
        try shell.execute("INSERT INTO note (text) VALUES ('w'); PRAGMA locking_mode = EXCLUSIVE")
        #expect(try rig.findings() == [.changed])
        try shell.execute("INSERT INTO note (text) VALUES ('x')")
        // The commit may directly precede the last program's checkpoint, which gets two seconds.
        #expect(try rig.findings(longestWait: .seconds(3)).last == .discontinued(.unreadable))
        try shell.execute("INSERT INTO note (text) VALUES ('y')")
        #expect(try rig.findings() == [])
        try shell.execute("PRAGMA locking_mode = NORMAL; INSERT INTO note (text) VALUES ('z')")
        #expect(try rig.findings() == [.changed])
        try shell.close()
        #expect(try rig.findings() == [])
    }

    /// In WAL mode the change counter doesn't distinguish two copies.
    @Test func findsACopyOverAStore() throws {
        let rig = try rig("WAL")
        try rig.once("INSERT INTO note (text) VALUES ('x')")
        #expect(try rig.findings() == [.changed])
        let backup = rig.directory.path.appending("backup")
        try run("cp", [Word(rig.store), Word(backup)])
        try rig.once("UPDATE note SET text = 'y'")
        #expect(try rig.findings() == [.changed])
        try rig.findTables()
        let tables = try rig.tables(after: { _ = try run("cp", [Word(backup), Word(rig.store)]) })
        #expect(tables == .unknown)
        #expect(try rig.findings() == [])
        try run("truncate", ["-s", "0", Word(rig.store)])
        #expect(try rig.findings() == [.changed])
        try run("cp", [Word(backup), Word(rig.store)])
        #expect(try rig.findings().allSatisfy { $0 == .changed })
        try rig.once("SELECT * FROM note")
        #expect(try rig.findings() == [])
        try rig.once("UPDATE note SET text = 'z'")
        #expect(try rig.findings() == [.changed])
    }

    /// The state before that program opened the store is no longer comparable.
    @Test func findsACopyOverAStoreAfterAReader() throws {
        let rig = try rig("WAL")
        let backup = rig.directory.path.appending("backup")
        try run("cp", [Word(rig.store), Word(backup)])
        try rig.once("INSERT INTO note (text) VALUES ('x')")
        #expect(try rig.findings() == [.changed])
        let reader = try rig.shell()
        #expect(try rig.findings() == [])
        try reader.close()
        try run("cp", [Word(backup), Word(rig.store)])
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
    }

    /// Without a journal or a lock, the first finding may come from an incomplete copy.
    @Test func reportsAContinuedCopyAgain() throws {
        let rig = try rig("DELETE")
        let backup = rig.directory.path.appending("backup")
        try run("cp", [Word(rig.store), Word(backup)])
        for _ in 1...3 { try rig.once("INSERT INTO note (text) VALUES (randomblob(100000))") }
        #expect(try rig.findings() == [.changed])
        try run("dd", ["if=" + Word(backup), "of=" + Word(rig.store), "bs=512", "count=1", "conv=notrunc"])
        #expect(try rig.findings(polls: 1) == [.changed])
        try run("cp", [Word(backup), Word(rig.store)])
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
    }

    /// Without a write or a close, no event reports it.
    @Test func findsTheEndOfExclusiveMode() throws {
        let rig = try rig("DELETE")
        let shell = try rig.shell()
        try shell.execute("PRAGMA locking_mode = EXCLUSIVE; INSERT INTO note (text) VALUES ('x')")
        #expect(try rig.findings().last == .discontinued(.unreadable))
        let locked = rig.poll()
        #expect(locked.finding == .unchanged && locked.nextPollDelay != nil)
        try shell.execute("PRAGMA locking_mode = NORMAL; SELECT count(*) FROM note")
        #expect(rig.poll().finding == .changed)
        #expect(try rig.findings() == [])
        try shell.close()
    }

    /// A lock's release raises no event, so it is polled for, but not fifty times a second as long as the lock is held.
    @Test(arguments: [
        ("WAL", "BEGIN IMMEDIATE; INSERT INTO note (text) VALUES ('x')"),
        ("WAL", "PRAGMA locking_mode = EXCLUSIVE; INSERT INTO note (text) VALUES ('x')"),
        ("WAL", "SELECT * FROM note; PRAGMA locking_mode = EXCLUSIVE; INSERT INTO note (text) VALUES ('x')"),
        ("WAL", "PRAGMA locking_mode = EXCLUSIVE; SELECT * FROM note"),
        ("DELETE", "PRAGMA locking_mode = EXCLUSIVE; INSERT INTO note (text) VALUES ('x')"),
        ("DELETE", "PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE; INSERT INTO note (text) VALUES ('x')"),
    ])
    func pollsALongHeldLockRarely(_ mode: String, _ sql: String) throws {
        let rig = try rig(mode)
        let shell = try rig.shell()
        try shell.execute(sql)
        _ = try rig.findings(longestWait: .zero)
        // Adds up the polls of five minutes without waiting.
        var time = Duration.zero
        var polls = 0
        while time < .seconds(300), let again = rig.poll().nextPollDelay {
            time += again
            polls += 1
        }
        #expect(polls < 80)
        // Its commit or its close raises an event and is found soon.
        try shell.execute("INSERT INTO note (text) VALUES ('y')")
        if sql.contains("BEGIN") { try shell.execute("COMMIT") }
        try shell.close()
        #expect(try rig.findings(longestWait: .seconds(3)).contains(.changed))
    }

    @Test func attachTakesANewBaseline() throws {
        let rig = try rig("WAL")
        rig.close()
        try rig.once("INSERT INTO note (text) VALUES ('x')")
        try rig.attach()
        #expect(try rig.findings() == [])
        try rig.once("INSERT INTO note (text) VALUES ('y')")
        #expect(try rig.findings() == [.changed])
    }

    @Test func acceptsAnyFileName() throws {
        let name = try #require(FilePath.Component(bytes: [0x61, 0x27, 0x22, 0x0A, 0x62]))
        let rig = try ObserverRig(name) { try ObserverRig.once($0, "CREATE TABLE note (id INTEGER PRIMARY KEY)") }
        try rig.once("INSERT INTO note DEFAULT VALUES")
        #expect(try rig.findings() == [.changed])
    }
}

enum FileSystemCommand {
    static func remove(_ path: FilePath) throws { try run("rm", ["--", Word(path)]) }
    static func move(_ path: FilePath, to other: FilePath) throws { try run("mv", ["--", Word(path), Word(other)]) }
}
