import SQLiteFormat

/// The number of times a store's side files were created and its WAL index was written with write(2), over all events
/// so far.
///
/// SQLite creates `-wal` and `-shm` with the first connection and removes them with the last, and the kernel reports
/// every dropped event. So if the counts of two sessions are consecutive, no session came between them.
package struct SideFileEventCounts: Equatable, Sendable {
    /// The number of created `-shm` files.
    package var indexesCreated = 0
    /// The number of created `-wal` files.
    package var walsCreated = 0
    /// The writes to the index. SQLite itself writes it through mapped memory. It truncates the file to create or
    /// recover it, and writes it to grow it.
    package var indexWrites = 0

    package init() {}

    /// Counts one file event.
    package mutating func record(_ part: StorePart, created: Bool, modified: Bool) {
        switch part {
        case .sharedMemory:
            if created { indexesCreated += 1 }
            if modified { indexWrites += 1 }
        case .wal: if created { walsCreated += 1 }
        case .database, .journal, .support: break
        }
    }

    static func + (left: SideFileEventCounts, right: SideFileEventCounts) -> SideFileEventCounts {
        var sum = left
        sum.indexesCreated += right.indexesCreated
        sum.walsCreated += right.walsCreated
        sum.indexWrites += right.indexWrites
        return sum
    }

    /// True if no other session came between this one and `former`.
    func follows(_ former: SideFileEventCounts) -> Bool {
        indexesCreated == former.indexesCreated + 1 && walsCreated == former.walsCreated + 1
    }

    /// True if no session began since `former`.
    func isSameSession(as former: SideFileEventCounts) -> Bool {
        indexesCreated == former.indexesCreated && walsCreated == former.walsCreated
    }
}
