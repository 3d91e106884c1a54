import CLinux
import Glibc
import LinuxSystem
import PersistentStore

/// Looks at a store in rollback mode, and at locks that stay.
extension StoreObserver {
    /// The change counter is final when no hot journal is left that could undo it.
    func lookAtRollback(_ files: StoreFiles) throws -> Observation {
        leaveRest()
        // Here each commit is a write to the database: none of them was made between two sessions.
        sessions.observedWrite()
        forgetTables(Unattributable.gap)
        guard try !files.isJournalHot() else { return Observation(.unchanged) }
        guard let counter = try files.header()?.changeCounter, counter != known.changeCounter else {
            let mayBeExclusive = usesJournal || isUnreadable || toldUnderLock != nil
            if mayBeExclusive, files.waitForWriter() { return stillLocked() }
            let wasWritten = try toldUnderLock.map { try files.stamp() != $0 } ?? false
            toldUnderLock = nil
            if wasWritten { tracker.addUnknown() }
            return settled(wasWritten ? .changed : .unchanged)
        }
        // Without a journal on the disk, the database is written before the transaction is over.
        let stamp = try files.stamp()
        let isLocked = files.waitForWriter()
        if isLocked, !usesJournal { return stillLocked() }
        guard try !files.isJournalHot(), try files.header()?.changeCounter == counter else {
            return Observation(.unchanged, lookAgain: backoff.next())
        }
        known.changeCounter = counter
        tracker.addUnknown()
        // Whoever reads now may have to wait: that what comes next isn't counted is noticed by the lock. And what is copied
        // over a store, without a journal or a lock, may have come in part.
        let mayGoOn = isLocked || !usesJournal
        toldUnderLock = mayGoOn ? stamp : nil
        let found = settled(.changed)
        return mayGoOn ? Observation(found.finding, lookAgain: isLocked ? backoff.next() : Self.settling) : found
    }

    func settled(_ finding: Observation.Finding) -> Observation {
        backoff = LookDelay()
        usesJournal = false
        defer { isUnreadable = false }
        if isUnreadable { tracker.addUnknown() }
        return Observation(isUnreadable ? .changed : finding)
    }

    /// A commit takes no longer than this; a program in exclusive mode keeps its lock for good, and is noticed again
    /// when it closes.
    func stillLocked() -> Observation {
        if let again = backoff.nextWithin(.milliseconds(500)) { return Observation(.unchanged, lookAgain: again) }
        defer { isUnreadable = true }
        // It may give exclusive mode up without writing or closing: no event would tell.
        return Observation(
            isUnreadable ? .unchanged : .discontinued(.unreadable), lookAgain: Self.untilUnlocked)
    }

    private static let untilUnlocked = Duration.seconds(1)
}
