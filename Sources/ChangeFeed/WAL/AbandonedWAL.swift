import LinuxSystem
import SQLiteFormat

/// Finds commits in a WAL that no index reports. A program in exclusive mode keeps its index in private memory, and a
/// killed one leaves a WAL without an index. The next program to open the store recovers its content.
struct AbandonedWAL {
    /// The stamp of the WAL that is known to hold nothing new.
    var inspectedStamp: StoreFiles.Stamp?
    /// The time of the next read. It limits the cost of re-reading a WAL that is being written, and schedules another
    /// read of one that was written just now.
    private var nextRead: ContinuousClock.Instant?
    private static let cooldownFactor = 20

    /// The time until the WAL may be read again.
    var cooldown: Duration? {
        nextRead.map { ContinuousClock.now.duration(to: $0) }.flatMap { $0 > .zero ? $0 : nil }
    }

    /// Returns the last commit in the WAL, or nil if it equals `commit` or the WAL has not changed since it was read.
    mutating func commit(otherThan commit: WALPosition, in files: StoreFiles) throws -> WALPosition? {
        guard let stamp = try files.walStamp(), stamp.size > 0, stamp != inspectedStamp else { return nil }
        let began = ContinuousClock.now
        let found = try files.abandonedCommit()
        nextRead = .now.advanced(by: began.duration(to: .now) * Self.cooldownFactor)
        if let found, found.checksum != commit.checksum { return found }
        recordNothingNew(stamp)
        return nil
    }

    /// Records that the WAL holds nothing new. `stamp` was taken before the read.
    private mutating func recordNothingNew(_ stamp: StoreFiles.Stamp) {
        inspectedStamp = stamp.whenSettled
        if inspectedStamp == nil { nextRead = max(nextRead ?? .now, .now.advanced(by: FileTime.resolution)) }
    }

    /// Returns the last commit like `commit(otherThan:in:)`, for a WAL whose index may belong to an earlier session.
    mutating func commit(beyond index: WriteAheadIndex, otherThan commit: WALPosition, in files: StoreFiles) throws
        -> WALPosition?
    {
        guard let stamp = try files.walStamp(), stamp.size > 0, stamp != inspectedStamp else { return nil }
        if let found = try files.abandonedCommit(beyond: index), found.checksum != commit.checksum { return found }
        recordNothingNew(stamp)
        return nil
    }
}

/// The commits found while a program locked out every reader.
struct LockedCommits {
    /// The database's stamp at the first of these commits.
    var stamp: StoreFiles.Stamp?
    var count = 1
}
