import SQLiteFormat

/// How often, by all events so far, a store's side files were made and the index was written with write(2).
///
/// SQLite makes `-wal` and `-shm` with the first connection and removes them with the last, and the kernel drops no
/// event without saying so: of two sessions whose numbers follow on each other, one followed on the other.
package struct SideFileEventCounts: Equatable, Sendable {
    package var indexesMade = 0
    package var logsMade = 0
    /// SQLite itself writes the index through memory; it is truncated when it is made or recovered, and written to
    /// grow.
    package var indexWrites = 0

    package init() {}

    package mutating func note(_ part: StorePart, created: Bool, modified: Bool) {
        switch part {
        case .sharedMemory:
            if created { indexesMade += 1 }
            if modified { indexWrites += 1 }
        case .wal: if created { logsMade += 1 }
        case .database, .journal, .support: break
        }
    }

    static func + (left: SideFileEventCounts, right: SideFileEventCounts) -> SideFileEventCounts {
        var sum = left
        sum.indexesMade += right.indexesMade
        sum.logsMade += right.logsMade
        sum.indexWrites += right.indexWrites
        return sum
    }

    /// Whether no other session came between this one and `former`.
    func follows(_ former: SideFileEventCounts) -> Bool {
        indexesMade == former.indexesMade + 1 && logsMade == former.logsMade + 1
    }

    /// Whether no session began since.
    func isSameSession(as former: SideFileEventCounts) -> Bool {
        indexesMade == former.indexesMade && logsMade == former.logsMade
    }
}
