import SQLiteFormat

/// Decides which look at a WAL finds its next commit, so that each commit is published once.
///
/// There are three looks, each dearer than the one before. The probe finds a commit like the last one, even before its
/// event is read. The fast path reads the wal-index when a write to the WAL is reported. The poll that follows either
/// looks at the whole store.
struct CommitDetector {
    enum State {
        /// The wal-index was not read since the last poll.
        case unread
        /// The wal-index was read, and showed no commit.
        case read
        /// The probe's commit was published, and its tables may be others. The poll reports it again.
        case unproven
        /// A commit was published, with its tables.
        case published
    }

    private(set) var state = State.unread
    /// What finds another commit like the last one; nil if there was none of that kind.
    private var probe: CommitProbe?
    private var probedTables = TableChanges.unknown

    /// The tables of the commit that the probe finds; nil if there is no probe.
    var expectedTables: TableChanges? { probe == nil ? nil : probedTables }

    /// True if the poll itself must wait for a commit to become visible.
    var leavesIndexUnread: Bool { state == .unread }

    /// True if a commit was published since the last poll.
    var hasPublished: Bool { state == .published }

    /// Looks once for a commit like the last one.
    @inline(__always) mutating func probeNext(_ map: TableTracker.TrackedMap?) -> CommitProbe.Finding {
        probe?.next(map) ?? .other
    }

    /// Records that the probe's commit was published. `isProven` is false if its tables may be others.
    mutating func recordProbed(isProven: Bool) { state = isProven ? .published : .unproven }

    /// Records that the wal-index was read. Returns true if there is a commit to publish.
    mutating func recordRead(showsCommit: Bool) -> Bool {
        switch (state, showsCommit) {
        case (_, true), (.unproven, false):
            state = .published
            return true
        case (.unread, false), (.read, false):
            state = .read
            return false
        // The poll that must follow comes first.
        case (.published, false): return false
        }
    }

    /// Records the end of a poll. Returns true if that poll must report a commit that was published unproven.
    mutating func endPoll() -> Bool {
        defer { state = .unread }
        return state == .unproven
    }

    /// Prepares the probe for a commit that writes the same trees as `commit`, the last one.
    ///
    /// - Parameter charge: The trees and the names of their tables; nil if nobody wants to know the tables.
    mutating func expect(
        after commit: WALPosition, _ charge: (trees: [Int], names: Set<ExactName>)?, in files: StoreFiles
    ) {
        if probe?.isValid(files, after: commit, trees: charge?.trees) == true { return }
        probe = CommitProbe(files, after: commit, trees: charge?.trees)
        probedTables = charge.map { TableChanges($0.names, isComplete: true) } ?? .unknown
    }

    /// Discards the probe: the next commit may be of any kind.
    mutating func expectNothing() { probe = nil }
}
