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
    var sessions = SessionNotes()
    /// A commit was found in the index that is read now.
    var indexHasCommitted = false
    private var touched: Set<StorePart> = []
    var backoff = LookDelay()
    var isUnreadable = false
    var ahead = Ahead.not
    /// A rollback journal was seen since the last settled look: what counts as committed then is so for good.
    var usesJournal = false
    /// When the database was written last, where its writer kept the lock after the commit that was told, or had no journal: in
    /// exclusive mode the change counter counts a program's first commit only.
    var toldUnderLock: StoreFiles.Stamp?
    /// The database's, of a store in WAL mode that nobody has open.
    var atRest: StoreFiles.Stamp?
    /// Until when the events are waited for that may tell why it is another one.
    var restDoubtedUntil: ContinuousClock.Instant?
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
        leaveRest()
    }

    /// Something happened to one of the store's parts. Cheap; `look` judges.
    package func note(_ part: StorePart, created: Bool, modified: Bool, removed: Bool) {
        // A write to the log is what most events are, and needs the least looking.
        if part == .wal, !created, !removed { touched.insert(.wal) } else { touched.formUnion([part, .database]) }
        if part == .journal { usesJournal = true }
        events.note(part, created: created, modified: modified)
        sessions.note(part, created: created, modified: modified, removed: removed)
    }

    /// What the next `look` need not do again.
    enum Ahead { case not, waited, told }

    /// After a write to the log alone: the first commit that can be seen, looked for some microseconds; nil when there is
    /// none yet, or it takes more to tell. `look` is to follow, when what was found is told.
    package func lookAhead() -> TableChanges? {
        guard touched.isEmpty, !isUnreadable, backoff.isFresh, let files, files.log != nil,
            let hasChanged = try? awaitCommit(files)
        else { return nil }
        leaveRest()
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
        let isMissed = sessions.takeMissed()
        if sessions.takeModifiedBetween() || isMissed {
            hasChanged = true
            tracker.addUnknown()
            forgetTables(Unattributable.gap)
        }
        if hasChanged { leaveRest() }
        return hasChanged
    }
}
