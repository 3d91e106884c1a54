import AgentProtocol
import DirectoryWatching
import GroupContainers
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// One path at which a configured store may still be, as the scheduler tracks it. Only one thread uses it.
final class LegacyStore {
    let address: StoreAddress
    let configuration: Configuration.Store
    let file: LegacyFile
    /// True for the group's own store, which may be of an older model.
    let isGroupStore: Bool
    var state = State.absent {
        didSet {
            if state == .relocated { wasRelocated = true }
            isPending = state.isPending
        }
    }
    /// The time since which it has been arriving or waiting, through all attempts; nil if it isn't.
    private(set) var pendingSince: ContinuousClock.Instant?
    private var isPending = false {
        didSet { if isPending != oldValue { pendingSince = isPending ? .now : nil } }
    }
    /// True if a relocation removed it.
    private(set) var wasRelocated = false
    private var arrival: ArrivalTracker
    private var probe = OpenFileProbe()
    private var wasClosed = false
    /// The processes that presented it when they were last asked to release it.
    private var askedPresenters: Set<FileHolder> = []
    private var isCloseAwaited = false
    private var schedule = RetrySchedule()
    private var holderList = HolderList()
    /// The reason for waiting, for `status`.
    var waitReason = LegacyStore.isOpenElsewhere
    static let isOpenElsewhere = "open in another program"
    /// The time at which side files without a database count as half a store.
    private var orphanedAt: ContinuousClock.Instant?
    /// The last attempt's outcome, and what it depended on: the same attempt is not made twice.
    private var lastOutcome: (signature: OutcomeSignature, state: State, retryAt: ContinuousClock.Instant?)?
    /// The failure published before the running attempt.
    private(set) var failureBefore: Failure?
    /// The files before the attempt touched any of them.
    private var signatureBefore: OutcomeSignature?
    /// The last logged failure of holders to release the store.
    private var lastLoggedFailure: Failure?
    /// True while a worker relocates it. Meanwhile nothing here opens it, and its events are deferred.
    private(set) var isUnderWay = false
    private var deferredEvents: [DeferredEvent] = []
    /// The number of clients' relocations that use it, or wait to. Meanwhile nothing here opens it: the descriptor
    /// would hold them up, and closing it would drop the locks that SQLite has for them in this process.
    private var clientRelocations = 0

    private enum DeferredEvent {
        case event(StorePart, DirectoryEvent.Kinds)
        case inspection
    }

    /// Returns nil if the path names no file.
    init?(_ path: FilePath, of address: StoreAddress, in group: FilePath, _ configuration: Configuration.Store) {
        let found = LegacyFile(
            path, group: group, groupName: configuration.name, migration: configuration.migration)
        guard let file = found else { return nil }
        self.file = file
        self.address = address
        self.configuration = configuration
        isGroupStore = path == group.appending(configuration.name.database)
        arrival = ArrivalTracker(settle: configuration.settle)
    }

    // MARK: An attempt

    /// Hands the store to a worker.
    func begin(_ state: State = .relocating) {
        probe.end()
        signatureBefore = file.signature
        failureBefore = lastFailure
        self.state = state
        isUnderWay = true
    }

    /// Takes the store back from the worker: records its outcome first, then the deferred events.
    func end(_ recordOutcome: () -> Void) {
        isUnderWay = false
        recordOutcome()
        let events = deferredEvents
        deferredEvents = []
        for event in events {
            switch event {
            case .event(let part, let kinds): record(part, kinds)
            case .inspection: inspect()
            }
        }
    }

    /// Records a failure. `isTransient`: the reason may go away without a change of the stores.
    func failed(_ failure: Failure, isTransient: Bool) {
        state = .failed(failure)
        schedule.failed(isTransient: isTransient)
        recordOutcome()
    }

    /// Returns true if a retry is due. Unless time alone may have changed something, only the files are looked at: no
    /// event reports some changes, such as the removal of another hard link in a directory that isn't watched.
    private func shouldRetryFailure(at now: ContinuousClock.Instant) -> Bool {
        guard let retryAt = schedule.retryAt, retryAt <= now else { return false }
        guard !schedule.isTransient, wouldEndAlike else { return true }
        schedule.postponeRetry()
        return false
    }

    /// Records that it is relocated, or needn't be.
    func succeeded(_ state: State = .relocated) {
        self.state = state
        schedule.succeeded()
        recordOutcome()
    }

    /// Records the outcome, which holds until what it depended on changes. A change during the attempt may be the
    /// attempt's own, or another store that came: a failure is then retried later, and a success holds for no
    /// file that is there now.
    private func recordOutcome() {
        orphanedAt = nil
        probe.end()
        schedule.endContention()
        let now = file.signature
        if signatureBefore == now {
            lastOutcome = (now, state, schedule.retryAt)
        } else if case .failed = state {
            schedule.retryOnce()
            lastOutcome = (now, state, schedule.retryAt)
        } else {
            lastOutcome = nil
        }
    }

    /// True if an attempt would end like the last one.
    private var wouldEndAlike: Bool { lastOutcome.map { $0.signature == file.signature } ?? false }

    /// Reuses the last attempt's outcome for this one; false if it may differ.
    private func reusesLastOutcome() -> Bool {
        guard let lastOutcome, lastOutcome.signature == signatureBefore else { return false }
        state = lastOutcome.state
        schedule.retry(at: lastOutcome.retryAt)
        return true
    }

    /// Forgets the last outcome: the next attempt may end differently.
    func forgetOutcome() {
        lastOutcome = nil
        retry()
    }

    /// Retries a failure: its cause may have changed.
    func retry() {
        guard !isUnderWay, case .failed = state, !wouldEndAlike else { return }
        guard arrival.wholeAt == nil else { return state = .arriving }
        state = .absent
        scheduleOrphans()
    }

    /// The last attempt's failure, if it is retried only because time has passed.
    var lastFailure: Failure? {
        if case .failed(let failure) = state { failure } else { nil }
    }

    func isNewFailure(_ failure: Failure) -> Bool {
        defer { lastLoggedFailure = failure }
        return failure != lastLoggedFailure
    }

    // MARK: Clients' relocations

    func beginClientRelocation() {
        clientRelocations += 1
        probe.end()
    }

    func endClientRelocation() {
        clientRelocations -= 1
        if clientRelocations == 0, state == .waiting { wasClosed = true }
    }

    // MARK: What is there

    /// Inspects the files, if they weren't watched until now.
    func inspect() {
        guard !isUnderWay else { return deferredEvents.append(.inspection) }
        guard let age = file.age else {
            arrival.vanished()
            restart(.absent)
            return scheduleOrphans()
        }
        arrival.start(age: age, at: .now)
        restart(.arriving)
    }

    private func restart(_ state: State) {
        isPending = false
        self.state = state
        orphanedAt = nil
        schedule.reset()
        probe.end()
    }

    /// Records an event of one of its files.
    func record(_ part: StorePart, _ kinds: DirectoryEvent.Kinds) {
        guard !isUnderWay else { return deferredEvents.append(.event(part, kinds)) }
        var kinds = kinds
        // An exchange of two names raises an arrival and then a departure for each.
        if part == .database, !kinds.isDisjoint(with: .departed), file.isFile {
            kinds.subtract(.departed)
            kinds.insert(.movedIn)
        }
        arrival.record(part, kinds, at: .now, isOpen: { self.isGroupStore || self.isKnownOpen() })
        if part == .database, !kinds.isDisjoint(with: [.created, .movedIn, .deleted, .movedOut]) {
            restart(arrival.wholeAt == nil ? .absent : .arriving)
        }
        if arrival.wholeAt == nil { rescheduleOrphans() }
        if part != .database, !kinds.isDisjoint(with: [.created, .movedIn, .deleted, .movedOut]) { retry() }
        if !kinds.isDisjoint(with: [.closedAfterWriting, .attributes]) { retry() }
        // A copy of its log may have been what it waits for.
        if state == .waiting, part != .database, kinds.contains(.closedAfterWriting) {
            wasClosed = true
            if schedule.contended == nil { schedule.resetChecks() }
        }
        // A file without a store in it may be half a store now.
        if part != .database, state == .empty { wasClosed = true }
        if part == .database, !kinds.isDisjoint(with: [.closedAfterWriting, .closedAfterReading]) {
            // Once it is of the model, no close changes that.
            guard !isGroupStore || state == .waiting else { return }
            wasClosed = true
            // A close by an attempt itself doesn't end the wait for another process's claim.
            if schedule.contended == nil { schedule.resetChecks() }
        }
    }

    /// Returns true if another process has the database open, or already waits until others have closed it.
    func isOpen() -> Bool {
        guard clientRelocations == 0 else { return true }
        return !isUnderWay && probe.ask(file.name.database, in: file.directory) != .closed
    }

    /// Returns true if another process is known to have the database open, while the store arrives. That waits for no
    /// close, and keeps nobody else from it.
    private func isKnownOpen() -> Bool {
        guard !isUnderWay, clientRelocations == 0 else { return false }
        let answer = probe.ask(file.name.database, in: file.directory)
        if answer == .open { probe.end() }
        return answer == .open
    }

    private func scheduleOrphans() {
        orphanedAt = !isGroupStore && file.hasOrphans ? .now.advanced(by: configuration.settle) : nil
    }

    /// Restarts the wait with each new file. A refusal stands while its files are unchanged.
    private func rescheduleOrphans() {
        if case .failed = state, wouldEndAlike { return }
        state = .absent
        scheduleOrphans()
    }

    // MARK: When to try

    /// The time to check again without an event; nil if only an event can change something.
    var dueAt: ContinuousClock.Instant? {
        guard clientRelocations == 0 else { return nil }
        return switch state {
        case .arriving: arrival.wholeAt
        case .failed: schedule.retryAt
        case .waiting: probe.retryAt ?? waitingDueAt
        case .absent: orphanedAt
        case .relocating, .relocated, .empty: nil
        }
    }

    /// A store that isn't whole yet is checked once it is.
    private var waitingDueAt: ContinuousClock.Instant? {
        guard let wholeAt = arrival.wholeAt else { return schedule.dueAt }
        if wasClosed { return wholeAt }
        return schedule.dueAt.map { max($0, wholeAt) }
    }

    /// Returns true if an attempt is due now, and resets what an event recorded.
    func shouldTryNow(at now: ContinuousClock.Instant = .now) -> Bool {
        guard !isUnderWay, clientRelocations == 0 else { return false }
        // A close before the store counts as whole, such as that of a slow copy, counts once it does.
        defer { if arrival.wholeAt == nil || arrival.isWhole(at: .now) { wasClosed = false } }
        if state == .waiting, probe.isPostponed { return false }
        if case .failed = state { return shouldRetryFailure(at: now) }
        if state == .absent, arrival.wholeAt == nil {
            guard let due = orphanedAt, due <= .now else { return false }
            orphanedAt = nil
            signatureBefore = file.signature
            return file.hasOrphans && !reusesLastOutcome()
        }
        // A check that is due before the store is whole stays due.
        if state == .waiting, arrival.wholeAt != nil, !arrival.isWhole(at: now) { return false }
        let isProbeDue = probe.consumeDue()
        let isDue = schedule.consumeDue() || isProbeDue
        // A failed attempt's own closes raise events, too, and so do presenters that release and reacquire it.
        if !mayAsk, !isDue, isGroupStore || !isCloseAwaited { return false }
        if let contended = schedule.contended, !isDue, contended == file.signature { return false }
        guard wasClosed || state == .arriving || isDue, arrival.isWhole(at: .now) else { return false }
        signatureBefore = file.signature
        // An attempt's own opens, closes and renames raise events, too.
        return state == .waiting || !reusesLastOutcome()
    }

    // MARK: In use

    /// Waits for a program to close it, which an event reports.
    func awaitClosing() {
        schedule.endContention()
        if !isGroupStore { schedule.recheckOnce() }
        state = .waiting
    }

    /// Records that processes other than its presenters seem to have it open.
    func recordForeignHolders() { schedule.recordForeignHolders() }

    /// Schedules a retry after another process's claim or relocation, an unfinished close, or a holder of the group's
    /// store was in the way.
    func scheduleRetry() { schedule.contend(file.signature, untilClosed: hasGroupStoreHolders) }

    /// Postpones the attempt, and returns true, if those who were in the way of the last one still have the group's
    /// store open.
    func postponesAttempt() -> Bool {
        guard state == .waiting, schedule.contended != nil, hasGroupStoreHolders else { return false }
        schedule.contend(file.signature, untilClosed: true)
        return true
    }

    private var hasGroupStoreHolders: Bool {
        !holders.isEmpty && !Set(holders).isDisjoint(with: file.groupStoreHolders)
    }

    /// True if an outcome may depend on whether there is a file with this name in the group's directory. The log of a
    /// store is none: the presenters that an attempt asks remove it and make it again, and the next attempt would ask
    /// them once more.
    func dependsOnGroupFile(named name: FilePath.Component) -> Bool {
        switch name {
        case GroupContainer.bookkeepingName, file.groupName.database, file.groupName.support: true
        default:
            file.groupName.part(named: name) != nil
                && FileStatus(following: file.group.appending(file.groupName.database))?.kind != .regular
        }
    }

    /// Records that a process has closed the group's store.
    func groupStoreWasClosed() { if schedule.contended != nil { schedule.check(notAfter: .now) } }

    /// Records that its presenters didn't release it. Until they are asked again, one close is a reason to try, if a
    /// process has it open now and no close caused this attempt: a presenter that is asked closes it, too.
    func recordPresenterRefusal(by presenters: Set<FileHolder>) {
        isCloseAwaited = !isCloseAwaited && isOpen()
        askedPresenters = presenters
        schedule.recordPresenterRefusal()
    }

    /// True if its presenters may be asked to release it now.
    var mayAsk: Bool { schedule.mayAsk }

    /// Records a change of its presenters since they were asked. If they are the same processes, or some of them, they
    /// may have registered again because they were asked: then the delay until they are asked again grows.
    func presentersChanged(to presenters: Set<FileHolder>) {
        guard presenters.isSubset(of: askedPresenters) else {
            askedPresenters = []
            schedule.resetAsking()
            schedule.resetChecks()
            return wasClosed = true
        }
        if schedule.mayAsk { wasClosed = true } else { schedule.askAfterChange() }
    }

    /// The processes that had it open at the last scan.
    var holders: [FileHolder] { holderList.holders }

    func wait(for holders: [FileHolder], because reason: String) {
        state = .waiting
        holderList.holders = holders
        waitReason = reason
    }

    /// Scans for the processes it waits for. Returns false if that is postponed.
    func updateHolders() -> Bool {
        guard let due = holderList.update({ file.holders }) else {
            if holders.isEmpty { schedule.recheckUnseenHolder() }
            return true
        }
        schedule.check(notAfter: due)
        return false
    }
}
