import SQLiteFormat

/// Tells writes of a transaction with a journal from other writes, by the order of the kernel's events.
///
/// In rollback mode SQLite writes a database between the journal's beginning and its end. A write outside of that comes
/// from another program, such as a `cp` of a backup, and may leave the change counter unchanged.
struct JournalBracket {
    /// True if a journal was begun and its end wasn't seen.
    private var isInside = false
    /// True if the journal was created. Its removal will raise an event.
    private var wasCreated = false
    private var wasWritten = false
    /// True if the database was written outside of a transaction since the last settled poll.
    private(set) var wasWrittenOutside = false
    /// True if a program closed the database since the last settled poll, and no event reported a write. Writes to
    /// mapped memory raise none.
    private(set) var wasClosedUnwritten = false
    /// True if a program that keeps its journal in memory held its lock meanwhile.
    var wasLocked = false

    mutating func record(_ part: StorePart, created: Bool, modified: Bool, removed: Bool, closed: Bool) {
        switch part {
        case .journal:
            isInside = !removed
            wasCreated = !removed && (wasCreated || created)
        case .database:
            guard modified || closed else { return }
            wasWritten = wasWritten || modified
            wasClosedUnwritten = !wasWritten && !isInside
            // If the journal file persists, its end can't be told from its beginning. But a copying program closes the
            // file when done.
            if modified ? !isInside : wasWritten && isInside && !wasCreated { wasWrittenOutside = true }
        case .wal, .sharedMemory, .support: break
        }
    }

    /// Records a hot journal: a transaction that began earlier may still be rolled back.
    mutating func recordHotJournal() { isInside = true }

    /// Records that events were lost, perhaps a journal's end. Later writes belong to a transaction only if its journal
    /// is seen to begin, or a hot journal is found.
    mutating func recordLostEvents() { (isInside, wasCreated) = (false, false) }

    /// Records that all writes so far are evaluated. `hasJournal` is true if a journal file exists, which is not hot.
    mutating func settle(hasJournal: Bool) {
        (wasWritten, wasWrittenOutside, wasClosedUnwritten, wasLocked) = (false, false, false, false)
        // If the journal was created and is gone, the event of its removal is still to come.
        if !wasCreated || hasJournal { (isInside, wasCreated) = (false, false) }
    }
}
