import CLinux
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Watches one store for other processes' commits, without a SQLite connection, a lock or a trace. One thread's.
///
/// It reads with descriptors of its own, never by mapping: SQLite truncates a `-shm` that it finds, and memory mapped
/// from a truncated file ends the process that touches it.
package final class StoreObserver {
    package let directory: FilePath
    package let name: StoreName

    var files: StoreFiles?
    var known = CommitBaseline()
    var sessions = WALSessionTracker()
    /// A commit was found in the index that is read now.
    var indexHasCommitted = false
    private var touched: Set<StorePart> = []
    var backoff = PollDelay()
    /// Of a lock that has been held for longer than a commit takes.
    var unlocking = StoreObserver.unlocking()
    var isUnreadable = false
    var ahead = Ahead.not
    /// A rollback journal was seen since the last settled look: what counts as committed then is so for good.
    var usesJournal = false
    /// When the database was written last, where its writer kept the lock after the commit that was told, or had no journal: in
    /// exclusive mode the change counter counts a program's first commit only.
    var toldUnderLock: StoreFiles.Stamp?
    /// In rollback mode, when the database was written last, as of the last settled look; nil where that was just
    /// before.
    var settledStamp: StoreFiles.Stamp?
    var bracket = JournalBracket()
    var leftLog = AbandonedWAL()
    /// The commits that were found while a program kept everybody else out.
    var lockedCommits: LockedCommits?
    /// Why the store can't be read; nil when it can, or a program's lock is the reason.
    package private(set) var failure: SystemError?
    private var failures = PollDelay(first: .seconds(1), longestStep: .seconds(60), longest: .seconds(60))
    /// The database's, of a store in WAL mode that nobody has open.
    var atRest: StoreFiles.Stamp?
    /// Until when the events are waited for that may tell why it is another one.
    var restDoubtedUntil: ContinuousClock.Instant?
    var tracker = TableTracker()
    var surveying = PageMapScanSchedule()
    var events = SideFileEventCounts()

    /// Takes in what the kernel has queued, and returns what has not been noted yet of this store's side files; nil when
    /// events were lost. A change is proved to be complete by it where a program opened the store anew.
    package var unnotedEvents: () -> SideFileEventCounts? = { nil }

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
        failure = nil
        do {
            guard let opened = try StoreFiles(directory, name) else { return }
            let stamp = try opened.stamp()
            // First: a commit that comes meanwhile is another one.
            leftLog.known = try opened.logStamp()?.whenSettled
            known = try opened.baseline()
            files = opened
            takeMode(opened, stamp, try opened.header()?.journalMode)
            failures = PollDelay(first: .seconds(1), longestStep: .seconds(60), longest: .seconds(60))
        } catch {
            isUnreadable = true
            failure = error as? SystemError
        }
    }

    private func takeMode(_ files: StoreFiles, _ stamp: StoreFiles.Stamp, _ mode: DatabaseHeader.JournalMode?) {
        indexHasCommitted = known.commit.frame > 0
        switch mode {
        case .writeAhead: if files.log == nil { atRest = stamp }
        case .rollback:
            settledStamp = stamp.whenSettled
            // Of a program in exclusive mode, no further commit is counted.
            if files.isLockedExclusively() { toldUnderLock = stamp }
        case nil: break
        }
    }

    /// False while a program's lock, a limit or a missing right is in the way.
    package var isReadable: Bool { !isUnreadable }

    /// How long until a limit that was in the way is tried again.
    package var retryDelay: Duration? { failure.flatMap(ResourceLimit.init) == nil ? nil : failures.next() }

    /// Closes every descriptor: somebody here is about to open the store through SQLite, or to move it.
    package func letGo() {
        forgetTables(Unattributable.cancelled)
        _ = tracker.takeChanges()
        files = nil
        touched = []
        sessions = WALSessionTracker()
        backoff = PollDelay()
        isUnreadable = false
        ahead = .not
        toldUnderLock = nil
        settledStamp = nil
        bracket = JournalBracket()
        leftLog = AbandonedWAL()
        lockedCommits = nil
        leaveRest()
    }

    /// Something happened to one of the store's parts. Cheap; `look` judges.
    package func note(_ part: StorePart, created: Bool, modified: Bool, removed: Bool, closed: Bool = false) {
        // A write to the log is what most events are, and needs the least looking.
        if part == .wal, !created, !removed { touched.insert(.wal) } else { touched.formUnion([part, .database]) }
        if part == .journal { usesJournal = true }
        events.note(part, created: created, modified: modified)
        sessions.note(part, created: created, modified: modified, removed: removed)
        bracket.note(part, created: created, modified: modified, removed: removed, closed: closed)
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

    /// Events were lost, or another directory is there: the store's names may stand for other files.
    package func lostEvents() {
        forgetTables(Unattributable.gap)
        bracket.lostEvents()
        touched.insert(.database)
    }

    /// Compares the store with what is known of it.
    package func look() -> Observation {
        defer { ahead = .not }
        let noted = touched
        touched = []
        // A lock that was given up on may be released after what has just happened, and a transaction be committed.
        if !noted.isEmpty {
            backoff.sawEvent()
            unlocking = Self.unlocking(afterEvent: true)
        }
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
            return unreadable(error)
        }
    }

    /// It may be read again when its owner allows it, or when a lease on it is over. Of a limit that is no longer in the
    /// way, nothing tells.
    private func unreadable(_ error: any Error) -> Observation {
        defer { isUnreadable = true }
        forgetTables(Unattributable.gap)
        files = nil
        failure = error as? SystemError
        return Observation(isUnreadable ? .unchanged : .discontinued(.unreadable), lookAgain: retryDelay)
    }

    // MARK: Everything

    private func lookAtAll() throws -> Observation {
        let hadStore = files != nil
        guard let found = try StoreFiles.current(directory, name, unless: files) else {
            files = nil
            sessions = WALSessionTracker()
            isUnreadable = false
            failure = nil
            return Observation(hadStore ? .discontinued(.vanished) : .unchanged)
        }
        guard found === files else {
            let was = isUnreadable
            attach()
            if let failure { throw failure }
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
        return Observation(.changed, lookAgain: rest.lookAgain).madeSure(after: rest.makeSure)
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
            leftLog = AbandonedWAL()
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
