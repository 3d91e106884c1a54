/// The state of a presented store: a pure value that receives events and returns the effects to perform next.
///
/// A store is opened and closed under a lock that claims wait for if they displace presenters. The lock is acquired
/// before the store is opened, and released after it is closed. So no such claim is granted while the store is open,
/// whether or not anybody could be asked.
struct PresentationState: Sendable, Equatable {
    /// Identifies a caller that waits for a result; each is answered once.
    typealias Ticket = UInt64

    enum Phase: Sendable, Equatable {
        case closed
        /// Waiting for the lock, and finding the store's current place.
        case locking(isCancelled: Bool)
        case opening
        case open
        /// Closing. `isCancelled` is true if no request needs it any more.
        case closing(isCancelled: Bool)
        /// Waiting to try again, because the store could not be opened.
        case pausing(isCancelled: Bool)
        case ended
    }

    enum Event: Sendable, Equatable {
        /// Opens the store for the first time.
        case begin(Ticket)
        /// Another process wants the item; answered when the store is closed.
        case relinquish(Ticket)
        /// The caller of `relinquish` gave up before the answer.
        case withdraw(Ticket)
        /// The process that got the item is done with it.
        case reacquire
        case end(Ticket)

        // The results of effects.
        case locked, notLocked
        case opened, notOpened
        case closed, notClosed
        case paused
    }

    enum Effect: Sendable, Equatable {
        /// The result is `locked` or `notLocked`.
        case lock
        case cancelLocking
        case unlock
        /// The result is `opened` or `notOpened`.
        case open
        /// The result is `closed` or `notClosed`.
        case close
        case cancelClosing
        /// Reports the error and waits. The result is `paused`.
        case pause
        case cancelPause
        /// Ends the presentation: this presenter is no longer asked.
        case unpresent
        case succeed(Ticket)
        /// Fails the ticket with the error of the last failure.
        case fail(Ticket)
        /// Fails the ticket with a cancellation.
        case dismiss(Ticket)
    }

    private(set) var phase = Phase.closed
    /// The number of processes that got the item and haven't given it back.
    private(set) var relinquishedCount = 0
    private(set) var beginning: Ticket?
    private(set) var relinquishing: [Ticket] = []
    private(set) var ending: [Ticket] = []
    private var hasBegun = false

    /// True if the store has begun and no request needs it closed.
    private var wantsOpen: Bool { hasBegun && relinquishedCount == 0 && relinquishing.isEmpty && ending.isEmpty }

    mutating func handle(_ event: Event) -> [Effect] {
        var effects: [Effect] = []
        switch event {
        case .begin, .relinquish, .withdraw, .reacquire, .end: effects += record(event)
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

    // MARK: Requests

    private mutating func record(_ event: Event) -> [Effect] {
        switch event {
        case .begin(let ticket):
            guard phase != .ended, ending.isEmpty else { return [.dismiss(ticket)] }
            hasBegun = true
            beginning = ticket
        case .relinquish(let ticket): relinquishing.append(ticket)
        case .withdraw(let ticket):
            guard let index = relinquishing.firstIndex(of: ticket) else { return [] }
            relinquishing.remove(at: index)
            return [.dismiss(ticket)]
        case .reacquire: relinquishedCount = max(0, relinquishedCount - 1)
        case .end(let ticket): ending.append(ticket)
        default: break
        }
        return []
    }

    // MARK: Results

    private mutating func locked() -> [Effect] {
        guard wantsOpen else {
            phase = .closed
            return [.unlock]
        }
        phase = .opening
        return [.open]
    }

    /// Handles a failure to open. The first time, it fails the caller of `begin` and ends there; afterwards it tries
    /// again.
    private mutating func failed(isCancelled: Bool) -> [Effect] {
        phase = .closed
        guard !isCancelled else { return [] }
        if let ticket = beginning.take() {
            hasBegun = false
            return [.fail(ticket)]
        }
        guard wantsOpen else { return [] }
        phase = .pausing(isCancelled: false)
        return [.pause]
    }

    /// Handles a failure to close. The store stays open; callers that wanted it closed fail and may ask again. If
    /// closing was cancelled, the failure is no answer to callers that came since.
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

    // MARK: Next effects

    private mutating func proceed() -> [Effect] {
        switch phase {
        case .closed: return proceedClosed()
        case .locking(isCancelled: false) where !wantsOpen:
            phase = .locking(isCancelled: true)
            return [.cancelLocking] + completeRelinquishing()
        case .pausing(isCancelled: false) where !wantsOpen:
            phase = .pausing(isCancelled: true)
            return [.cancelPause] + completeRelinquishing()
        // Nothing is open in these phases.
        case .locking(isCancelled: true), .pausing(isCancelled: true): return completeRelinquishing()
        case .open where !relinquishing.isEmpty || !ending.isEmpty:
            phase = .closing(isCancelled: false)
            return [.close]
        case .closing(isCancelled: false) where relinquishing.isEmpty && ending.isEmpty:
            phase = .closing(isCancelled: true)
            return [.cancelClosing]
        case .ended: return completeRelinquishing() + finish()
        case .locking, .opening, .open, .closing, .pausing: return []
        }
    }

    private mutating func proceedClosed() -> [Effect] {
        let effects = completeRelinquishing()
        if !ending.isEmpty {
            phase = .ended
            return effects + (beginning.take().map { [.dismiss($0)] } ?? []) + [.unpresent] + finish()
        }
        guard wantsOpen else { return effects }
        phase = .locking(isCancelled: false)
        return effects + [.lock]
    }

    private mutating func completeRelinquishing() -> [Effect] {
        defer { relinquishing = [] }
        relinquishedCount += relinquishing.count
        return relinquishing.map { .succeed($0) }
    }

    private mutating func finish() -> [Effect] {
        defer { ending = [] }
        return ending.map { .succeed($0) }
    }
}
