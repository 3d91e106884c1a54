import AgentProtocol
import DirectoryWatching
import Glibc
import LinuxSystem
import PersistentStore
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
        /// It was tried, and is not tried again before the store itself, or the group's, is another one; or, where that
        /// is no matter of the stores, a while later.
        case failed(state: String, detail: String)
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

    /// Looks at what is there, when nobody has watched until now.
    func find() {
        guard let directory = try? Directory(directory), let status = try? directory.status(name.database),
            let directoryStatus = try? directory.status()
        else {
            arrival.vanished()
            return settle(.absent)
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

    private func settle(_ state: State) {
        self.state = state
        asksAgainAt = nil
        retriesAt = nil
        beginRechecking()
        probe = nil
    }

    /// It could not be relocated. With `passing`, what hindered it may be over without the stores changing.
    func failed(_ word: String, detail: String, passing: Bool) {
        state = .failed(state: word, detail: detail)
        retriesAt = passing ? retries.next() : nil
    }

    /// It is relocated, or needs not be.
    func succeeded() {
        state = .relocated
        retriesAt = nil
        retries = Backoff()
    }

    /// Takes in what happened to one of its parts.
    func note(_ part: StorePart, _ kinds: DirectoryEvent.Kinds) {
        var kinds = kinds
        // Two names that swap what they stand for are told as a coming and then a going of each.
        if part == .database, !kinds.isDisjoint(with: .departed), isThere {
            kinds.subtract(.departed)
            kinds.insert(.movedIn)
        }
        arrival.note(part, kinds, at: .now, isOpen: { self.isGroupStore || self.isOpen() })
        if part == .database, !kinds.isDisjoint(with: [.created, .movedIn, .deleted, .movedOut]) {
            settle(arrival.wholeAt == nil ? .absent : .arriving)
        }
        if part != .database, !kinds.isDisjoint(with: [.created, .movedIn, .deleted, .movedOut]) { retry() }
        if part == .database, !kinds.isDisjoint(with: [.closedAfterWriting, .closedAfterReading]) {
            // Once it is of the model, nobody's close makes it another.
            guard !isGroupStore || state == .waiting else { return }
            wasClosed = true
            beginRechecking()
        }
    }

    private var isThere: Bool {
        guard let directory = try? Directory(directory) else { return false }
        return (try? directory.status(name.database))?.kind == .regular
    }

    /// Something that it was refused for may be another thing now.
    func retry() {
        if case .failed = state { state = .arriving }
    }

    /// When to look again although nothing happens; nil when only an event can change something.
    var dueAt: ContinuousClock.Instant? {
        switch state {
        case .arriving: arrival.wholeAt
        case .failed: retriesAt
        case .waiting, .relocating: [asksAgainAt, looksAgainAt].compactMap { $0 }.min()
        case .absent, .relocated: nil
        }
    }

    /// Whether to try now. Asking resets what an event brought.
    func takeTurn() -> Bool {
        defer { wasClosed = false }
        if case .failed = state { return retriesAt.map { $0 <= .now } ?? false }
        let isDue = [asksAgainAt, looksAgainAt].compactMap { $0 }.contains { $0 <= .now }
        if let looksAgainAt, looksAgainAt <= .now { self.looksAgainAt = nil }
        // What an attempt in vain has closed itself is told as well.
        if isGroupStore, !mayAsk, !isDue { return false }
        return (wasClosed || state == .arriving || isDue) && arrival.isWhole(at: .now)
    }

    /// Whether its presenters may be asked to let go now.
    var mayAsk: Bool { asksAgainAt.map { $0 <= .now } ?? true }

    /// Others than its presenters seem to have it open. Nil once that has been asked long enough: the next close's event
    /// begins anew.
    func sawStrangers() {
        looksAgainAt = recheck <= Self.longestRecheck ? .now.advanced(by: recheck) : nil
        recheck *= 2
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

    /// Somebody opened it again before anybody could look: the next look is not left to an event.
    func lookAgain() { wasClosed = true }

    /// Whether somebody else has the database open. False too when it can't be told: whoever relocates it finds out.
    func isOpen() -> Bool {
        guard let directory = try? Directory(directory), let status = try? directory.status(name.database),
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
        if isGroupStore, [.absent, .arriving, .relocated].contains(state) { return nil }

        let (word, detail): (String, String?) =
            switch state {
            case .absent: (wasRelocated ? "relocated" : "absent", nil)
            case .arriving: ("arriving", nil)
            case .waiting: ("waiting", "open in another program")
            case .relocating: ("relocating", nil)
            case .relocated: ("relocated", nil)
            case .failed(let state, let detail): (state, detail)
            }
        return LegacyStatus(store: address, path: path, state: word, detail: detail)
    }
}
