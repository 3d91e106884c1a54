import LinuxSystem
import SQLiteFormat

/// Finds commits in a WAL that no index reports. A program in exclusive mode keeps its index in private memory, and
/// other engines keep none; so does a killed one, which leaves a WAL without an index or beside an older one. The next
/// program to open the store recovers its content.
struct AbandonedWAL {
    /// The content of a WAL that its index doesn't report.
    enum Finding {
        /// The log has nothing new.
        case nothing
        /// A commit other than the last known one.
        case commit(WALPosition)
        /// No commit, although the index reports one, or another one was known.
        case emptied
    }

    /// A WAL that has lost its commits.
    struct Emptied {
        /// The index beside it.
        let index: WriteAheadIndex?
    }

    /// The stamp of the WAL that is known to hold nothing new.
    var inspectedStamp: StoreFiles.Stamp?
    /// True while the last published commit is in a WAL without an index. No session has ended then, so if the WAL is
    /// emptied or removed, readers see the commit vanish.
    var holdsPublishedCommit = false { didSet { hasLostCommit = false } }
    /// True if the last read found that it no longer has that commit, nor any other.
    private(set) var hasLostCommit = false
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
        guard let stamp = try files.walStamp(), stamp.size > 0 else {
            hasLostCommit = holdsPublishedCommit
            return nil
        }
        guard stamp != inspectedStamp else { return nil }
        let began = ContinuousClock.now
        let found = try files.lastLoggedCommit()
        nextRead = .now.advanced(by: began.duration(to: .now) * Self.cooldownFactor)
        hasLostCommit = found.frame == 0 && holdsPublishedCommit
        if found.frame > 0, found.checksum != commit.checksum { return found }
        recordNothingNew(stamp)
        return nil
    }

    /// Records that the WAL holds nothing new. `stamp` was taken before the read.
    private mutating func recordNothingNew(_ stamp: StoreFiles.Stamp) {
        inspectedStamp = stamp.whenSettled
        if inspectedStamp == nil { nextRead = max(nextRead ?? .now, .now.advanced(by: FileTime.resolution)) }
    }

    /// Returns what the WAL holds that its index doesn't report.
    mutating func inspect(
        beside index: WriteAheadIndex?, otherThan commit: WALPosition, in files: StoreFiles
    ) throws -> Finding {
        let stamp = try files.walStamp() ?? .absent
        guard stamp != inspectedStamp else { return .nothing }
        let known = [commit] + [index.map(WALPosition.init)].compactMap(\.self)
        let last = try files.lastLoggedCommit(beyond: known)
        if last.frame == 0 {
            // After a reset, the index has the checksum of the last commit.
            let isKnown = commit.frame == 0 || index?.checksum == commit.checksum
            if index?.lastFrame ?? 0 > 0 || !isKnown { return .emptied }
        } else if index?.reports(last) != true, last.checksum != commit.checksum {
            return .commit(last)
        }
        recordNothingNew(stamp)
        return .nothing
    }
}

/// The commits found while a program locked out every reader.
struct LockedCommits {
    /// The database's stamp at the first of these commits; nil if no index reports them.
    var stamp: StoreFiles.Stamp?
    var count = 1
}
