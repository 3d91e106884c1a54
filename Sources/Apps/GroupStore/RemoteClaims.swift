import AgentProtocol
import FileCoordination
import LinuxSystem
import Synchronization

/// A claim of this process.
struct ClaimRequest: Sendable {
    let number: UInt64
    let intents: [ClaimIntent]
    /// The claimant's own presenter.
    let own: UInt64?
    let deadline: Deadline
    let settled: @Sendable (ClaimSettlement) -> Void
}

/// The progress of a claim.
enum RemoteClaimState: Sendable {
    /// A claim that began without an agent. If one comes while the claim waits for locks, it is asked as well: it may
    /// know the processes that hold them.
    struct Local: Sendable {
        /// The claim's number in this process's registry.
        let number: UInt64
        let request: ClaimRequest
        var remote: RemoteNumber?
        var isAsking = false
        var hasEntered = false
        /// The refusal of a presenter in another process that can't let go.
        var refusal: ClaimState.Refusal?

        /// Returns whether the agent of that connection may help and doesn't know the claim yet.
        func wantsAgent(_ generation: UInt64) -> Bool {
            !hasEntered && !isAsking && remote?.generation != generation
        }
    }

    /// Looking for an agent, or waiting for its reply.
    case asking
    case remote(RemoteNumber, ClaimRequest)
    case local(Local)
    /// The claim ended with this outcome before the agent replied.
    case ended(ClaimState.Outcome)
}

// The claims of this process. The agent asks the presenters of all processes; if no agent serves the group, this
// process asks its own.
extension RemoteRegistry {
    func begin(
        _ intents: [ClaimIntent], excluding own: UInt64?, deadline: Duration,
        settled: @escaping @Sendable (ClaimSettlement) -> Void
    ) -> UInt64 {
        client.start()
        let number = state.withLock { state in
            let number = state.number()
            state.claims[number] = .asking
            return number
        }
        let request = ClaimRequest(
            number: number, intents: intents, own: own, deadline: Deadline(after: deadline), settled: settled)
        client.afterConnectionAttempt { [weak self] in self?.ask(request) }
        return number
    }

    private func ask(_ request: ClaimRequest) {
        guard isWanted(request.number), !isAwaitingOwnRegistration(request, then: { $0.ask(request) }) else { return }
        guard let (generation, operation) = operation(request) else { return beginLocally(request) }
        client.request(.claim(operation), on: generation) { [weak self] result in
            guard let self else { return }
            switch result {
            case .success(let reply):
                guard let claim = reply.object.string("claim").flatMap({ WireNumber($0, .claim) })?.value else {
                    return refused(request, .failed("the agent sent a claim without a number"))
                }
                let remote = RemoteNumber(number: claim, generation: generation)
                if granted(request, remote) { request.settled(.granted) }
            // The agent serves other groups; for this one there is no agent.
            case .failure(.refused(let error)) where error.code == "unknown_store": beginLocally(request)
            case .failure(.refused(let error)): refused(request, ClaimSettlement(error))
            case .failure(.tooLong): refused(request, .failed(AgentConnectionError.tooLong.message))
            // Another agent may have started; without one nobody else can be asked.
            case .failure: client.afterConnectionAttempt { [weak self] in self?.ask(request) }
            }
        }
    }

    /// Settles a claim that the agent refused. The agent doesn't know it, so its end isn't reported.
    private func refused(_ request: ClaimRequest, _ settlement: ClaimSettlement) {
        guard isWanted(request.number) else { return }
        state.withLock { $0.claims[request.number] = nil }
        request.settled(settlement)
    }

    /// Returns whether the agent has yet to register the claimant's own presenter, and runs `body` once it has. An
    /// agent that doesn't know that presenter would ask it about the claim.
    private func isAwaitingOwnRegistration(
        _ request: ClaimRequest, then body: @escaping @Sendable (RemoteRegistry) -> Void
    ) -> Bool {
        guard let own = request.own else { return false }
        return isAwaitingAnswer(own) { [weak self] in if let self { body(self) } }
    }

    /// Returns the request, or nil if there is no agent or an item can't be sent.
    private func operation(_ request: ClaimRequest) -> (generation: UInt64, ClaimOperation)? {
        guard let generation = client.generation else { return nil }
        let known = request.own.flatMap { own in state.withLock { $0.presenters[own]?.remote } }
        let presenter = known?.generation == generation ? known?.number : nil
        return ClaimOperation(request.intents, presenter, request.deadline.remaining ?? .zero).map { (generation, $0) }
    }

    /// Records a granted claim. Returns false if the claim has ended meanwhile; the agent is informed then.
    private func granted(_ request: ClaimRequest, _ remote: RemoteNumber) -> Bool {
        let outcome = state.withLock { state -> ClaimState.Outcome? in
            switch state.claims[request.number] {
            case .asking:
                state.claims[request.number] = .remote(remote, request)
                return nil
            case .local(var claim):
                (claim.remote, claim.isAsking) = (remote, false)
                state.claims[request.number] = .local(claim)
                return nil
            case .ended(let outcome):
                state.claims[request.number] = nil
                return outcome
            case .remote, nil: return ClaimState.Outcome(tookPlace: false)
            }
        }
        guard let outcome else { return true }
        release(remote, outcome)
        return false
    }

    /// Returns whether the claimant still waits. If it has given up, its claim is forgotten.
    private func isWanted(_ number: UInt64) -> Bool {
        state.withLock { state in
            if case .asking? = state.claims[number] { return true }
            if case .ended? = state.claims[number] { state.claims[number] = nil }
            return false
        }
    }

    private func beginLocally(_ request: ClaimRequest) {
        guard isWanted(request.number) else { return }
        let own = request.own.flatMap { own in state.withLock { $0.presenters[own]?.local } }
        var abandoned: UInt64?
        local.begin(request.intents, excluding: own) { inProcess in
            state.withLock { state in
                // Claims end on another thread.
                guard case .asking? = state.claims[request.number] else {
                    state.claims[request.number] = nil
                    return abandoned = inProcess
                }
                state.claims[request.number] = .local(RemoteClaimState.Local(number: inProcess, request: request))
            }
        } settled: { _, settlement in
            request.settled(settlement)
        }
        if let abandoned { local.end(abandoned, ClaimState.Outcome(tookPlace: false)) }
    }

    // MARK: Agents that connect later

    /// Asks the agent about waiting claims that it doesn't know.
    func requestWaitingClaims() {
        guard let generation = client.generation else { return }
        let waiting = state.withLock { state in
            state.claims.compactMap { number, claim -> ClaimRequest? in
                guard case .local(let claim) = claim, claim.wantsAgent(generation) else { return nil }
                return claim.request
            }
        }
        for request in waiting.sorted(by: { $0.number < $1.number }) { askNewAgent(request) }
    }

    private func askNewAgent(_ request: ClaimRequest) {
        guard !isAwaitingOwnRegistration(request, then: { $0.askNewAgent(request) }),
            let (generation, operation) = operation(request)
        else { return }
        let isWanted = state.withLock { state in
            guard case .local(var claim)? = state.claims[request.number], claim.wantsAgent(generation) else {
                return false
            }
            claim.isAsking = true
            state.claims[request.number] = .local(claim)
            return true
        }
        guard isWanted else { return }
        client.request(.claim(operation), on: generation) { [weak self] result in
            guard let self else { return }
            switch result {
            case .success(let reply):
                guard let claim = reply.object.string("claim").flatMap({ WireNumber($0, .claim) })?.value else {
                    return notGranted(request.number, nil)
                }
                _ = granted(request, RemoteNumber(number: claim, generation: generation))
            case .failure(.refused(let error)):
                guard case .refused(let refusal) = ClaimSettlement(error) else {
                    return notGranted(request.number, nil)
                }
                notGranted(request.number, refusal)
            case .failure(.tooLong): notGranted(request.number, nil)
            case .failure:
                notGranted(request.number, nil)
                // The next agent connected while this one was waited for, and nobody has asked it about this claim.
                if let next = client.generation, next != generation { askNewAgent(request) }
            }
        }
    }

    /// Continues without the agent, unless a presenter can't let go.
    private func notGranted(_ number: UInt64, _ refusal: ClaimState.Refusal?) {
        state.withLock { state in
            guard case .local(var claim)? = state.claims[number] else { return state.claims[number] = nil }
            (claim.isAsking, claim.refusal) = (false, refusal)
            state.claims[number] = .local(claim)
        }
    }

    func lateRefusal(of claim: UInt64) -> ClaimSettlement? {
        guard case .local(let found)? = state.withLock({ $0.claims[claim] }) else { return nil }
        return found.refusal.map { .refused($0) }
    }

    func didAcquire(_ claim: UInt64) {
        state.withLock { state in
            guard case .local(var found)? = state.claims[claim] else { return }
            found.hasEntered = true
            state.claims[claim] = .local(found)
        }
    }

    // MARK: Ending

    func unanswered(_ claim: UInt64) -> [FileHolder] {
        guard case .local(let found)? = state.withLock({ $0.claims[claim] }) else { return [] }
        return local.unanswered(found.number)
    }

    func unresponsiveReason(for claim: UInt64) -> String? {
        guard case .asking? = state.withLock({ $0.claims[claim] }) else { return nil }
        return "the agent at \(PrintablePath(socket)) did not answer in time"
    }

    func end(_ claim: UInt64, _ outcome: ClaimState.Outcome) {
        let found: RemoteClaimState? = state.withLock { state in
            guard let found = state.claims.removeValue(forKey: claim) else { return nil }
            switch found {
            case .asking: state.claims[claim] = .ended(outcome)
            case .local(let local) where local.isAsking: state.claims[claim] = .ended(outcome)
            case .local, .remote, .ended: break
            }
            return found
        }
        switch found {
        case .local(let found):
            local.end(found.number, outcome)
            let isKnown = found.remote.map { release($0, outcome) } ?? false
            if outcome.tookPlace { moved(outcome.moves, agentFollows: isKnown) }
        case .remote(let remote, let request):
            let pendingNotices = outcome.tookPlace ? pendingNotices(of: request, outcome) : []
            let isKnown = release(remote, outcome) { [weak self] in self?.deliver(pendingNotices) }
            if outcome.tookPlace { moved(outcome.moves, agentFollows: isKnown) }
        case .asking, .ended, nil: break
        }
    }

    /// Releases a claim. Calls `lost` if the agent, and with it the claim, is gone and may not have received the end.
    /// Returns false if it was gone before.
    @discardableResult
    private func release(
        _ remote: RemoteNumber, _ outcome: ClaimState.Outcome, lost: @escaping @Sendable () -> Void = {}
    ) -> Bool {
        let moves = outcome.moves.compactMap { move -> ReleaseOperation.Move? in
            guard let from = ItemAddress(move.from), let to = ItemAddress(move.to) else { return nil }
            return ReleaseOperation.Move(from: from, to: to)
        }
        let operations = ReleaseOperation.all(claim: remote.number, tookPlace: outcome.tookPlace, moves: moves)
        for operation in operations.dropLast() { client.request(.release(operation), on: remote.generation) }
        guard let last = operations.last else { return false }
        return client.request(.release(last), on: remote.generation) { result in
            switch result {
            case .success, .failure(.refused): break
            case .failure: lost()
            }
        }
    }

    // MARK: Lost agents

    /// Notices that this process must deliver to one of its presenters if no agent does.
    private struct PendingNotices: Sendable {
        let presenter: UInt64
        /// The item before and after the moves.
        let items: Set<ClaimedItem>
        let notices: [PresenterNotice]
    }

    /// Returns the notices. Called before the presenters follow their items, because the notices depend on where they
    /// were.
    private func pendingNotices(of request: ClaimRequest, _ outcome: ClaimState.Outcome) -> [PendingNotices] {
        state.withLock { $0.presenters }.sorted { $0.key < $1.key }.compactMap { number, presenter in
            guard number != request.own else { return nil }
            let notices = ClaimState.notices(of: outcome.moves, request.intents, to: presenter.item)
            let last = outcome.moves.reduce(presenter.item) { $1.destination(of: $0) ?? $0 }
            return notices.isEmpty
                ? nil : PendingNotices(presenter: number, items: [presenter.item, last], notices: notices)
        }
    }

    /// Delivers notices in place of a lost agent, except to a presenter that has moved on since and was notified of
    /// that.
    private func deliver(_ pendingNotices: [PendingNotices]) {
        for one in pendingNotices {
            guard let found = state.withLock({ $0.presenters[one.presenter] }), one.items.contains(found.item) else {
                continue
            }
            for notice in one.notices { found.receive(.notice(claim: 0, notice)) }
        }
    }
}
