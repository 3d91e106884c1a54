import AgentProtocol
import ChangeFeed
import DirectoryWatching
import LinuxSystem
import SQLiteFormat
import Synchronization
import SystemPackage

/// How it stands with the following of one store.
package enum FollowingState: String, Sendable {
    case following
    /// Nothing is there by that name; it is waited for.
    case absent
    /// A program uses it in exclusive mode, or it may not be read.
    case unreadable
    /// Its directory can't be watched, because of a limit or a missing right: commits go unnoticed. Tried again.
    case unwatched
    /// Let go of, for the time of a relocation.
    case released
}

/// The states, for those who ask from another thread.
package final class FollowingStates: Sendable {
    private let states = Mutex<[StoreAddress: FollowingState]>([:])
    /// Why stores are not followed, and what would help.
    private let details = Mutex<[StoreAddress: String]>([:])
    /// Why directories can't be watched.
    private let directories = Mutex<[FilePath: String]>([:])

    package init() {}

    package subscript(store: StoreAddress) -> FollowingState? { states.withLock { $0[store] } }

    func detail(_ store: StoreAddress) -> String? { details.withLock { $0[store] } }

    /// Why the directory can't be watched; nil when it is, or need not be.
    func unwatchable(_ directory: FilePath) -> String? { directories.withLock { $0[directory] } }

    func setUnwatchable(_ reason: String?, _ directory: FilePath) {
        directories.withLock { if $0[directory] != reason { $0[directory] = reason } }
    }

    func set(_ state: FollowingState?, of store: StoreAddress, because detail: String? = nil) {
        states.withLock { $0[store] = state }
        details.withLock { if $0[store] != detail { $0[store] = detail } }
    }
}

/// One store with its observer.
final class FollowedStore {
    let address: StoreAddress
    let directory: FilePath
    let name: StoreName
    private let observer: StoreObserver
    private(set) var state = FollowingState.absent
    /// When to look although no event may come.
    private(set) var lookAt: ContinuousClock.Instant?
    /// A commit may be on its way.
    private var isUnderWay = false
    /// Of the change before, which mostly is about the same tables.
    private var last: (found: TableChanges, wire: ChangedTables)?
    /// Its number among those whose log's writes end the wait for events.
    var writeMark: Int?

    private var noted: [FileStatus?]?

    var path: FilePath { directory.appending(name.database) }

    /// The files whose events mean something to it.
    var files: [(FilePath.Component, StorePart)] {
        [
            (name.database, .database), (name.wal, .wal), (name.sharedMemory, .sharedMemory),
            (name.journal, .journal),
        ]
    }

    /// All but that which is written most.
    var filesBesideLog: [FilePath.Component] { files.compactMap { file, part in part == .wal ? nil : file } }

    init(_ address: StoreAddress, directory: FilePath, name: StoreName) {
        self.address = address
        self.directory = directory
        self.name = name
        observer = StoreObserver(directory: directory, name: name)
    }

    /// Takes what is there now as known.
    func attach() {
        observer.attach()
        state = observer.isReadable ? current : .unreadable
        lookAt = observer.retryDelay.map { ContinuousClock.now.advanced(by: $0) }
    }

    /// The limit that keeps the store from being read.
    var limit: ResourceLimit? { observer.failure.flatMap(ResourceLimit.init) }

    /// Why it isn't followed.
    var detail: String? {
        guard state == .unreadable else { return nil }
        return observer.failure?.advice ?? "a program uses it in exclusive mode, or its name is a symbolic link's"
    }

    func letGo() {
        observer.letGo()
        lookAt = nil
        isUnderWay = false
        state = .released
    }

    /// Notes what the files are, for `isAsNoted`. To be called before the last look: what is written after it is noted
    /// then, or told.
    func noteFiles() { noted = fingerprint }

    /// Whether nobody has written the store since its files were noted. To be asked when it is followed again, for the
    /// same reason.
    var isAsNoted: Bool { noted != nil && noted == fingerprint }

    /// Nil where a write from now on could leave it as it is.
    private var fingerprint: [FileStatus?]? {
        let found = [name.database, name.wal, name.journal].map { FileStatus(following: directory.appending($0)) }
        return found.allSatisfy { $0.map { FileTime.isSettled($0.changed) } ?? true } ? found : nil
    }

    /// False when that can't mean anything to the store.
    func note(_ part: StorePart, _ kinds: DirectoryEvent.Kinds) -> Bool {
        let created = !kinds.isDisjoint(with: .arrived)
        let removed = !kinds.isDisjoint(with: .departed)
        // A close is no write, though it was open for writing. Attributes: it may be readable now.
        let modified = kinds.contains(.modified)
        let mayMatter = kinds.contains(.closedAfterWriting) || kinds.contains(.attributes)
        guard created || modified || removed || mayMatter else { return false }
        observer.note(
            part, created: created, modified: modified, removed: removed,
            closed: kinds.contains(.closedAfterWriting))
        return true
    }

    /// How the observer gets at what the kernel has queued.
    func readsAhead(_ unnoted: @escaping () -> SideFileEventCounts?) { observer.unnotedEvents = unnoted }

    /// Events were lost.
    func lostEvents() { observer.lostEvents() }

    /// What subscribers are to be told first, after a write to the log and nothing else; `look` is to follow.
    func lookAhead() -> StoreEvent? {
        guard state == .following, let tables = observer.lookAhead() else { return nil }
        return .change(wire(tables))
    }

    /// What subscribers are to be told; nil when nothing was committed.
    func look() -> StoreEvent? {
        let observation = observer.look()
        isUnderWay = observation.lookAgain != nil
        let delay = [observation.lookAgain, observation.makeSure].compactMap { $0 }.min()
        lookAt = delay.map { ContinuousClock.now.advanced(by: $0) }
        switch observation.finding {
        case .unchanged: return lookWithoutStore()
        case .changed:
            state = .following
            return .change(wire(observation.tables))
        case .discontinued(let reason):
            state = Self.state(after: reason)
            return lookWithoutStore() ?? .reset(Self.wireReason(reason))
        }
    }

    private func wire(_ tables: TableChanges) -> ChangedTables {
        if let last, last.found == tables { return last.wire }
        let wire = ChangedTables(tables.names, isComplete: tables.isComplete)
        last = (tables, wire)
        return wire
    }

    /// For the observer nothing is there: it may be a link, or a link that is gone.
    private func lookWithoutStore() -> StoreEvent? {
        switch (state, state == .following ? nil : current) {
        case (.absent, .unreadable):
            state = .unreadable
            return .reset(.unreadable)
        case (.unreadable, .absent):
            state = .absent
            return .reset(.vanished)
        default: return nil
        }
    }

    /// The database, where hard links lead to it too; and of which it is watched.
    var sharedDatabase: FileIdentity? { observer.sharedDatabase }
    var watchedDatabase: FileIdentity?

    // MARK: Which tables

    /// Whether somebody wants to know.
    var wantsTables: Bool {
        get { observer.wantsTables }
        set { if newValue != observer.wantsTables { observer.wantsTables = newValue } }
    }

    /// Whether it is being found out; a change that comes first can't say it.
    var isSurveying: Bool { observer.isSurveying }

    /// What another thread is to do now so that changes can say which tables; nil when there is nothing to do, or it
    /// is to be done later.
    func survey() -> PageMapScan? {
        // What is on its way is told first.
        guard !isUnderWay else { return nil }
        let survey = observer.survey()
        if survey == nil, let due = observer.surveyDue { lookAt = lookAt.map { min($0, due) } ?? due }
        return survey
    }

    func adopt(_ survey: PageMapScan) { observer.adopt(survey) }

    private static func state(after reason: Observation.Reason) -> FollowingState {
        switch reason {
        case .replaced, .appeared, .overflow: .following
        case .vanished: .absent
        case .unreadable: .unreadable
        }
    }

    private static func wireReason(_ reason: Observation.Reason) -> StoreEvent.ResetReason {
        switch reason {
        case .replaced: .replaced
        case .appeared: .appeared
        case .vanished: .vanished
        case .overflow: .overflow
        case .unreadable: .unreadable
        }
    }

    private var current: FollowingState {
        do throws(SystemError) {
            guard let found = try Directory(directory).status(name.database) else { return .absent }
            // What is written through a symbolic link is written elsewhere.
            return found.kind == .regular ? .following : .unreadable
        } catch {
            return [.noSuchFileOrDirectory, .notDirectory].contains(error.errno) ? .absent : .unreadable
        }
    }
}
