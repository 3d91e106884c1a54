import CLinux
import Glibc
import LinuxSystem

/// Looks at a store in rollback mode, and at locks that stay.
extension StoreObserver {
    /// The change counter is final when no hot journal is left that could undo it.
    func lookAtRollback(_ files: StoreFiles) throws -> Observation {
        leaveRest()
        // Here each commit is a write to the database: none of them was made between two sessions.
        sessions.observedWrite()
        forgetTables(Unattributable.gap)
        lockedCommits = nil
        // First: what is written after the counter was read has another one.
        let stamp = try files.stamp()
        guard try !files.isJournalHot() else {
            bracket.sawHotJournal()
            return Observation(.unchanged)
        }
        guard let counter = try files.header()?.changeCounter, counter != known.changeCounter else {
            return try lookUncounted(files, stamp)
        }
        // Without a journal on the disk, the database is written before the transaction is over.
        let isLocked = files.waitForWriter()
        if isLocked, !usesJournal { return stillLocked() }
        guard try !files.isJournalHot(), try files.header()?.changeCounter == counter else {
            return Observation(.unchanged, lookAgain: backoff.next())
        }
        known.changeCounter = counter
        // Whatever was written until now is told with this commit: what its transaction wrote since the look began, too.
        let told = try files.stamp()
        try settle(at: told, files)
        tracker.addUnknown()
        // Whoever reads now may have to wait: that what comes next isn't counted is noticed by the lock. And what is copied
        // over a store, without a journal or a lock, may have come in part.
        let mayGoOn = isLocked || !usesJournal
        toldUnderLock = mayGoOn ? told : nil
        let found = settled(.changed)
        return mayGoOn ? Observation(found.finding, lookAgain: isLocked ? backoff.next() : Self.settling) : found
    }

    /// The counter says that nothing was committed. But a program in exclusive mode counts its first commit only, and a store
    /// that was copied over this one may have counted as far.
    private func lookUncounted(_ files: StoreFiles, _ stamp: StoreFiles.Stamp) throws -> Observation {
        let mayBeExclusive = usesJournal || isUnreadable || toldUnderLock != nil
        if mayBeExclusive, files.waitForWriter() { return stillLocked() }
        // With its journal in memory, a program writes before it commits, and has written all back when it doesn't.
        if !mayBeExclusive, bracket.wasWrittenOutside, files.isLockedExclusively() {
            bracket.wasLocked = true
            return awaitUnlocking()
        }
        let wasWritten = toldUnderLock.map { $0 != stamp } ?? false
        let isCopied = bracket.wasWrittenOutside && !bracket.wasLocked && stamp != settledStamp
        toldUnderLock = nil
        try settle(at: stamp, files)
        guard wasWritten || isCopied else { return settled(.unchanged) }
        tracker.addUnknown()
        // It may have come in part.
        if isCopied { toldUnderLock = stamp }
        return Observation(settled(.changed).finding, lookAgain: isCopied ? Self.settling : nil)
    }

    private func settle(at stamp: StoreFiles.Stamp, _ files: StoreFiles) throws {
        // One that a write in the same tick would leave as it is tells nothing.
        settledStamp = stamp.whenSettled
        bracket.settle(hasJournal: try files.hasJournal())
    }

    func settled(_ finding: Observation.Finding) -> Observation {
        backoff = PollDelay()
        usesJournal = false
        defer { isUnreadable = false }
        if isUnreadable { tracker.addUnknown() }
        return Observation(isUnreadable ? .changed : finding)
    }

    /// A commit takes no longer than `patience`; a program in exclusive mode keeps its lock for good, and is noticed again
    /// when it closes.
    func stillLocked(patience: Duration = .milliseconds(500)) -> Observation {
        if !isUnreadable, let again = backoff.nextWithin(patience) { return Observation(.unchanged, lookAgain: again) }
        defer { isUnreadable = true }
        // It may give exclusive mode up without writing or closing: no event would tell.
        return Observation(
            isUnreadable ? .unchanged : .discontinued(.unreadable), lookAgain: unlocking.next())
    }

    /// No event tells when a lock is released; nothing is told meanwhile.
    func awaitUnlocking() -> Observation {
        Observation(.unchanged, lookAgain: backoff.nextWithin(.milliseconds(500)) ?? unlocking.next())
    }

    /// A program that keeps everybody out for long mostly does so until it closes the store, which is an event; that comes
    /// before the lock is released.
    static func unlocking(afterEvent: Bool = false) -> PollDelay {
        PollDelay(first: afterEvent ? .milliseconds(1) : .milliseconds(500), longestStep: .seconds(15))
    }
}
