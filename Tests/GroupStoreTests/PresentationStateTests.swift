import Testing

@testable import GroupStore

/// Tries every order of events of a presentation, breadth first. A simulated environment performs the effects and
/// reports their results at any later time.
@Suite struct PresentationStateTests {
    /// The environment: pending effects, waiting callers, and processes that got the item.
    private struct Environment: Hashable {
        var isLocking = false
        var isLocked = false
        var isOpening = false
        var isOpen = false
        var isClosing = false
        var isPausing = false
        var isPresented = true
        var hasEnded = false
        /// Tickets that weren't answered yet.
        var waiting: Set<PresentationState.Ticket> = []
        /// The number of processes that got the item and aren't done.
        var relinquishedCount = 0
        // How many more events of each kind may occur.
        var relinquishes = 2
        var withdrawals = 1
        var ends = 2
        var failures = 2
        var isBegun = false
        /// True once the caller of `begin` received an error.
        var hasFailed = false
    }

    private struct Node: Hashable {
        var environment = Environment()
        var state: String
    }

    private struct Violation: Error { let text: String }

    private static let begin: PresentationState.Ticket = 1

    /// Returns the possible events. Tickets: 1 begins, from 10 on they want the item, from 20 on they end.
    private func events(_ environment: Environment) -> [PresentationState.Event] {
        var events: [PresentationState.Event] = []
        if !environment.isBegun { events.append(.begin(Self.begin)) }
        if environment.relinquishes > 0, environment.isPresented {
            events.append(.relinquish(10 + UInt64(environment.relinquishes)))
        }
        for ticket in environment.waiting where (10..<20).contains(ticket) && environment.withdrawals > 0 {
            events.append(.withdraw(ticket))
        }
        if environment.relinquishedCount > 0 { events.append(.reacquire) }
        if environment.ends > 0 { events.append(.end(20 + UInt64(environment.ends))) }
        if environment.isLocking { events += [.locked] + (environment.failures > 0 ? [.notLocked] : []) }
        if environment.isOpening { events += [.opened] + (environment.failures > 0 ? [.notOpened] : []) }
        if environment.isClosing { events += [.closed] + (environment.failures > 0 ? [.notClosed] : []) }
        if environment.isPausing { events.append(.paused) }
        return events
    }

    private func happen(_ event: PresentationState.Event, in environment: inout Environment) {
        switch event {
        case .begin(let ticket):
            environment.isBegun = true
            environment.waiting.insert(ticket)
        case .relinquish(let ticket):
            environment.relinquishes -= 1
            environment.waiting.insert(ticket)
        case .withdraw: environment.withdrawals -= 1
        case .reacquire: environment.relinquishedCount -= 1
        case .end(let ticket):
            environment.ends -= 1
            environment.waiting.insert(ticket)
        case .locked: (environment.isLocking, environment.isLocked) = (false, true)
        case .notLocked: (environment.isLocking, environment.failures) = (false, environment.failures - 1)
        case .opened: (environment.isOpening, environment.isOpen) = (false, true)
        case .notOpened: (environment.isOpening, environment.failures) = (false, environment.failures - 1)
        case .closed: (environment.isClosing, environment.isOpen) = (false, false)
        case .notClosed: (environment.isClosing, environment.failures) = (false, environment.failures - 1)
        case .paused: environment.isPausing = false
        }
    }

    private func perform(_ effect: PresentationState.Effect, in environment: inout Environment) throws {
        func require(_ condition: Bool, _ text: String) throws { if !condition { throw Violation(text: text) } }
        let isBusy = environment.isLocking || environment.isOpening || environment.isClosing || environment.isPausing
        switch effect {
        case .lock:
            try require(
                !isBusy && !environment.isLocked && !environment.isOpen && environment.isPresented,
                "locks at a wrong time")
            environment.isLocking = true
        case .cancelLocking: try require(environment.isLocking, "cancels no locking")
        case .unlock:
            try require(environment.isLocked && !environment.isOpen && !environment.isOpening, "unlocks an open store")
            environment.isLocked = false
        case .open:
            try require(environment.isLocked && !isBusy && !environment.isOpen, "opens at a wrong time")
            try require(
                environment.relinquishedCount == 0 && !environment.hasEnded,
                "opens a store that others have, or after the end")
            environment.isOpening = true
        case .close:
            try require(environment.isOpen && !isBusy, "closes at a wrong time")
            environment.isClosing = true
        case .cancelClosing: try require(environment.isClosing, "cancels no closing")
        case .pause:
            try require(!isBusy && !environment.isOpen && !environment.isLocked, "pauses at a wrong time")
            environment.isPausing = true
        case .cancelPause: try require(environment.isPausing, "cancels no pause")
        case .unpresent:
            try require(
                environment.isPresented && !environment.isOpen && !isBusy && !environment.isLocked,
                "unpresents an open store")
            environment.isPresented = false
        case .succeed(let ticket), .fail(let ticket), .dismiss(let ticket):
            try require(environment.waiting.remove(ticket) != nil, "answers \(ticket) twice")
            guard case .succeed = effect else {
                if ticket == Self.begin { environment.hasFailed = true }
                return
            }
            if ticket >= 10 {
                try require(
                    !environment.isOpen && !environment.isOpening && !environment.isLocked,
                    "admits another process to an open store")
            }
            if (10..<20).contains(ticket) { environment.relinquishedCount += 1 }
            if ticket >= 20 {
                try require(!environment.isPresented, "ended, and presented")
                environment.hasEnded = true
            }
        }
    }

    @Test func keepsItsInvariantsInAnyOrder() throws {
        var known: Set<Node> = []
        let start = PresentationState()
        var front: [(PresentationState, Environment, [PresentationState.Event])] = [(start, Environment(), [])]
        while !front.isEmpty {
            var next: [(PresentationState, Environment, [PresentationState.Event])] = []
            for (state, environment, path) in front {
                let events = events(environment)
                // If no event is pending, nobody waits, and the store is open if it should be.
                let isQuiet =
                    !environment.isLocking && !environment.isOpening && !environment.isClosing && !environment.isPausing
                if isQuiet {
                    // The caller of `begin` waits for the processes that have the item.
                    let waiting = environment.waiting.subtracting(environment.relinquishedCount > 0 ? [Self.begin] : [])
                    #expect(waiting.isEmpty, "\(environment.waiting) wait for ever after \(path)")
                    let isWanted =
                        environment.isBegun && !environment.hasFailed && environment.relinquishedCount == 0
                        && !environment.hasEnded
                    #expect(environment.isOpen == isWanted, "\(state.phase) after \(path)")
                }
                for event in events {
                    var (state, environment) = (state, environment)
                    happen(event, in: &environment)
                    do {
                        for effect in state.handle(event) { try perform(effect, in: &environment) }
                    } catch let violation as Violation {
                        Issue.record("\(violation.text): \(path + [event])")
                        return
                    }
                    if known.insert(Node(environment: environment, state: "\(state)")).inserted {
                        next.append((state, environment, path + [event]))
                    }
                }
            }
            front = next
        }
        #expect(known.count > 500)
    }

    /// A cancelled request isn't waited for: the store is in use again at once.
    @Test func cancelsClosingForAWithdrawnRequest() {
        var state = PresentationState()
        #expect(state.handle(.begin(1)) == [.lock])
        #expect(state.handle(.locked) == [.open])
        #expect(state.handle(.opened) == [.succeed(1)])
        #expect(state.handle(.relinquish(2)) == [.close])
        #expect(state.handle(.withdraw(2)) == [.dismiss(2), .cancelClosing])
        #expect(state.handle(.notClosed) == [])
        #expect(state.phase == .open)
    }
}
