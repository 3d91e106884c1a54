import AgentProtocol
import FileCoordination
import GroupContainers
import LinuxSystem
import Synchronization
import SystemPackage

/// The agent's number of a presenter or a claim. It is valid only within one connection.
struct RemoteNumber: Hashable, Sendable {
    let number: UInt64
    let generation: UInt64
}

/// The registry of this process's presenters and claims. The agent knows them while there is one that serves the group;
/// otherwise only this process does.
///
/// The numbers that callers see are this registry's own, and outlive the connection. The lowest bit distinguishes the
/// agent's claims from those of this process.
final class RemoteRegistry: PresenterRegistry, AgentClient.Listener {
    struct Presenter {
        /// The item it presents now, after any moves.
        var item: ClaimedItem
        let holder: FileHolder
        let versions: Set<String>?
        let receive: @Sendable (PresenterMessage) -> Void
        var remote: RemoteNumber?
        /// True if the agent was asked and hasn't replied.
        var isAsking = false
        var registration = FilePresenterRegistration.waiting(reason: "the agent has not answered yet")
        /// Called on the agent's first reply.
        var firstAnswer: (@Sendable () -> Void)?
        /// The claims that were under way at the first reply.
        var waitsFor: [UInt64] = []
        /// Called once the agent has registered or refused the presenter.
        var whenAnswered: [@Sendable () -> Void] = []
        /// The presenter's number in this process's registry.
        let local: UInt64
        /// The agent's claims for which the presenter has let go.
        var relinquished: Set<UInt64> = []
    }

    struct State {
        var presenters: [UInt64: Presenter] = [:]
        var claims: [UInt64: RemoteClaimState] = [:]
        var next: UInt64 = 1

        mutating func number() -> UInt64 {
            defer { next += 1 }
            return next
        }
    }

    let container: GroupContainer
    let socket: FilePath
    let client: AgentClient
    let local = InProcessRegistry()
    let state = Mutex(State())

    /// The time for which a new presenter waits for an agent that doesn't reply. It is registered when the agent does.
    private static let registrationTimeout = Duration.seconds(2)
    let responseTime = Duration.milliseconds(500)
    /// The longest time that a presenter waits in line at a stretch for its item after the agent is lost, so that
    /// nobody is kept out of the line for ever.
    let lossTime: Duration

    init(_ container: GroupContainer, socket: FilePath, lossTime: Duration = .seconds(30)) {
        self.container = container
        self.socket = socket
        self.lossTime = lossTime
        client = AgentClient(socket) { container.identityNow }
        client.listen(self)
    }

    deinit { client.stop() }

    // MARK: Presenters

    func add(
        _ item: ClaimedItem, _ holder: FileHolder, versions: Set<String>?,
        receive: @escaping @Sendable (PresenterMessage) -> Void
    ) -> PresenterAdmission {
        client.start()
        let inProcess = local.add(item, holder, versions: versions) { receive($0.renumbered { $0 << 1 }) }
        let answered = MonotonicSemaphore()
        let number = state.withLock { state in
            let number = state.number()
            var presenter = Presenter(
                item: item, holder: holder, versions: versions, receive: receive, local: inProcess.presenter)
            presenter.firstAnswer = { answered.signal() }
            state.presenters[number] = presenter
            return number
        }
        client.afterConnectionAttempt { [weak self] in self?.register(number) }
        answered.wait(within: Self.registrationTimeout)
        // Later replies arrive as messages. A reply that arrives at this very moment is either complete or not yet
        // there.
        let found = state.withLock { state in
            state.presenters[number]?.firstAnswer = nil
            return state.presenters[number]
        }
        return PresenterAdmission(
            presenter: number, pendingClaims: inProcess.pendingClaims.map { $0 << 1 } + (found?.waitsFor ?? []),
            registration: found?.registration ?? .waiting(reason: "it was removed"))
    }

    func remove(_ presenter: UInt64) {
        guard let found = state.withLock({ $0.presenters.removeValue(forKey: presenter) }) else { return }
        local.remove(found.local)
        for body in found.whenAnswered { body() }
        guard let remote = found.remote else { return }
        // There may be room for another presenter now.
        client.request(.unpresent(presenter: remote.number), on: remote.generation) { [weak self] _ in
            self?.registerMissing()
        }
    }

    /// Returns this process's presenters. A migration asks the agent, which knows all of them.
    func presenters(of item: ClaimedItem) -> [PresenterDescription] { local.presenters(of: item) }

    @discardableResult
    func answer(_ presenter: UInt64, claim: UInt64, _ request: PresenterRequest, failure: String?) -> Bool {
        guard let found = state.withLock({ $0.presenters[presenter] }) else { return false }
        guard claim & 1 == 1 else {
            return local.answer(found.local, claim: claim >> 1, request, failure: failure)
        }
        guard let remote = found.remote, Self.number(of: Self.remote(of: claim), remote.generation) == claim else {
            return false
        }
        let answer = AnswerOperation(
            request.answer, claim: Self.remote(of: claim), presenter: remote.number, failure: failure)
        return client.request(.answer(answer), on: remote.generation)
    }

    static func number(of remote: UInt64, _ generation: UInt64) -> UInt64 {
        remote << 16 | (generation & 0x7FFF) << 1 | 1
    }

    static func remote(of number: UInt64) -> UInt64 { number >> 16 }
}
