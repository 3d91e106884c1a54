import AgentProtocol
import DirectoryWatching
import Glibc
import LinuxSystem
import PersistentStore
import StorePreparation
import StoreRelocation
import SystemPackage

/// One place where a configured store may still be, as the scheduler follows it. One thread's.
final class LegacyStore {
    enum State: Equatable {
        case absent
        case arriving
        /// Whole, and open in some program.
        case waiting
        case relocating
        case relocated
        /// A file without a store in it.
        case empty
        /// It was tried, and is not tried again before what that depended on has changed; or, where that is no matter of
        /// the stores, a while later.
        case failed(Failure)
    }

    struct Failure: Equatable {
        let state: String
        let code: String
        let detail: String
        let exitCode: Int32

        init(_ failure: RelocationFailure) {
            state = failure.outcome
            code = failure.code
            detail = "\(failure.message) (\(failure.remedy))"
            exitCode = failure.exitCode
        }
    }

    let address: StoreAddress
    let group: FilePath
    let configuration: Configuration.Store
    let path: FilePath
    let directory: FilePath
    /// It is the group's own store, which may be of an older model.
    let isGroupStore: Bool
    let name: StoreName
    var state = State.absent {
        didSet { if state == .relocated { wasRelocated = true } }
    }
    private var arrival: Arrival
    /// Held open while somebody else has the store open: closing it would raise an event that looks like theirs.
    private var probe: Probe?
    private var wasClosed = false
    /// Presenters were asked in vain: they are not asked again before.
    private var asksAgainAt: ContinuousClock.Instant?
    private var patience = Backoff()
    /// Somebody else's claim or relocation is in the way, whose end no event tells.
    private var contention = LegacyStore.firstRecheck
    private static let longestContention = Duration.seconds(2)
    /// What was there then: the attempt's own looks at it are no news.
    private var contended: OutcomeSignature?
    /// What the last attempt came to, and what that depended on: the same attempt is not made twice.
    private var concluded: (signature: OutcomeSignature, state: State, retriesAt: ContinuousClock.Instant?)?
    /// When side files without their database count as half a store.
    private var orphanedAt: ContinuousClock.Instant?
    /// The failure that was told before the attempt under way.
    private(set) var failureBefore: Failure?
    /// What was said last of whoever didn't let go.
    private var lastNews: Failure?
    /// While a worker relocates it, nothing here opens it, and what happens to it is kept for later.
    private(set) var isUnderWay = false
    private var missed: [Missed] = []
    private var before: OutcomeSignature?

    private enum Missed {
        case event(StorePart, DirectoryEvent.Kinds)
        case look
    }
    /// A full disk, an error of the disk, a missing right: no event tells when it is over.
    private var retriesAt: ContinuousClock.Instant?
    private var retries = Backoff()
    /// A program's close is told before it counts: those who have just closed are looked for again, soon and seldomer.
    private var looksAgainAt: ContinuousClock.Instant?
    private var recheck = LegacyStore.firstRecheck
    private static let firstRecheck = Duration.milliseconds(1)
    private static let longestRecheck = Duration.milliseconds(256)
    /// Who had it open when that was last asked.
    var waitingFor: [FileHolder] = []
    /// Why it waits, in words.
    var waitsBecause = LegacyStore.isOpenElsewhere
    static let isOpenElsewhere = "open in another program"
    private var namesHoldersAt = ContinuousClock.now
    /// Its going was our own doing.
    private var wasRelocated = false

    private final class Probe {
        let descriptor: Descriptor
        let identity: FileIdentity

        init(_ descriptor: consuming Descriptor, _ identity: FileIdentity) {
            self.descriptor = descriptor
            self.identity = identity
        }
    }

    /// Nil when the path names no file.
    init?(_ path: FilePath, of address: StoreAddress, in group: FilePath, _ configuration: Configuration.Store) {
        guard let last = path.lastComponent, let name = StoreName(last) else { return nil }
        self.path = path
        self.name = name
        self.address = address
        self.group = group
        self.configuration = configuration
        directory = path.removingLastComponent()
        isGroupStore = path == group.appending(configuration.name.database)
        arrival = Arrival(settle: configuration.settle)
    }

    private var signature: OutcomeSignature {
        OutcomeSignature(legacy: path, group: group, name: configuration.name)
    }

    // MARK: An attempt

    /// A worker relocates it from now on.
    func begin(_ state: State = .relocating) {
        endProbing()
        before = signature
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

    /// The outcome holds until what it depended on is something else. What changed while it was tried may have been
    /// the attempt's own doing: then it is tried once more, later.
    private func conclude() {
        let now = signature
        contended = nil
        contention = Self.firstRecheck
        if let before, before != now, case .failed = state { retriesAt = retriesAt ?? retries.next() }
        concluded = (now, state, retriesAt)
    }

    /// Whether an attempt would end as the last one did.
    private var isConcluded: Bool { concluded.map { $0.signature == signature } ?? false }

    /// Takes the last attempt's outcome for this one's; false where it may be another one.
    private func concludesAgain() -> Bool {
        guard let concluded, isConcluded else { return false }
        (state, retriesAt) = (concluded.state, concluded.retriesAt)
        return true
    }

    /// Whatever came of the last attempt, the next one may end otherwise.
    func reopen() {
        concluded = nil
        retry()
    }

    // MARK: What is there

    /// Looks at what is there, when nobody has watched until now.
    func find() {
        guard !isUnderWay else { return missed.append(.look) }
        guard let directory = try? Directory(directory), let status = try? directory.status(name.database),
            let directoryStatus = try? directory.status()
        else {
            arrival.vanished()
            settle(.absent)
            return noteOrphans()
        }
        let changed = max(status.changed, directoryStatus.changed)
        arrival.found(age: .nanoseconds(Self.now() - changed), at: .now)
        settle(.arriving)
    }

    private static func now() -> Int64 {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }

    /// Side files without a database, which may be on its way: half a store, if it doesn't come.
    private func noteOrphans() {
        orphanedAt = !isGroupStore && hasOrphans ? .now.advanced(by: configuration.settle) : nil
    }

    var hasOrphans: Bool {
        do {
            let directory = try Directory(directory)
            guard try directory.status(name.database) == nil else { return false }
            let log = try directory.status(name.wal)?.size ?? 0
            return try log > 0 || RollbackJournal.isHot(name.journal, in: directory)
        } catch {
            return false
        }
    }

    private func settle(_ state: State) {
        self.state = state
        orphanedAt = nil
        contended = nil
        contention = Self.firstRecheck
        asksAgainAt = nil
        retriesAt = nil
        beginRechecking()
        probe = nil
    }

    /// It could not be relocated. With `passing`, what hindered it may be over without the stores changing.
    func failed(_ failure: Failure, passing: Bool) {
        state = .failed(failure)
        orphanedAt = nil
        retriesAt = passing ? retries.next() : nil
        conclude()
    }

    /// It is relocated, or needs not be.
    func succeeded(_ state: State = .relocated) {
        self.state = state
        orphanedAt = nil
        retriesAt = nil
        retries = Backoff()
        conclude()
    }

    /// Takes in what happened to one of its parts.
    func note(_ part: StorePart, _ kinds: DirectoryEvent.Kinds) {
        guard !isUnderWay else { return missed.append(.event(part, kinds)) }
        var kinds = kinds
        // Two names that swap what they stand for are told as a coming and then a going of each.
        if part == .database, !kinds.isDisjoint(with: .departed), isFile {
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
            if contended == nil { beginRechecking() }
        }
    }

    private var isFile: Bool {
        guard let directory = try? Directory(directory) else { return false }
        return (try? directory.status(name.database))?.kind == .regular
    }

    /// Each new part begins the wait anew; what was refused stays so while it is what it was.
    private func noteOrphansAnew() {
        if case .failed = state, isConcluded { return }
        state = .absent
        noteOrphans()
    }

    /// Something that it was refused for may be another thing now.
    func retry() {
        guard !isUnderWay, case .failed = state, !isConcluded else { return }
        guard arrival.wholeAt == nil else { return state = .arriving }
        state = .absent
        noteOrphans()
    }

    /// When to look again although nothing happens; nil when only an event can change something.
    var dueAt: ContinuousClock.Instant? {
        switch state {
        case .arriving: arrival.wholeAt
        case .failed: retriesAt
        case .waiting: [asksAgainAt, looksAgainAt].compactMap { $0 }.min()
        case .absent: orphanedAt
        case .relocating, .relocated, .empty: nil
        }
    }

    /// Whether to try now. Asking resets what an event brought.
    func takeTurn() -> Bool {
        guard !isUnderWay else { return false }
        defer { wasClosed = false }
        if case .failed = state { return retriesAt.map { $0 <= .now } ?? false }
        if state == .absent, arrival.wholeAt == nil {
            guard let due = orphanedAt, due <= .now else { return false }
            orphanedAt = nil
            return hasOrphans && !concludesAgain()
        }
        let isDue = [asksAgainAt, looksAgainAt].compactMap { $0 }.contains { $0 <= .now }
        if let looksAgainAt, looksAgainAt <= .now { self.looksAgainAt = nil }
        if let asksAgainAt, asksAgainAt <= .now { self.asksAgainAt = nil }
        // What an attempt in vain has closed itself is told as well.
        if isGroupStore, !mayAsk, !isDue { return false }
        if let contended, !isDue, contended == signature { return false }
        guard wasClosed || state == .arriving || isDue, arrival.isWhole(at: .now) else { return false }
        // What an attempt has opened, closed or renamed itself is told as well.
        return state == .waiting || !concludesAgain()
    }

    /// The failure of the last attempt, where it is tried again only because time has passed.
    var lastFailure: Failure? {
        if case .failed(let failure) = state { failure } else { nil }
    }

    /// Whether its presenters may be asked to let go now.
    var mayAsk: Bool { asksAgainAt.map { $0 <= .now } ?? true }

    /// Others than its presenters seem to have it open. Nil once that has been asked long enough: the next close's event
    /// begins anew.
    func sawStrangers() {
        looksAgainAt = recheck <= Self.longestRecheck ? .now.advanced(by: recheck) : nil
        recheck *= 2
    }

    /// Somebody else's claim or relocation, or a close that isn't over yet, was in the way.
    func lookAgainLater() {
        contended = signature
        looksAgainAt = .now.advanced(by: contention)
        contention = min(contention * 2, Self.longestContention)
    }

    /// Some program has it open: its close is told.
    func awaitClosing() {
        contended = nil
        contention = Self.firstRecheck
        state = .waiting
    }

    private func beginRechecking() {
        looksAgainAt = nil
        recheck = Self.firstRecheck
    }

    /// They were asked in vain. Each time they are left alone for twice as long: asking costs them a pause.
    func askedInVain() {
        asksAgainAt = patience.next()
    }

    /// Others present it now than those who were asked.
    func presentersChanged() {
        asksAgainAt = nil
        patience = Backoff()
        beginRechecking()
        wasClosed = true
    }

    /// Whether somebody else has the database open. False too when it can't be told: whoever relocates it finds out.
    func isOpen() -> Bool {
        guard !isUnderWay, let directory = try? Directory(directory), let status = try? directory.status(name.database),
            status.kind == .regular
        else {
            probe = nil
            return false
        }
        if probe?.identity != status.identity {
            probe = nil
            guard let descriptor = try? directory.open(name.database, flags: O_RDONLY) else { return false }
            probe = Probe(descriptor, status.identity)
        }
        return probe.map(Self.isLeaseRefused) ?? false
    }

    /// The event of a close comes before the close counts: it is asked for 5 ms.
    private static func isLeaseRefused(_ probe: Probe) -> Bool {
        for _ in 0..<100 {
            guard isRefusedNow(probe) else { return false }
            pause(.microseconds(50))
        }
        return true
    }

    private static func isRefusedNow(_ probe: Probe) -> Bool {
        do {
            guard let lease = try FileLease(probe.descriptor) else { return true }
            _ = consume lease
            return false
        } catch {
            return false
        }
    }

    /// Closes what `isOpen` left open.
    func endProbing() { probe = nil }

    func isNews(_ failure: Failure) -> Bool {
        defer { lastNews = failure }
        return failure != lastNews
    }

    var isThere: Bool {
        guard let directory = try? Directory(directory) else { return false }
        return (try? directory.status(name.database)) != nil
    }

    /// A file of zero bytes, or a link that leads nowhere.
    var hasNothing: Bool {
        var request = RelocationRequest(source: path, group: group)
        request.name = configuration.name.database
        return RelocationEngine(request).hasNothing
    }

    /// Who has it open, as far as can be seen.
    func holders() -> [FileHolder] {
        guard let directory = try? Directory(directory), let status = try? directory.status(name.database) else {
            return []
        }
        return FileHolder.of(status.identity)
    }

    /// Finds out for whom it waits. False when that is put off: all processes of the machine are looked at, and a program
    /// that opens and closes the store all the time must not make that a burden.
    func nameHolders() -> Bool {
        let began = ContinuousClock.now
        guard began >= namesHoldersAt else {
            looksAgainAt = looksAgainAt.map { min($0, namesHoldersAt) } ?? namesHoldersAt
            return false
        }
        waitingFor = holders()
        namesHoldersAt = .now.advanced(by: min(began.duration(to: .now) * Self.restFactor, Self.longestRest))
        return true
    }

    /// Of the time that naming the holders took, until it is done anew.
    private static let restFactor = 20
    private static let longestRest = Duration.seconds(1)

    /// Nil for the group's own store while there is nothing to say of it.
    var status: LegacyStatus? {
        if isGroupStore, [.absent, .arriving, .relocated, .empty].contains(state) { return nil }

        let (word, detail): (String, String?) =
            switch state {
            case .absent: (wasRelocated ? "relocated" : "absent", nil)
            case .arriving: ("arriving", nil)
            case .waiting: ("waiting", waitsBecause)
            case .relocating: ("relocating", nil)
            case .relocated: ("relocated", nil)
            case .empty: ("absent", "a file without a store in it")
            case .failed(let failure): (failure.state, failure.detail)
            }
        return LegacyStatus(
            store: address, path: path, state: word, detail: detail, code: lastFailure?.code,
            exitCode: lastFailure?.exitCode)
    }
}
