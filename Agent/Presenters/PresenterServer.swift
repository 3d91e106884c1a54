import AgentProtocol
import FileCoordination
import LinuxSystem
import Synchronization
import SystemPackage

/// The file presenters and claims of all connected processes: what the wire says of them, as calls of the registry that
/// relocations use too. Any thread may call it.
package final class PresenterServer: Sendable {
    package let registry = InProcessRegistry()
    private let hub: Publisher
    private let configuration: CurrentConfiguration
    private let state = Mutex(State())
    private let changeListener = Mutex<(@Sendable (StoreAddress) -> Void)?>(nil)

    private struct Claimant {
        let connection: UInt64
        let id: JSONValue?
        let deadline: ContinuousClock.Instant
        /// Of a user who may not hear what presenters say to the agent's own.
        let isOthers: Bool
        let intents: [ClaimIntent]
        var isAnswered = false

        /// Whether the claim is one for taking it away.
        func covers(_ item: ClaimedItem) -> Bool {
            intents.contains { $0.writes && ($0.item == item || item.isInside($0.item)) }
        }
    }

    private struct State {
        var presenters: [UInt64: Set<UInt64>] = [:]
        var claims: [UInt64: Claimant] = [:]
        /// Refused by a presenter, and still to be ended.
        var refused: [UInt64] = []
    }

    /// More than this a connection may not have.
    static let mostPresenters = 1024

    package init(hub: Publisher, configuration: CurrentConfiguration) {
        self.hub = hub
        self.configuration = configuration
    }

    /// `listener` is told when a presenter of a store comes or goes: what had to be waited for may be had now.
    package func onChange(_ listener: @escaping @Sendable (StoreAddress) -> Void) {
        changeListener.withLock { $0 = listener }
    }

    private func presentersChanged(_ store: StoreAddress) { changeListener.withLock { $0 }?(store) }

    /// Everything of a connection that can't answer any more.
    func forget(_ connection: UInt64) {
        let (presenters, claims) = state.withLock { state in
            let claims = state.claims.filter { $0.value.connection == connection }.map(\.key)
            for claim in claims { state.claims[claim] = nil }
            return (state.presenters.removeValue(forKey: connection) ?? [], claims)
        }
        for claim in claims { registry.end(claim, ClaimState.Outcome(tookPlace: true)) }
        for presenter in presenters.sorted() { remove(presenter) }
    }

    private func remove(_ presenter: UInt64) {
        let item = registry.item(of: presenter)
        registry.remove(presenter)
        if let store = item.flatMap(StoreAddress.init) { presentersChanged(store) }
    }
}

// MARK: - Presenters

extension PresenterServer {
    func present(
        _ operation: PresentOperation, id: JSONValue?, _ connection: UInt64, _ asker: Requester
    ) throws(WireError) {
        let isOthers = !asker.isTrusted
        let item = try served(operation.item)
        guard state.withLock({ $0.presenters[connection, default: []].count < Self.mostPresenters }) else {
            throw WireError(
                code: "too_many_presenters", "a connection has at most \(Self.mostPresenters) presenters",
                hint: "use another connection")
        }
        let number = Mutex<UInt64>(0)
        registry.add(item, Self.holder(operation, asker.peer), versions: operation.models.map { Set($0) }) {
            [self] message in
            if let line = event(message, to: number.withLock { $0 }, presented: operation.item, isOthers: isOthers) {
                hub.send(connection, [line])
            }
        } announce: { presenter, waitsFor in
            number.withLock { $0 = presenter }
            state.withLock { _ = $0.presenters[connection, default: []].insert(presenter) }
            var reply: JSONObject = ["presenter": WireNumber(.presenter, presenter).json]
            if let path = path(of: operation.item, isOthers: isOthers) { reply.setPath("path", bytes: path.bytes) }
            if !waitsFor.isEmpty { reply["waits_for"] = .array(waitsFor.map { WireNumber(.claim, $0).json }) }
            hub.answer(connection, .reply(id: id, reply))
        }
        if let store = StoreAddress(item) { presentersChanged(store) }
    }

    /// The kernel names the peer; where it can't be seen from here, it names itself.
    private static func holder(_ operation: PresentOperation, _ peer: PeerCredentials) -> FileHolder {
        guard peer.pid != 0 else {
            return FileHolder(pid: operation.pid ?? 0, program: operation.program ?? "?", isElsewhere: true)
        }
        return FileHolder(
            pid: peer.pid, program: FileHolder.program(of: peer.pid),
            isElsewhere: operation.pid.map { $0 != peer.pid } ?? false)
    }

    func unpresent(_ presenter: UInt64, id: JSONValue?, _ connection: UInt64) throws(WireError) {
        guard state.withLock({ $0.presenters[connection]?.remove(presenter) }) != nil else {
            throw .unknownPresenter(presenter)
        }
        remove(presenter)
        hub.answer(connection, .reply(id: id, [:]))
    }

    func answer(_ operation: AnswerOperation, id: JSONValue?, _ connection: UInt64) throws(WireError) {
        let own = state.withLock { $0.presenters[connection] ?? [] }
        let asked = own.sorted().first { presenter in
            (operation.presenter ?? presenter) == presenter
                && registry.owed(presenter, claim: operation.claim)?.answer == operation.request
        }
        guard let asked, let request = registry.owed(asked, claim: operation.claim),
            registry.answer(asked, claim: operation.claim, request, failure: operation.failure)
        else {
            throw WireError(
                code: "unknown_claim", "this connection was not asked that, or the claim is over",
                hint: "nothing is to be done; wait for reacquire")
        }
        hub.answer(connection, .reply(id: id, [:]))
        endRefused()
    }

    /// Those who let go for a claim that another presenter made fail take their item back.
    private func endRefused() {
        let refused = state.withLock { state in
            defer { state.refused = [] }
            return state.refused
        }
        for claim in refused { registry.end(claim, ClaimState.Outcome(tookPlace: false)) }
    }

    private func event(
        _ message: PresenterMessage, to presenter: UInt64, presented: ItemAddress, isOthers: Bool
    ) -> AgentMessage? {
        let (claim, event) = PresenterEvent.of(message)
        guard let event else { return nil }
        var place = presented
        if case .didMove(let to, nil) = event { place = to }
        let until = state.withLock { $0.claims[claim]?.deadline }
        let seconds = until.map { max(0, ContinuousClock.now.duration(to: $0).seconds) }
        let line = event.json(
            item: presented, presenter: presenter, claim: claim, path: path(of: place, isOthers: isOthers)?.bytes,
            deadline: event.wantsAnswer ? seconds ?? configuration.value.claimDeadline.seconds : nil)
        return .event(type: event.type, line)
    }

    /// Where the item is for the agent: for people. A store that is still to be relocated is at its legacy place.
    private func path(of item: ItemAddress, isOthers: Bool) -> FilePath? {
        guard let group = configuration.value.group(item.group), let relative = FilePath(bytes: item.path) else {
            return nil
        }
        let path = group.directory.pushing(relative)
        guard !isOthers, FileStatus(following: path) == nil, let name = relative.lastComponent,
            relative.components.count == 1
        else { return path }
        return group.store(named: name)?.legacy.first { FileStatus(following: $0) != nil } ?? path
    }

    private func served(_ address: ItemAddress) throws(WireError) -> ClaimedItem {
        guard configuration.value.group(address.group) != nil, let item = ClaimedItem(address) else {
            throw .unknownItem(of: address.group)
        }
        return item
    }
}

// MARK: - Claims

extension PresenterServer {
    func claim(
        _ operation: ClaimOperation, id: JSONValue?, _ connection: UInt64, _ asker: Requester
    ) throws(WireError) {
        var intents: [ClaimIntent] = []
        for intent in operation.intents { intents.append(try ClaimIntent(intent, served(intent.item))) }
        if let own = operation.presenter, state.withLock({ $0.presenters[connection]?.contains(own) }) != true {
            throw .unknownPresenter(own)
        }
        hub.expectAnswer(connection)
        let claimant = Claimant(
            connection: connection, id: id,
            deadline: .now.advanced(by: .milliseconds(Int64(operation.deadline * 1000))), isOthers: !asker.isTrusted,
            intents: intents)
        registry.begin(intents, own: operation.presenter) { [self] number in
            state.withLock { $0.claims[number] = claimant }
        } settled: { [self] number, settlement in
            settled(number, settlement)
        }
    }

    /// Answers the claimant, once.
    private func settled(_ claim: UInt64, _ settlement: ClaimSettlement) {
        let claimant: Claimant? = state.withLock { state in
            guard let found = state.claims[claim], !found.isAnswered else { return nil }
            // A refused claim is over for the client; it has nothing to release.
            if settlement == .granted { state.claims[claim]?.isAnswered = true } else { state.claims[claim] = nil }
            // The registry is locked while it says so.
            if case .refused = settlement { state.refused.append(claim) }
            return found
        }
        guard let claimant else { return }
        let answer: AgentMessage =
            switch settlement {
            case .granted: .reply(id: claimant.id, ["claim": WireNumber(.claim, claim).json])
            case .refused(let refusal): .failure(id: claimant.id, .refused(by: refusal, isOthers: claimant.isOthers))
            case .unanswered(let holders): .failure(id: claimant.id, .unanswered(by: holders))
            case .failed(let reason):
                .failure(id: claimant.id, WireError(code: "failed", claimant.isOthers ? "the claim failed" : reason))
            }
        hub.answer(claimant.connection, answer, wasExpected: true)
    }

    func release(_ operation: ReleaseOperation, id: JSONValue?, _ connection: UInt64) throws(WireError) {
        let moves = operation.moves.compactMap { move -> ClaimState.Outcome.Move? in
            guard let from = ClaimedItem(move.from), let to = ClaimedItem(move.to) else { return nil }
            return ClaimState.Outcome.Move(from: from, to: to)
        }
        let claimant = state.withLock { $0.claims[operation.claim] }
        guard let claimant, claimant.connection == connection else { throw .unknownClaim }
        // Presenters go where they are told to: of another user, only for what they let go of.
        if claimant.isOthers, let stray = moves.first(where: { !claimant.covers($0.from) }) {
            throw .unknownItem(of: stray.from.container)
        }
        guard state.withLock({ $0.claims.removeValue(forKey: operation.claim) }) != nil else { throw .unknownClaim }
        registry.end(operation.claim, ClaimState.Outcome(tookPlace: operation.tookPlace, moves: moves))
        hub.answer(connection, .reply(id: id, [:]))
    }

    /// Until a claimant must be told that presenters did not answer; nil when nobody waits.
    func timeUntilDeadline() -> Duration? {
        let next = state.withLock { $0.claims.values.filter { !$0.isAnswered }.map(\.deadline).min() }
        return next.map { max(.zero, ContinuousClock.now.duration(to: $0)) }
    }

    /// Ends the claims whose presenters have had their time.
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
            hint: "give back what present answered")
    }

    fileprivate static var unknownClaim: WireError {
        WireError(code: "unknown_claim", "this connection has no such claim", hint: "it may be over")
    }

    static func unknownItem(of group: String) -> WireError {
        WireError(
            code: "unknown_store", "no group \(group) is served here",
            hint: "name a group of the agent's configuration: GROUP_ID/NAME")
    }

    fileprivate static func refused(by refusal: ClaimState.Refusal, isOthers: Bool) -> WireError {
        let reason = isOthers ? "" : ": \(refusal.message)"
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
