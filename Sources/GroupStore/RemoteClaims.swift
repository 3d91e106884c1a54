import AgentProtocol
import FileCoordination
import LinuxSystem
import Synchronization

// The claims of this process: the agent asks the presenters of all processes, and where none serves the group, this
// process asks its own.
extension RemoteRegistry {
    /// One claim, until it is granted.
    private struct Request: Sendable {
        let number: UInt64
        let intents: [ClaimIntent]
        /// The claimant's own presenter.
        let own: UInt64?
        let deadline: Deadline
        let settled: @Sendable (ClaimSettlement) -> Void
    }

    func begin(
        _ intents: [ClaimIntent], own: UInt64?, deadline: Duration,
        settled: @escaping @Sendable (ClaimSettlement) -> Void
    ) -> UInt64 {
        link.start()
        let number = state.withLock { state in
            let number = state.number()
            state.claims[number] = .asking
            return number
        }
        let request = Request(
            number: number, intents: intents, own: own, deadline: Deadline(after: deadline), settled: settled)
        link.whenDecided { [weak self] in self?.ask(request) }
        return number
    }

    private func ask(_ request: Request) {
        guard isAsking(request.number) else { return }
        let presenter = request.own.flatMap { own in state.withLock { $0.presenters[own] } }
        guard let generation = link.generation,
            let operation = ClaimOperation(request.intents, presenter?.remote, request.deadline.remaining ?? .zero)
        else { return beginLocally(request) }
        link.request(.claim(operation)) { [weak self] result in
            guard let self else { return }
            switch result {
            case .success(let reply):
                guard let claim = reply.string("claim").flatMap({ WireNumber($0, .claim) })?.value else {
                    return request.settled(.failed("the agent sent a claim without a number"))
                }
                granted(request, claim, generation)
            // It serves other groups: for this one there is no agent.
            case .failure(.refused(let error)) where error.code == "unknown_store": beginLocally(request)
            case .failure(.refused(let error)):
                if isAsking(request.number) { request.settled(ClaimSettlement(error)) }
            // Another agent may be there; without one nobody else can be asked.
            case .failure: link.whenDecided { [weak self] in self?.ask(request) }
            }
        }
    }

    private func granted(_ request: Request, _ claim: UInt64, _ generation: UInt64) {
        guard isAsking(request.number) else {
            return link.request(.release(ReleaseOperation(claim: claim, tookPlace: false)))
        }
        state.withLock { $0.claims[request.number] = .remote(claim, generation: generation) }
        request.settled(.granted)
    }

    /// False when the claimant has given up meanwhile; nothing is kept of it then. Claims end on another thread, but
    /// one that ends between this and what follows was granted first.
    private func isAsking(_ number: UInt64) -> Bool {
        state.withLock { state in
            if case .asking? = state.claims[number] { return true }
            state.claims[number] = nil
            return false
        }
    }

    private func beginLocally(_ request: Request) {
        guard isAsking(request.number) else { return }
        let own = request.own.flatMap { own in state.withLock { $0.presenters[own]?.local } }
        local.begin(request.intents, own: own) { inProcess in
            state.withLock { $0.claims[request.number] = .local(inProcess) }
        } settled: { _, settlement in
            request.settled(settlement)
        }
    }

    func unanswered(_ claim: UInt64) -> [FileHolder] {
        guard case .local(let number)? = state.withLock({ $0.claims[claim] }) else { return [] }
        return local.unanswered(number)
    }

    func silence(of claim: UInt64) -> String? {
        guard case .asking? = state.withLock({ $0.claims[claim] }) else { return nil }
        return "the agent at \(PrintablePath(socket)) did not answer in time"
    }

    func end(_ claim: UInt64, _ outcome: ClaimBoard.Outcome) {
        let found: ClaimState? = state.withLock { state in
            guard let found = state.claims.removeValue(forKey: claim) else { return nil }
            if case .asking = found { state.claims[claim] = .abandoned }
            return found
        }
        switch found {
        case .local(let number):
            local.end(number, outcome)
            if outcome.tookPlace { moved(outcome.moves, isKnownToAgent: false) }
        case .remote(let number, let generation):
            if outcome.tookPlace { moved(outcome.moves, isKnownToAgent: link.generation == generation) }
            guard link.generation == generation else { return }
            let moves = outcome.moves.compactMap { move -> ReleaseOperation.Move? in
                guard let from = ItemAddress(move.from), let to = ItemAddress(move.to) else { return nil }
                return ReleaseOperation.Move(from: from, to: to)
            }
            link.request(.release(ReleaseOperation(claim: number, tookPlace: outcome.tookPlace, moves: moves)))
        case .asking, .abandoned, nil: break
        }
    }
}
