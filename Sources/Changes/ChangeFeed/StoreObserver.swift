import CLinux
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Detects other processes' commits to one SQLite store, without a SQLite connection, a lock or a trace on disk.
///
/// Forward the kernel's file events to `recordEvent(_:created:modified:removed:closed:)`, then call `poll()`. When
/// `poll()` returns a delay, poll again after it, even if no event arrives. Confined to one thread.
///
/// It reads through descriptors of its own, never by mapping: SQLite truncates a `-shm` that it finds, and a process
/// that touches memory mapped from a truncated file is killed.
package final class StoreObserver {
    /// The directory that contains the store.
    package let directory: FilePath
    /// The store's file names.
    package let name: StoreName

    // One thread uses all of it. What is read between a commit and its line is not checked for overlapping accesses.
    @exclusivity(unchecked) var files: StoreFiles?
    @exclusivity(unchecked) var baseline = CommitBaseline()
    var sessions = WALSessionTracker()
    /// True if the last poll looked at the WAL through its index. An index may also be left beside a store in another
    /// mode.
    var followsIndex = false
    /// True if a store without a legible header was last followed through a log or an index.
    var hasFollowedLog = false
    /// True if a commit was found in the index that is open now.
    var indexHasCommitted = false
    @exclusivity(unchecked) private(set) var touchedParts: Set<StorePart> = []
    var backoff = PollDelay()
    /// The delays between polls for a lock that has been held for longer than a commit takes.
    var unlockBackoff = StoreObserver.makeUnlockBackoff()
    /// The reason why the store can't be read.
    enum Obstacle {
        /// A program locks readers out.
        case lock
        case failure(SystemError?)
    }

    @exclusivity(unchecked) var obstacle: Obstacle?
    @exclusivity(unchecked) var detector = CommitDetector()
    /// True if a rollback journal was seen since the last settled poll. The journal makes the change counter's verdict
    /// final.
    var usesJournal = false
    /// The database's stamp at the published commit, if the writer kept its lock after it or used no journal. In
    /// exclusive mode the change counter counts only a program's first commit.
    var stampPublishedUnderLock: StoreFiles.Stamp?
    var rollbackStamps = RollbackStamps()
    var bracket = JournalBracket()
    var abandonedWAL = AbandonedWAL()
    var unloggedWrites = UnloggedWrites()
    /// The commits found while a program locked out every reader.
    var lockedCommits: LockedCommits?
    private var failures = Backoff(first: .seconds(1), longest: .seconds(60))
    var idle = IdleState.inUse
    @exclusivity(unchecked) var tracker = TableTracker()
    /// What names the tables of commits in rollback mode, once the store was read.
    var rollbackTables: RollbackTables?
    /// The journals of a store in rollback mode whose tables are wanted; nil if they aren't watched.
    var journals: JournalWatch?
    var scanSchedule = PageMapScanSchedule()
    /// The last commits of indexes that have lost their names.
    var formerStarts: [BranchStart] = []
    var eventCounts = SideFileEventCounts()
    /// The time from which commits before a transaction that goes on are looked for.
    var journalDeadline: ContinuousClock.Instant?
    /// The hot journal whose program was gone at the last poll.
    var abandonedJournal: AbandonedJournal?
    /// The database's stamp at a commit with a journal that was published when the store was in WAL mode again.
    var journaledStamp: StoreFiles.Stamp?

    /// The database file's identity if hard links lead to it too, as of the last poll.
    package var sharedDatabase: FileIdentity? { files?.sharedIdentity }

    /// True while polls report the changed tables. Setting it to false frees the page map.
    package var wantsTables = false {
        didSet {
            detector.expectNothing()
            if !wantsTables {
                discardPageMap()
                journals = nil
            }
        }
    }

    /// True if the database's descriptor is closed while nobody else uses the store. A relocation moves a store only if
    /// nobody has it open.
    package var releasesUnusedStore = false
    /// The delays between looks whether a program that is closing the store has closed it.
    private var releaseBackoff = StoreObserver.makeReleaseBackoff()

    /// True if a program has closed a file that it could write.
    private var isClosing = false

    private static func makeReleaseBackoff() -> Backoff {
        Backoff(first: .milliseconds(1), longest: .milliseconds(256))
    }

    /// Creates an observer, which opens nothing before `attach()`.
    package init(directory: FilePath, name: StoreName) {
        self.directory = directory
        self.name = name
    }

    /// Opens the store and takes its present state as the baseline. Nothing is open before the first `attach()` and
    /// after `close()`.
    package func attach() {
        do { try open() } catch {
            obstacle = .failure(error as? SystemError)
        }
        releaseUnusedStore()
    }

    /// Closes the database if nobody uses the store and that is wanted.
    package func releaseUnusedStore() {
        if releasesUnusedStore, !isScanning, files?.isUnused == true { files?.closeDatabase() }
    }

    /// Opens the store, if there is one, and takes its present state as the baseline. Throws if it can't be read.
    private func open() throws {
        keepBranchStart()
        close()
        guard let opened = try StoreFiles(directory, name) else { return }
        let stamp = try opened.stamp()
        // Must come first, so that a commit made meanwhile has another stamp.
        let inspectedStamp = try opened.walStamp()?.whenSettled
        baseline = try opened.baseline()
        // What is being written was not read, or will be in the index.
        abandonedWAL.inspectedStamp = try opened.walIndex != nil && opened.isWALInUse() ? nil : inspectedStamp
        abandonedWAL.holdsPublishedCommit = opened.walIndex == nil && baseline.commit.frame > 0
        hasFollowedLog = opened.walIndex != nil || abandonedWAL.holdsPublishedCommit
        if opened.walIndex != nil { unloggedWrites.record(try databaseState(opened)) }
        abandonedJournal = opened.isTransactionUnderWay() ? nil : try? AbandonedJournal(opened, at: stamp)
        recordMode(of: opened, stamp: stamp, mode: try opened.header()?.journalMode)
        files = opened
        failures.reset()
    }

    private func recordMode(of files: StoreFiles, stamp: StoreFiles.Stamp, mode: DatabaseHeader.JournalMode?) {
        indexHasCommitted = baseline.commit.frame > 0
        switch mode {
        case .writeAhead, nil: if files.walIndex == nil { idle = IdleState(publishedAt: stamp) }
        case .rollback:
            rollbackStamps = RollbackStamps(publishedAt: stamp)
            // The counter does not count further commits of a program in exclusive mode.
            if files.isLockedExclusively() { stampPublishedUnderLock = stamp }
        }
    }

    /// False while a program's lock, a resource limit or a missing permission prevents reading.
    package var isReadable: Bool { !isUnreadable }

    var isUnreadable: Bool { obstacle != nil }

    /// The error because of which the store can't be read; nil if it is readable or a program's lock is the reason.
    package var failure: SystemError? { if case .failure(let error) = obstacle { error } else { nil } }

    /// The delay until the next attempt after a failure whose end no event reports: a resource limit, a relocation's
    /// lease, or a parent directory that this user may not go through.
    package var retryDelay: Duration? {
        guard let failure else { return nil }
        let isUnreachable = failure.errno == .permissionDenied && FileStatus(following: directory) == nil
        let isLeased = failure.errno == .resourceTemporarilyUnavailable
        return isUnreachable || isLeased || ResourceLimit(failure) != nil ? failures.next() : nil
    }

    /// Closes every descriptor. Call it before this process opens the store through SQLite, or moves it.
    package func close() {
        discardPageMap()
        _ = tracker.takeChanges()
        (files, journals) = (nil, nil)
        touchedParts = []
        sessions = WALSessionTracker()
        backoff = PollDelay()
        obstacle = nil
        (followsIndex, hasFollowedLog) = (false, false)
        detector = CommitDetector()
        stampPublishedUnderLock = nil
        rollbackStamps = RollbackStamps()
        bracket = JournalBracket()
        abandonedWAL = AbandonedWAL()
        unloggedWrites = UnloggedWrites()
        lockedCommits = nil
        (journalDeadline, journaledStamp, abandonedJournal) = (nil, nil, nil)
        idle = .inUse
    }

    /// Records a file event for one of the store's files. This is cheap; `poll()` evaluates the event.
    package func recordEvent(_ part: StorePart, created: Bool, modified: Bool, removed: Bool, closed: Bool = false) {
        // Most events are writes to the WAL, and they need the least work.
        if part == .wal, !created, !removed {
            touchedParts.insert(.wal)
        } else {
            touchedParts.formUnion([part, .database])
        }
        if part == .journal { usesJournal = true }
        eventCounts.record(part, created: created, modified: modified)
        sessions.record(part, created: created, modified: modified, removed: removed)
        unloggedWrites.recordEvent(part, modified: modified)
        if closed { isClosing = true }
        bracket.record(part, created: created, modified: modified, removed: removed, closed: closed)
    }

    /// Records that events were lost or that the directory was replaced: the store's names may stand for other files.
    package func recordLostEvents() {
        discardPageMap()
        bracket.recordLostEvents()
        sessions.recordLostEvents()
        touchedParts.insert(.database)
    }

    /// Compares the store with the baseline and returns the difference.
    package func poll(_ queuedEvents: EventReader) -> Observation {
        // The events that an earlier call needed would be too late now.
        if tracker.needsEvents { settleTables(with: nil) }
        let parts = touchedParts
        touchedParts = []
        // The event may announce the release of a lock that polling had given up on, and a commit with it.
        if !parts.isEmpty {
            backoff.recordEvent()
            unlockBackoff = Self.makeUnlockBackoff(afterEvent: true)
        }
        var found = inspect(parts)
        if detector.endPoll() { found = found.reportingChange }
        if case .discontinued = found.finding {
            _ = tracker.takeChanges()
            discardPageMap()
        }
        if releasesUnusedStore { found = releasingUnusedStore(found) }
        if tracker.needsEvents { settleTables(with: queuedEvents()) }
        if found.finding == .changed { found.tables = tracker.takeChanges() ?? .unknown }
        prepareProbe()
        return found
    }

    /// Closes the database if nobody uses the store any more. A program's close of a file precedes the end of its
    /// locks, so the store is looked at again.
    private func releasingUnusedStore(_ found: Observation) -> Observation {
        guard let files, found.nextPollDelay == nil else { return found }
        if files.isUnused {
            files.closeDatabase()
        } else if isClosing {
            let delay = releaseBackoff.next()
            if delay < .milliseconds(256) {
                return found.withRecheck(after: [found.recheckDelay, delay].compactMap(\.self).min())
            }
        }
        isClosing = false
        releaseBackoff = Self.makeReleaseBackoff()
        return found
    }

    private func inspect(_ parts: Set<StorePart>) -> Observation {
        do {
            if let files, files.walIndex != nil, followsIndex || !parts.isEmpty, parts.isSubset(of: [.wal]) {
                return try inspectWAL(files, afterDatabaseEvent: false)
            }
            return try inspectStore()
        } catch let error as SystemError where error.errno == .resourceTemporarilyUnavailable {
            // A relocation holds a lease on the database.
            return Observation(.unchanged, nextPollDelay: backoff.next())
        } catch {
            return unreadable(error)
        }
    }

    /// Records that the store can't be read. It becomes readable when its owner grants access or a lease on it ends. No
    /// event reports the end of a resource limit.
    private func unreadable(_ error: any Error) -> Observation {
        let finding: Observation.Finding = isUnreadable ? .unchanged : .discontinued(.unreadable)
        discardPageMap()
        files = nil
        obstacle = .failure(error as? SystemError)
        return Observation(finding, nextPollDelay: retryDelay)
    }

    // MARK: Full inspection

    private func inspectStore() throws -> Observation {
        let hadStore = files != nil
        guard let found = try StoreFiles.current(directory, name, unless: files) else {
            files = nil
            sessions = WALSessionTracker()
            obstacle = nil
            return Observation(hadStore ? .discontinued(.vanished) : .unchanged)
        }
        guard found === files else {
            let former = obstacle
            do { try open() } catch {
                // Reported unless it was unreadable before.
                obstacle = former
                throw error
            }
            // It may have vanished meanwhile.
            guard files != nil else { return Observation(hadStore ? .discontinued(.vanished) : .unchanged) }
            return Observation(former != nil ? .changed : .discontinued(hadStore ? .replaced : .appeared))
        }
        let hasChanged = try inspectSessions(found)
        followsIndex = false
        let mode = try found.header()?.journalMode
        if mode != .rollback { (rollbackTables, journals) = (nil, nil) }
        let observation =
            switch mode {
            case .writeAhead: try inspectWALMode(found, isChanged: hasChanged)
            case .rollback: try inspectRollbackMode(found)
            case nil: try inspectWithoutHeader(found, isChanged: hasChanged)
            }
        return hasChanged ? observation.reportingChange : observation
    }

    /// Reads the final state of the WAL index, even if the index has since lost its name, and checks for sessions that
    /// began and ended unobserved.
    private func inspectSessions(_ files: StoreFiles) throws -> Bool {
        var hasChanged = try hasCommitted(files)
        let hasEnded = try files.refreshIndex {
            if try hasCommitted(files) { hasChanged = true }
            // The queued events are about the index that has the name now.
            settleTables(with: nil)
        } changed: { former in
            if former != nil { keepBranchStart() }
            unloggedWrites = UnloggedWrites(after: former == nil ? idle.stamp : nil)
            try sessionChanged(files, former)
        }
        if hasEnded {
            sessions.recordObservedEnd(hasCommitted: indexHasCommitted)
            indexHasCommitted = false
            abandonedWAL = AbandonedWAL()
        }
        if try hasCommitted(files) { hasChanged = true }
        let isMissed = sessions.takeMissed()
        if sessions.takeModifiedBetween() || isMissed {
            hasChanged = true
            tracker.addUnknown()
            discardPageMap()
        }
        if hasChanged { idle = .inUse }
        return hasChanged
    }
}
