import AgentProtocol
import Dispatch
import FileCoordination
import GroupContainers
import LinuxSystem
import Synchronization
import SystemPackage

/// What the agent calls a presenter or a claim. It means nothing in another connection.
struct RemoteNumber: Hashable, Sendable {
    let number: UInt64
    let generation: UInt64
}

/// The presenters of this process and their claims, known to the agent for as long as there is one that serves the
/// group, and to this process alone otherwise.
///
/// Numbers seen outside are this registry's own: they outlive the connection. A claim of the agent's is told from one
/// of this process's by its lowest bit.
final class RemoteRegistry: PresenterRegistry, AgentClient.Listener {
    struct Presenter {
        /// What it presents now, wherever it was moved since it came.
        var item: ClaimedItem
        let holder: FileHolder
        let versions: Set<String>?
        let receive: @Sendable (PresenterMessage) -> Void
        var remote: RemoteNumber?
        /// The agent was asked and hasn't answered.
        var isAsking = false
        var registration = FilePresenterRegistration.waiting(reason: "the agent has not answered yet")
        /// Who waits for the agent's first answer.
        var firstAnswer: (@Sendable () -> Void)?
        /// Claims under way when it came, for whoever waited for that answer.
        var waitsFor: [UInt64] = []
        /// Claims of its own that wait until the agent knows it, or refuses to.
        var whenAnswered: [@Sendable () -> Void] = []
        /// In the registry of this process.
        let local: UInt64
        /// The agent's claims for which it has let go.
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
    let link: AgentClient
    let local = InProcessRegistry()
    let state = Mutex(State())

    /// How long a presenter that comes waits for an agent that doesn't answer; it is registered when it does.
    private static let patience = Duration.seconds(2)
    let answerTime = Duration.milliseconds(500)
    /// How long a presenter stands in line at a time for those who are at work on its item when the agent is lost:
    /// nobody is kept from the line for ever.
    let lossTime: Duration

    init(_ container: GroupContainer, socket: FilePath, lossTime: Duration = .seconds(30)) {
        self.container = container
        self.socket = socket
        self.lossTime = lossTime
        link = AgentClient(socket)
        link.listen(self)
    }

    deinit { link.stop() }

    // MARK: Presenters come and go

    func add(
        _ item: ClaimedItem, _ holder: FileHolder, versions: Set<String>?,
        receive: @escaping @Sendable (PresenterMessage) -> Void
    ) -> PresenterAdmission {
        link.start()
        let inProcess = local.add(item, holder, versions: versions) { receive($0.numbered { $0 << 1 }) }
        let answered = DispatchSemaphore(value: 0)
        let number = state.withLock { state in
            let number = state.number()
            var presenter = Presenter(
                item: item, holder: holder, versions: versions, receive: receive, local: inProcess.presenter)
            presenter.firstAnswer = { answered.signal() }
            state.presenters[number] = presenter
            return number
        }
        link.whenDecided { [weak self] in self?.register(number) }
        _ = answered.wait(timeout: .now() + .nanoseconds(Int(Self.patience.nanoseconds)))
        // What comes later comes as a message; what came is taken whole, though it may come this very moment.
        let found = state.withLock { state in
            state.presenters[number]?.firstAnswer = nil
            return state.presenters[number]
        }
        return PresenterAdmission(
            presenter: number, waitsFor: inProcess.waitsFor.map { $0 << 1 } + (found?.waitsFor ?? []),
            registration: found?.registration ?? .waiting(reason: "it was removed"))
    }

    func remove(_ presenter: UInt64) {
        guard let found = state.withLock({ $0.presenters.removeValue(forKey: presenter) }) else { return }
        local.remove(found.local)
        for body in found.whenAnswered { body() }
        guard let remote = found.remote else { return }
        // There may be room for another one now.
        link.request(.unpresent(presenter: remote.number), on: remote.generation) { [weak self] _ in
            self?.registerMissing()
        }
    }

    /// Those of this process: whoever migrates a store asks the agent, which knows all.
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
        return link.request(.answer(answer), on: remote.generation)
    }

    static func number(of remote: UInt64, _ generation: UInt64) -> UInt64 {
        remote << 16 | (generation & 0x7FFF) << 1 | 1
    }

    static func remote(of number: UInt64) -> UInt64 { number >> 16 }
}
