import CLinux
import Glibc
import LinuxSystem
import PersistentStore
import SystemPackage

/// Watches one store for other processes' commits, without a SQLite connection, a lock or a trace. One thread's.
///
/// It reads with descriptors of its own, never by mapping: SQLite truncates a `-shm` that it finds, and memory mapped
/// from a truncated file ends the process that touches it.
package final class StoreObserver {
    package let directory: FilePath
    package let name: StoreName

    var files: StoreFiles?
    var known = Known()
    private var sessions = SessionNotes()
    /// A commit was found in the index that is read now.
    private var indexHasCommitted = false
    private var touched: Set<StorePart> = []
    private var backoff = LookDelay()
    private var isUnreadable = false
    private var ahead = Ahead.not
    /// A rollback journal was seen since the last settled look: what counts as committed then is so for good.
    private var usesJournal = false
    /// When the database was written last, where its writer kept the lock after the commit that was told, or had no journal: in
    /// exclusive mode the change counter counts a program's first commit only.
    private var toldUnderLock: StoreFiles.Stamp?
    /// The database's, of a store in WAL mode that nobody has open.
    private var atRest: StoreFiles.Stamp?
    /// Until when the events are waited for that may tell why it is another one.
    private var restDoubtedUntil: ContinuousClock.Instant?
    var tracker = TableTracker()
    var surveying = SurveySchedule()
    var events = SideFileEvents()

    /// Takes in what the kernel has queued, and returns what has not been noted yet of this store's side files; nil when
    /// events were lost. A change is proved to be complete by it where a program opened the store anew.
    package var unnotedEvents: () -> SideFileEvents? = { nil }

    /// The database's file, where hard links lead to it too; as of the last time it was looked at.
    package var sharedDatabase: FileIdentity? { files?.sharedIdentity }

    /// Whether it is to be found out which tables change. What is kept for that is let go of when it is not.
    package var wantsTables = false {
        didSet { if !wantsTables { forgetTables(Unattributable.cancelled) } }
    }

    package init(directory: FilePath, name: StoreName) {
        self.directory = directory
        self.name = name
    }

    /// Takes what is there now as known. Until the first `attach`, and after `letGo`, nothing is open.
    package func attach() {
        letGo()
        guard let opened = try? StoreFiles(directory, name) else { return }
        files = opened
        known = (try? opened.baseline()) ?? Known()
        indexHasCommitted = known.commit.frame > 0
        if opened.log == nil, (try? opened.header())??.journalMode == .writeAhead { atRest = try? opened.stamp() }
    }

    /// Closes every descriptor: somebody here is about to open the store through SQLite, or to move it.
    package func letGo() {
        forgetTables(Unattributable.cancelled)
        _ = tracker.takeChanges()
        files = nil
        touched = []
        sessions = SessionNotes()
        backoff = LookDelay()
        isUnreadable = false
        ahead = .not
        toldUnderLock = nil
        atRest = nil
    }

    /// Something happened to one of the store's parts. Cheap; `look` judges.
    package func note(_ part: StorePart, created: Bool, modified: Bool, removed: Bool) {
        // A write to the log is what most events are, and needs the least looking.
        if part == .wal, !created, !removed { touched.insert(.wal) } else { touched.formUnion([part, .database]) }
        if part == .journal { usesJournal = true }
        events.note(part, created: created, modified: modified)
        sessions.note(part, modified: modified, removed: removed)
    }

    /// What the next `look` need not do again.
    private enum Ahead { case not, waited, told }

    /// After a write to the log alone: the first commit that can be seen, looked for some microseconds; nil when there is
    /// none yet, or it takes more to tell. `look` is to follow, when what was found is told.
    package func lookAhead() -> TableChanges? {
        guard touched.isEmpty, !isUnreadable, backoff.isFresh, let files, files.log != nil,
            let hasChanged = try? awaitCommit(files)
        else { return nil }
        atRest = nil
        ahead = hasChanged ? .told : .waited
        return hasChanged ? tracker.takeChanges() ?? .unknown : nil
    }

    /// Compares the store with what is known of it.
    package func look() -> Observation {
        defer { ahead = .not }
        let noted = touched
        touched = []
        // A lock that was given up on may be released after what has just happened.
        if isUnreadable, !noted.isEmpty { backoff = LookDelay() }
        var found = judge(noted)
        switch found.finding {
        case .unchanged: break
        case .changed: found.tables = tracker.takeChanges() ?? .unknown
        case .discontinued:
            _ = tracker.takeChanges()
            forgetTables(Unattributable.gap)
        }
        return found
    }

    private func judge(_ noted: Set<StorePart>) -> Observation {
        do {
            if let files, files.log != nil, noted.isSubset(of: [.wal]) { return try lookAtLog(files) }
            return try lookAtAll()
        } catch {
            return unreadable()
        }
    }

    /// It may be read again when its owner allows it, or when a lease on it is over.
    private func unreadable() -> Observation {
        defer { isUnreadable = true }
        forgetTables(Unattributable.gap)
        files = nil
        return Observation(isUnreadable ? .unchanged : .discontinued(.unreadable))
    }

    // MARK: Everything

    private func lookAtAll() throws -> Observation {
        let hadStore = files != nil
        guard let found = try StoreFiles.current(directory, name, unless: files) else {
            files = nil
            sessions = SessionNotes()
            isUnreadable = false
            return Observation(hadStore ? .discontinued(.vanished) : .unchanged)
        }
        guard found === files else {
            let was = isUnreadable
            attach()
            return Observation(was ? .changed : .discontinued(hadStore ? .replaced : .appeared))
        }
        let hasChanged = try lookAtSessions(found)
        let rest =
            switch try found.header()?.journalMode {
            case .writeAhead: try lookAtWriteAhead(found)
            case .rollback: try lookAtRollback(found)
            // Not yet, or no longer, a database.
            case nil: try lookAtRest(found)
            }
        guard hasChanged, rest.finding == .unchanged else { return rest }
        return Observation(.changed, lookAgain: rest.lookAgain)
    }

    /// What the log's index says in the end, though it may have lost its name since; and whether programs came and
    /// went unseen.
    private func lookAtSessions(_ files: StoreFiles) throws -> Bool {
        var hasChanged = try hasCommitted(files)
        let hasEnded = try files.refreshLog {
            if try hasCommitted(files) { hasChanged = true }
        } changed: { former in
            try sessionChanged(files, former)
        }
        if hasEnded {
            sessions.observedOneEnded(hasCommitted: indexHasCommitted)
            indexHasCommitted = false
        }
        if try hasCommitted(files) { hasChanged = true }
        if sessions.takeMissed() {
            hasChanged = true
            tracker.addUnknown()
            forgetTables(Unattributable.gap)
        }
        if hasChanged { atRest = nil }
        return hasChanged
    }

    // MARK: Write-ahead logging

    private func lookAtWriteAhead(_ files: StoreFiles) throws -> Observation {
        // The counter counts again when rollback mode comes back.
        known.changeCounter = try files.header()?.changeCounter
        // A journal in this mode: somebody wrote the store in the other one, and came back before it was looked at.
        if usesJournal {
            usesJournal = false
            tracker.addUnknown()
            forgetTables(Unattributable.gap)
            let rest = try lookAtOpenWriteAhead(files)
            return rest.finding == .unchanged ? Observation(.changed, lookAgain: rest.lookAgain) : rest
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
            defer { isUnreadable = false }
            backoff = LookDelay()
            guard isUnreadable else {
                return try lookAtRest(files, wasWritten: files.log == nil && sessions.isModified)
            }
            atRest = nil
            tracker.addUnknown()
            return Observation(.changed)
        }
        // The last program to close a store locks it for a moment too, with its log gone already.
        return stillLocked()
    }

    /// Where nobody has the store open, SQLite writes nothing: somebody has written another store over it, a backup. Or a
    /// program came and went, and the events that tell of it are still to be read: so it is looked at twice. `wasWritten`:
    /// since the last session's end, as far as the events are read.
    private func lookAtRest(_ files: StoreFiles, wasWritten: Bool = false) throws -> Observation {
        let now = try files.stamp()
        guard wasWritten || atRest.map({ $0 != now }) == true else {
            self.atRest = files.log == nil ? now : nil
            restDoubtedUntil = nil
            return Observation(.unchanged)
        }
        let until = restDoubtedUntil ?? .now.advanced(by: Self.settling)
        restDoubtedUntil = until
        if until > .now { return Observation(.unchanged, lookAgain: Self.settling) }
        sessions.observedWrite()
        self.atRest = now
        restDoubtedUntil = nil
        tracker.addUnknown()
        forgetTables(Unattributable.gap)
        return Observation(.changed)
    }

    /// Longer than from a program's write to the removal of its index, where neither lock is held.
    private static let settling = Duration.milliseconds(5)

    /// The event of a write to the log comes before its commit can be seen. So the index is read again for some
    /// microseconds, and then for as long as somebody holds the log's write lock.
    private func lookAtLog(_ files: StoreFiles) throws -> Observation {
        atRest = nil
        // Once for each transaction: a long one is looked for at the backoff's pace.
        let waits = ahead == .not && backoff.isFresh
        var hasChanged = try waits ? awaitCommit(files) : hasCommitted(files)
        let isNew = hasChanged || ahead == .told
        if files.isLogBeingWritten() {
            if isNew { backoff = LookDelay() }
            return Observation(hasChanged ? .changed : .unchanged, lookAgain: backoff.next())
        }
        // In exclusive mode nobody takes the log's lock, and nobody else can read.
        if files.isLockedExclusively() {
            guard isNew, !isUnreadable else { return stillLocked() }
            backoff = LookDelay()
            return Observation(hasChanged ? .changed : .unchanged, lookAgain: backoff.next())
        }
        // It may have been committed between the last look and the lock's release.
        if try hasCommitted(files) { hasChanged = true }
        backoff = LookDelay()
        defer { isUnreadable = false }
        return Observation(hasChanged || isUnreadable ? .changed : .unchanged)
    }

    private func awaitCommit(_ files: StoreFiles) throws -> Bool {
        if try hasCommitted(files) { return true }
        let until = ContinuousClock.now.advanced(by: Self.spin)
        while ContinuousClock.now < until {
            gs_cpu_relax()
            if try hasCommitted(files) { return true }
        }
        return false
    }

    private static let spin = Duration.microseconds(120)

    private func hasCommitted(_ files: StoreFiles) throws -> Bool {
        guard let index = try files.index(), known.isBefore(index) else { return false }
        known.commit = LogPosition(index)
        known.commitCount = index.commitCount
        indexHasCommitted = true
        tracker.advance(to: index, files) { sideFileEvents(files) }
        return true
    }

    // MARK: Rollback mode

    /// The change counter is final when no hot journal is left that could undo it.
    private func lookAtRollback(_ files: StoreFiles) throws -> Observation {
        atRest = nil
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

    private func settled(_ finding: Observation.Finding) -> Observation {
        backoff = LookDelay()
        usesJournal = false
        defer { isUnreadable = false }
        if isUnreadable { tracker.addUnknown() }
        return Observation(isUnreadable ? .changed : finding)
    }

    /// A commit takes no longer than this; a program in exclusive mode keeps its lock for good, and is noticed again
    /// when it closes.
    private func stillLocked() -> Observation {
        if let again = backoff.nextWithin(.milliseconds(500)) { return Observation(.unchanged, lookAgain: again) }
        defer { isUnreadable = true }
        // It may give exclusive mode up without writing or closing: no event would tell.
        return Observation(
            isUnreadable ? .unchanged : .discontinued(.unreadable), lookAgain: Self.untilUnlocked)
    }

    private static let untilUnlocked = Duration.seconds(1)
}
