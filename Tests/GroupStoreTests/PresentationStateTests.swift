import Testing

@testable import GroupStore

/// Every order in which things can happen to a presentation, tried breadth first: what is to be done is taken up by a
/// world that answers at any later time.
@Suite struct PresentationStateTests {
    /// What was asked of the world and isn't answered yet, who waits, and who has been let in.
    private struct World: Hashable {
        var isLocking = false
        var isLocked = false
        var isOpening = false
        var isOpen = false
        var isClosing = false
        var isPausing = false
        var isPresented = true
        var hasEnded = false
        /// Tickets that were not answered.
        var waiting: Set<PresentationState.Ticket> = []
        /// Who was let in, and isn't done.
        var away = 0
        /// What is still to happen of each kind.
        var relinquishes = 2
        var withdrawals = 1
        var ends = 2
        var failures = 2
        var isBegun = false
        /// Whoever began it was told that it is over.
        var isGivenUp = false
    }

    private struct Node: Hashable {
        var world = World()
        var state: String
    }

    private struct Violation: Error { let text: String }

    private static let begin: PresentationState.Ticket = 1

    /// The tickets say what they are of: 1 began it, from 10 on they want the item, from 20 on they end it.
    private func events(_ world: World) -> [PresentationState.Event] {
        var events: [PresentationState.Event] = []
        if !world.isBegun { events.append(.begin(Self.begin)) }
        if world.relinquishes > 0, world.isPresented { events.append(.relinquish(10 + UInt64(world.relinquishes))) }
        for ticket in world.waiting where (10..<20).contains(ticket) && world.withdrawals > 0 {
            events.append(.withdraw(ticket))
        }
        if world.away > 0 { events.append(.reacquire) }
        if world.ends > 0 { events.append(.end(20 + UInt64(world.ends))) }
        if world.isLocking { events += [.locked] + (world.failures > 0 ? [.notLocked] : []) }
        if world.isOpening { events += [.opened] + (world.failures > 0 ? [.notOpened] : []) }
        if world.isClosing { events += [.closed] + (world.failures > 0 ? [.notClosed] : []) }
        if world.isPausing { events.append(.paused) }
        return events
    }

    private func happen(_ event: PresentationState.Event, in world: inout World) {
        switch event {
        case .begin(let ticket):
            world.isBegun = true
            world.waiting.insert(ticket)
        case .relinquish(let ticket):
            world.relinquishes -= 1
            world.waiting.insert(ticket)
        case .withdraw: world.withdrawals -= 1
        case .reacquire: world.away -= 1
        case .end(let ticket):
            world.ends -= 1
            world.waiting.insert(ticket)
        case .locked: (world.isLocking, world.isLocked) = (false, true)
        case .notLocked: (world.isLocking, world.failures) = (false, world.failures - 1)
        case .opened: (world.isOpening, world.isOpen) = (false, true)
        case .notOpened: (world.isOpening, world.failures) = (false, world.failures - 1)
        case .closed: (world.isClosing, world.isOpen) = (false, false)
        case .notClosed: (world.isClosing, world.failures) = (false, world.failures - 1)
        case .paused: world.isPausing = false
        }
    }

    private func perform(_ effect: PresentationState.Effect, in world: inout World) throws {
        func require(_ condition: Bool, _ text: String) throws { if !condition { throw Violation(text: text) } }
        let isBusy = world.isLocking || world.isOpening || world.isClosing || world.isPausing
        switch effect {
        case .lock:
            try require(!isBusy && !world.isLocked && !world.isOpen && world.isPresented, "locks at a wrong time")
            world.isLocking = true
        case .cancelLocking: try require(world.isLocking, "cancels no locking")
        case .unlock:
            try require(world.isLocked && !world.isOpen && !world.isOpening, "unlocks what is open")
            world.isLocked = false
        case .open:
            try require(world.isLocked && !isBusy && !world.isOpen, "opens at a wrong time")
            try require(world.away == 0 && !world.hasEnded, "opens what others have, or after the end")
            world.isOpening = true
        case .close:
            try require(world.isOpen && !isBusy, "closes at a wrong time")
            world.isClosing = true
        case .cancelClosing: try require(world.isClosing, "cancels no closing")
        case .pause:
            try require(!isBusy && !world.isOpen && !world.isLocked, "pauses at a wrong time")
            world.isPausing = true
        case .cancelPause: try require(world.isPausing, "cancels no pause")
        case .unpresent:
            try require(world.isPresented && !world.isOpen && !isBusy && !world.isLocked, "unpresents what is open")
            world.isPresented = false
        case .succeed(let ticket), .fail(let ticket), .dismiss(let ticket):
            try require(world.waiting.remove(ticket) != nil, "answers \(ticket) twice")
            guard case .succeed = effect else {
                if ticket == Self.begin { world.isGivenUp = true }
                return
            }
            if ticket >= 10 {
                try require(!world.isOpen && !world.isOpening && !world.isLocked, "lets in what is open")
            }
            if (10..<20).contains(ticket) { world.away += 1 }
            if ticket >= 20 {
                try require(!world.isPresented, "ended, and presented")
                world.hasEnded = true
            }
        }
    }

    @Test func nothingGoesWrongInAnyOrder() throws {
        var known: Set<Node> = []
        let start = PresentationState()
        var front: [(PresentationState, World, [PresentationState.Event])] = [(start, World(), [])]
        while !front.isEmpty {
            var next: [(PresentationState, World, [PresentationState.Event])] = []
            for (state, world, way) in front {
                let events = events(world)
                // Where nothing can happen any more, nobody waits, and what should be open is.
                let isQuiet = !world.isLocking && !world.isOpening && !world.isClosing && !world.isPausing
                if isQuiet {
                    // Whoever began it waits for those who have the item.
                    let waiting = world.waiting.subtracting(world.away > 0 ? [Self.begin] : [])
                    #expect(waiting.isEmpty, "\(world.waiting) wait for ever after \(way)")
                    let isWanted = world.isBegun && !world.isGivenUp && world.away == 0 && !world.hasEnded
                    #expect(world.isOpen == isWanted, "\(state.phase) after \(way)")
                }
                for event in events {
                    var (state, world) = (state, world)
                    happen(event, in: &world)
                    do {
                        for effect in state.handle(event) { try perform(effect, in: &world) }
                    } catch let violation as Violation {
                        Issue.record("\(violation.text): \(way + [event])")
                        return
                    }
                    if known.insert(Node(world: world, state: "\(state)")).inserted {
                        next.append((state, world, way + [event]))
                    }
                }
            }
            front = next
        }
        #expect(known.count > 500)
    }

    /// Whoever gave up isn't waited for: the store is used again at once.
    @Test func whatIsGivenUpIsCancelled() {
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
