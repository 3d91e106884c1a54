import LinuxSystem
import SQLiteFormat

/// Commits in a log that no index tells of. A program in exclusive mode keeps its index to itself, and leaves a log
/// without one when it is killed; whoever opens the store next finds what is in it.
struct AbandonedWAL {
    /// Of the log that is known to hold nothing new.
    var known: StoreFiles.Stamp?
    /// To read a log again and again while somebody writes it must not become a burden. And one that was written just
    /// now is read again.
    private var readAgainAt: ContinuousClock.Instant?
    private static let restFactor = 20

    /// How long the log is not to be read yet.
    var rest: Duration? {
        readAgainAt.map { ContinuousClock.now.duration(to: $0) }.flatMap { $0 > .zero ? $0 : nil }
    }

    /// The last commit in the log, when it isn't `commit`, and the log isn't the one that is known.
    mutating func commit(otherThan commit: WALPosition, in files: StoreFiles) throws -> WALPosition? {
        guard let stamp = try files.logStamp(), stamp.size > 0, stamp != known else { return nil }
        let began = ContinuousClock.now
        let left = try files.leftCommit()
        readAgainAt = .now.advanced(by: began.duration(to: .now) * Self.restFactor)
        if let left, left.checksum != commit.checksum { return left }
        keep(stamp)
        return nil
    }

    /// There was nothing new in the log, whose stamp is from before it was read.
    private mutating func keep(_ stamp: StoreFiles.Stamp) {
        known = stamp.whenSettled
        if known == nil { readAgainAt = max(readAgainAt ?? .now, .now.advanced(by: FileTime.resolution)) }
    }

    /// As `commit`, of a log whose index may be an earlier session's.
    mutating func commit(beyond index: WriteAheadIndex, _ commit: WALPosition, in files: StoreFiles) throws
        -> WALPosition?
    {
        guard let stamp = try files.logStamp(), stamp.size > 0, stamp != known else { return nil }
        if let left = try files.leftCommit(beyond: index), left.checksum != commit.checksum { return left }
        keep(stamp)
        return nil
    }
}

/// Commits that were found while a program kept everybody else from reading.
struct LockedCommits {
    /// When the database was written last, as of the first one.
    var stamp: StoreFiles.Stamp?
    var count = 1
}
