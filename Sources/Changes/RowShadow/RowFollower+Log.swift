import ChangeFeed
import LinuxSystem
import SQLiteFormat

/// Steps in WAL mode: each transaction of a log is captured before the log overwrites it.
extension RowFollower {
    /// A place from which logs lead on that are held.
    struct Lead {
        /// The index that has the last captured commit; nil if all logs before were captured to their end.
        let index: FileIdentity?

        init(_ commit: WriteAheadIndex?, _ files: StoreFiles?) {
            index = commit == nil ? nil : files?.walIndex?.identity
        }

        func isAt(_ commit: WriteAheadIndex?, _ files: StoreFiles) -> Bool { index == Lead(commit, files).index }
    }

    /// Captures what the log has after the last commit that was captured. Returns false if a comparison must tell the
    /// rest.
    func readLog(_ files: StoreFiles) throws -> Bool {
        if let isKnown = try readHeldLogs(files) { return isKnown }
        guard commit != nil else {
            let hasEnded = try refreshIndex(files) { _ = try captureFirstLog(files) }
            if hasEnded { commit = nil }
            return hasEnded ? false : try captureFirstLog(files)
        }
        var isKnown = false
        // A log and an index that have lost their names are read to their end.
        let hasEnded = try refreshIndex(files) { _ = try capture(files) }
        if hasEnded || files.walIndex == nil { commit = nil } else { isKnown = try capture(files) }
        return isKnown
    }

    /// Captures what all logs have that programs have made and removed since. Returns false if a comparison must tell
    /// the rest, and nil if the logs that are held don't lead on from what was captured.
    func readHeldLogs(_ files: StoreFiles) throws -> Bool? {
        guard let former = lead.take(), former.isAt(commit, files), files.sharedIdentity == nil, let journals,
            let held = journals.logs
        else { return nil }
        isReadingHeldLogs = true
        defer { isReadingHeldLogs = false }
        for log in held.finished {
            guard try capture(log, files), let end = try files.readIndex() else { return false }
            // SQLite removes no log that isn't in the database; somebody else may.
            let isInDatabase = end.backfilledFrame == end.lastFrame
            commit = nil
            files.use(nil)
            guard isInDatabase else { return false }
            journals.dropLog()
        }
        if let log = held.current { guard try capture(log, files) else { return false } }
        lead = Lead(commit, files)
        return true
    }

    /// Captures what a log has that is held: what comes after the last captured commit, or all of it.
    private func capture(_ log: HeldLogs.Log, _ files: StoreFiles) throws -> Bool {
        if commit != nil {
            if files.walIndex?.identity == log.index.identity, try capture(files) { return true }
            commit = nil
            return false
        }
        files.use(log)
        do { return try captureFirstLog(files, isHeld: true) } catch let error as Disturbed {
            files.use(nil)
            lead = Lead(nil, nil)
            throw error
        }
    }

    /// Opens the index that has its name now, and has the former one read to its end. Returns true if there was one. If
    /// that end can't be read, a comparison tells it: the former index must not be kept for that, or each later call
    /// would fail at the same place.
    private func refreshIndex(_ files: StoreFiles, _ finalRead: () throws -> Void) throws -> Bool {
        try files.refreshIndex(
            finalRead: {
                do { try finalRead() } catch is Disturbed {} catch let error as SystemError {
                    guard error.isPassing else { throw error }
                }
            }, changed: { _ in })
    }

    /// Captures the transactions between the last captured one and the index's. Returns false if they aren't known.
    ///
    /// - Parameter known: The index, if it was read just now.
    func capture(_ files: StoreFiles, upTo known: WriteAheadIndex? = nil) throws -> Bool {
        captured.recordLook()
        do {
            guard let last = commit, let index = try known ?? files.readIndex(), let open = files.walIndex else {
                return false
            }
            if index.hasSameHeader(as: last) { return true }
            guard index.pageSize == shadow.pages.pageSize, let log = try files.openWAL() else { return false }
            var found: [WALTransaction] = []
            if index.salt == last.salt {
                // One that was restarted just now had no frames yet.
                if last.lastFrame == 0 { guard try log.belongs(to: index) else { return false } }
                found = try WALFrames.transactions(log, after: last.lastFrame, to: index, index: open)
            } else {
                if index.lastFrame > 0 {
                    guard try log.belongs(to: index) else { return false }
                    found = try WALFrames.transactions(log, after: 0, to: index, index: open)
                }
                let isCounted = isCounted(open)
                found = try Self.former(last, index, log, countAfter: found.count, isCounted: isCounted) + found
                // The log may have been restarted again while it was read.
                guard try files.readIndex()?.salt == index.salt else { return false }
            }
            guard Int(index.commitCount &- last.commitCount) == found.count else { return false }
            captured.append(found, of: files.identity)
            commit = index
            return true
        } catch is Unattributable {
            commit = nil
            return false
        }
    }

    /// Captures the next commits in the log that is open, if it has some. Returns false if it has none, or if they
    /// aren't known: then all must be looked at.
    ///
    /// They are transactions of that store whatever has its name now, and whoever gives the name to another store
    /// causes an event of its own.
    func captureNext(_ files: StoreFiles) throws -> Bool {
        guard let last = commit, files.wal != nil, !captured.isFull, let index = try files.readIndex(),
            index.salt == last.salt, !index.hasSameHeader(as: last),
            lead == nil || journals?.logs?.finished.isEmpty == true
        else { return false }
        return try capture(files, upTo: index)
    }

    /// Captures what was committed meanwhile, if the shadow follows a log. Call it during longer work: the log may be
    /// restarted before the next event is handled. Mostly, it does nothing. What it can't read is found later.
    package func keepUp() throws {
        guard commit != nil, let files, !captured.isFull, captured.isDue else { return }
        do { isBehind = try !capture(files) } catch let error as SystemError where error.isPassing { isBehind = true }
    }

    /// Reads the events of journals and logs that the kernel has queued, and opens the files that they tell of: the
    /// journal of a transaction that has begun just now, or the log of a program that has opened the store. Call it
    /// after each file event. Mostly, it does nothing.
    package func readJournalEvents() { journals?.read() }

    /// Captures all that a log has whose program found the database as the shadow has it. Returns false if that isn't
    /// proven: the log must have every commit that the index counts, and nothing of it may be in the database yet.
    /// What is known stays known until something is captured or compared. Throws `Disturbed` while a program makes the
    /// index.
    ///
    /// - Parameter isHeld: True if the log is held since it was made, on a database that is the shadow's. Then its
    ///   content may be in the database.
    private func captureFirstLog(_ files: StoreFiles, isHeld: Bool = false) throws -> Bool {
        guard isHeld || idleStamp != nil, let open = files.walIndex else { return false }
        guard let index = try files.readIndex() else {
            if files.isUnused { return false }
            throw Disturbed()
        }
        func isProven() throws -> Bool {
            if isHeld { return isCounted(open) }
            return try files.stamp().isIdentical(to: idleStamp) && files.isIndexCurrent()
        }
        var found: [WALTransaction] = []
        do {
            if index.lastFrame > 0 {
                guard index.pageSize == shadow.pages.pageSize, let log = try files.openWAL(reopening: !isHeld),
                    try log.belongs(to: index)
                else { return false }
                found = try WALFrames.transactions(log, after: 0, to: index, index: open)
            }
            guard found.count == Int(index.commitCount), try isProven() else { return false }
            idleStamp = nil
            captured.append(found, of: files.identity)
            commit = index
            return true
        } catch is Unattributable { return false }
    }

    /// True if an index that was read just now has counted each commit since the last one that was captured, or since
    /// it was made: no program has made it anew. What happened before the reading is among the events by now.
    private func isCounted(_ index: WALIndexFile) -> Bool {
        guard isReadingHeldLogs, let logs = journals?.logs else { return false }
        return (logs.finished + [logs.current].compactMap(\.self)).contains {
            $0.index.identity == index.identity && !$0.wasLeft
        }
    }

    /// Returns the transactions after `last` that a log had before it was restarted. Throws `Unattributable` if they
    /// aren't proven: the log was restarted once, its former end is still there, and the index counts as many commits.
    ///
    /// - Parameter isCounted: False if the index may have been made anew, so that its count of commits says nothing.
    private static func former(
        _ last: WriteAheadIndex, _ index: WriteAheadIndex, _ log: WALFile, countAfter count: Int, isCounted: Bool
    ) throws -> [WALTransaction] {
        let missing = Int(index.commitCount &- last.commitCount) - count
        // Nothing was committed since the index was created.
        if missing == 0, last.lastFrame == 0, last.commitCount == 0, isCounted { return [] }
        guard missing >= 0, last.lastFrame > 0, WALFile.isNextSalt(index.salt, after: last.salt) else {
            throw Unattributable.gap
        }
        if missing == 0 {
            guard try log.hasEnded(at: WALPosition(last), before: index) else { throw Unattributable.gap }
            return []
        }
        let found = try WALFrames.transactionsInFormerLog(log, after: last, count: missing)
        let end = found.reduce(last.lastFrame) { $0 + UInt32($1.frameCount) }
        // Without a count, the former end must not be overwritten: what came after it would not be seen.
        guard isCounted || index.lastFrame <= last.lastFrame,
            try !log.continues(after: end, salt: last.salt, pageSize: last.pageSize)
        else { throw Unattributable.gap }
        return found
    }
}
