import AgentProtocol
import FileCoordination
import GroupContainers
import LinuxSystem
import Synchronization

// Registration with the agent is a state that is kept true: presenters that the agent doesn't know are registered when
// there is one, when its configuration has changed, and as what they present then.
extension RemoteRegistry {
    func register(_ number: UInt64) {
        let presenter = state.withLock { state -> Presenter? in
            guard let found = state.presenters[number], found.remote == nil, !found.isAsking else { return nil }
            state.presenters[number]?.isAsking = true
            return found
        }
        guard let presenter else { return }
        guard let address = ItemAddress(presenter.item), link.generation != nil else {
            return answered(number, .waiting(reason: "no agent answers at \(PrintablePath(socket))"))
        }
        var operation = PresentOperation(item: address, pid: presenter.holder.pid, program: presenter.holder.program)
        operation.models = presenter.versions?.sorted()
        link.request(.present(operation)) { [weak self] result in
            guard let self else { return }
            switch result {
            case .success(let reply): registered(number, as: presenter.item, reply)
            case .failure(.refused(let error)):
                answered(
                    number,
                    error.code == "unknown_store"
                        ? .waiting(reason: error.message) : .refused(reason: error.message))
            case .failure(let error): answered(number, .waiting(reason: error.message))
            }
        }
    }

    /// Calls `body` when the agent has answered to the presenter, which it was just asked to know; false where it was not.
    func isAwaitingAnswer(_ number: UInt64, then body: @escaping @Sendable () -> Void) -> Bool {
        state.withLock { state in
            guard state.presenters[number]?.isAsking == true else { return false }
            state.presenters[number]?.whenAnswered.append(body)
            return true
        }
    }

    /// Asks for those that the agent doesn't know.
    func registerMissing() {
        for number in state.withLock({ $0.presenters.filter { $0.value.remote == nil }.keys.sorted() }) {
            register(number)
        }
    }

    private func registered(_ number: UInt64, as item: ClaimedItem, _ reply: AgentClient.Reply) {
        guard let known = reply.object.string("presenter").flatMap({ WireNumber($0, .presenter) })?.value else {
            return answered(number, .refused(reason: "the agent sent a presenter without a number"))
        }
        let remote = RemoteNumber(number: known, generation: reply.generation)
        let claims = reply.object.claims("waits_for").map { Self.number(of: $0, reply.generation) }
        let (isWanted, isElsewhere) = state.withLock { state in
            guard let found = state.presenters[number] else { return (false, false) }
            guard found.item == item else {
                state.presenters[number]?.isAsking = false
                return (false, true)
            }
            state.presenters[number]?.remote = remote
            state.presenters[number]?.relinquished.formUnion(claims)
            return (true, false)
        }
        if isWanted { return answered(number, .registered, claims) }
        link.request(.unpresent(presenter: known), on: reply.generation)
        // It was moved meanwhile.
        if isElsewhere { register(number) }
    }

    /// `claims`: under way, and begun before.
    private func answered(_ number: UInt64, _ registration: FilePresenterRegistration, _ claims: [UInt64] = []) {
        typealias Told = (first: (@Sendable () -> Void)?, receive: @Sendable (PresenterMessage) -> Void)
        let (told, isNew, waiting) = state.withLock { state -> (Told?, Bool, [@Sendable () -> Void]) in
            guard let found = state.presenters[number] else { return (nil, false, []) }
            state.presenters[number]?.isAsking = false
            state.presenters[number]?.registration = registration
            if state.presenters[number]?.firstAnswer.take() != nil { state.presenters[number]?.waitsFor = claims }
            state.presenters[number]?.whenAnswered = []
            return ((found.firstAnswer, found.receive), found.registration != registration, found.whenAnswered)
        }
        guard let told else { return }
        defer { for body in waiting { body() } }
        if let first = told.first { return first() }
        if isNew { told.receive(.registration(registration)) }
        // It may have its item open, which those who claim it don't know: nobody waits for the answer.
        for claim in claims { told.receive(.request(claim: claim, .relinquish(.writer))) }
    }

    /// Presenters go with their items. `agentFollows`: the agent was told, and has its presenters follow by itself.
    func moved(_ moves: [ClaimState.Outcome.Move], agentFollows: Bool) {
        var elsewhere: Set<UInt64> = []
        for move in moves {
            for (number, presenter) in state.withLock({ $0.presenters }) {
                guard let item = move.destination(of: presenter.item), item != presenter.item else { continue }
                moved(number, to: item)
                elsewhere.insert(number)
            }
        }
        guard !agentFollows else { return }
        for number in elsewhere.sorted() { registerAgain(number) }
    }

    /// As what it presents now.
    private func registerAgain(_ number: UInt64) {
        let found = state.withLock { state -> Presenter? in
            guard let found = state.presenters[number], found.remote != nil else { return nil }
            state.presenters[number]?.remote = nil
            state.presenters[number]?.relinquished = []
            return found
        }
        guard let found, let remote = found.remote else { return }
        link.request(.unpresent(presenter: remote.number), on: remote.generation)
        // The agent doesn't count it any more among those who have let go: nobody else says that those claims are over.
        for claim in found.relinquished.sorted() { found.receive(.notice(claim: claim, .reacquire)) }
        register(number)
    }

    private func moved(_ number: UInt64, to item: ClaimedItem) {
        // Not under the lock: the registry of this process calls back under its own.
        let inProcess = state.withLock { state in
            state.presenters[number]?.item = item
            return state.presenters[number]?.local
        }
        if let inProcess { local.move(inProcess, to: item) }
    }
}

// MARK: - The link

extension RemoteRegistry {
    func linkConnected(generation: UInt64) {
        registerMissing()
        askAboutWaiting()
    }

    func linkReceived(type: String, _ object: JSONObject, generation: UInt64) {
        if type == AgentConfigured.type {
            registerMissing()
            return askAboutWaiting()
        }
        guard let event = PresenterEvent(type: type, object),
            let presenter = object.string("presenter").flatMap({ WireNumber($0, .presenter) })?.value,
            let claim = object.string("claim").flatMap({ WireNumber($0, .claim) })?.value
        else { return }
        let (number, remote) = (
            Self.number(of: claim, generation), RemoteNumber(number: presenter, generation: generation)
        )
        let found = state.withLock { state -> (key: UInt64, value: Presenter)? in
            guard let found = state.presenters.first(where: { $0.value.remote == remote }) else { return nil }
            if case .relinquish = event { state.presenters[found.key]?.relinquished.insert(number) }
            if case .reacquire = event { state.presenters[found.key]?.relinquished.remove(number) }
            return found
        }
        guard let found, let message = PresenterMessage(event, claim: number, container: container) else { return }
        if case .notice(_, .didMove(let item, nil)) = message { moved(found.key, to: item) }
        found.value.receive(message)
    }

    /// Nobody will say any more that a claim is over: whoever had let go waits until nobody holds the locks.
    func linkLost(generation: UInt64) {
        let lost = state.withLock { state in
            let lost = state.presenters.filter { $0.value.remote != nil }
            for number in lost.keys {
                state.presenters[number]?.remote = nil
                state.presenters[number]?.relinquished = []
                state.presenters[number]?.registration = .waiting(reason: "the agent ended the connection")
            }
            return lost.sorted { $0.key < $1.key }
        }
        for (number, presenter) in lost {
            presenter.receive(.registration(.waiting(reason: "the agent ended the connection")))
            returnItem(to: number, presenter)
        }
    }

    private func returnItem(to number: UInt64, _ presenter: Presenter) {
        guard !presenter.relinquished.isEmpty else { return }
        let giveBack: @Sendable () -> Void = {
            // What was done to the item meanwhile, nobody says either.
            presenter.receive(.notice(claim: 0, .didChange(nil)))
            for claim in presenter.relinquished.sorted() { presenter.receive(.notice(claim: claim, .reacquire)) }
        }
        let thread = try? SystemThread(name: "gs-return") { [weak self, container, lossTime] in
            // Without the registry, or the presenter in it, nobody wants the item back.
            while let item = self?.state.withLock({ $0.presenters[number]?.item }) {
                let isFree = Self.waitUntilFree(item, container, lossTime) { [weak self] in
                    self?.state.withLock { $0.presenters[number]?.item } != item
                }
                if isFree { return giveBack() }
            }
        }
        if thread == nil { giveBack() }
    }

    /// False where somebody is at work on it all the time, or `isOver`.
    private static func waitUntilFree(
        _ item: ClaimedItem, _ container: GroupContainer, _ time: Duration, isOver: @escaping @Sendable () -> Bool
    ) -> Bool {
        // Where it can't be claimed, its presenter goes on: what it finds there tells it whether it can.
        guard let claim = try? Claim([ClaimIntent(item, .read(.withoutChanges))], in: container) else { return true }
        defer { claim.leave() }
        let wait = ClaimWait(Deadline(after: time), isCancelled: isOver)
        do {
            try claim.standInLine(wait)
            try claim.enter(wait)
            return true
        } catch {
            return !(error is ClaimWait.TimedOut || error is ClaimWait.Cancelled)
        }
    }
}
