import CLinux
import Glibc
import LinuxSystem

/// Polls of a store in rollback mode, and of locks that stay.
extension StoreObserver {
    /// Polls a store in rollback mode. The change counter is final when no hot journal is left that could undo it.
    func inspectRollbackMode(_ files: StoreFiles) throws -> Observation {
        idle = .inUse
        // In this mode each commit writes the database, so none of the writes was made between two WAL sessions.
        sessions.recordWrite()
        tracker.discard()
        if scanSchedule.current?.changeCounter == nil { scanSchedule.cancel() }
        lockedCommits = nil
        // Must come first: a write after the counter was read has another stamp.
        let stamp = try files.stamp()
        guard try !files.isJournalHot() else { return try inspectBesideHotJournal(files, at: stamp) }
        journalDeadline = nil
        if abandonedJournal != nil, try isAbandonedJournalOverruled(files, at: stamp) {
            stampPublishedUnderLock = .absent
        }
        guard let counter = try files.header()?.changeCounter, counter != baseline.changeCounter else {
            return try inspectUncounted(files, at: stamp)
        }
        // Without a journal on disk, the database is written before the transaction is over.
        let isLocked = files.waitForWriter()
        if isLocked, !usesJournal { return observeLocked() }
        guard try !files.isJournalHot(), try files.header()?.changeCounter == counter else {
            return Observation(.unchanged, nextPollDelay: backoff.next())
        }
        baseline.changeCounter = counter
        // This commit stands for all writes so far, including those its transaction made since the poll began.
        let present = try files.stamp()
        rollbackStamps.published = present.isIdentical(to: stamp) ? stamp : nil
        try settle(at: present, files)
        // A held lock means that readers may have to wait; it also reveals later commits that aren't counted. A file
        // copied over a store, without a journal or a lock, may be incomplete.
        let mayContinue = isLocked || !usesJournal
        if usesJournal { nameTables(ofCommit: counter, files, isLocked: isLocked) } else { tracker.addUnknown() }
        stampPublishedUnderLock = mayContinue ? present : nil
        let found = settled(.changed)
        return mayContinue
            ? Observation(found.finding, nextPollDelay: isLocked ? backoff.next() : IdleState.settlingTime) : found
    }

    /// Polls a store whose journal could undo what was written. An event reports the transaction's end, but none may
    /// follow if its program was killed. Commits before the transaction are published: readers find them, at the latest
    /// when they have rolled back the transaction.
    private func inspectBesideHotJournal(_ files: StoreFiles, at stamp: StoreFiles.Stamp) throws -> Observation {
        bracket.recordHotJournal()
        let mayBeExclusive = isUnreadable || stampPublishedUnderLock != nil
        // Most transactions are over before.
        let deadline = journalDeadline ?? .now.advanced(by: Self.transactionTime)
        journalDeadline = deadline
        guard mayBeExclusive || deadline <= .now else {
            return Observation(.unchanged).withRecheck(after: ContinuousClock.now.duration(to: deadline))
        }
        if files.isLockedExclusively() {
            guard mayBeExclusive else { return Observation(.unchanged) }
            return isUnreadable ? observeLocked() : awaitUnlock()
        }
        if try isAbandonedJournalOverruled(files, at: stamp) { stampPublishedUnderLock = .absent }
        let isAbandoned = !files.isTransactionUnderWay()
        let counter = try files.committedChangeCounter(isAbandoned: isAbandoned)
        let wasWritten = stampPublishedUnderLock.map { $0 != stamp } ?? false
        guard isUnreadable || wasWritten || counter != baseline.changeCounter else { return Observation(.unchanged) }
        guard try files.isJournalHot(), !files.isLockedExclusively(), try files.stamp() == stamp else {
            return Observation(.unchanged, nextPollDelay: backoff.next())
        }
        baseline.changeCounter = counter
        rollbackStamps = RollbackStamps(publishedAt: stamp)
        // A reader that may not write can read only when another program has rolled back the transaction.
        stampPublishedUnderLock = isAbandoned ? stamp : nil
        tracker.addUnknown()
        rollbackTables?.recordUncountedChange()
        return settled(.changed)
    }

    /// Looks at a journal that may be hot and whose program is gone. Returns true if readers find other content than at
    /// the last poll: the journal was removed, emptied or altered, or another store was copied over.
    func isAbandonedJournalOverruled(_ files: StoreFiles, at stamp: StoreFiles.Stamp) throws -> Bool {
        let now = try AbandonedJournal(files, at: stamp)
        // A reader may be rolling it back, or has done so since.
        guard !files.isTransactionUnderWay(), try files.stamp() == stamp else { return false }
        defer { abandonedJournal = now }
        return abandonedJournal?.isOverruled(by: now, at: stamp) ?? false
    }

    /// The time that a transaction takes before a poll looks for commits that came before it.
    private static let transactionTime = Duration.milliseconds(20)

    /// Polls a store whose change counter is unchanged. A program in exclusive mode counts only its first commit, and a
    /// store that was copied over this one may have the same count.
    private func inspectUncounted(_ files: StoreFiles, at stamp: StoreFiles.Stamp) throws -> Observation {
        let mayBeExclusive = usesJournal || isUnreadable || stampPublishedUnderLock != nil
        if mayBeExclusive, files.waitForWriter() { return observeLocked() }
        let wasMapped = try bracket.wasClosedUnwritten && isWrittenUnannounced(files, stamp)
        // With its journal in memory, a program writes before it commits. If it rolls back, it has restored every page.
        if !mayBeExclusive, bracket.wasWrittenOutside || wasMapped, files.isLockedExclusively() {
            bracket.wasLocked = bracket.wasWrittenOutside
            return awaitUnlock()
        }
        let wasWritten = wasMapped || stampPublishedUnderLock.map { $0 != stamp } ?? false
        // The event of a published commit's write may come late, and so may that of a copy: after a poll that saw the
        // file as it is now, for another reason. The file's times tell nothing, only its content does.
        let mayBeCopied = bracket.wasWrittenOutside && !bracket.wasLocked
        let isCopied = try mayBeCopied && rollbackTables?.isCurrent(in: files) != true
        stampPublishedUnderLock = nil
        // It is published now, or its content is what was published.
        if wasWritten || mayBeCopied || isUnreadable { rollbackStamps.published = stamp }
        try settle(at: stamp, files)
        guard wasWritten || isCopied else {
            catchUpTables(files)
            return settled(.unchanged)
        }
        tracker.addUnknown()
        rollbackTables?.recordUncountedChange()
        // The copy may be incomplete.
        if isCopied { stampPublishedUnderLock = stamp }
        return Observation(settled(.changed).finding, nextPollDelay: isCopied ? IdleState.settlingTime : nil)
    }

    /// True if the database was written since the last settled poll, and not by a transaction. No event reports what a
    /// program writes to mapped memory, but the file's time does.
    private func isWrittenUnannounced(_ files: StoreFiles, _ stamp: StoreFiles.Stamp) throws -> Bool {
        guard let former = rollbackStamps.inspected, former != stamp else { return false }
        return try !files.hasJournal()
    }

    /// Adds the tables that were changed up to the commit with this change counter. A new scan begins if the page map
    /// is of no use any more.
    private func nameTables(ofCommit counter: UInt32, _ files: StoreFiles, isLocked: Bool) {
        tracker.add(namedTables(ofCommit: counter, files, isLocked) ?? .unknown)
    }

    private func namedTables(ofCommit counter: UInt32, _ files: StoreFiles, _ isLocked: Bool) -> TableChanges? {
        // Taking it out avoids a second reference, so it is changed in place.
        guard var tables = rollbackTables.take() else { return nil }
        do {
            let names = try tables.advance(to: counter, in: files, isLocked: isLocked)
            rollbackTables = tables
            return names
        } catch Unattributable.disturbed {
            rollbackTables = tables
        } catch {}
        return nil
    }

    /// Compares the pages for the sake of the next commit, if the last one came too soon after another.
    private func catchUpTables(_ files: StoreFiles) {
        guard let counter = baseline.changeCounter, let due = rollbackTables?.catchUpDue, due <= .now,
            var tables = rollbackTables.take()
        else { return }
        do {
            try tables.catchUp(to: counter, in: files)
            rollbackTables = tables
        } catch {}
    }

    private func settle(at stamp: StoreFiles.Stamp, _ files: StoreFiles) throws {
        rollbackStamps.settle(at: stamp)
        bracket.settle(hasJournal: try files.hasJournal())
    }

    func settled(_ finding: Observation.Finding) -> Observation {
        backoff = PollDelay()
        usesJournal = false
        defer { obstacle = nil }
        if isUnreadable { tracker.addUnknown() }
        return Observation(isUnreadable ? .changed : finding)
    }

    /// Returns the observation of a lock that stays. A commit takes no longer than `patience`. A program in exclusive
    /// mode keeps its lock, and its close raises an event.
    func observeLocked(patience: Duration = .milliseconds(500)) -> Observation {
        if !isUnreadable, let again = backoff.nextWithin(patience) {
            return Observation(.unchanged, nextPollDelay: again)
        }
        defer { obstacle = obstacle ?? .lock }
        // The program may leave exclusive mode without a write or a close, which raises no event.
        return Observation(
            isUnreadable ? .unchanged : .discontinued(.unreadable), nextPollDelay: unlockBackoff.next())
    }

    /// Returns an observation that waits for a lock's release, which raises no event, and publishes nothing meanwhile.
    func awaitUnlock() -> Observation {
        Observation(.unchanged, nextPollDelay: backoff.nextWithin(.milliseconds(500)) ?? unlockBackoff.next())
    }

    /// Returns the delays between polls for a lock's release. A program that holds it for long mostly does so until it
    /// closes the store. The close raises an event, which precedes the release.
    static func makeUnlockBackoff(afterEvent: Bool = false) -> Backoff {
        Backoff(first: afterEvent ? .milliseconds(1) : .milliseconds(500), longest: .seconds(15))
    }
}
