import CLinux
import Glibc
import LinuxSystem

/// Looks at a store in WAL mode.
extension StoreObserver {
    func lookAtWriteAhead(_ files: StoreFiles) throws -> Observation {
        // The counter counts again when rollback mode comes back.
        known.changeCounter = try files.header()?.changeCounter
        settledStamp = nil
        bracket = JournalBracket()
        // A journal in this mode: somebody wrote the store in the other one, and came back before it was looked at.
        if usesJournal {
            usesJournal = false
            tracker.addUnknown()
            forgetTables(Unattributable.gap)
            let rest = try lookAtOpenWriteAhead(files)
            guard rest.finding == .unchanged else { return rest }
            return Observation(.changed, lookAgain: rest.lookAgain).madeSure(after: rest.makeSure)
        }
        return try lookAtOpenWriteAhead(files)
    }

    private func lookAtOpenWriteAhead(_ files: StoreFiles) throws -> Observation {
        guard files.log != nil else { return try lookWithoutIndex(files) }
        return try lookAtLog(files)
    }

    /// A log without an index: nobody has the store open, or one program in exclusive mode, beside which nobody can
    /// read.
    private func lookWithoutIndex(_ files: StoreFiles) throws -> Observation {
        guard files.isLockedExclusively() else {
            lockedCommits = nil
            if let rest = leftLog.rest { return Observation(.unchanged, lookAgain: rest) }
            let left = try leftLog.commit(otherThan: known.commit, in: files)
            // Somebody has come since: what was read may be of a transaction that no reader sees yet.
            if left != nil, try !files.isLogCurrent() || files.isLockedExclusively() {
                return Observation(.unchanged, lookAgain: backoff.next())
            }
            defer { isUnreadable = false }
            backoff = PollDelay()
            if let left {
                take(left)
                return Observation(.changed)
            }
            guard isUnreadable else {
                let found = try lookAtRest(files, wasWritten: files.log == nil && sessions.isModified)
                return found.madeSure(after: leftLog.rest)
            }
            leaveRest()
            tracker.addUnknown()
            return Observation(.changed)
        }
        // The last program to close a store locks it too, with its log gone already or about to go.
        if lockedCommits == nil, leftLog.rest == nil,
            try leftLog.commit(otherThan: known.commit, in: files) != nil
        {
            lockedCommits = LockedCommits(stamp: nil)
        }
        return lockedCommits == nil ? awaitUnlocking() : stillLocked()
    }

    /// A commit that no index told of.
    private func take(_ commit: WALPosition) {
        leaveRest()
        known.commit = commit
        // The next session's index begins with it.
        indexHasCommitted = true
        tracker.addUnknown()
        forgetTables(Unattributable.gap)
    }

    /// Where nobody has the store open, SQLite writes nothing: somebody has written another store over it, a backup. Or a
    /// program came and went, and the events that tell of it are still to be read: so it is looked at twice. `wasWritten`:
    /// since the last session's end, as far as the events are read.
    func lookAtRest(_ files: StoreFiles, wasWritten: Bool = false) throws -> Observation {
        let now = try files.stamp()
        guard wasWritten || atRest.map({ $0 != now }) == true else {
            self.atRest = files.log == nil ? now : nil
            restDoubtedUntil = nil
            return Observation(.unchanged)
        }
        guard let until = restDoubtedUntil, until <= .now else {
            restDoubtedUntil = restDoubtedUntil ?? .now.advanced(by: Self.settling)
            return Observation(.unchanged, lookAgain: Self.settling)
        }
        sessions.observedWrite()
        self.atRest = now
        restDoubtedUntil = nil
        tracker.addUnknown()
        forgetTables(Unattributable.gap)
        return Observation(.changed)
    }

    /// A program has it open, or what was written is told.
    func leaveRest() {
        atRest = nil
        restDoubtedUntil = nil
    }

    /// Longer than from a program's write to the removal of its index, where neither lock is held.
    static let settling = Duration.milliseconds(5)

    /// The event of a write to the log comes before its commit can be seen. So the index is read again for some
    /// microseconds, and then for as long as somebody holds the log's write lock.
    func lookAtLog(_ files: StoreFiles) throws -> Observation {
        leaveRest()
        // Once for each transaction: a long one is looked for at the backoff's pace.
        let waits = ahead == .not && backoff.isFresh
        var hasChanged = try waits ? awaitCommit(files) : hasCommitted(files)
        let isNew = hasChanged || ahead == .told
        if files.isLogBeingWritten() {
            if isNew { backoff = PollDelay() }
            return Observation(hasChanged ? .changed : .unchanged, lookAgain: backoff.next())
        }
        // In exclusive mode nobody takes the log's lock, and nobody else can read.
        if files.isLockedExclusively() {
            guard isNew, !isUnreadable else { return try stillExclusive(files) }
            lockedCommits = LockedCommits(stamp: try files.stamp(), count: (lockedCommits?.count ?? 0) + 1)
            backoff = PollDelay()
            return Observation(hasChanged ? .changed : .unchanged, lookAgain: backoff.next())
        }
        lockedCommits = nil
        // It may have been committed between the last look and the lock's release.
        if try hasCommitted(files) { hasChanged = true }
        if !hasChanged, !isNew, let index = try files.index(),
            let left = try leftLog.commit(beyond: index, known.commit, in: files)
        {
            // A writer that has come since writes its last frame before any reader sees it.
            if files.isLogBeingWritten() { return Observation(.unchanged, lookAgain: backoff.next()) }
            // And one that has gone since has said in the index what it committed.
            if try !hasCommitted(files) { take(left) }
            hasChanged = true
        }
        backoff = PollDelay()
        defer { isUnreadable = false }
        return Observation(hasChanged || isUnreadable ? .changed : .unchanged).madeSure(after: leftLog.rest)
    }

    /// Each commit is seen in the index, so nothing is unknown as long as none comes: the last program to close a store
    /// keeps everybody out while it checkpoints, which takes a slow disk seconds.
    private func stillExclusive(_ files: StoreFiles) throws -> Observation {
        guard let commits = lockedCommits, !isUnreadable else {
            return isUnreadable ? stillLocked() : awaitUnlocking()
        }
        if commits.count > 1 { return stillLocked() }
        // Committed just before that, perhaps. The database is written by a checkpoint.
        return try commits.stamp == files.stamp() ? stillLocked(patience: .seconds(2)) : awaitUnlocking()
    }

    func awaitCommit(_ files: StoreFiles) throws -> Bool {
        if try hasCommitted(files) { return true }
        let until = ContinuousClock.now.advanced(by: Self.spin)
        while ContinuousClock.now < until {
            gs_cpu_relax()
            if try hasCommitted(files) { return true }
        }
        return false
    }

    private static let spin = Duration.microseconds(120)

    func hasCommitted(_ files: StoreFiles) throws -> Bool {
        guard let index = try files.index(), known.isBefore(index) else { return false }
        known.commit = WALPosition(index)
        known.commitCount = index.commitCount
        indexHasCommitted = true
        tracker.advance(to: index, files) { sideFileEvents(files) }
        return true
    }
}
