import ChangeFeed
import DirectoryWatching
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

/// An observer that receives the kernel's events, and programs that write its store.
final class ObserverRig {
    let directory: TemporaryDirectory
    let store: FilePath
    private let source: InotifySource
    private let observer: StoreObserver
    private let name: StoreName
    /// Notices that were read early.
    private var unrecorded: [Notice] = []
    /// The tables of all changes found.
    private(set) var tables: [TableChanges] = []

    init(_ file: FilePath.Component = "Notes.sqlite", prepare: (FilePath) throws -> Void = { _ in }) throws {
        directory = try TemporaryDirectory()
        store = directory.path.appending(file)
        name = try #require(StoreName(file))
        try prepare(store)
        source = try InotifySource()
        try source.watch(
            directory.path, for: [.modified, .closedAfterWriting, .created, .deleted, .movedIn, .movedOut])
        observer = StoreObserver(directory: directory.path, name: name)
        observer.attach()
        _ = try source.next(timeout: .zero)
    }

    /// Makes all further changes report their tables.
    func findTables() throws {
        observer.wantsTables = true
        _ = try findings()
        runScans()
        tables = []
    }

    /// Returns the tables of the changes that `work` causes.
    func tables(after work: () throws -> Void) throws -> TableChanges {
        tables = []
        try work()
        _ = try findings()
        var all = TableChanges.nothing
        for found in tables { all.add(found) }
        return all
    }

    private func drainEvents() -> SideFileEventCounts? {
        while let more = try? source.next(timeout: .zero), !more.isEmpty { unrecorded += more }
        var found = SideFileEventCounts()
        for case .event(let event) in unrecorded {
            guard let part = name.part(named: event.name) else { continue }
            found.record(part, created: event.kinds.contains(.created), modified: event.kinds.contains(.modified))
        }
        return found
    }

    func runScans() {
        let deadline = Deadline(after: .seconds(5))
        while true {
            if let scan = observer.beginScan(drainEvents) {
                scan.run()
                observer.adopt(scan, drainEvents)
            } else {
                // A scan that took long on a busy machine postpones the next one.
                guard !observer.hasMap, let due = observer.scanDue, !deadline.hasPassed else { return }
                pause(ContinuousClock.now.duration(to: due))
            }
        }
    }

    /// Waits until a commit in rollback mode can name all its tables.
    func awaitComparison() {
        while let due = pauseUntilComparison() {
            #expect(poll().finding == .unchanged)
            if observer.comparisonDue == due { return }
        }
    }

    /// Waits until a poll may compare the pages of the last commit. Returns when that was due.
    @discardableResult
    func pauseUntilComparison() -> ContinuousClock.Instant? {
        guard let due = observer.comparisonDue else { return nil }
        pause(max(.zero, ContinuousClock.now.duration(to: due)))
        return due
    }

    /// Runs a scan, with `before` between its begin and its reading, and `after` between its reading and its end.
    /// Returns false if there was none to run.
    func runScan(after before: () throws -> Void = {}, before after: () throws -> Void = {}) throws -> Bool {
        guard let scan = observer.beginScan(drainEvents) else { return false }
        try before()
        scan.run()
        try after()
        observer.adopt(scan, drainEvents)
        return true
    }

    /// The position of the last finding, as a token keeps it.
    var position: StorePosition? { observer.position }

    /// The position that another process would find now.
    var presentPosition: StorePosition? {
        let other = StoreObserver(directory: directory.path, name: name)
        other.attach()
        return other.position
    }

    /// True if the tables of the next commit can be named.
    var hasMap: Bool { observer.hasMap }

    /// Makes all further changes report their tables, as soon as a scan has run.
    func wantTables() { observer.wantsTables = true }

    /// Returns the observer's findings until it has handled every event and expects no more, has reached its slowest
    /// polling rate for an open transaction, or has polled that often.
    func findings(polls: Int = .max, longestWait: Duration = .milliseconds(600)) throws -> [Observation.Finding] {
        var found: [Observation.Finding] = []
        var wait = Duration.zero
        // An open transaction is polled without end. A lock that stays counts as exclusive mode after 0.5 s.
        var waited = Duration.zero
        var pollCount = 0
        while true {
            let early = unrecorded
            unrecorded = []
            let isRepeated = early.isEmpty && findRepeatedCommit() == .repeated
            if isRepeated {
                found.append(.changed)
                tables.append(observer.expectedTables ?? .unknown)
                observer.confirmRepeatedCommit()
            }
            let notices = try early + source.next(timeout: early.isEmpty && !isRepeated ? wait : .zero)
            for case .event(let event) in notices { record(event) }
            if wait >= .milliseconds(20) { waited += wait }
            if notices.isEmpty, !isRepeated, wait == .zero || waited > longestWait { return found }
            let observation = poll()
            if observation.finding != .unchanged { found.append(observation.finding) }
            pollCount += 1
            if pollCount == polls { return found }
            if observation.finding == .changed { tables.append(observation.tables) }
            if observation.nextPollDelay == nil { runScans() }
            // An exclusive lock that stays is polled forever, with no further findings here.
            wait = observation.nextPollDelay.flatMap { $0 < .milliseconds(600) ? $0 : nil } ?? .zero
        }
    }

    /// Reads the wal-index as right after a write to the log. The events stay queued, unless the tables can't be named
    /// without them: then they are read after `work`.
    func pollWALIndex(beforeEvents work: () throws -> Void = {}) -> TableChanges? {
        var failure: (any Error)?
        let found = observer.pollWALIndex {
            eventReadings += 1
            do { try work() } catch { failure = error }
            return drainEvents()
        }
        if let failure { Issue.record(failure) }
        return found
    }

    /// The number of times that `pollWALIndex` has read the events.
    private(set) var eventReadings = 0

    /// Looks for a commit like the last one, before any event is read.
    func findRepeatedCommit() -> StoreObserver.ProbeFinding { observer.findRepeatedCommit(isAnnounced: false) }

    /// Publishes the commit that `findRepeatedCommit` found, and returns its tables.
    func confirmRepeatedCommit() -> TableChanges {
        defer { observer.confirmRepeatedCommit() }
        return observer.expectedTables ?? .unknown
    }

    /// Looks as `pollWALIndex` does, but the queued events are lost.
    func pollWALIndexWithoutEvents() -> TableChanges? { observer.pollWALIndex { nil } }

    /// Polls once without an event.
    func poll() -> Observation { observer.poll(drainEvents) }

    /// Drops the events that are queued, as an overflow of the kernel's queue does.
    func loseEvents() throws {
        while try !source.next(timeout: .zero).isEmpty {}
        unrecorded = []
        observer.recordLostEvents()
    }

    private func record(_ event: DirectoryEvent) {
        guard let part = name.part(named: event.name) else { return }
        observer.recordEvent(
            part, created: !event.kinds.isDisjoint(with: [.created, .movedIn]),
            modified: event.kinds.contains(.modified), removed: !event.kinds.isDisjoint(with: [.deleted, .movedOut]),
            closed: event.kinds.contains(.closedAfterWriting))
    }

    func close() { observer.close() }

    /// Attaches the observer and skips earlier events.
    func attach() throws {
        _ = try source.next(timeout: .zero)
        observer.attach()
    }

    /// Starts a `sqlite3` shell that has the store open.
    func shell(_ first: String = "") throws -> Shell { try Shell(store, first) }

    /// Runs one script in a shell, which has closed when this returns.
    func once(_ sql: String) throws { try Self.once(store, sql) }

    static func once(_ store: FilePath, _ sql: String) throws {
        let done = try run("sqlite3", ["-batch", "-bail", "-init", "/dev/null", Word(store), Word(sql)])
        guard done.status == 0 else { throw Unexpected("sqlite3: \(done.errors)") }
    }
}

/// A `sqlite3` shell that runs several scripts on one connection.
final class Shell {
    private let process: RunningProcess

    /// Starts a shell that runs `first` before it reads anything.
    init(_ store: FilePath, _ first: String = "") throws {
        process = try RunningProcess("sqlite3", ["-batch", "-init", "/dev/null", Word(store)])
        try execute("\(first); PRAGMA busy_timeout = 10000; SELECT count(*) FROM sqlite_schema")
    }

    func execute(_ sql: String) throws {
        process.send("\(sql); SELECT 'done';")
        try process.line { $0 == "done" }
    }

    func close() throws {
        process.closeInput()
        try process.wait()
    }

    /// Kills the shell like a crash: nothing is rolled back, checkpointed or removed.
    func kill() throws { try process.killAtOnce() }
}
