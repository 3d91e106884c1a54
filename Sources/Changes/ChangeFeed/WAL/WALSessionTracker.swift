import SQLiteFormat

/// Counts sessions of a store in WAL mode. The first program to open the store creates its side files and the last one
/// to close it removes them.
///
/// A session that began and ended between two polls shows in the events alone: the database was written and the index
/// removed. Events arrive late. Those of a session whose index was read to its end are still owed, and don't count.
struct WALSessionTracker {
    /// The number of ended sessions, and of those that wrote something.
    private struct Count {
        var all = 0
        var written = 0

        mutating func add(written isWritten: Bool) {
            all += 1
            if isWritten { written += 1 }
        }
    }

    /// True if the database was written since the last session's end.
    private(set) var isModified = false
    /// True if a session began after such a write, so that the written content was in no WAL.
    private var isModifiedBetween = false
    /// The sessions that ended since the last poll, by their events.
    private var ended = Count()
    /// The observed sessions whose events are still to come.
    private var owed = Count()
    /// True if events were lost since the last poll, perhaps those of a session's end.
    private var hasLostEvents = false

    mutating func record(_ part: StorePart, created: Bool, modified: Bool, removed: Bool) {
        switch part {
        case .database: if modified { isModified = true }
        case .sharedMemory:
            if created, isModified {
                isModified = false
                isModifiedBetween = true
            }
            if removed { recordEnd() }
        // The index goes first. Without an index, in exclusive mode, the WAL's removal ends the session.
        case .wal: if removed, isModified { recordEnd() }
        case .journal, .support: break
        }
    }

    private mutating func recordEnd() {
        ended.add(written: isModified)
        isModified = false
    }

    /// Records that the writes so far were observed. Only later ones need publishing.
    mutating func recordWrite() { isModified = false }

    /// Returns true if a copy overwrote the database between two sessions since the last poll.
    mutating func takeModifiedBetween() -> Bool {
        defer { isModifiedBetween = false }
        return isModifiedBetween
    }

    mutating func recordObservedEnd(hasCommitted: Bool) {
        if !hasLostEvents { owed.add(written: hasCommitted) }
    }

    /// Records that events were lost. None is owed any more: events that come after all, of a session that was
    /// observed, report it twice, but those of a later session must not be taken for them.
    mutating func recordLostEvents() {
        owed = Count()
        hasLostEvents = true
    }

    /// Returns true if an unobserved session wrote the database since the last poll.
    mutating func takeMissed() -> Bool {
        defer { (ended, hasLostEvents) = (Count(), false) }
        let isMissed = ended.written > owed.written
        // When as many ends arrived as are owed, none of the owed ones is outstanding.
        if ended.all >= owed.all {
            owed = Count()
        } else {
            owed.all -= ended.all
            owed.written = max(0, owed.written - ended.written)
        }
        return isMissed
    }
}
