import AgentProtocol
import FileCoordination
import LinuxSystem
import Synchronization
import SystemPackage

/// Serves the file presenters and claims of all connected processes: it translates the wire protocol into calls of the
/// registry that relocations use too. Any thread may call it.
package final class PresenterServer: Sendable {
    package let registry = InProcessRegistry()
    private let publisher: Publisher
    private let configuration: CurrentConfiguration
    private let state = Mutex(State())
    private let changeListener = Mutex<(@Sendable (StoreAddress) -> Void)?>(nil)

    private struct Claimant {
        let connection: UInt64
        let id: JSONValue?
        let deadline: ContinuousClock.Instant
        /// True for a user who may not read what presenters say to the agent's own user.
        let isUntrusted: Bool
        let intents: [ClaimIntent]
        var isAnswered = false
        /// The moves that its earlier requests to release it reported.
        var moves: [ClaimState.Outcome.Move] = []

        /// Returns true if the claim allows the item to be moved or deleted.
        func covers(_ item: ClaimedItem) -> Bool {
            intents.contains { $0.writes && ($0.item == item || item.isInside($0.item)) }
        }
    }

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

    package init(publisher: Publisher, configuration: CurrentConfiguration) {
        self.publisher = publisher
        self.configuration = configuration
    }

    /// Sets a listener that is called when a presenter of a store comes or goes: a store that was busy may now be
    /// available.
    package func onChange(_ listener: @escaping @Sendable (StoreAddress) -> Void) {
        changeListener.withLock { $0 = listener }
    }

    private func presentersChanged(_ store: StoreAddress) { changeListener.withLock { $0 }?(store) }

    /// Removes the presenters and claims of a connection that can't answer any more.
    func forget(_ connection: UInt64) {
        let (presenters, claims) = state.withLock { state in
            let claims = state.claims.filter { $0.value.connection == connection }.map(\.key)
            for claim in claims { state.claims[claim] = nil }
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
        let item = try servedItem(operation.item)
        guard state.withLock({ $0.presenters[connection, default: []].count < Self.maximumPresenters }) else {
            throw WireError(
                code: "too_many_presenters", "a connection has at most \(Self.maximumPresenters) presenters",
                hint: "use another connection")
        }
        let number = Mutex<UInt64>(0)
        registry.add(item, Self.holder(operation, requester.peer), versions: operation.models.map { Set($0) }) {
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
            if let path = path(of: operation.item, isUntrusted: isUntrusted) {
                reply.setPath("path", bytes: path.bytes)
            }
            if !waitsFor.isEmpty { reply["waits_for"] = .array(waitsFor.map { WireNumber(.claim, $0).json }) }
            publisher.answer(connection, .reply(id: id, reply))
        }
        if let store = StoreAddress(item) { presentersChanged(store) }
    }

    /// Returns the presenting process. The kernel names the peer; if the kernel can't, the peer's own words count.
    private static func holder(_ operation: PresentOperation, _ peer: PeerCredentials) -> FileHolder {
        guard peer.pid != 0 else {
            return FileHolder(pid: operation.pid ?? 0, program: operation.program ?? "?", isElsewhere: true)
        }
        return FileHolder(
            pid: peer.pid, program: FileHolder.program(of: peer.pid),
            isElsewhere: operation.pid.map { $0 != peer.pid } ?? false)
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
            path: path(of: current, isUntrusted: isUntrusted)?.bytes,
            deadline: event.wantsAnswer ? seconds ?? configuration.value.claimDeadline.seconds : nil)
        return .event(type: event.type, line)
    }

    /// Returns the item's path as the agent sees it, for display. A store that is still to be relocated is at its
    /// legacy path.
    private func path(of item: ItemAddress, isUntrusted: Bool) -> FilePath? {
        guard let group = configuration.value.group(item.group), let relative = FilePath(bytes: item.path) else {
            return nil
        }
        let path = group.directory.pushing(relative)
        guard !isUntrusted, FileStatus(following: path) == nil, let name = relative.lastComponent,
            relative.components.count == 1
        else { return path }
        return group.store(named: name)?.legacy.first { FileStatus(following: $0) != nil } ?? path
    }

    private func servedItem(_ address: ItemAddress) throws(WireError) -> ClaimedItem {
        guard configuration.value.group(address.group) != nil, let item = ClaimedItem(address) else {
            throw .unknownItem(of: address.group)
        }
        guard !item.isBookkeeping else {
            throw WireError(
                code: "bad_request", ".groupstore is groupstore's own, and can't be presented or claimed",
                hint: "name another file of the group")
        }
        return item
    }
}

// MARK: - Claims

extension PresenterServer {
    func claim(
        _ operation: ClaimOperation, id: JSONValue?, connection: UInt64, requester: Requester
    ) throws(WireError) {
        var intents: [ClaimIntent] = []
        for intent in operation.intents { intents.append(try ClaimIntent(intent, servedItem(intent.item))) }
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
        publisher.answer(claimant.connection, answer, wasExpected: true)
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
        guard let ended = state.withLock({ $0.claims.removeValue(forKey: operation.claim) }) else {
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

extension WireError {
    fileprivate static func unknownPresenter(_ number: UInt64) -> WireError {
        WireError(
            code: "unknown_presenter", "this connection has no presenter p\(number)",
            hint: "use the number that present returned")
    }

    fileprivate static var unknownClaim: WireError {
        WireError(code: "unknown_claim", "this connection has no such claim", hint: "it may be over")
    }

    static func unknownItem(of group: String) -> WireError {
        WireError(
            code: "unknown_store", "the agent does not serve group \(group)",
            hint: "name a group of the agent's configuration: GROUP_ID/NAME")
    }

    fileprivate static func refused(by refusal: ClaimState.Refusal, isUntrusted: Bool) -> WireError {
        let reason = isUntrusted ? "" : ": \(refusal.message)"
        return WireError(
            code: "presenter_failed", "\(refusal.presenter) can't let go\(reason)",
            hint: "see what that program says, then try again", holders: [.init(refusal.presenter)])
    }

    fileprivate static func unanswered(by holders: [FileHolder]) -> WireError {
        WireError(
            code: "busy", "presented by \(holders.list), which did not answer",
            hint: "is it stopped? end it, or try again", holders: holders.map { .init($0) })
    }
}
