import LinuxSystem

/// The locks of a reader of a store in WAL mode, on the files of a branch. They wait for nobody, and no transaction
/// waits for them.
///
/// As long as a reader has a read mark, no checkpoint goes beyond it, and the log isn't begun anew
/// (https://sqlite.org/walformat.html, §2.3): a copy of the database agrees with a later one of the log. A reader has a
/// shared lock on the database too: else the last program to close the store would remove a log of which it could not
/// checkpoint all.
struct BranchReadLock {
    private let locks: [RangeLocks]
    /// The lock byte of the first read mark after 0, `WAL_READ_LOCK(1)`, which a log in use always has.
    private static let readMark: Range<Int64> = 124..<125
    /// The bytes of a SHARED lock (os.h).
    private static let shared: Range<Int64> = 0x4000_0002..<0x4000_0200

    /// Returns nil if a program has one of the bytes exclusively, or has ended.
    init?(_ database: BranchFile, _ index: BranchFile) {
        guard let reader = Self.lock(Self.shared, of: database), let mark = Self.lock(Self.readMark, of: index)
        else { return nil }
        locks = [mark, reader]
    }

    private static func lock(_ range: Range<Int64>, of file: BranchFile) -> RangeLocks? {
        guard let locks = try? RangeLocks(file.open()), (try? locks.lock(.shared, range)) == true else { return nil }
        return locks
    }
}
