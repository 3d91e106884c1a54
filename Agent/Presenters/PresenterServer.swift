import AgentProtocol
import FileCoordination
import LinuxSystem
import Synchronization

/// Serves the file presenters and claims of all connected processes: it translates the wire protocol into calls of the
/// registry that relocations use too. Any thread may call it.
package final class PresenterServer: Sendable {
    package let registry = InProcessRegistry()
    private let publisher: Publisher
    private let configuration: CurrentConfiguration
    private let feed: FeedControl
    private let state = Mutex(State())
    private let changeListener = Mutex<(@Sendable (StoreAddress) -> Void)?>(nil)

    private struct State {
        var presenters: [UInt64: Set<UInt64>] = [:]
        var claims: [UInt64: Claimant] = [:]
        /// Claims that a presenter refused, still to be ended.
        var refused: [UInt64] = []
    }

    /// The maximum number of presenters of one connection.
    static let maximumPresenters = 1024
    /// The maximum number of moves that one claim reports.
    static let maximumMoves = 4096

    package init(publisher: Publisher, configuration: CurrentConfiguration, feed: FeedControl) {
        self.publisher = publisher
        self.configuration = configuration
        self.feed = feed
    }

    /// Sets a listener that is called when a presenter of a store comes or goes: a store that was busy may now be
    /// available.
    package func onChange(_ listener: @escaping @Sendable (StoreAddress) -> Void) {
        changeListener.withLock { $0 = listener }
    }

    private var items: ServedItems { ServedItems(configuration: configuration) }

    private func presentersChanged(_ store: StoreAddress) { changeListener.withLock { $0 }?(store) }

    /// Removes the presenters and claims of a connection that can't answer any more.
    func forget(_ connection: UInt64) {
        let (presenters, claims) = state.withLock { state in
            let claims = state.claims.filter { $0.value.connection == connection }.map(\.key)
            for claim in claims { end(claim, &state) }
            return (state.presenters.removeValue(forKey: connection) ?? [], claims)
        }
        for claim in claims { registry.end(claim, ClaimState.Outcome(tookPlace: true)) }
        for presenter in presenters.sorted() {
            // A process that has ended holds nothing. Another one may have its item open and was about to answer.
            let hasEnded = registry.holder(of: presenter).map { !$0.isElsewhere && $0.pid != 0 && !$0.isRunning }
            remove(presenter, failure: hasEnded == true ? nil : "its connection ended before it answered")
        }
        endRefused()
    }

    /// Removes a claim. The feed follows its stores again.
    @discardableResult
    private func end(_ claim: UInt64, _ state: inout State) -> Claimant? {
        let ended = state.claims.removeValue(forKey: claim)
        if let ended, ended.isAnswered { for store in ended.moved { feed.resumeAfterClaim(store) } }
        return ended
    }

    private func remove(_ presenter: UInt64, failure: String? = nil) {
        let item = registry.item(of: presenter)
        registry.remove(presenter, failure: failure)
        if let store = item.flatMap(StoreAddress.init) { presentersChanged(store) }
    }
}

// MARK: - Presenters

extension PresenterServer {
    func present(
        _ operation: PresentOperation, id: JSONValue?, connection: UInt64, requester: Requester
    ) throws(WireError) {
        let isUntrusted = !requester.isTrusted
        let item = try items.item(operation.item)
        guard state.withLock({ $0.presenters[connection, default: []].count < Self.maximumPresenters }) else {
            throw WireError(
                code: "too_many_presenters", "a connection has at most \(Self.maximumPresenters) presenters",
                hint: "use another connection")
        }
        let number = Mutex<UInt64>(0)
        registry.add(item, operation.holder(requester.peer), versions: operation.models.map { Set($0) }) {
            [self] message in
            if let line = event(
                message, to: number.withLock { $0 }, presented: operation.item, isUntrusted: isUntrusted)
            {
                publisher.send(connection, [line])
            }
        } announce: { presenter, waitsFor in
            number.withLock { $0 = presenter }
            state.withLock { _ = $0.presenters[connection, default: []].insert(presenter) }
            var reply: JSONObject = ["presenter": WireNumber(.presenter, presenter).json]
            if let path = items.path(of: operation.item, isUntrusted: isUntrusted) {
                reply.setPath("path", bytes: path.bytes)
            }
            if !waitsFor.isEmpty { reply["waits_for"] = .array(waitsFor.map { WireNumber(.claim, $0).json }) }
            publisher.answer(connection, .reply(id: id, reply))
        }
        if let store = StoreAddress(item) { presentersChanged(store) }
    }

    func unpresent(_ presenter: UInt64, id: JSONValue?, connection: UInt64) throws(WireError) {
        guard state.withLock({ $0.presenters[connection]?.remove(presenter) }) != nil else {
            throw .unknownPresenter(presenter)
        }
        remove(presenter)
        publisher.answer(connection, .reply(id: id, [:]))
    }

    func answer(_ operation: AnswerOperation, id: JSONValue?, connection: UInt64) throws(WireError) {
        let ownPresenters = state.withLock { $0.presenters[connection] ?? [] }
        let presenter = ownPresenters.sorted().first { presenter in
            (operation.presenter ?? presenter) == presenter
                && registry.pendingRequest(of: presenter, for: operation.claim)?.answer == operation.request
        }
        guard let presenter, let request = registry.pendingRequest(of: presenter, for: operation.claim),
            registry.answer(presenter, claim: operation.claim, request, failure: operation.failure)
        else {
            throw WireError(
                code: "unknown_claim", "this connection was not asked that, or the claim is over",
                hint: "nothing is to be done; wait for reacquire")
        }
        publisher.answer(connection, .reply(id: id, [:]))
        endRefused()
    }

    /// Ends the refused claims, so that presenters that have let go reacquire their item.
    private func endRefused() {
        let refused = state.withLock { state in
            defer { state.refused = [] }
            return state.refused
        }
        for claim in refused { registry.end(claim, ClaimState.Outcome(tookPlace: false)) }
    }

    private func event(
        _ message: PresenterMessage, to presenter: UInt64, presented: ItemAddress, isUntrusted: Bool
    ) -> AgentMessage? {
        let (claim, event) = PresenterEvent.of(message)
        guard let event else { return nil }
        var current = presented
        if case .didMove(let to, nil) = event { current = to }
        let until = state.withLock { $0.claims[claim]?.deadline }
        let seconds = until.map { max(0, ContinuousClock.now.duration(to: $0).seconds) }
        let line = event.json(
            item: presented, presenter: presenter, claim: claim,
            path: items.path(of: current, isUntrusted: isUntrusted)?.bytes,
            deadline: event.wantsAnswer ? seconds ?? configuration.value.claimDeadline.seconds : nil)
        return .event(type: event.type, line)
    }
}

// MARK: - Claims

extension PresenterServer {
    func claim(
        _ operation: ClaimOperation, id: JSONValue?, connection: UInt64, requester: Requester
    ) throws(WireError) {
        var intents: [ClaimIntent] = []
        for intent in operation.intents { intents.append(try ClaimIntent(intent, items.item(intent.item))) }
        if let own = operation.presenter, state.withLock({ $0.presenters[connection]?.contains(own) }) != true {
            throw .unknownPresenter(own)
        }
        publisher.expectAnswer(connection)
        let claimant = Claimant(
            connection: connection, id: id,
            deadline: .now.advanced(by: .milliseconds(Int64(operation.deadline * 1000))),
            isUntrusted: !requester.isTrusted,
            intents: intents)
        registry.begin(intents, excluding: operation.presenter) { [self] number in
            state.withLock { $0.claims[number] = claimant }
        } settled: { [self] number, settlement in
            settled(number, settlement)
        }
    }

    /// Answers the claimant, once.
    private func settled(_ claim: UInt64, _ settlement: ClaimSettlement) {
        let claimant: Claimant? = state.withLock { state in
            guard let found = state.claims[claim], !found.isAnswered else { return nil }
            // A refused claim is over for the client; there is nothing to release.
            if settlement == .granted { state.claims[claim]?.isAnswered = true } else { state.claims[claim] = nil }
            // The registry holds its lock during this call, so that the claim is ended later.
            if case .refused = settlement { state.refused.append(claim) }
            return found
        }
        guard let claimant else { return }
        let answer: AgentMessage =
            switch settlement {
            case .granted: .reply(id: claimant.id, ["claim": WireNumber(.claim, claim).json])
            case .refused(let refusal):
                .failure(id: claimant.id, .refused(by: refusal, isUntrusted: claimant.isUntrusted))
            case .unanswered(let holders): .failure(id: claimant.id, .unanswered(by: holders))
            case .failed(let reason):
                .failure(id: claimant.id, WireError(code: "failed", claimant.isUntrusted ? "the claim failed" : reason))
            }
        let stores = settlement == .granted ? claimant.moved : []
        guard !stores.isEmpty else { return publisher.answer(claimant.connection, answer, wasExpected: true) }
        // The lock orders this before the end of the claim.
        state.withLock { state in
            guard state.claims[claim] != nil else { return }
            feed.release(stores) { [publisher] in
                publisher.answer(claimant.connection, answer, wasExpected: true)
            }
        }
    }

    func release(_ operation: ReleaseOperation, id: JSONValue?, connection: UInt64) throws(WireError) {
        let moves = operation.moves.compactMap { move -> ClaimState.Outcome.Move? in
            guard let from = ClaimedItem(move.from), let to = ClaimedItem(move.to) else { return nil }
            return ClaimState.Outcome.Move(from: from, to: to)
        }
        let claimant = state.withLock { $0.claims[operation.claim] }
        guard let claimant, claimant.connection == connection else { throw .unknownClaim }
        // Presenters follow the moves they are told of. Another user may move only what their claim covers.
        if claimant.isUntrusted, let uncovered = moves.first(where: { !claimant.covers($0.from) }) {
            throw .unknownItem(of: uncovered.from.container)
        }
        if operation.hasMore {
            let isStored = state.withLock { state in
                guard state.claims[operation.claim]?.moves.count ?? 0 < Self.maximumMoves else { return false }
                state.claims[operation.claim]?.moves += moves
                return true
            }
            guard isStored else {
                throw WireError(code: "bad_request", "a claim has at most \(Self.maximumMoves) moves")
            }
            return publisher.answer(connection, .reply(id: id, [:]))
        }
        guard let ended = state.withLock({ end(operation.claim, &$0) }) else {
            throw .unknownClaim
        }
        registry.end(
            operation.claim, ClaimState.Outcome(tookPlace: operation.tookPlace, moves: ended.moves + moves))
        publisher.answer(connection, .reply(id: id, [:]))
    }

    /// The time until the next claim expires; nil if no claimant waits.
    func timeUntilDeadline() -> Duration? {
        let next = state.withLock { $0.claims.values.filter { !$0.isAnswered }.map(\.deadline).min() }
        return next.map { max(.zero, ContinuousClock.now.duration(to: $0)) }
    }

    /// Ends the claims whose presenters missed the deadline.
    func expire() {
        let now = ContinuousClock.now
        let late = state.withLock { state in
            state.claims.filter { !$0.value.isAnswered && $0.value.deadline <= now }.map(\.key)
        }
        for claim in late {
            settled(claim, .unanswered(registry.unanswered(claim)))
            registry.end(claim, ClaimState.Outcome(tookPlace: false))
        }
    }
}
