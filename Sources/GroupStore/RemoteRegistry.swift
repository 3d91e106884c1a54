import AgentProtocol
import Dispatch
import FileCoordination
import GroupContainer
import LinuxSystem
import Synchronization
import SystemPackage

/// The presenters of this process and their claims, known to the agent for as long as there is one, and to this process
/// alone otherwise.
///
/// Numbers seen outside are this registry's own: they outlive the connection. A claim of the agent's is told from one
/// of this process's by its lowest bit.
final class RemoteRegistry: PresenterRegistry, AgentLink.Listener {
    private struct Presenter {
        let item: ClaimedItem
        let holder: FileHolder
        let versions: Set<String>?
        let receive: @Sendable (PresenterMessage) -> Void
        /// The agent's number, in this connection.
        var remote: UInt64?
        /// In the registry of this process.
        let local: UInt64
        /// The agent's claims for which it has let go.
        var relinquished: Set<UInt64> = []
    }

    private enum ClaimState {
        case asking
        /// The agent's number, in that connection.
        case remote(UInt64, generation: UInt64)
        case local(UInt64)
        /// Given up before the agent answered.
        case abandoned
    }

    private struct State {
        var presenters: [UInt64: Presenter] = [:]
        var claims: [UInt64: ClaimState] = [:]
        var next: UInt64 = 1

        mutating func number() -> UInt64 {
            defer { next += 1 }
            return next
        }
    }

    private let container: GroupContainer
    private let link: AgentLink
    private let local = MemoryRegistry()
    private let state = Mutex(State())

    /// How long a presenter waits for those who are at work on its item when the agent is lost.
    private static let lossDeadline = Duration.seconds(30)

    init(_ container: GroupContainer, socket: FilePath) {
        self.container = container
        link = AgentLink(socket)
        link.listen(self)
    }

    // MARK: Presenters

    func add(
        _ item: ClaimedItem, _ holder: FileHolder, versions: Set<String>?,
        receive: @escaping @Sendable (PresenterMessage) -> Void
    ) -> (presenter: UInt64, waitsFor: [UInt64]) {
        link.start()
        let inProcess = local.add(item, holder, versions: versions) { receive($0.numbered { $0 << 1 }) }
        let number = state.withLock { state in
            let number = state.number()
            state.presenters[number] = Presenter(
                item: item, holder: holder, versions: versions, receive: receive, local: inProcess.presenter)
            return number
        }
        let answered = DispatchSemaphore(value: 0)
        let waitsFor = Mutex<[UInt64]>([])
        present(number) { claims in
            waitsFor.withLock { $0 = claims }
            answered.signal()
        }
        _ = answered.wait(timeout: .now() + .seconds(10))
        return (number, inProcess.waitsFor.map { $0 << 1 } + waitsFor.withLock { $0 })
    }

    /// `done` gets the claims under way, once the agent has answered or is seen not to be there.
    private func present(_ number: UInt64, done: @escaping @Sendable ([UInt64]) -> Void) {
        guard let presenter = state.withLock({ $0.presenters[number] }), let address = ItemAddress(presenter.item),
            let generation = link.generation
        else { return done([]) }
        let holder = presenter.holder
        var operation = PresentOperation(item: address, pid: holder.pid, program: holder.program)
        operation.models = presenter.versions?.sorted()
        link.request(.present(operation)) { [weak self] result in
            guard let self, case .success(let reply) = result,
                let remote = reply.string("presenter").flatMap({ WireNumber($0, .presenter) })
            else { return done([]) }
            let claims = reply.claims("waits_for").map { Self.number(of: $0, generation) }
            let isWanted = state.withLock { state in
                state.presenters[number]?.remote = remote.value
                state.presenters[number]?.relinquished.formUnion(claims)
                return state.presenters[number] != nil
            }
            if !isWanted { link.request(.unpresent(presenter: remote.value)) }
            done(claims)
        }
    }

    /// Those of this process: whoever migrates a store asks the agent, which knows all.
    func presenters(of item: ClaimedItem) -> [PresenterDescription] { local.presenters(of: item) }

    func remove(_ presenter: UInt64) {
        guard let found = state.withLock({ $0.presenters.removeValue(forKey: presenter) }) else { return }
        local.remove(found.local)
        if let remote = found.remote { link.request(.unpresent(presenter: remote)) }
    }

    @discardableResult
    func answer(_ presenter: UInt64, claim: UInt64, _ request: PresenterRequest, failure: String?) -> Bool {
        guard let found = state.withLock({ $0.presenters[presenter] }) else { return false }
        guard claim & 1 == 1 else {
            return local.answer(found.local, claim: claim >> 1, request, failure: failure)
        }
        guard let remote = found.remote, let generation = link.generation,
            Self.number(of: Self.remote(of: claim), generation) == claim
        else { return false }
        link.request(
            .answer(
                AnswerOperation(request.answer, claim: Self.remote(of: claim), presenter: remote, failure: failure)))
        return true
    }

    // MARK: Claims

    func begin(
        _ intents: [ClaimIntent], own: UInt64?, deadline: Duration,
        settled: @escaping @Sendable (ClaimSettlement) -> Void
    ) -> UInt64 {
        link.start()
        let (number, presenter) = state.withLock { state in
            let number = state.number()
            state.claims[number] = .asking
            return (number, own.flatMap { state.presenters[$0] })
        }
        guard let generation = link.generation, let operation = ClaimOperation(intents, presenter?.remote, deadline)
        else {
            beginLocally(number, intents, presenter?.local, settled)
            return number
        }
        link.request(.claim(operation)) { [weak self] result in
            guard let self else { return }
            switch result {
            case .success(let reply):
                guard let claim = reply.string("claim").flatMap({ WireNumber($0, .claim) })?.value else {
                    return settled(.failed("the agent sent a claim without a number"))
                }
                granted(number, claim, generation, settled)
            case .failure(.refused(let error)):
                if isAsking(number) { settled(ClaimSettlement(error)) }
            // Without an agent nobody else can be asked.
            case .failure:
                if isAsking(number) { beginLocally(number, intents, presenter?.local, settled) }
            }
        }
        return number
    }

    private func granted(
        _ number: UInt64, _ claim: UInt64, _ generation: UInt64, _ settled: @Sendable (ClaimSettlement) -> Void
    ) {
        guard isAsking(number) else {
            return link.request(.release(ReleaseOperation(claim: claim, tookPlace: false)))
        }
        state.withLock { $0.claims[number] = .remote(claim, generation: generation) }
        settled(.granted)
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

    private func beginLocally(
        _ number: UInt64, _ intents: [ClaimIntent], _ own: UInt64?,
        _ settled: @escaping @Sendable (ClaimSettlement) -> Void
    ) {
        local.begin(intents, own: own) { inProcess in
            state.withLock { $0.claims[number] = .local(inProcess) }
        } settled: { _, settlement in
            settled(settlement)
        }
    }

    func unanswered(_ claim: UInt64) -> [FileHolder] {
        guard case .local(let number)? = state.withLock({ $0.claims[claim] }) else { return [] }
        return local.unanswered(number)
    }

    func end(_ claim: UInt64, _ outcome: ClaimBoard.Outcome) {
        let found: ClaimState? = state.withLock { state in
            guard let found = state.claims.removeValue(forKey: claim) else { return nil }
            if case .asking = found { state.claims[claim] = .abandoned }
            return found
        }
        switch found {
        case .local(let number): local.end(number, outcome)
        case .remote(let number, let generation):
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

// MARK: - The link

extension RemoteRegistry {
    func linkConnected(generation: UInt64) {
        for number in state.withLock({ $0.presenters.keys.sorted() }) {
            present(number) { [weak self] claims in
                guard let self, let presenter = state.withLock({ $0.presenters[number] }) else { return }
                // It may have its item open, which those who claim it don't know: nobody waits for the answer.
                for claim in claims { presenter.receive(.request(claim: claim, .relinquish(.writer))) }
            }
        }
    }

    func linkReceived(type: String, _ object: JSONObject, generation: UInt64) {
        guard let event = PresenterEvent(type: type, object),
            let remote = object.string("presenter").flatMap({ WireNumber($0, .presenter) })?.value,
            let claim = object.string("claim").flatMap({ WireNumber($0, .claim) })?.value
        else { return }
        let number = Self.number(of: claim, generation)
        let receive = state.withLock { state -> (@Sendable (PresenterMessage) -> Void)? in
            guard let found = state.presenters.first(where: { $0.value.remote == remote }) else { return nil }
            if case .relinquish = event { state.presenters[found.key]?.relinquished.insert(number) }
            if case .reacquire = event { state.presenters[found.key]?.relinquished.remove(number) }
            return found.value.receive
        }
        if let message = PresenterMessage(event, claim: number, container: container) { receive?(message) }
    }

    /// Nobody will say any more that a claim is over: whoever had let go waits until nobody holds the locks.
    func linkLost(generation: UInt64) {
        let waiting = state.withLock { state in
            var waiting: [(ClaimedItem, Set<UInt64>, @Sendable (PresenterMessage) -> Void)] = []
            for (number, presenter) in state.presenters {
                state.presenters[number]?.remote = nil
                state.presenters[number]?.relinquished = []
                if !presenter.relinquished.isEmpty {
                    waiting.append((presenter.item, presenter.relinquished, presenter.receive))
                }
            }
            return waiting
        }
        for (item, claims, receive) in waiting {
            let thread = try? SystemThread(name: "gs-return") { [container] in
                Self.waitUntilFree(item, container)
                for claim in claims.sorted() { receive(.notice(claim: claim, .reacquire)) }
            }
            if thread == nil { for claim in claims.sorted() { receive(.notice(claim: claim, .reacquire)) } }
        }
    }

    private static func waitUntilFree(_ item: ClaimedItem, _ container: GroupContainer) {
        guard let claim = try? Claim([ClaimIntent(item, .read(.withoutChanges))], in: container) else { return }
        let wait = ClaimWait(Deadline(after: lossDeadline))
        do {
            try claim.standInLine(wait)
            try claim.enter(wait)
        } catch {
            // Its presenter goes on: what it finds there tells it whether it can.
        }
        claim.leave()
    }

    private static func number(of remote: UInt64, _ generation: UInt64) -> UInt64 {
        remote << 16 | (generation & 0x7FFF) << 1 | 1
    }

    private static func remote(of number: UInt64) -> UInt64 { number >> 16 }
}
