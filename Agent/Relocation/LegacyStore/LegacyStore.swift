import AgentProtocol
import DirectoryWatching
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// One place where a configured store may still be, as the scheduler follows it. One thread's.
final class LegacyStore {
    let address: StoreAddress
    let configuration: Configuration.Store
    let file: LegacyFile
    /// It is the group's own store, which may be of an older model.
    let isGroupStore: Bool
    var state = State.absent {
        didSet { if state == .relocated { wasRelocated = true } }
    }
    /// Its going was our own doing.
    private(set) var wasRelocated = false
    private var arrival: ArrivalTracker
    private var probe = OpenFileProbe()
    private var wasClosed = false
    private var times = RetrySchedule()
    private var waiting = HolderList()
    /// Why it waits, in words.
    var waitsBecause = LegacyStore.isOpenElsewhere
    static let isOpenElsewhere = "open in another program"
    /// When side files without their database count as half a store.
    private var orphanedAt: ContinuousClock.Instant?
    /// What the last attempt came to, and what that depended on: the same attempt is not made twice.
    private var concluded: (signature: OutcomeSignature, state: State, retriesAt: ContinuousClock.Instant?)?
    /// The failure that was told before the attempt under way.
    private(set) var failureBefore: Failure?
    /// What was there before anything of the attempt was looked at.
    private var before: OutcomeSignature?
    /// What was said last of whoever didn't let go.
    private var lastNews: Failure?
    /// While a worker relocates it, nothing here opens it, and what happens to it is kept for later.
    private(set) var isUnderWay = false
    private var missed: [Missed] = []

    private enum Missed {
        case event(StorePart, DirectoryEvent.Kinds)
        case look
    }

    /// Nil when the path names no file.
    init?(_ path: FilePath, of address: StoreAddress, in group: FilePath, _ configuration: Configuration.Store) {
        guard let file = LegacyFile(path, group: group, groupName: configuration.name) else { return nil }
        self.file = file
        self.address = address
        self.configuration = configuration
        isGroupStore = path == group.appending(configuration.name.database)
        arrival = ArrivalTracker(settle: configuration.settle)
    }

    // MARK: An attempt

    /// A worker relocates it from now on.
    func begin(_ state: State = .relocating) {
        probe.end()
        before = file.signature
        failureBefore = lastFailure
        self.state = state
        isUnderWay = true
    }

    /// The worker is through; its outcome is noted first, then what happened meanwhile.
    func end(_ conclude: () -> Void) {
        isUnderWay = false
        conclude()
        let events = missed
        missed = []
        for event in events {
            switch event {
            case .event(let part, let kinds): note(part, kinds)
            case .look: find()
            }
        }
    }

    /// It could not be relocated. With `passing`, what hindered it may be over without the stores changing.
    func failed(_ failure: Failure, passing: Bool) {
        state = .failed(failure)
        times.failed(passing: passing)
        conclude()
    }

    /// It is relocated, or needs not be.
    func succeeded(_ state: State = .relocated) {
        self.state = state
        times.succeeded()
        conclude()
    }

    /// The outcome holds until what it depended on is something else. What changed while it was tried may have been
    /// the attempt's own doing, or another store that came: a failure is tried once more, later, and a success holds
    /// for nothing that lies there now.
    private func conclude() {
        orphanedAt = nil
        probe.end()
        times.endContention()
        let now = file.signature
        if before == now {
            concluded = (now, state, times.retriesAt)
        } else if case .failed = state {
            times.retryOnce()
            concluded = (now, state, times.retriesAt)
        } else {
            concluded = nil
        }
    }

    /// Whether an attempt would end as the last one did.
    private var isConcluded: Bool { concluded.map { $0.signature == file.signature } ?? false }

    /// Takes the last attempt's outcome for this one's; false where it may be another one.
    private func concludesAgain() -> Bool {
        guard let concluded, concluded.signature == before else { return false }
        state = concluded.state
        times.retry(at: concluded.retriesAt)
        return true
    }

    /// Whatever came of the last attempt, the next one may end otherwise.
    func reopen() {
        concluded = nil
        retry()
    }

    /// Something that it was refused for may be another thing now.
    func retry() {
        guard !isUnderWay, case .failed = state, !isConcluded else { return }
        guard arrival.wholeAt == nil else { return state = .arriving }
        state = .absent
        noteOrphans()
    }

    /// The failure of the last attempt, where it is tried again only because time has passed.
    var lastFailure: Failure? {
        if case .failed(let failure) = state { failure } else { nil }
    }

    func isNews(_ failure: Failure) -> Bool {
        defer { lastNews = failure }
        return failure != lastNews
    }

    // MARK: What is there

    /// Looks at what is there, when nobody has watched until now.
    func find() {
        guard !isUnderWay else { return missed.append(.look) }
        guard let age = file.age else {
            arrival.vanished()
            settle(.absent)
            return noteOrphans()
        }
        arrival.found(age: age, at: .now)
        settle(.arriving)
    }

    private func settle(_ state: State) {
        self.state = state
        orphanedAt = nil
        times.beginAnew()
        probe.end()
    }

    /// Takes in what happened to one of its parts.
    func note(_ part: StorePart, _ kinds: DirectoryEvent.Kinds) {
        guard !isUnderWay else { return missed.append(.event(part, kinds)) }
        var kinds = kinds
        // Two names that swap what they stand for are told as a coming and then a going of each.
        if part == .database, !kinds.isDisjoint(with: .departed), file.isFile {
            kinds.subtract(.departed)
            kinds.insert(.movedIn)
        }
        arrival.note(part, kinds, at: .now, isOpen: { self.isGroupStore || self.isOpen() })
        if part == .database, !kinds.isDisjoint(with: [.created, .movedIn, .deleted, .movedOut]) {
            settle(arrival.wholeAt == nil ? .absent : .arriving)
        }
        if arrival.wholeAt == nil { noteOrphansAnew() }
        if part != .database, !kinds.isDisjoint(with: [.created, .movedIn, .deleted, .movedOut]) { retry() }
        if !kinds.isDisjoint(with: .closedAfterWriting) { retry() }
        // A file without a store in it may be half a store now.
        if part != .database, state == .empty { wasClosed = true }
        if part == .database, !kinds.isDisjoint(with: [.closedAfterWriting, .closedAfterReading]) {
            // Once it is of the model, nobody's close makes it another.
            guard !isGroupStore || state == .waiting else { return }
            wasClosed = true
            // What an attempt has closed itself doesn't end the wait for somebody else's claim.
            if times.contended == nil { times.beginLooking() }
        }
    }

    /// Whether somebody else has the database open.
    func isOpen() -> Bool { !isUnderWay && probe.isOpen(file.name.database, in: file.directory) }

    private func noteOrphans() {
        orphanedAt = !isGroupStore && file.hasOrphans ? .now.advanced(by: configuration.settle) : nil
    }

    /// Each new part begins the wait anew; what was refused stays so while it is what it was.
    private func noteOrphansAnew() {
        if case .failed = state, isConcluded { return }
        state = .absent
        noteOrphans()
    }

    // MARK: When to try

    /// When to look again although nothing happens; nil when only an event can change something.
    var dueAt: ContinuousClock.Instant? {
        switch state {
        case .arriving: arrival.wholeAt
        case .failed: times.retriesAt
        case .waiting: times.dueAt
        case .absent: orphanedAt
        case .relocating, .relocated, .empty: nil
        }
    }

    /// Whether to try now. Asking resets what an event brought.
    func takeTurn() -> Bool {
        guard !isUnderWay else { return false }
        defer { wasClosed = false }
        if case .failed = state { return times.retriesAt.map { $0 <= .now } ?? false }
        if state == .absent, arrival.wholeAt == nil {
            guard let due = orphanedAt, due <= .now else { return false }
            orphanedAt = nil
            before = file.signature
            return file.hasOrphans && !concludesAgain()
        }
        let isDue = times.takeDue()
        // What an attempt in vain has closed itself is told as well.
        if isGroupStore, !mayAsk, !isDue { return false }
        if let contended = times.contended, !isDue, contended == file.signature { return false }
        guard wasClosed || state == .arriving || isDue, arrival.isWhole(at: .now) else { return false }
        before = file.signature
        // What an attempt has opened, closed or renamed itself is told as well.
        return state == .waiting || !concludesAgain()
    }

    // MARK: In use

    /// Some program has it open: its close is told.
    func awaitClosing() {
        times.endContention()
        state = .waiting
    }

    /// Others than its presenters seem to have it open.
    func sawStrangers() { times.sawStrangers() }

    /// Somebody else's claim or relocation, a close that isn't over yet, or whoever has the group's store open was in the way.
    func lookAgainLater() { times.contend(file.signature, untilClosed: hasGroupStoreHolders) }

    /// Those who were in the way of the last attempt still have the group's store open: another one would end as it did.
    func putsOff() -> Bool {
        guard state == .waiting, times.contended != nil, hasGroupStoreHolders else { return false }
        times.contend(file.signature, untilClosed: true)
        return true
    }

    private var hasGroupStoreHolders: Bool {
        !waitingFor.isEmpty && !Set(waitingFor).isDisjoint(with: file.groupStoreHolders)
    }

    /// Somebody has closed the group's store.
    func groupStoreWasClosed() { if times.contended != nil { times.look(notAfter: .now) } }

    func askedInVain() { times.askedInVain() }

    /// Whether its presenters may be asked to let go now.
    var mayAsk: Bool { times.mayAsk }

    /// Others present it now than those who were asked.
    func presentersChanged() {
        times.askAnew()
        times.beginLooking()
        wasClosed = true
    }

    /// Who had it open when that was last asked.
    var waitingFor: [FileHolder] { waiting.holders }

    func waits(for holders: [FileHolder], because reason: String) {
        state = .waiting
        waiting.holders = holders
        waitsBecause = reason
    }

    /// Finds out for whom it waits. False when that is put off.
    func nameHolders() -> Bool {
        guard let due = waiting.update({ file.holders }) else { return true }
        times.look(notAfter: due)
        return false
    }
}
