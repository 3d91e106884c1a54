import ChangeFeed
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

/// Stores whose header nobody can read without the key. Their side files and locks are those of any other store.
@Suite(.ownThreads) struct EncryptedStoreTests {
    private static let (reserved, shared): (Range<Int64>, Range<Int64>) = (
        0x4000_0001..<0x4000_0002, 0x4000_0002..<0x4000_0200
    )

    private func rig(index: [UInt8]? = nil, log: [UInt8]? = nil) throws -> ObserverRig {
        try ObserverRig { store in
            try ObserverRig.put([UInt8](repeating: 0xE5, count: 2 * LogBytes.pageSize), at: store)
            try ObserverRig.put(log, at: FilePath(store.string + "-wal"))
            try ObserverRig.put(index, at: FilePath(store.string + "-shm"))
            for suffix in ["", "-wal"] { Self.setBackTimes(store.string + suffix) }
        }
    }

    private static func setBackTimes(_ path: String) {
        let past = timespec(tv_sec: 1_700_000_000, tv_nsec: 0)
        utimensat(AT_FDCWD, path, [past, past], 0)
    }

    /// The locks of a program. They are released when it is gone.
    private func locks(_ rig: ObserverRig, _ range: Range<Int64> = shared) throws -> RangeLocks {
        let locks = try RangeLocks(Descriptor(opening: rig.store, flags: O_RDWR))
        #expect(try locks.lock(.exclusive, range))
        return locks
    }

    /// Ends the program that holds the locks, as the kernel would. The event of its last close tells the observer, so
    /// no process that another test is starting may have the file open: `.ownDescriptors`.
    private static func end(_ locks: inout RangeLocks?) {
        locks?.unlock(reserved.lowerBound..<shared.upperBound)
        locks = nil
    }

    /// It keeps its index in private memory. A killed program may have left one.
    @Test(.ownDescriptors, arguments: [false, true], [false, true])
    func findsCommitsInExclusiveMode(besideAnIndex: Bool, isKilled: Bool) throws {
        let rig = try rig(index: besideAnIndex ? LogBytes.emptyIndex : nil, log: besideAnIndex ? [] : nil)
        var locks: RangeLocks? = try locks(rig)
        #expect(try rig.findings() == [])
        try rig.put(LogBytes.commits(1).bytes, "-wal")
        #expect(try rig.findings() == [.discontinued(.unreadable)])
        try rig.put(LogBytes.commits(2).bytes, "-wal")
        #expect(try rig.findings() == [])
        if !isKilled {
            try rig.putPage(2)
            try rig.put(nil, "-wal")
        }
        #expect(locks != nil)
        Self.end(&locks)
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
    }

    /// Such as a copy with the times of its original.
    @Test func findsAWriteThatKeepsItsTimes() throws {
        let rig = try rig()
        #expect(try rig.findings() == [])
        for page in UInt8(1)...2 {
            try rig.putPage(page)
            Self.setBackTimes(rig.store.string)
            #expect(try rig.findings() == [.changed])
        }
        #expect(try rig.findings() == [])
    }

    /// Its journal is a file or in memory, and it ignores the index that a program in WAL mode has left.
    @Test(arguments: ["none", "empty", "zeroed"], [false, true])
    func findsCommitsInExclusiveRollbackMode(index: String, hasJournal: Bool) throws {
        let indexes = ["empty": LogBytes.emptyIndex, "zeroed": [UInt8](repeating: 0, count: 32768)]
        let rig = try rig(index: indexes[index])
        let locks = try locks(rig)
        if hasJournal { try rig.put(Self.hotJournal, "-journal") }
        try rig.putPage(1)
        if hasJournal { try rig.put([], "-journal") }
        #expect(try rig.findings() == [.discontinued(.unreadable)])
        try rig.putPage(2)
        #expect(try rig.findings() == [])
        locks.unlock(Self.shared)
        #expect(rig.poll().finding == .changed)
        #expect(try rig.findings() == [])
    }

    /// Only its journal tells it from the log's last checkpoint.
    @Test(arguments: [false, true]) func findsATransactionAtTheEndOfWALMode(isPolledBefore: Bool) throws {
        let rig = try rig(index: LogBytes.emptyIndex, log: [])
        #expect(try rig.findings() == [])
        for suffix in ["-wal", "-shm"] { try rig.put(nil, suffix) }
        if isPolledBefore { #expect(try rig.findings() == []) }
        try rig.put(Self.hotJournal, "-journal")
        try rig.putPage(2)
        try rig.put([], "-journal")
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
    }

    private static let hotJournal: [UInt8] = [0xD9, 0xD5, 0x05, 0xF9, 0x20, 0xA1, 0x63, 0xD7, 0, 0, 0, 0]

    /// A transaction that spills is no commit, and locks readers out.
    @Test func awaitsTheEndOfATransaction() throws {
        let rig = try rig()
        let locks = try locks(rig, Self.reserved.lowerBound..<Self.shared.upperBound)
        try rig.put(Self.hotJournal, "-journal")
        for page in UInt8(1)...3 {
            try rig.putPage(page)
            #expect(try rig.findings() == [])
        }
        try rig.put(nil, "-journal")
        locks.unlock(Self.reserved.lowerBound..<Self.shared.upperBound)
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
    }

    /// Nobody rolls it back, and nobody can tell it from a commit.
    @Test(.ownDescriptors) func findsWhatAKilledProgramWrote() throws {
        let rig = try rig()
        var locks: RangeLocks? = try locks(rig)
        try rig.put(Self.hotJournal, "-journal")
        try rig.putPage(1)
        #expect(try rig.findings() == [])
        #expect(locks != nil)
        Self.end(&locks)
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
    }

    /// The program that was interrupted is gone.
    @Test(arguments: [nil, [UInt8](repeating: 0, count: 512)])
    func findsThatAJournalIsGone(_ rest: [UInt8]?) throws {
        let rig = try ObserverRig { store in
            try ObserverRig.put([UInt8](repeating: 0xE5, count: 2 * LogBytes.pageSize), at: store)
            let counts: [UInt8] = [0, 0, 0, 1, 0, 0, 0, 77, 0, 0, 0, 2, 0, 0, 2, 0, 0, 0, 16, 0]
            try ObserverRig.put(Self.hotJournal.prefix(8) + counts, at: FilePath(store.string + "-journal"))
        }
        #expect(try rig.findings() == [])
        try rig.put(rest, "-journal")
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
    }

    /// There was no poll before it.
    @Test func findsTheFirstWrite() throws {
        let rig = try rig()
        try rig.putPage(1)
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
    }

    @Test func tokensOfAnIdleStoreTellNothing() throws {
        let rig = try rig()
        // A token says more once a file's times are older than the clock's tick.
        pause(.milliseconds(20))
        let before = try #require(rig.presentPosition)
        #expect(try before.difference(to: #require(rig.presentPosition)) == .none)
        try rig.putPage(1)
        #expect(try before.difference(to: #require(rig.presentPosition)) == .changed)
    }

    /// A store in rollback mode that loses its header.
    @Test func findsThatAStoreIsEmptied() throws {
        let rig = try ObserverRig { try ObserverRig.once($0, "CREATE TABLE note (text)") }
        try rig.once("INSERT INTO note VALUES ('x')")
        #expect(try rig.findings() == [.changed])
        try rig.put([])
        #expect(try rig.findings() == [.changed])
        #expect(try rig.findings() == [])
    }
}
