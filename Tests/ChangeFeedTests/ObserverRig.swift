import ChangeFeed
import DirectoryWatching
import LinuxSystem
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

/// An observer that hears the kernel's events, and programs that write its store.
final class ObserverRig {
    let directory: TemporaryDirectory
    let store: FilePath
    private let privateDirectory: TemporaryDirectory
    private let source: InotifySource
    private let observer: StoreObserver
    private let name: StoreName
    /// Notices that were taken in early.
    private var unnoted: [Notice] = []
    /// The tables of all changes that were found.
    private(set) var tables: [TableChanges] = []
    // The last property: it is given back when the source is gone.
    private let turn: Turn

    init(_ file: FilePath.Component = "Notes.sqlite", prepare: (FilePath) throws -> Void = { _ in }) throws {
        turn = Turn()
        directory = try TemporaryDirectory()
        privateDirectory = try TemporaryDirectory()
        store = directory.path.appending(file)
        name = try #require(StoreName(file))
        try prepare(store)
        source = try InotifySource(privateDirectory: privateDirectory.path)
        try source.watch(
            directory.path, for: [.modified, .closedAfterWriting, .created, .deleted, .movedIn, .movedOut])
        observer = StoreObserver(directory: directory.path, name: name)
        observer.attach()
        _ = try source.next(timeout: .zero)
        observer.unnotedEvents = { [unowned self] in readAhead() }
    }

    /// From now on the changes say which tables.
    func findTables() throws {
        observer.wantsTables = true
        _ = try findings()
        survey()
        tables = []
    }

    /// What the changes say that come of `work`.
    func tables(after work: () throws -> Void) throws -> TableChanges {
        tables = []
        try work()
        _ = try findings()
        var all = TableChanges.nothing
        for found in tables { all.add(found) }
        return all
    }

    private func readAhead() -> SideFileEventCounts? {
        while let more = try? source.next(timeout: .zero), !more.isEmpty { unnoted += more }
        var found = SideFileEventCounts()
        for case .event(let event) in unnoted {
            guard let part = name.part(named: event.name) else { continue }
            found.note(part, created: event.kinds.contains(.created), modified: event.kinds.contains(.modified))
        }
        return found
    }

    private func survey() {
        let deadline = Deadline(after: .seconds(5))
        while true {
            if let survey = observer.survey() {
                survey.run()
                observer.adopt(survey)
            } else {
                // One that took long on a busy machine puts the next one off.
                guard let due = observer.surveyDue, !deadline.hasPassed else { return }
                pause(ContinuousClock.now.duration(to: due))
            }
        }
    }

    /// All that the observer finds until it has taken in every event there is and expects nothing more, or has come to
    /// look at its slowest for a transaction that is left open. Or until it has looked that often.
    func findings(looks: Int = .max, longestWait: Duration = .milliseconds(600)) throws -> [Observation.Finding] {
        var found: [Observation.Finding] = []
        var wait = Duration.zero
        // An open transaction is looked for without end; a lock that stays is taken for exclusive mode after 0.5 s.
        var waited = Duration.zero
        var allLooks = 0
        while true {
            let early = unnoted
            unnoted = []
            let notices = try early + source.next(timeout: early.isEmpty ? wait : .zero)
            for case .event(let event) in notices { note(event) }
            if wait >= .milliseconds(20) { waited += wait }
            if notices.isEmpty, wait == .zero || waited > longestWait { return found }
            let observation = observer.look()
            if observation.finding != .unchanged { found.append(observation.finding) }
            allLooks += 1
            if allLooks == looks { return found }
            if observation.finding == .changed { tables.append(observation.tables) }
            if observation.lookAgain == nil { survey() }
            // An exclusive lock that stays is looked at again and again; nothing more comes of it here.
            wait = observation.lookAgain.flatMap { $0 < .milliseconds(600) ? $0 : nil } ?? .zero
        }
    }

    /// What one look finds that no event has asked for.
    func look() -> Observation { observer.look() }

    private func note(_ event: DirectoryEvent) {
        guard let part = name.part(named: event.name) else { return }
        observer.note(
            part, created: !event.kinds.isDisjoint(with: [.created, .movedIn]),
            modified: event.kinds.contains(.modified), removed: !event.kinds.isDisjoint(with: [.deleted, .movedOut]),
            closed: event.kinds.contains(.closedAfterWriting))
    }

    func letGo() { observer.letGo() }

    /// What happened until now is not looked at.
    func attach() throws {
        _ = try source.next(timeout: .zero)
        observer.attach()
    }

    /// A `sqlite3` shell that has the store open.
    func shell(_ first: String = "") throws -> Shell { try Shell(store, first) }

    /// One shell for one script, which has closed when this returns.
    func once(_ sql: String) throws { try Self.once(store, sql) }

    static func once(_ store: FilePath, _ sql: String) throws {
        let done = try run("sqlite3", ["-batch", "-bail", "-init", "/dev/null", Word(store), Word(sql)])
        guard done.status == 0 else { throw Unexpected("sqlite3: \(done.errors)") }
    }
}

/// A `sqlite3` shell that runs one script after another on one connection.
final class Shell {
    private let process: RunningProcess

    /// `first` comes before anything is read.
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

    /// As a crash does: nothing is rolled back, checkpointed or removed.
    func kill() throws { try process.killAtOnce() }
}
