import ChangeFeed
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Commits and writes beside a wal-index that reports something else, or nothing.
@Suite(.ownThreads) struct StaleIndexTests {
    /// What a program left beside the database. `log` and `index` are nil if there is no such file.
    enum State: String, CaseIterable, CustomTestStringConvertible {
        case noSideFiles, emptyLogWithoutIndex, logWithoutIndex
        case zeroedIndex, zeroedIndexWithLog
        /// A read-only reader or a killed one recovered an empty log.
        case emptyIndex, emptyIndexWithLog
        /// A checkpoint reset the log. Its frames may still stand.
        case resetIndex, resetIndexWithFormerLog
        case matchingIndex, checkpointedIndex
        case indexBehindLog, indexAheadOfLog, indexOfAnotherLog
        case indexOfAnEmptiedLog, indexOfARemovedLog

        var testDescription: String { rawValue }

        var log: LogBytes? {
            switch self {
            case .logWithoutIndex, .zeroedIndexWithLog, .emptyIndexWithLog, .resetIndexWithFormerLog, .matchingIndex,
                .checkpointedIndex, .indexBehindLog, .indexAheadOfLog, .indexOfAnotherLog:
                .commits(2)
            default: nil
            }
        }

        var hasLogFile: Bool { self != .noSideFiles && self != .indexOfARemovedLog }

        var index: [UInt8]? {
            switch self {
            case .noSideFiles, .emptyLogWithoutIndex, .logWithoutIndex: nil
            case .zeroedIndex, .zeroedIndexWithLog: [UInt8](repeating: 0, count: 32768)
            case .emptyIndex, .emptyIndexWithLog: LogBytes.emptyIndex
            case .resetIndex, .resetIndexWithFormerLog: LogBytes.commits(2).indexAfterReset()
            case .matchingIndex: LogBytes.commits(2).index(commits: 2)
            case .checkpointedIndex: LogBytes.commits(2).index(commits: 2, backfilled: 2)
            case .indexBehindLog: LogBytes.commits(1).index(commits: 1)
            case .indexAheadOfLog: LogBytes.commits(4).index(commits: 4)
            case .indexOfAnotherLog, .indexOfAnEmptiedLog, .indexOfARemovedLog:
                LogBytes.commits(2, salt: 7).index(commits: 2)
            }
        }

        /// The states in which a program without an index can append to the log.
        static let withLog = allCases.filter { $0.log != nil }
        /// The states in which an index file exists.
        static let withIndex = allCases.filter { $0.index != nil }
    }

    /// The database, closed, in WAL mode.
    private static let database: Result<[UInt8], any Error> = Result {
        let directory = try TemporaryDirectory()
        let store = directory.path.appending("Notes.sqlite")
        try ObserverRig.once(store, "PRAGMA journal_mode = WAL; CREATE TABLE note (id INTEGER PRIMARY KEY, text)")
        let file = try Descriptor(opening: store, flags: O_RDONLY)
        return try file.read(count: 2 * LogBytes.pageSize, at: 0)
    }

    /// - Parameter isEncrypted: True if the header can't be read.
    private func rig(_ state: State, isEncrypted: Bool = false) throws -> ObserverRig {
        var database = try Self.database.get()
        if isEncrypted { database.replaceSubrange(..<100, with: [UInt8](repeating: 0xE5, count: 100)) }
        let rig = try ObserverRig { store in
            try ObserverRig.put(database, at: store)
            if state.hasLogFile { try ObserverRig.put(state.log?.bytes ?? [], at: FilePath(store.string + "-wal")) }
            if let index = state.index { try ObserverRig.put(index, at: FilePath(store.string + "-shm")) }
            // Before Linux 6.13, a write within one tick of the clock leaves the time as it is.
            let past = timespec(tv_sec: 1_700_000_000, tv_nsec: 0)
            for suffix in ["", "-wal"] { utimensat(AT_FDCWD, store.string + suffix, [past, past], 0) }
        }
        // A token says more once a file's times are older than the clock's tick.
        pause(.milliseconds(20))
        #expect(try rig.findings() == [])
        #expect(rig.poll().finding == .unchanged)
        return rig
    }

    /// Runs `write`, and checks that it is found once, and that a token from before tells it.
    private func expectChange(
        _ state: State, isEncrypted: Bool = false, _ write: (ObserverRig) throws -> Void
    ) throws {
        let rig = try rig(state, isEncrypted: isEncrypted)
        let before = try #require(rig.position)
        #expect(try before.difference(to: #require(rig.presentPosition)) == .none)
        try write(rig)
        let present = try #require(rig.presentPosition)
        #expect(before.difference(to: present) != .none)
        // A token that is asked for now doesn't claim what is not published yet.
        #expect(try #require(rig.position).difference(to: present) != .none)
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
        for _ in 0..<3 {
            let found = rig.poll()
            #expect(found.finding == .unchanged)
            // A doubt that is due must not become a change.
            if let delay = found.nextPollDelay { pause(delay) }
        }
        #expect(try before.difference(to: #require(rig.position)) != .none)
    }

    // MARK: Writes by programs that keep no index

    @Test(arguments: State.withLog, [false, true]) func findsACommit(_ state: State, isEncrypted: Bool) throws {
        try expectChange(state, isEncrypted: isEncrypted) { rig in
            var log = try #require(state.log)
            log.append(9)
            try rig.put(log.bytes, "-wal")
        }
    }

    @Test(arguments: State.allCases, [false, true])
    func findsACommitInARestartedLog(_ state: State, isEncrypted: Bool) throws {
        try expectChange(state, isEncrypted: isEncrypted) { try $0.put(LogBytes.commits(1, salt: 5).bytes, "-wal") }
    }

    /// A copy over a store that nobody has open. The log's frames are read with it.
    @Test(arguments: State.allCases, [false, true]) func findsACopy(_ state: State, isEncrypted: Bool) throws {
        try expectChange(state, isEncrypted: isEncrypted) { rig in
            try rig.put(rig.bytes().dropLast(8) + [1, 2, 3, 4, 5, 6, 7, 8])
        }
    }

    /// Exclusive mode's checkpoint, and what other engines do when they close a store.
    @Test(arguments: State.allCases, [false, true])
    func findsACheckpointedCommit(_ state: State, isEncrypted: Bool) throws {
        try expectChange(state, isEncrypted: isEncrypted) { rig in
            try rig.put(LogBytes.commits(1, salt: 5).bytes, "-wal")
            try rig.putPage(9)
            try rig.put([], "-wal")
        }
    }

    /// The same, where the last program removes the log.
    @Test(arguments: State.withIndex, [false, true])
    func findsACheckpointedCommitWithoutALog(_ state: State, isEncrypted: Bool) throws {
        try expectChange(state, isEncrypted: isEncrypted) { rig in
            try rig.put(LogBytes.commits(1, salt: 5).bytes, "-wal")
            try rig.putPage(9)
            try rig.put(nil, "-wal")
        }
    }

    /// Readers of a store see its log's commits vanish, unless a checkpoint has copied them.
    @Test(arguments: [State.matchingIndex, .indexBehindLog, .emptyIndexWithLog, .logWithoutIndex], [false, true])
    func findsTheLossOfALog(_ state: State, isEncrypted: Bool) throws {
        try expectChange(state, isEncrypted: isEncrypted) { try $0.put([], "-wal") }
    }

    // MARK: What is no change

    @Test(arguments: State.allCases, [false, true])
    func ignoresAnUncommittedTransaction(_ state: State, isEncrypted: Bool) throws {
        let rig = try rig(state, isEncrypted: isEncrypted)
        var log = state.log ?? LogBytes(salt: 5)
        log.append(9, isCommit: false)
        try rig.put(log.bytes, "-wal")
        #expect(try rig.findings() == [])
    }

    @Test(arguments: State.withIndex, [false, true])
    func ignoresARecoveredIndex(_ state: State, isEncrypted: Bool) throws {
        let rig = try rig(state, isEncrypted: isEncrypted)
        try rig.put(state.log?.index() ?? LogBytes.emptyIndex, "-shm")
        #expect(try rig.findings() == [])
    }

    /// The commit is published when it is in the log, whichever program recovers the index.
    @Test(arguments: State.withIndex) func findsARecoveredCommitOnce(_ state: State) throws {
        let rig = try rig(state)
        var log = state.log ?? LogBytes(salt: 5)
        log.append(9)
        try rig.put(log.bytes, "-wal")
        #expect(try rig.findings() == [.changed])
        try rig.mapIndex(log.index())
        #expect(rig.poll().finding == .unchanged)
        // A program that keeps the index commits after it.
        log.append(10)
        try rig.put(log.bytes, "-wal")
        try rig.mapIndex(log.index(commits: 1))
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
    }

    @Test func ignoresACheckpoint() throws {
        let rig = try rig(.matchingIndex)
        let log = LogBytes.commits(2)
        try rig.putPage(1)
        try rig.mapIndex(log.index(commits: 2, backfilled: 2))
        #expect(try rig.findings() == [])
        // The database has what the log had.
        try rig.mapIndex(log.indexAfterReset(commits: 2))
        try rig.put([], "-wal")
        #expect(try rig.findings() == [])
    }

    /// Its writes to the database are seen before the index shows its end.
    @Test func ignoresACheckpointUnderWay() throws {
        let rig = try rig(.matchingIndex)
        let locks = try RangeLocks(Descriptor(opening: FilePath(rig.store.string + "-shm"), flags: O_RDWR))
        #expect(try locks.lock(.exclusive, 121..<122))
        try rig.putPage(1)
        #expect(try rig.findings() == [])
        try rig.mapIndex(LogBytes.commits(2).index(commits: 2, backfilled: 2))
        locks.unlock(121..<122)
        #expect(try rig.findings() == [])
        try rig.putPage(7)
        #expect(try rig.findings() == [.changed])
    }

    @Test func ignoresAChangeOfMode() throws {
        let rig = try rig(.emptyIndex)
        #expect(chmod(rig.store.string, 0o600) == 0)
        #expect(try rig.findings() == [])
    }

    // MARK: Tables

    /// A page map of what the index reports lacks the log's commits.
    @Test(arguments: [State.indexBehindLog, .indexOfAnotherLog, .emptyIndexWithLog])
    func namesNoTablesBesideAStaleIndex(_ state: State) throws {
        let rig = try rig(state)
        try rig.findTables()
        var log = try #require(state.log)
        let found = try rig.tables {
            log.append(9)
            try rig.put(log.bytes, "-wal")
        }
        #expect(!found.isComplete)
    }
}
