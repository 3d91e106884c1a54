import SQLiteFormat

/// Programs that open a store in WAL mode make its side files, and the last one to close it removes them: a session.
/// When one came and went between two looks, only the events tell of it: the database was written, and the index
/// removed. Events come late: those of a session whose index was read to its end are owed, and don't count.
struct WALSessionTracker {
    /// How many sessions ended, and in how many of them something was written.
    private struct Count {
        var all = 0
        var written = 0

        mutating func add(written isWritten: Bool) {
            all += 1
            if isWritten { written += 1 }
        }
    }

    /// The database was written since the last session's end.
    private(set) var isModified = false
    /// And then a session began: what was written had been in no log.
    private var isModifiedBetween = false
    /// By the events since the last look.
    private var ended = Count()
    /// Observed ones whose events are still to come.
    private var owed = Count()

    mutating func note(_ part: StorePart, created: Bool, modified: Bool, removed: Bool) {
        switch part {
        case .database: if modified { isModified = true }
        case .sharedMemory:
            if created, isModified {
                isModified = false
                isModifiedBetween = true
            }
            if removed { end() }
        // The index goes first. Without one, in exclusive mode, the log's going is the session's end.
        case .wal: if removed, isModified { end() }
        case .journal, .support: break
        }
    }

    private mutating func end() {
        ended.add(written: isModified)
        isModified = false
    }

    /// What was noted of the database until now was seen: only what comes is still to be told.
    mutating func observedWrite() { isModified = false }

    /// Whether the database was written between two sessions since the last look, by a copy over it.
    mutating func takeModifiedBetween() -> Bool {
        defer { isModifiedBetween = false }
        return isModifiedBetween
    }

    mutating func observedOneEnded(hasCommitted: Bool) { owed.add(written: hasCommitted) }

    /// Whether a session that nobody saw wrote the database since the last look.
    mutating func takeMissed() -> Bool {
        defer { ended = Count() }
        let isMissed = ended.written > owed.written
        // Once there were as many ends as are owed, none of them is still to come.
        if ended.all >= owed.all {
            owed = Count()
        } else {
            owed.all -= ended.all
            owed.written = max(0, owed.written - ended.written)
        }
        return isMissed
    }
}
