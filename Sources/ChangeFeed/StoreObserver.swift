import CLinux
import Glibc
import LinuxSystem
import PersistentStore
import SystemPackage

/// What a look at a store found.
package struct Observation: Sendable, Equatable {
    package enum Finding: Sendable, Equatable {
        /// Nothing was committed since the last look.
        case unchanged
        /// At least one transaction was committed, and a reader that opens the store now finds it.
        case changed
        /// What was known of the store is worth nothing: it was replaced, appeared, vanished, or couldn't be read.
        case discontinued(Reason)
    }

    package enum Reason: String, Sendable {
        case replaced, appeared, vanished, overflow, unreadable
    }

    package let finding: Finding
    /// When to look again although no event may come, since a commit may be on its way; nil: an event will tell.
    package let lookAgain: Duration?
    /// Which tables, when it is `changed`.
    package fileprivate(set) var tables = TableChanges.unknown

    package init(_ finding: Finding, lookAgain: Duration? = nil) {
        self.finding = finding
        self.lookAgain = lookAgain
    }
}

/// Watches one store for other processes' commits, without a SQLite connection, a lock or a trace. One thread's.
///
/// It reads with descriptors of its own, never by mapping: SQLite truncates a `-shm` that it finds, and memory mapped
/// from a truncated file ends the process that touches it.
package final class StoreObserver {
    package let directory: FilePath
    package let name: StoreName

    private var files: StoreFiles?
    private var known = Known()
    private var sessions = SessionNotes()
    /// A commit was found in the index that is read now.
    private var indexHasCommitted = false
    private var touched: Set<StorePart> = []
    private var backoff = Backoff()
    private var isUnreadable = false
    /// A rollback journal was seen since the last settled look: what counts as committed then is so for good.
    private var usesJournal = false
    private var tracker = TableTracker()
    private var surveying = SurveySchedule()
    private var events = SideFileEvents()

    /// Takes in what the kernel has queued, and returns what has not been noted yet of this store's side files; nil when
    /// events were lost. A change is proved to be complete by it where a program opened the store anew.
    package var unnotedEvents: () -> SideFileEvents? = { nil }

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
    }

    /// Closes every descriptor: somebody here is about to open the store through SQLite, or to move it.
    package func letGo() {
        forgetTables(Unattributable.cancelled)
        _ = tracker.takeChanges()
        files = nil
        touched = []
        sessions = SessionNotes()
        backoff = Backoff()
        isUnreadable = false
    }

    /// Something happened to one of the store's parts. Cheap; `look` judges.
    package func note(_ part: StorePart, created: Bool, modified: Bool, removed: Bool) {
        // A write to the log is what most events are, and needs the least looking.
        if part == .wal, !created, !removed { touched.insert(.wal) } else { touched.formUnion([part, .database]) }
        if part == .journal { usesJournal = true }
        events.note(part, created: created, modified: modified)
        sessions.note(part, modified: modified, removed: removed)
    }

    /// Compares the store with what is known of it.
    package func look() -> Observation {
        let noted = touched
        touched = []
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
            case nil: Observation(.unchanged)
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
        isUnreadable = false
        return try lookAtLog(files)
    }

    /// A log without an index: nobody has the store open, or one program in exclusive mode, beside which nobody can
    /// read.
    private func lookWithoutIndex(_ files: StoreFiles) throws -> Observation {
        guard files.isLockedExclusively() else {
            defer { isUnreadable = false }
            backoff = Backoff()
            if isUnreadable { tracker.addUnknown() }
            return Observation(isUnreadable ? .changed : .unchanged)
        }
        // The last program to close a store locks it for a moment too, with its log gone already.
        return stillLocked()
    }

    /// The event of a write to the log comes before its commit can be seen. So the index is read again for some
    /// microseconds, and then for as long as somebody holds the log's write lock.
    private func lookAtLog(_ files: StoreFiles) throws -> Observation {
        var hasChanged = try hasCommitted(files)
        // Once for each transaction: a long one is looked for at the backoff's pace.
        if !hasChanged, backoff.isFresh {
            let until = ContinuousClock.now.advanced(by: Self.spin)
            while !hasChanged, ContinuousClock.now < until {
                gs_cpu_relax()
                hasChanged = try hasCommitted(files)
            }
        }
        if files.isLogBeingWritten() {
            if hasChanged { backoff = Backoff() }
            return Observation(hasChanged ? .changed : .unchanged, lookAgain: backoff.next())
        }
        // It may have been committed between the last look and the lock's release.
        if try hasCommitted(files) { hasChanged = true }
        backoff = Backoff()
        return Observation(hasChanged ? .changed : .unchanged)
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
        forgetTables(Unattributable.gap)
        guard try !files.isJournalHot() else { return Observation(.unchanged) }
        guard let counter = try files.header()?.changeCounter, counter != known.changeCounter else {
            return settled(.unchanged)
        }
        // Without a journal on the disk, the database is written before the transaction is over.
        if files.waitForWriter(), !usesJournal { return stillLocked() }
        guard try !files.isJournalHot(), try files.header()?.changeCounter == counter else {
            return Observation(.unchanged, lookAgain: backoff.next())
        }
        known.changeCounter = counter
        tracker.addUnknown()
        return settled(.changed)
    }

    private func settled(_ finding: Observation.Finding) -> Observation {
        backoff = Backoff()
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
        return Observation(isUnreadable ? .unchanged : .discontinued(.unreadable))
    }
}

// MARK: - Tables

extension StoreObserver {
    /// Events were lost: what they prove is proved no more.
    package func lostEvents() { forgetTables(Unattributable.gap) }

    private func forgetTables(_ reason: Unattributable) {
        tracker.discard(reason)
        surveying.cancel()
    }

    /// All until now, when the index that is read is the one they end with; nil when that can't be told.
    private func sideFileEvents(_ files: StoreFiles) -> SideFileEvents? {
        guard let more = unnotedEvents(), (try? files.isLogCurrent()) == true else { return nil }
        return events + more
    }

    private func sessionChanged(_ files: StoreFiles, _ former: LogIndex?) throws {
        surveying.cancel()
        guard tracker.hasMap else { return }
        // Before the program that has made it removes it.
        _ = try files.openLog()
        tracker.sessionChanged(
            last: try former?.read(), hasIndex: files.log != nil, session: sideFileEvents(files),
            changeCounter: try files.header()?.changeCounter)
    }

    /// A survey to be run on another thread and then given to `adopt`; nil when none is wanted, or possible now.
    package func survey() -> StoreSurvey? {
        guard wantsTables, !tracker.hasMap, surveying.isDue, let files else { return nil }
        let index = try? files.index()
        // What is committed and not told yet is told first.
        guard files.log == nil || index.map({ !known.isBefore($0) }) == true,
            let now = sideFileEvents(files), let subject = try? files.surveySubject(index)
        else { return nil }
        let survey = StoreSurvey(subject, now)
        surveying.begin(survey)
        return survey
    }

    /// When to ask for a survey again although nothing may happen until then.
    package var surveyDue: ContinuousClock.Instant? { wantsTables && !tracker.hasMap ? surveying.due : nil }

    package var isSurveying: Bool { surveying.current != nil }

    /// Why it isn't found out which tables change; nil when it is, or nothing was tried.
    package var tablesFailure: (any Error)? { tracker.failure ?? surveying.failure }

    /// Takes what the survey has found; nothing when it was given up meanwhile.
    package func adopt(_ survey: StoreSurvey) {
        guard surveying.current === survey, let result = survey.result else { return }
        switch result {
        case .failure(let error): surveying.end(error)
        case .success(let owners):
            let isKnown = begin(owners, survey)
            surveying.end(isKnown ? nil : Unattributable.disturbed)
        }
    }

    private func begin(_ owners: PageOwners, _ survey: StoreSurvey) -> Bool {
        guard let files else { return false }
        let now = sideFileEvents(files)
        guard let commit = survey.commit else {
            guard let now, files.log == nil, now.isSameSession(as: survey.events) else { return false }
            tracker.begin(owners, at: nil, session: now)
            return true
        }
        tracker.begin(owners, at: commit, session: now)
        // What was told meanwhile is not told again; the map may lag behind, but never run ahead.
        guard let index = try? files.index(), LogPosition(index) == known.commit, known.commit != LogPosition(commit)
        else { return true }
        let pending = tracker.takeChanges()
        tracker.advance(to: index, files) { sideFileEvents(files) }
        _ = tracker.takeChanges()
        tracker.add(pending)
        return tracker.hasMap
    }
}

/// What was told last.
struct Known: Equatable {
    var commit = LogPosition.none
    /// The index's.
    var commitCount: UInt32 = 0
    var changeCounter: UInt32?

    /// Whether something was committed since. The checksum moves with each commit and stays when the log begins anew;
    /// but where SQLite before 3.46 has written a transaction in part and then undone a savepoint, it may be any.
    func isBefore(_ index: WriteAheadIndex) -> Bool {
        if index.lastFrame > 0 { return LogPosition(index) != commit }
        return index.checksum != .none && index.checksum != commit.checksum || index.commitCount > commitCount
    }
}

/// How long until the next look for a commit that is on its way: 50 µs, and twice as long each time, to 20 ms.
private struct Backoff {
    private var delay = Duration.microseconds(50)
    private var total = Duration.zero

    /// Nothing was expected until now.
    var isFresh: Bool { total == .zero }

    mutating func next() -> Duration {
        defer { delay = min(delay * 2, .milliseconds(20)) }
        total += delay
        return delay
    }

    /// Nil when all the waiting so far is as long as the limit.
    mutating func nextWithin(_ limit: Duration) -> Duration? { total < limit ? next() : nil }
}

/// Programs that open a store in WAL mode make its side files, and the last one to close it removes them: a session.
/// When one came and went between two looks, only the events tell of it: the database was written, and the index
/// removed. Events come late: those of a session whose index was read to its end are owed, and don't count.
private struct SessionNotes {
    /// How many sessions ended, and in how many of them something was written.
    private struct Count {
        var all = 0
        var written = 0

        mutating func add(written isWritten: Bool) {
            all += 1
            if isWritten { written += 1 }
        }
    }

    /// The database was written since the last session's end.
    private var isModified = false
    /// By the events since the last look.
    private var ended = Count()
    /// Observed ones whose events are still to come.
    private var owed = Count()

    mutating func note(_ part: StorePart, modified: Bool, removed: Bool) {
        switch part {
        case .database: if modified { isModified = true }
        case .sharedMemory: if removed { end() }
        // The index goes first. Without one, in exclusive mode, the log's going is the session's end.
        case .wal: if removed, isModified { end() }
        case .journal, .support: break
        }
    }

    private mutating func end() {
        ended.add(written: isModified)
        isModified = false
    }

    mutating func observedOneEnded(hasCommitted: Bool) { owed.add(written: hasCommitted) }

    /// Whether a session that nobody saw wrote the database since the last look.
    mutating func takeMissed() -> Bool {
        defer { ended = Count() }
        let isMissed = ended.written > owed.written
        // Once there were as many ends as are owed, none of them is still to come.
        if ended.all >= owed.all {
            owed = Count()
        } else {
            owed.all -= ended.all
            owed.written = max(0, owed.written - ended.written)
        }
        return isMissed
    }
}
