/// The fast path of a WAL event, a state machine: read the wal-index and publish the commit that it shows; then poll
/// the whole store.
///
/// Each commit is reported exactly once. If its tables can't be named yet, the caller reads the queued events first;
/// if the caller doesn't, the poll reports the commit.
struct FastPath: Equatable {
    enum State {
        /// The wal-index was not read since the last poll.
        case idle
        /// The wal-index was read, and showed no commit.
        case read
        /// The wal-index showed a commit, whose tables can't be named before the queued events are read.
        case found
        /// The commit was handed to the caller, which publishes it.
        case published
    }

    /// The caller's next step.
    enum Step {
        case poll, readEvents, publish
    }

    private(set) var state = State.idle

    /// Records that the wal-index was read.
    mutating func indexWasRead(showsCommit: Bool, needsEvents: Bool) -> Step {
        switch (state, showsCommit) {
        case (.idle, false), (.read, false):
            state = .read
            return .poll
        // The poll that must follow comes first.
        case (.published, false): return .poll
        case (.found, _), (_, true):
            state = needsEvents ? .found : .published
            return needsEvents ? .readEvents : .publish
        }
    }

    /// Records that the queued events were read, so that the tables are known as far as they ever will be.
    mutating func eventsWereRead() -> Step {
        guard state == .found else { return .poll }
        state = .published
        return .publish
    }

    /// Records that a commit was published before the wal-index was read. `isProven` is false if its tables may be
    /// others, so that the poll must report it again.
    mutating func commitWasPublished(isProven: Bool) { state = isProven ? .published : .found }

    /// True if the poll itself must wait for a commit to become visible.
    var leavesIndexUnread: Bool { state == .idle }

    /// True if a commit was published since the last poll.
    var hasPublished: Bool { state == .published }

    /// Records the end of a poll. Returns true if that poll must report a commit that the fast path found and didn't
    /// publish.
    mutating func pollEnded() -> Bool {
        defer { state = .idle }
        return state == .found
    }
}
