/// The fast path of a WAL event, a state machine: read the wal-index and publish the commit that it shows; then poll
/// the whole store.
///
/// Each commit is reported exactly once, by the fast path or by the poll that follows.
struct FastPath: Equatable {
    enum State {
        /// The wal-index was not read since the last poll.
        case unread
        /// The wal-index was read, and showed no commit.
        case read
        /// A commit was published, whose tables may be others. The poll reports it again.
        case unproven
        /// The commit was handed to the caller, which publishes it.
        case published
    }

    private(set) var state = State.unread

    /// Records that the wal-index was read. Returns true if there is a commit to publish.
    mutating func indexWasRead(showsCommit: Bool) -> Bool {
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

    /// Records that a commit was published before the wal-index was read. `isProven` is false if its tables may be
    /// others.
    mutating func commitWasPublished(isProven: Bool) { state = isProven ? .published : .unproven }

    /// True if the poll itself must wait for a commit to become visible.
    var leavesIndexUnread: Bool { state == .unread }

    /// True if a commit was published since the last poll.
    var hasPublished: Bool { state == .published }

    /// Records the end of a poll. Returns true if that poll must report a commit that was published unproven.
    mutating func pollEnded() -> Bool {
        defer { state = .unread }
        return state == .unproven
    }
}
