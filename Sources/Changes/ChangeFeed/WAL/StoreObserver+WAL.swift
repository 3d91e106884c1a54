import LinuxSystem
import SQLiteFormat

/// Polls of a store in WAL mode.
extension StoreObserver {
    /// Polls the store.
    ///
    /// - Parameter isChanged: True if a change is published in any case.
    func inspectWALMode(_ files: StoreFiles, isChanged: Bool) throws -> Observation {
        // A journal in WAL mode: somebody switches to rollback mode, writes the store and switches back.
        if usesJournal {
            if files.isLockedExclusively() { return observeLocked() }
            if files.isTransactionUnderWay() { return Observation(.unchanged, nextPollDelay: backoff.next()) }
        }
        // Must come first, so that a write meanwhile has another stamp.
        let stamp = usesJournal ? try files.stamp() : nil
        let counter = try files.header()?.changeCounter
        // The events of a published commit may come late.
        let isPublished = counter == baseline.changeCounter && stamp?.isIdentical(to: journaledStamp) == true
        // The counter matters again once the store returns to rollback mode.
        baseline.changeCounter = counter
        rollbackStamps = RollbackStamps()
        bracket = JournalBracket()
        defer { usesJournal = false }
        guard usesJournal, !isPublished else { return try inspectOpenWAL(files, isChanged: isChanged) }
        // This change covers all writes so far. What becomes of a hot journal decides what readers find.
        journaledStamp = try files.isJournalHot() ? nil : stamp
        sessions.recordWrite()
        idle = .inUse
        tracker.addUnknown()
        discardPageMap()
        return try inspectOpenWAL(files, isChanged: true).reportingChange
    }

    private func inspectOpenWAL(_ files: StoreFiles, isChanged: Bool) throws -> Observation {
        guard files.walIndex != nil else { return try inspectWithoutIndex(files) }
        return try inspectWAL(files, afterDatabaseEvent: true, isChanged: isChanged)
    }

    /// Polls a WAL without an index. Either nobody has the store open, or one program has it in exclusive mode and
    /// nobody else can read it.
    private func inspectWithoutIndex(_ files: StoreFiles) throws -> Observation {
        guard files.isLockedExclusively() else {
            lockedCommits = nil
            if let cooldown = abandonedWAL.cooldown { return Observation(.unchanged, nextPollDelay: cooldown) }
            // Must come first, so that a write meanwhile has another stamp.
            let stamp = try files.stamp()
            let commit = try abandonedWAL.commit(otherThan: baseline.commit, in: files)
            // Somebody has opened the store since. The frames may belong to a transaction that no reader sees yet.
            let isLost = abandonedWAL.hasLostCommit
            if commit != nil || isLost, try !files.isIndexCurrent() || files.isLockedExclusively() {
                return Observation(.unchanged, nextPollDelay: backoff.next())
            }
            defer { obstacle = nil }
            backoff = PollDelay()
            if let commit {
                apply(abandoned: commit)
                abandonedWAL.holdsPublishedCommit = true
            } else if isLost {
                abandonedWAL.holdsPublishedCommit = false
                baseline.recordEmptied(nil)
                tracker.addUnknown()
                discardPageMap()
            } else if isUnreadable {
                tracker.addUnknown()
            } else {
                let found = try inspectIdle(files, wasWritten: files.walIndex == nil && sessions.isModified)
                return found.withRecheck(after: abandonedWAL.cooldown)
            }
            // This change covers all writes so far.
            sessions.recordWrite()
            idle = IdleState(publishedAt: stamp)
            return Observation(.changed)
        }
        // The last program to close a store locks it too, when its WAL is gone or about to go.
        if lockedCommits == nil, abandonedWAL.cooldown == nil,
            try abandonedWAL.commit(otherThan: baseline.commit, in: files) != nil
        {
            lockedCommits = LockedCommits(stamp: nil)
        }
        return lockedCommits == nil ? awaitUnlock() : observeLocked()
    }

    /// Applies a commit that no index reports, or another one than `index`.
    private func apply(abandoned commit: WALPosition, overruling index: WriteAheadIndex? = nil) {
        idle = .inUse
        baseline.record(commit, overruling: index)
        // The next session's index begins with it.
        indexHasCommitted = true
        tracker.addUnknown()
        discardPageMap()
    }

    /// Polls a store that nobody has open. SQLite writes nothing then, so a write means that another store, such as a
    /// backup, was copied over it. Or a program opened and closed the store and its events are still queued, so the
    /// finding needs a second poll. `wasWritten` is true if the events so far show a write since the last session's
    /// end.
    func inspectIdle(_ files: StoreFiles, wasWritten: Bool = false, hasHeader: Bool = true) throws -> Observation {
        // Without a header, only the time of its change of status tells a copy that brings its own times.
        switch idle.inspect(try files.stamp(), wasWritten: wasWritten, isExact: !hasHeader) {
        case .unchanged:
            if files.walIndex != nil { idle = .inUse }
            return Observation(.unchanged)
        case .doubtful: return Observation(.unchanged, nextPollDelay: IdleState.settlingTime)
        case .written:
            sessions.recordWrite()
            tracker.addUnknown()
            discardPageMap()
            return Observation(.changed)
        }
    }

    /// Polls the WAL through its index. The event of a write to the WAL precedes the commit's visibility, so the index
    /// is re-read for some microseconds, and then for as long as somebody holds the WAL's write lock.
    ///
    /// The index is a hint, and the WAL the truth: a program that keeps no index, or keeps it in private memory, leaves
    /// one that reports what was there before.
    ///
    /// - Parameters:
    ///   - afterDatabaseEvent: True unless writes to the WAL alone were reported.
    ///   - isChanged: True if a change is published in any case.
    func inspectWAL(_ files: StoreFiles, afterDatabaseEvent: Bool, isChanged: Bool = false) throws -> Observation {
        idle = .inUse
        followsIndex = true
        abandonedWAL.holdsPublishedCommit = false
        // Spins once per transaction. A long transaction is polled at the backoff's pace.
        let spins = detector.leavesIndexUnread && backoff.isFresh
        var hasChanged = try spins ? awaitCommit(files) : hasCommitted(files)
        let isNew = hasChanged || detector.hasPublished
        if files.isWALWriteLocked() {
            if isNew { backoff = PollDelay() }
            return Observation(hasChanged ? .changed : .unchanged, nextPollDelay: backoff.next())
        }
        // In exclusive mode nobody takes the WAL's lock, and nobody else can read.
        if files.isLockedExclusively() {
            guard isNew, !isUnreadable else {
                if lockedCommits == nil, case .commit = try inspectLog(files) {
                    lockedCommits = LockedCommits(stamp: nil)
                }
                return try inspectExclusive(files)
            }
            lockedCommits = LockedCommits(stamp: try files.stamp(), count: (lockedCommits?.count ?? 0) + 1)
            backoff = PollDelay()
            return Observation(hasChanged ? .changed : .unchanged, nextPollDelay: backoff.next())
        }
        lockedCommits = nil
        // A commit may have come between the last read and the lock's release.
        if try hasCommitted(files) { hasChanged = true }
        var emptied: AbandonedWAL.Emptied?
        if !hasChanged, !isNew {
            let index = try files.readIndex()
            switch try inspectLog(files, beside: index) {
            case .nothing: break
            case .commit(let commit):
                // A writer that has started since writes its last frame before any reader sees the commit.
                if files.isWALWriteLocked() { return Observation(.unchanged, nextPollDelay: backoff.next()) }
                // A writer that has finished since has recorded its commit in the index.
                if try !hasCommitted(files) { apply(abandoned: commit, overruling: index) }
                hasChanged = true
            // A checkpoint records that it empties the WAL before it does.
            case .emptied: if try files.isIndexUnchanged(since: index) { emptied = AbandonedWAL.Emptied(index: index) }
            }
        }
        backoff = PollDelay()
        var delay: Duration?
        if afterDatabaseEvent || emptied != nil || unloggedWrites.isDoubtful {
            let isPublished = isChanged || hasChanged || isNew || isUnreadable
            switch try inspectDatabase(files, emptied: emptied, isChanged: isPublished) {
            case .nothing, .checkpointing: break
            case .doubtful(let time): delay = time
            case .found: hasChanged = true
            }
        }
        defer { obstacle = nil }
        return Observation(hasChanged || isUnreadable ? .changed : .unchanged, nextPollDelay: delay)
            .withRecheck(after: abandonedWAL.cooldown)
    }

    private func inspectLog(_ files: StoreFiles) throws -> AbandonedWAL.Finding {
        try inspectLog(files, beside: try files.readIndex())
    }

    private func inspectLog(_ files: StoreFiles, beside index: WriteAheadIndex?) throws -> AbandonedWAL.Finding {
        try abandonedWAL.inspect(beside: index, otherThan: baseline.commit, in: files)
    }

    /// Polls a store whose exclusive lock stays. The index shows each commit, so the store stays known while no commit
    /// comes. The last program to close a store locks out everybody while it checkpoints, which takes seconds on a slow
    /// disk.
    private func inspectExclusive(_ files: StoreFiles) throws -> Observation {
        guard let commits = lockedCommits, !isUnreadable else {
            return isUnreadable ? observeLocked() : awaitUnlock()
        }
        if commits.count > 1 || commits.stamp == nil { return observeLocked() }
        // It may have committed just before. A checkpoint then writes the database.
        return try commits.stamp == files.stamp() ? observeLocked(patience: .seconds(2)) : awaitUnlock()
    }
}
