import ChangeFeed
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Commits before a transaction whose journal stays.
@Suite(.ownThreads) struct HotJournalTests {
    private static let spill = """
        PRAGMA cache_size = 5; BEGIN; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
        INSERT INTO note (text) SELECT hex(randomblob(200)) FROM n
        """

    private static let small = "BEGIN; INSERT INTO note (text) VALUES ('not written')"

    private func rig() throws -> ObserverRig {
        try ObserverRig { try ObserverRig.once($0, "CREATE TABLE note (id INTEGER PRIMARY KEY, text)") }
    }

    /// Polls once a transaction has taken long enough for a look at what came before it.
    private func pollLater(_ rig: ObserverRig) throws -> [Observation.Finding] {
        let early = try rig.findings()
        pause(.milliseconds(25))
        return early + [rig.poll().finding].filter { $0 != .unchanged }
    }

    private func rollBack(_ rig: ObserverRig) throws { try rig.once("SELECT count(*) FROM note") }

    /// Nobody holds the store any more, and no event is to come.
    @Test(arguments: ["DELETE", "TRUNCATE", "PERSIST"])
    func findsCommitsOfAKilledExclusiveProgram(_ mode: String) throws {
        let rig = try rig()
        let shell = try rig.shell("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = \(mode)")
        try shell.execute("INSERT INTO note (text) VALUES ('counted')")
        #expect(try rig.findings() == [.changed, .discontinued(.unreadable)])
        try shell.execute("INSERT INTO note (text) VALUES ('not counted')")
        try shell.execute(Self.spill)
        #expect(try rig.findings() == [])
        let before = rig.position
        try shell.kill()
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
        #expect(rig.poll().nextPollDelay == nil)
        #expect(before == nil, "a token of an unreadable store says nothing")
        // A reader that may not write finds them only now.
        try rollBack(rig)
        #expect(try rig.findings() == [.changed])
        try rollBack(rig)
        #expect(try rig.findings() == [])
    }

    /// Killed before its lock counts as exclusive mode.
    @Test(arguments: ["DELETE", "TRUNCATE", "PERSIST"])
    func findsUncountedCommitsOfAShortProgram(_ mode: String) throws {
        let rig = try rig()
        let shell = try rig.shell("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = \(mode)")
        try shell.execute("INSERT INTO note (text) VALUES ('counted')")
        #expect(try rig.findings(polls: 1) == [.changed])
        try shell.execute("INSERT INTO note (text) VALUES ('not counted')")
        try shell.execute(Self.spill)
        try shell.kill()
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
    }

    /// The first poll comes when the next transaction has begun.
    @Test(arguments: ["DELETE", "TRUNCATE", "PERSIST"], [false, true])
    func findsACommitBeforeATransaction(_ mode: String, _ isKilled: Bool) throws {
        let rig = try rig()
        let shell = try rig.shell("PRAGMA journal_mode = \(mode)")
        _ = try rig.findings()
        try shell.execute("INSERT INTO note (text) VALUES ('x')")
        // Others may read until the transaction spills.
        try shell.execute(isKilled ? Self.spill : "BEGIN; INSERT INTO note (text) VALUES ('y')")
        if isKilled { try shell.kill() }
        #expect(try pollLater(rig) == [.changed])
        #expect(try pollLater(rig) == [])
        if isKilled { return }
        try shell.execute("ROLLBACK")
        #expect(try rig.findings() == [])
        try shell.execute("INSERT INTO note (text) VALUES ('z')")
        #expect(try rig.findings() == [.changed])
        try shell.close()
    }

    /// Nothing is published of a transaction alone, however long it takes.
    @Test(arguments: ["DELETE", "TRUNCATE", "PERSIST"], [false, true])
    func ignoresATransaction(_ mode: String, _ isKilled: Bool) throws {
        for statement in [Self.spill, Self.small] {
            try ignoresATransaction(mode, isKilled, statement)
        }
    }

    private func ignoresATransaction(_ mode: String, _ isKilled: Bool, _ statement: String) throws {
        let rig = try rig()
        let shell = try rig.shell("PRAGMA journal_mode = \(mode)")
        try shell.execute(statement)
        #expect(try pollLater(rig) == [])
        #expect(rig.poll().nextPollDelay == nil)
        if isKilled { try shell.kill() } else { try shell.execute("ROLLBACK") }
        #expect(try pollLater(rig) == [])
        try rollBack(rig)
        #expect(try rig.findings() == [])
    }

    /// Readers no longer roll back what was written.
    @Test(arguments: ["gone", "empty", "zeros", "cut"], [false, true])
    func findsThatAJournalIsLost(_ how: String, _ wasThereAtFirst: Bool) throws {
        let rig = try rig()
        let shell = try rig.shell()
        try shell.execute(Self.spill)
        try shell.kill()
        if wasThereAtFirst { try rig.attach() }
        #expect(try pollLater(rig) == [])
        switch how {
        case "gone": try rig.put(nil, "-journal")
        case "empty": try rig.put([], "-journal")
        case "zeros": try rig.put([UInt8](repeating: 0, count: 4152), "-journal")
        default: #expect(truncate(rig.store.string + "-journal", 600) == 0)
        }
        #expect(try pollLater(rig) == [.changed])
        #expect(try pollLater(rig) == [])
    }

    /// Readers roll back the transaction, if it has written anything, in another database.
    @Test(arguments: [spill, small], [false, true])
    func findsACopyBesideAJournal(_ statement: String, _ keepsTimes: Bool) throws {
        let rig = try rig()
        let other = rig.directory.path.appending("other")
        let shell = try rig.shell()
        try shell.execute(statement)
        try shell.kill()
        #expect(try pollLater(rig) == [])
        try run("cp", [Word(rig.store), Word(other)])
        if keepsTimes { try run("touch", ["-r", Word(rig.store), Word(other)]) }
        try run("cp", ["--preserve=timestamps", Word(other), Word(rig.store)])
        #expect(try pollLater(rig) == [.changed])
        #expect(try pollLater(rig) == [])
    }

    // MARK: Killed within a commit

    /// A journal that holds page 1 of the database as it is, built as the format says
    /// (https://sqlite.org/fileformat2.html, §3).
    private func journal(of database: [UInt8], pages: [UInt32] = [1], count: UInt32? = nil) -> [UInt8] {
        func big(_ number: UInt32) -> [UInt8] { withUnsafeBytes(of: number.bigEndian) { Array($0) } }
        let pageSize = 4096
        var bytes: [UInt8] = [0xD9, 0xD5, 0x05, 0xF9, 0x20, 0xA1, 0x63, 0xD7]
        bytes += big(count ?? UInt32(pages.count)) + big(77) + big(2) + big(512) + big(UInt32(pageSize))
        bytes += [UInt8](repeating: 0, count: 512 - bytes.count)
        for page in pages {
            let content = Array(database[Int(page - 1) * pageSize..<Int(page) * pageSize])
            let sum = stride(from: pageSize - 200, to: 0, by: -200).reduce(UInt32(77)) { $0 + UInt32(content[$1]) }
            bytes += big(page) + content + big(sum)
        }
        return bytes
    }

    /// Counted in the database, but its journal undoes it.
    @Test(arguments: [[1], [2, 1]], [nil, 0xFFFF_FFFF]) func ignoresAnUnfinishedCommit(
        _ pages: [UInt32], _ count: UInt32?
    ) throws {
        let rig = try rig()
        let former = try rig.bytes()
        try rig.put(journal(of: former, pages: pages, count: count), "-journal")
        var written = former
        written[27] += 1
        try rig.put(written)
        #expect(try pollLater(rig) == [])
        try rig.put(former)
        try rig.put(nil, "-journal")
        #expect(try rig.findings() == [])
    }

    /// The journal was not synced, so SQLite ignores it.
    @Test func findsACommitBesideAnUnusedJournal() throws {
        let rig = try rig()
        var written = try rig.bytes()
        try rig.put(journal(of: written, count: 0), "-journal")
        written[27] += 1
        try rig.put(written)
        #expect(try pollLater(rig) == [.changed])
        #expect(try pollLater(rig) == [])
    }

    // MARK: A change of the journal mode

    /// The header may tell either mode before the change is committed.
    @Test func awaitsTheEndOfAChangeOfMode() throws {
        let rig = try ObserverRig { store in
            try ObserverRig.once(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (id INTEGER PRIMARY KEY, text)")
        }
        let reserved: Range<Int64> = 0x4000_0001..<0x4000_0002
        let locks = try RangeLocks(Descriptor(opening: rig.store, flags: O_RDWR))
        #expect(try locks.lock(.exclusive, reserved))
        var bytes = try rig.bytes()
        try rig.put(journal(of: bytes), "-journal")
        #expect(try rig.findings() == [])
        bytes[27] += 1
        try rig.put(bytes)
        try rig.put(nil, "-journal")
        locks.unlock(reserved)
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
    }

    /// The next program has opened the store when the last events of the change arrive.
    @Test func ignoresLateEventsOfAChangeOfMode() throws {
        let rig = try ObserverRig { store in
            try ObserverRig.once(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (id INTEGER PRIMARY KEY, text)")
        }
        try rig.once("PRAGMA journal_mode = DELETE; INSERT INTO note (text) VALUES ('x'); PRAGMA journal_mode = WAL")
        #expect(try rig.findings() == [.changed])
        let reader = try rig.shell()
        #expect(try rig.findings() == [])
        try rig.put([], "-journal")
        try rig.put(nil, "-journal")
        #expect(try rig.findings() == [])
        try reader.close()
        #expect(try rig.findings() == [])
    }

    @Test func findsAChangeOfModeAndBackOnce() throws {
        let rig = try ObserverRig { store in
            try ObserverRig.once(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (id INTEGER PRIMARY KEY, text)")
        }
        for number in 1...5 {
            try rig.once(
                """
                PRAGMA journal_mode = DELETE; INSERT INTO note (text) VALUES ('\(number)'); PRAGMA journal_mode = WAL
                """)
            #expect(try rig.findings() == [.changed])
            #expect(try rig.findings() == [])
        }
    }
}
