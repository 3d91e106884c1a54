/// What a presented store is doing, and what is to be done next: a pure value, told of one event after another.
///
/// A store is opened and closed under a lock that those who take its item from its presenters wait for: it is taken
/// before the store is opened, and given back when the store is closed. So no claim that displaces presenters is granted
/// while the store is open, whether or not anybody could be asked.
struct PresentationState: Sendable, Equatable {
    /// Who waits for the end of something; each is answered once.
    typealias Ticket = UInt64

    enum Phase: Sendable, Equatable {
        case closed
        /// The lock is waited for, and where the store is is found out.
        case locking(isCancelled: Bool)
        case opening
        case open
        /// `isCancelled`: nobody wants that any more.
        case closing(isCancelled: Bool)
        /// It could not be opened, and is tried again a little later.
        case pausing(isCancelled: Bool)
        case ended
    }

    enum Event: Sendable, Equatable {
        /// It is to be opened for the first time.
        case begin(Ticket)
        /// Somebody wants the item: answered when the store is closed.
        case relinquish(Ticket)
        /// Whoever wanted it gave up before it was answered.
        case withdraw(Ticket)
        /// Whoever was answered is done.
        case reacquire
        case end(Ticket)

        // What became of what was asked for.
        case locked, notLocked
        case opened, notOpened
        case closed, notClosed
        case paused
    }

    enum Effect: Sendable, Equatable {
        /// Answered by `locked` or `notLocked`.
        case lock
        case cancelLocking
        case unlock
        /// Answered by `opened` or `notOpened`.
        case open
        /// Answered by `closed` or `notClosed`.
        case close
        case cancelClosing
        /// Says what went wrong, and waits; answered by `paused`.
        case pause
        case cancelPause
        /// Nobody asks this presenter any more.
        case unpresent
        case succeed(Ticket)
        /// With the error of what just failed.
        case fail(Ticket)
        /// With a cancellation.
        case dismiss(Ticket)
    }

    private(set) var phase = Phase.closed
    /// How many have taken the item, and not given it back.
    private(set) var away = 0
    private(set) var beginning: Ticket?
    private(set) var relinquishing: [Ticket] = []
    private(set) var ending: [Ticket] = []
    private var wasBegun = false

    /// Nobody wants it closed.
    private var wantsOpen: Bool { wasBegun && away == 0 && relinquishing.isEmpty && ending.isEmpty }

    mutating func handle(_ event: Event) -> [Effect] {
        var effects: [Effect] = []
        switch event {
        case .begin, .relinquish, .withdraw, .reacquire, .end: effects += note(event)
        case .locked: effects += locked()
        case .notLocked: effects += failed(isCancelled: phase == .locking(isCancelled: true))
        case .opened:
            phase = .open
            effects += beginning.take().map { [.succeed($0)] } ?? []
        case .notOpened: effects += [.unlock] + failed(isCancelled: false)
        case .closed:
            phase = .closed
            effects.append(.unlock)
        case .notClosed: effects += notClosed()
        case .paused: phase = .closed
        }
        return effects + proceed()
    }

    // MARK: What others want

    private mutating func note(_ event: Event) -> [Effect] {
        switch event {
        case .begin(let ticket):
            guard phase != .ended, ending.isEmpty else { return [.dismiss(ticket)] }
            wasBegun = true
            beginning = ticket
        case .relinquish(let ticket): relinquishing.append(ticket)
        case .withdraw(let ticket):
            guard let index = relinquishing.firstIndex(of: ticket) else { return [] }
            relinquishing.remove(at: index)
            return [.dismiss(ticket)]
        case .reacquire: away = max(0, away - 1)
        case .end(let ticket): ending.append(ticket)
        default: break
        }
        return []
    }

    // MARK: What became of it

    private mutating func locked() -> [Effect] {
        guard wantsOpen else {
            phase = .closed
            return [.unlock]
        }
        phase = .opening
        return [.open]
    }

    /// The first time whoever began is told, and it is over; afterwards it is tried again.
    private mutating func failed(isCancelled: Bool) -> [Effect] {
        phase = .closed
        guard !isCancelled else { return [] }
        if let ticket = beginning.take() {
            wasBegun = false
            return [.fail(ticket)]
        }
        guard wantsOpen else { return [] }
        phase = .pausing(isCancelled: false)
        return [.pause]
    }

    /// It stays open: whoever wanted it closed is told, and may ask again. Where closing was cancelled, that is no answer
    /// to those who came since.
    private mutating func notClosed() -> [Effect] {
        let wasCancelled = phase == .closing(isCancelled: true)
        phase = .open
        guard !wasCancelled else { return [] }
        defer {
            relinquishing = []
            ending = []
        }
        return (relinquishing + ending).map { .fail($0) }
    }

    // MARK: What is to be done

    private mutating func proceed() -> [Effect] {
        switch phase {
        case .closed: return proceedClosed()
        case .locking(isCancelled: false) where !wantsOpen:
            phase = .locking(isCancelled: true)
            return [.cancelLocking] + letGo()
        case .pausing(isCancelled: false) where !wantsOpen:
            phase = .pausing(isCancelled: true)
            return [.cancelPause] + letGo()
        // Nothing is open.
        case .locking(isCancelled: true), .pausing(isCancelled: true): return letGo()
        case .open where !relinquishing.isEmpty || !ending.isEmpty:
            phase = .closing(isCancelled: false)
            return [.close]
        case .closing(isCancelled: false) where relinquishing.isEmpty && ending.isEmpty:
            phase = .closing(isCancelled: true)
            return [.cancelClosing]
        case .ended: return letGo() + finish()
        case .locking, .opening, .open, .closing, .pausing: return []
        }
    }

    private mutating func proceedClosed() -> [Effect] {
        let effects = letGo()
        if !ending.isEmpty {
            phase = .ended
            return effects + (beginning.take().map { [.dismiss($0)] } ?? []) + [.unpresent] + finish()
        }
        guard wantsOpen else { return effects }
        phase = .locking(isCancelled: false)
        return effects + [.lock]
    }

    private mutating func letGo() -> [Effect] {
        defer { relinquishing = [] }
        away += relinquishing.count
        return relinquishing.map { .succeed($0) }
    }

    private mutating func finish() -> [Effect] {
        defer { ending = [] }
        return ending.map { .succeed($0) }
    }
}
