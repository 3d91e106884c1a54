import SQLiteFormat

/// Tells writes that belong to a transaction with a journal from others, by the order of the kernel's events.
///
/// SQLite writes a database in rollback mode between the journal's beginning and its end. What is written outside of
/// that was put there by another program, such as a `cp` of a backup, and the change counter need not show it.
struct JournalBracket {
    /// A journal was begun, and its end wasn't seen.
    private var isInside = false
    /// It will be removed in the end, which raises an event.
    private var wasCreated = false
    private var wasWritten = false
    /// Since the last settled look.
    private(set) var wasWrittenOutside = false
    /// A program that keeps its journal in memory was seen to hold its lock meanwhile.
    var wasLocked = false

    mutating func note(_ part: StorePart, created: Bool, modified: Bool, removed: Bool, closed: Bool) {
        switch part {
        case .journal:
            isInside = !removed
            wasCreated = !removed && (wasCreated || created)
        case .database:
            guard modified || closed else { return }
            wasWritten = wasWritten || modified
            // Where the journal stays, its end can't be told from its beginning. But a copy is closed when it is done.
            if modified ? !isInside : wasWritten && isInside && !wasCreated { wasWrittenOutside = true }
        case .wal, .sharedMemory, .support: break
        }
    }

    /// A transaction that was begun before may still be rolled back.
    mutating func sawHotJournal() { isInside = true }

    /// Events were lost, a journal's end perhaps: what is written from now on is a transaction's only if one is seen to
    /// be under way.
    mutating func lostEvents() { (isInside, wasCreated) = (false, false) }

    /// All that was written until now is judged. `hasJournal`: there is a journal's file, which undoes nothing.
    mutating func settle(hasJournal: Bool) {
        (wasWritten, wasWrittenOutside, wasLocked) = (false, false, false)
        // One that was created and is gone: the event of its removal is still to come.
        if !wasCreated || hasJournal { (isInside, wasCreated) = (false, false) }
    }
}
