import AgentProtocol
import ChangeFeed
import DirectoryWatching
import Glibc
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// One store with its observer.
package final class FollowedStore {
    package let address: StoreAddress
    package let directory: FilePath
    let name: StoreName
    private let observer: StoreObserver
    // One thread uses all of it. What is read between a commit and its line is not checked for overlapping accesses.
    @exclusivity(unchecked) package private(set) var state = FollowingState.absent
    /// The time of the next poll even if no event arrives.
    private(set) var pollAt: ContinuousClock.Instant?
    /// True while a commit may be in progress.
    private(set) var isCommitUnderWay = false
    /// The tables of the previous change, as found and as encoded. Consecutive changes are mostly about the same
    /// tables.
    private var last: (found: TableChanges, wire: ChangedTables)?
    /// The number of events of the store that polls have published.
    var publishedCount = 0
    /// Its fast-path index: the source reports a write to this store's log by this number.
    var fastPathIndex: Int?

    /// True if the process's descriptors have room for its files.
    var isReserved = false

    private var recordedStatuses: [FileStatus?]?
    private var recordedDatabase: FileIdentity?

    package var path: FilePath { directory.appending(name.database) }

    /// The files whose events concern the store.
    var files: [(FilePath.Component, StorePart)] {
        [
            (name.database, .database), (name.wal, .wal), (name.sharedMemory, .sharedMemory),
            (name.journal, .journal),
        ]
    }

    /// All files but the log, which is written most often.
    var filesBesideLog: [FilePath.Component] { files.compactMap { file, part in part == .wal ? nil : file } }

    /// - Parameter releasesUnused: True if the database's descriptor is closed while nobody else uses the store.
    init(_ address: StoreAddress, directory: FilePath, name: StoreName, releasesUnused: Bool) {
        self.address = address
        self.directory = directory
        self.name = name
        observer = StoreObserver(directory: directory, name: name)
        observer.releasesUnusedStore = releasesUnused
    }

    /// The position of the last finding; nil if there is no readable store.
    package var position: StorePosition? { observer.position }

    /// The commits at which a branch of the store may begin.
    var branchStarts: [BranchStart] { observer.branchStarts }

    func forgetBranchStarts() { observer.forgetBranchStarts() }

    // MARK: Dormancy

    /// What is known of a store that nobody listens to. None of its files is open, and no event reports its writes.
    private struct Dormancy {
        /// The position up to which all events were published.
        let position: StorePosition?
        let state: FollowingState
        /// True if another file may have had the store's name since.
        var mayBeReplaced = false
    }

    private var dormancy: Dormancy?

    var isDormant: Bool { dormancy != nil }

    /// Takes the store's present content as what is known of it, without a file open from then on.
    func attachDormant() {
        attach()
        fallAsleep()
    }

    /// Closes all files until `wake`. `position`: the position up to which all events were published; nil for the last
    /// finding's.
    func fallAsleep(at position: StorePosition? = nil) {
        dormancy = Dormancy(position: position ?? observer.position, state: state)
        closeFiles()
        inspectDormant()
    }

    /// The position of the store's present content, read anew. It may include commits that were not found yet. It tells
    /// more than the last finding's: a log that is gone since says nothing about later writes.
    var presentPosition: StorePosition? {
        let fresh = StoreObserver(directory: directory, name: name)
        defer { fresh.close() }
        fresh.attach()
        return fresh.position
    }

    /// Takes the store's present content as the baseline, and returns the event that stands for everything that
    /// happened while the store was dormant; nil if nothing did.
    func wake() -> StoreEvent? {
        guard let former = dormancy.take() else { return nil }
        attach()
        if state == .unreadable { return former.state == .unreadable ? nil : .reset(.unreadable) }
        if former.mayBeReplaced, former.position != nil, position != nil { return .reset(.replaced) }
        if let event = StoreEvent(from: former.position, to: position) { return event }
        return former.state == .unreadable ? .reset(.vanished) : nil
    }

    /// Updates the state of a dormant store. A relocation may have a lease on the file, so it isn't opened.
    func inspectDormant() {
        state = current
        guard state == .following, path.withPlatformString({ faccessat(AT_FDCWD, $0, R_OK, AT_EACCESS) }) != 0 else {
            return
        }
        // Opening it tells why it can't be read.
        attach()
        closeFiles()
    }

    private func closeFiles() {
        observer.close()
        pollAt = nil
        isCommitUnderWay = false
    }

    /// Records a file event of a dormant store. Returns true if its state may have changed.
    private func recordDormant(_ part: StorePart, _ kinds: DirectoryEvent.Kinds) -> Bool {
        guard part == .database else { return false }
        let hasChangedName = !kinds.isDisjoint(with: DirectoryEvent.Kinds.arrived.union(.departed))
        if hasChangedName { dormancy?.mayBeReplaced = true }
        return hasChangedName || kinds.contains(.attributes)
    }

    /// Takes the store's present content as the baseline.
    func attach() {
        observer.attach()
        state = observer.isReadable ? current : .unreadable
        pollAt = observer.retryDelay.map { ContinuousClock.now.advanced(by: $0) }
    }

    /// The resource limit that makes the store unreadable.
    package var limit: ResourceLimit? { observer.failure.flatMap(ResourceLimit.init) }

    /// The reason why it isn't followed.
    var detail: String? {
        guard state == .unreadable else { return nil }
        return observer.failure?.advice ?? "a program uses it in exclusive mode, or its name is a symbolic link's"
    }

    func release() {
        closeFiles()
        state = .released
    }

    /// Records the files' status for `filesAreUnchanged`. Call it before the last poll: a later write is then in the
    /// recorded status, or published.
    func recordFileStatuses() {
        recordedStatuses = fingerprint
        recordedDatabase = database
    }

    /// True if another file has taken the store's name since `recordFileStatuses`.
    var isReplaced: Bool {
        guard let recordedDatabase, let database else { return false }
        return recordedDatabase != database
    }

    private var database: FileIdentity? { FileStatus(following: path)?.identity }

    /// True if nobody has written the store since `recordFileStatuses`. Ask it after the store is followed again, for
    /// the same reason.
    var filesAreUnchanged: Bool { recordedStatuses != nil && recordedStatuses == fingerprint }

    /// The files' status; nil if a write from now on could leave it unchanged.
    private var fingerprint: [FileStatus?]? {
        let found = [name.database, name.wal, name.journal].map { FileStatus(following: directory.appending($0)) }
        return found.allSatisfy { $0.map { FileTime.isSettled($0.changed) } ?? true } ? found : nil
    }

    /// Records a file event. Returns false if the event can't concern the store.
    func record(_ part: StorePart, _ kinds: DirectoryEvent.Kinds) -> Bool {
        guard dormancy == nil else { return recordDormant(part, kinds) }
        let created = !kinds.isDisjoint(with: .arrived)
        let removed = !kinds.isDisjoint(with: .departed)
        // A close is no write, even of a descriptor open for writing. A change of attributes may make the store
        // readable.
        let modified = kinds.contains(.modified)
        let mayMatter = kinds.contains(.closedAfterWriting) || kinds.contains(.attributes)
        guard created || modified || removed || mayMatter else { return false }
        observer.recordEvent(
            part, created: created, modified: modified, removed: removed,
            closed: kinds.contains(.closedAfterWriting))
        return true
    }

    /// The end of a pause that a relocation asks for.
    private var pausedUntil: ContinuousClock.Instant?

    /// Opens nothing for some time: a relocation has announced itself by a name in the store's directory, and moves the
    /// store only if nobody has it open. What happens meanwhile is found afterwards.
    func pauseForRelocation() {
        let end = ContinuousClock.now.advanced(by: .milliseconds(300))
        pausedUntil = end
        pollAt = end
        observer.releaseUnusedStore()
    }

    /// The event that must be published once the store may be opened again.
    private var postponed: StoreEvent?

    /// Postpones an event that must be published with the next poll. A reset stands for a change.
    func postpone(_ event: StoreEvent?) {
        if case .reset? = postponed { return }
        postponed = event ?? postponed
    }

    func takePostponed() -> StoreEvent? { postponed.take() }

    /// True while the store must not be opened.
    var isPaused: Bool {
        guard let pausedUntil else { return false }
        if pausedUntil > .now { return true }
        self.pausedUntil = nil
        return false
    }

    /// Records that events were lost.
    func lostEvents() {
        dormancy?.mayBeReplaced = true
        observer.recordLostEvents()
    }

    /// Looks for a commit right after a write to the log and nothing else. Returns the event to publish; nil if none is
    /// found. `poll` must follow.
    func pollWALIndex(_ queuedEvents: StoreObserver.EventReader) -> StoreEvent? {
        guard state == .following, let tables = observer.pollWALIndex(queuedEvents) else { return nil }
        return .change(wire(tables))
    }

    /// The event of another commit like the last one, if the next one can be found by `findRepeatedChange`.
    @exclusivity(unchecked) private(set) var repeatedChange: StoreEvent?

    /// Looks for a commit like the one before. If there is one, publish `repeatedChange`, and call
    /// `confirmRepeatedChange` afterwards, and `poll`.
    ///
    /// - Parameter isAnnounced: True if a write to the log was reported.
    func findRepeatedChange(isAnnounced: Bool) -> StoreObserver.ProbeFinding {
        state == .following ? observer.findRepeatedCommit(isAnnounced: isAnnounced) : .other
    }

    /// Proves the tables of a repeated change after its publication.
    func confirmRepeatedChange() { observer.confirmRepeatedCommit() }

    /// Compares the store with its state at the last poll. Returns the event to publish; nil if nothing was committed.
    func poll(_ queuedEvents: StoreObserver.EventReader) -> StoreEvent? {
        let observation = observer.poll(queuedEvents)
        defer { repeatedChange = observer.expectedTables.map { .change(wire($0)) } }
        isCommitUnderWay = observation.nextPollDelay != nil
        let delay = [observation.nextPollDelay, observation.recheckDelay].compactMap { $0 }.min()
        pollAt = delay.map { ContinuousClock.now.advanced(by: $0) }
        switch observation.finding {
        case .unchanged: return pollMissingStore()
        case .changed:
            state = .following
            return .change(wire(observation.tables))
        case .discontinued(let reason):
            state = Self.state(after: reason)
            return pollMissingStore() ?? .reset(Self.wireReason(reason))
        }
    }

    private func wire(_ tables: TableChanges) -> ChangedTables {
        if let last, last.found == tables { return last.wire }
        let wire = ChangedTables(tables.names.map(\.text), isComplete: tables.isComplete)
        last = (tables, wire)
        return wire
    }

    /// Handles a store that the observer takes for absent: it may be a link, or a link that is gone.
    private func pollMissingStore() -> StoreEvent? {
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

    /// The database's identity if it has several hard links, and the identity that is being watched.
    var sharedDatabase: FileIdentity? { observer.sharedDatabase }
    var watchedDatabase: FileIdentity?

    // MARK: Which tables

    /// True while a subscriber wants to know which tables change.
    var wantsTables: Bool {
        get { observer.wantsTables }
        set { if newValue != observer.wantsTables { observer.wantsTables = newValue } }
    }

    /// True while the page map is being made; a change that comes first can't name its tables.
    var isScanning: Bool { observer.isScanning }

    /// True if a scan is wanted and may begin now: a commit in progress is published first.
    private var mayScan: Bool { !isCommitUnderWay && observer.wantsScan }

    /// Returns the scan that another thread must run so that changes can name their tables; nil if there is nothing to
    /// scan, or not yet.
    func beginScan(_ queuedEvents: StoreObserver.EventReader) -> PageMapScan? {
        mayScan ? observer.beginScan(queuedEvents) : nil
    }

    /// Schedules a poll at the time of the next scan, if that must wait.
    func scheduleScan() {
        if !isCommitUnderWay, let due = observer.scanDue { pollAt = pollAt.map { min($0, due) } ?? due }
    }

    /// Takes over the page map of a finished scan.
    func adopt(_ scan: PageMapScan, _ queuedEvents: StoreObserver.EventReader) { observer.adopt(scan, queuedEvents) }

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

    /// True if nothing has the store's name.
    var isMissing: Bool { current == .absent }

    private var current: FollowingState {
        do throws(SystemError) {
            guard let found = try Directory(directory).status(name.database) else { return .absent }
            // Writes through a symbolic link go to a different directory.
            return found.kind == .regular ? .following : .unreadable
        } catch {
            return [.noSuchFileOrDirectory, .notDirectory].contains(error.errno) ? .absent : .unreadable
        }
    }
}
