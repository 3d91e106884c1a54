import AgentProtocol
import FileCoordination
import GroupContainers
import LinuxSystem
import Synchronization

// Registration is kept in step with the agent: presenters that the agent doesn't know are registered when it connects,
// when its configuration changes, and with their current item.
extension RemoteRegistry {
    func register(_ number: UInt64) {
        let presenter = state.withLock { state -> Presenter? in
            guard let found = state.presenters[number], found.remote == nil, !found.isAsking else { return nil }
            state.presenters[number]?.isAsking = true
            return found
        }
        guard let presenter else { return }
        guard let address = ItemAddress(presenter.item), client.generation != nil else {
            return answered(number, .waiting(reason: "no agent answers at \(PrintablePath(socket))"))
        }
        var operation = PresentOperation(item: address, pid: presenter.holder.pid, program: presenter.holder.program)
        operation.models = presenter.versions?.sorted()
        client.request(.present(operation)) { [weak self] result in
            guard let self else { return }
            switch result {
            case .success(let reply): registered(number, as: presenter.item, reply)
            case .failure(.refused(let error)):
                answered(
                    number,
                    error.code == "unknown_store"
                        ? .waiting(reason: error.message) : .refused(reason: error.message))
            case .failure(.tooLong):
                answered(number, .refused(reason: AgentConnectionError.tooLong.message))
            case .failure(let error): answered(number, .waiting(reason: error.message))
            }
        }
    }

    /// Returns whether the agent was asked to register the presenter and hasn't replied. If so, calls `body` after the
    /// reply.
    func isAwaitingAnswer(_ number: UInt64, then body: @escaping @Sendable () -> Void) -> Bool {
        state.withLock { state in
            guard state.presenters[number]?.isAsking == true else { return false }
            state.presenters[number]?.whenAnswered.append(body)
            return true
        }
    }

    /// Registers all presenters that the agent doesn't know.
    func registerMissing() {
        for number in state.withLock({ $0.presenters.filter { $0.value.remote == nil }.keys.sorted() }) {
            register(number)
        }
    }

    private func registered(_ number: UInt64, as item: ClaimedItem, _ reply: AgentClient.Reply) {
        guard let known = reply.object.string("presenter").flatMap({ WireNumber($0, .presenter) })?.value else {
            return answered(number, .refused(reason: "the agent sent a presenter without a number"))
        }
        // The claims under way may be missing, and each of them keeps the presenter from its item.
        guard reply.object.bool("truncated") != true else {
            client.request(.unpresent(presenter: known), on: reply.generation)
            return answered(number, .refused(reason: "too many claims on the item are under way"))
        }
        let remote = RemoteNumber(number: known, generation: reply.generation)
        let claims = reply.object.claims("waits_for").map { Self.number(of: $0, reply.generation) }
        let (isWanted, hasMoved) = state.withLock { state in
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
        client.request(.unpresent(presenter: known), on: reply.generation)
        // The item was moved meanwhile.
        if hasMoved { register(number) }
    }

    /// Records the agent's reply.
    ///
    /// - Parameter claims: The claims that were already under way.
    private func answered(_ number: UInt64, _ registration: FilePresenterRegistration, _ claims: [UInt64] = []) {
        typealias Recipient = (first: (@Sendable () -> Void)?, receive: @Sendable (PresenterMessage) -> Void)
        let (recipient, isNew, waiting) = state.withLock { state -> (Recipient?, Bool, [@Sendable () -> Void]) in
            guard let found = state.presenters[number] else { return (nil, false, []) }
            state.presenters[number]?.isAsking = false
            state.presenters[number]?.registration = registration
            if state.presenters[number]?.firstAnswer.take() != nil { state.presenters[number]?.waitsFor = claims }
            state.presenters[number]?.whenAnswered = []
            return ((found.firstAnswer, found.receive), found.registration != registration, found.whenAnswered)
        }
        guard let recipient else { return }
        defer { for body in waiting { body() } }
        if let first = recipient.first { return first() }
        if isNew { recipient.receive(.registration(registration)) }
        // The presenter may have its item open, which those claims don't know. Nobody waits for the reply.
        for claim in claims { recipient.receive(.request(claim: claim, .relinquish(.writer))) }
    }

    /// Moves presenters with their items. `agentFollows` is true if the agent was informed and moves its presenters
    /// itself.
    func moved(_ moves: [ClaimState.Outcome.Move], agentFollows: Bool) {
        var movedPresenters: Set<UInt64> = []
        for move in moves {
            for (number, presenter) in state.withLock({ $0.presenters }) {
                guard let item = move.destination(of: presenter.item), item != presenter.item else { continue }
                moved(number, to: item)
                movedPresenters.insert(number)
            }
        }
        guard !agentFollows else { return }
        for number in movedPresenters.sorted() { reregister(number) }
    }

    /// Registers the presenter with its current item.
    private func reregister(_ number: UInt64) {
        let found = state.withLock { state -> Presenter? in
            guard let found = state.presenters[number], found.remote != nil else { return nil }
            state.presenters[number]?.remote = nil
            state.presenters[number]?.relinquished = []
            return found
        }
        guard let found, let remote = found.remote else { return }
        client.request(.unpresent(presenter: remote.number), on: remote.generation)
        // The agent no longer counts it as having let go, so nobody else reports the end of those claims.
        for claim in found.relinquished.sorted() { found.receive(.notice(claim: claim, .reacquire)) }
        register(number)
    }

    private func moved(_ number: UInt64, to item: ClaimedItem) {
        // Not under the lock: this process's registry calls back under its own.
        let inProcess = state.withLock { state in
            state.presenters[number]?.item = item
            return state.presenters[number]?.local
        }
        if let inProcess { local.move(inProcess, to: item) }
    }
}

// MARK: - Connection

extension RemoteRegistry {
    func agentConnected(generation: UInt64) {
        registerMissing()
        requestWaitingClaims()
    }

    func agentSent(type: String, _ object: JSONObject, generation: UInt64) {
        if type == AgentConfigured.type {
            registerMissing()
            return requestWaitingClaims()
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

    /// Handles a lost connection. Nobody reports the end of claims any more, so a presenter that had let go waits until
    /// nobody holds the locks.
    func agentDisconnected(generation: UInt64) {
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
        let reacquire: @Sendable () -> Void = {
            // Nobody reports either what happened to the item meanwhile.
            presenter.receive(.notice(claim: 0, .didChange(nil)))
            for claim in presenter.relinquished.sorted() { presenter.receive(.notice(claim: claim, .reacquire)) }
        }
        let thread = try? SystemThread(name: "gs-return") { [weak self, container, lossTime] in
            // Stops when the registry or its presenter is gone, because nobody wants the item back then.
            while let item = self?.state.withLock({ $0.presenters[number]?.item }) {
                let isFree = Self.waitUntilFree(item, container, lossTime) { [weak self] in
                    self?.state.withLock { $0.presenters[number]?.item } != item
                }
                if isFree { return reacquire() }
            }
        }
        if thread == nil { reacquire() }
    }

    /// Waits until the item is free. Returns false if another process holds it all the time, or if `isOver`.
    private static func waitUntilFree(
        _ item: ClaimedItem, _ container: GroupContainer, _ time: Duration, isOver: @escaping @Sendable () -> Bool
    ) -> Bool {
        // If the item can't be claimed, its presenter resumes and finds out by itself.
        guard let container = try? container.current(),
            let claim = try? Claim([ClaimIntent(item, .read(.withoutChanges))], in: container)
        else { return true }
        defer { claim.release() }
        let wait = ClaimWait(Deadline(after: time), isCancelled: isOver)
        do {
            try claim.joinQueue(wait)
            try claim.acquire(wait)
            return true
        } catch {
            return !(error is ClaimWait.TimedOut || error is ClaimWait.Cancelled)
        }
    }
}
