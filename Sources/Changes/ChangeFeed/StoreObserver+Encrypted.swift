import LinuxSystem

/// Polls of a store without a legible header: it is encrypted, or it is no database yet, or no longer one.
extension StoreObserver {
    /// Polls the store. Its side files and its locks are those of any other store, but no counter tells a commit from
    /// another write: each write is published, once no program locks readers out.
    ///
    /// - Parameter isChanged: True if a change is published in any case.
    func inspectWithoutHeader(_ files: StoreFiles, isChanged: Bool) throws -> Observation {
        // It may have had a header before.
        if idle.stamp == nil, let stamp = rollbackStamps.inspected { idle = IdleState(publishedAt: stamp) }
        rollbackStamps = RollbackStamps()
        stampPublishedUnderLock = nil
        let hasLog = try files.walStamp().map { $0.size > 0 } ?? false
        if files.walIndex != nil || hasLog || abandonedWAL.holdsPublishedCommit {
            // A program with a rollback journal ignores an index that another one left. With its journal in memory, a
            // write to the database is all that shows.
            if !hasLog, files.walIndex != nil, files.isLockedExclusively(),
                try !unloggedWrites.isPublished(at: files.stamp())
            {
                return observeLocked()
            }
            hasFollowedLog = true
            return try inspectWALMode(files, isChanged: isChanged)
        }
        lockedCommits = nil
        // Must come first, so that a write meanwhile has another stamp.
        let stamp = try files.stamp()
        if files.waitForWriter() {
            // Without a hot journal, what was written is committed, or in a journal in memory.
            let mayBeCommitted = try idle.stamp != stamp && !files.isJournalHot()
            return mayBeCommitted || isUnreadable ? observeLocked() : awaitUnlock()
        }
        if usesJournal || abandonedJournal != nil, try isAbandonedJournalOverruled(files, at: stamp) {
            idle = IdleState(publishedAt: .absent)
        }
        // What was written since the log is gone may be its last checkpoint, whose commits are published. A journal
        // tells that there was a transaction, too.
        let isJournaled = try usesJournal && hasFollowedLog && !files.isJournalHot()
        if isJournaled { hasFollowedLog = false }
        backoff = PollDelay()
        usesJournal = false
        bracket = JournalBracket()
        guard isUnreadable || isJournaled else { return try inspectIdle(files, hasHeader: false) }
        obstacle = nil
        sessions.recordWrite()
        idle = IdleState(publishedAt: stamp)
        tracker.addUnknown()
        discardPageMap()
        return Observation(.changed)
    }
}
