import AgentProtocol
import EndToEndSupport
import FileCoordination
import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import GroupStore

/// Presenters whose agent starts late, serves their group later, restarts or doesn't answer.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct RegistrationTests {
    private let places: Places
    private let container: GroupContainer
    private let socket: FilePath
    private var item: URL { URL(path: places.group.appending("Notes.sqlite")) }

    init() throws {
        places = try Places()
        container = try GroupContainer(identifier: AgentProcess.group, directory: URL(path: places.group))
        socket = places.scratch("agent.sock")
    }

    /// Returns the presenters' registration as another process would have it.
    private func registeredPresenters() -> RegisteredPresenters {
        RegisteredPresenters(registry: RemoteRegistry(container, socket: socket))
    }

    private func access(_ url: URL? = nil, deadline: Duration = .ample) async throws {
        try await FileCoordinator(in: container, presenters: registeredPresenters()).coordinate(
            with: [.writingIntent(with: url ?? item)], deadline: deadline
        ) { _ in }
    }

    private func configure(groups: [String: FilePath]) throws {
        var lines = "groups:\n"
        for (group, directory) in groups { lines += "  - id: \(group)\n    directory: \(directory)\n" }
        try write(lines, to: places.scratch("config.yaml"))
    }

    /// Starts an agent that serves another group until it reloads its configuration.
    private func otherAgent() throws -> AgentProcess {
        try run("mkdir", ["-p", Word(places.scratch("other"))])
        try configure(groups: ["group.other": places.scratch("other")])
        return try AgentProcess(["--config", Word(places.scratch("config.yaml"))], socket: socket)
    }

    private func serve(_ agent: AgentProcess) throws {
        try configure(groups: ["group.other": places.scratch("other"), AgentProcess.group: places.group])
        agent.process.signal(SIGHUP)
    }

    @Test func registersAPresenterOnceItsGroupIsServed() async throws {
        let agent = try otherAgent()
        let (presenter, registeredPresenters) = (LoggingPresenter(item), registeredPresenters())
        let registered = try await registeredPresenters.add(presenter, in: container)
        guard case .waiting(let reason) = registered.registration else {
            throw Unexpected("\(registered.registration)")
        }
        #expect(reason.contains(AgentProcess.group))
        // The access works as it does without an agent, and no process could ask the presenter.
        try await access()
        #expect(presenter.log.entries.isEmpty)

        try serve(agent)
        await presenter.log.has("registered")
        try await access()
        await presenter.log.has("reacquires")
        #expect(presenter.log.entries == ["registered", "to writer", "changed", "reacquires"])
        #expect(try agent.stop().status == 0)
    }

    /// Its stores and presenters are others, though their names are the same.
    @Test func anAgentThatServesAnotherDirectoryDoesNotServeThisOne() async throws {
        let elsewhere = places.scratch("elsewhere")
        try run("mkdir", ["-p", Word(elsewhere)])
        let agent = try AgentProcess(["--group", "\(AgentProcess.group)=" + Word(elsewhere)], socket: socket)
        let (presenter, registeredPresenters) = (LoggingPresenter(item), registeredPresenters())
        let registered = try await registeredPresenters.add(presenter, in: container)
        guard case .waiting(let reason) = registered.registration else {
            throw Unexpected("\(registered.registration)")
        }
        #expect(reason.contains("\(elsewhere)"), "\(reason)")
        let store = try SharedStore("Notes.sqlite", in: container)
        let changes = ChangeReader(
            ChangeSource(subscription: SubscribeOperation(store.address), socket: socket, store: store))
        guard case .notServed(let message)? = try await changes.next() else { throw Unexpected("served") }
        #expect(message.contains("\(elsewhere)"), "\(message)")
        // Accesses work as they do without an agent.
        try await access()
        #expect(presenter.log.entries.isEmpty)
        #expect(try agent.stop().status == 0)
    }

    /// The presenter has the store open under the name of the group that it leaves.
    @Test func asksAPresenterWhoseStoreMovesToAnotherGroup() async throws {
        let other = places.scratch("other")
        try run("mkdir", ["-p", Word(other)])
        _ = try makeStore(places.group.appending("Notes.sqlite"), rows: 3)
        let agent = try AgentProcess(
            ["--group", "\(AgentProcess.group)=" + Word(places.group), "--group", "group.other=" + Word(other)],
            socket: socket)
        let (presenter, registeredPresenters) = (LoggingPresenter(item), registeredPresenters())
        let registered = try await registeredPresenters.add(presenter, in: container)
        #expect(registered.registration == .registered)
        let claim = try PresentedClaim(
            container.item("Notes.sqlite"), in: container, of: presenter, ClaimWait(Deadline(after: .ample)) { false })
        presenter.hold(claim)
        let done = try groupstore(
            "relocate", Word(places.group.appending("Notes.sqlite")), Word(other), environment: agent.environment)
        #expect(done.status == 0, "\(done.errors)")
        await presenter.log.has("reacquires")
        #expect(presenter.log.entries.first == "to writer")
        #expect(FileStatus(following: other.appending("Notes.sqlite")) != nil)
        #expect(try agent.stop().status == 0)
    }

    /// An access that began without an agent waits for an item that a presenter holds. The access asks an agent that
    /// starts meanwhile.
    @Test func asksAnAgentThatStartsDuringAWait() async throws {
        let presenter = LoggingPresenter(item)
        let registeredPresenters = registeredPresenters()
        let registered = try await registeredPresenters.add(presenter, in: container)
        guard case .waiting = registered.registration else { throw Unexpected("\(registered.registration)") }
        let held = try PresentedClaim(registered.item, in: container, of: presenter, ClaimWait(Deadline(after: .ample)))
        presenter.hold(held)
        let waiting = Task { try await access() }
        while !container.claimRecords().contains(where: { $0.accesses.contains(where: \.writes) }) {
            await Task.yield()
        }
        let agent = try AgentProcess(places, legacy: [])
        try await waiting.value
        await presenter.log.has("reacquires")
        #expect(presenter.log.entries.contains("to writer"))
        #expect(try agent.stop().status == 0)
    }

    /// A coordinator's own presenter isn't asked, even by an agent that has only just learnt of it.
    @Test func aNewAgentDoesNotAskTheCoordinatorsOwnPresenter() async throws {
        let (presenter, registeredPresenters) = (LoggingPresenter(item), registeredPresenters())
        _ = try await registeredPresenters.add(presenter, in: container)
        for _ in 1...5 {
            let agent = try AgentProcess(places, legacy: [])
            try await FileCoordinator(in: container, presenters: registeredPresenters, filePresenter: presenter)
                .coordinate(
                    with: [.writingIntent(with: item)], deadline: .ample
                ) { _ in }
            #expect(try agent.stop().status == 0)
        }
        #expect(!presenter.log.entries.contains("to writer"))
    }

    @Test func subscribesOnceTheGroupIsServed() async throws {
        let agent = try otherAgent()
        let store = try SharedStore("Notes.sqlite", in: container)
        let reader = ChangeReader(ChangeSource(subscription: .init(store.address), socket: socket, store: nil))
        guard case .notServed(let message)? = try await reader.next() else { throw Unexpected("served") }
        #expect(message.contains(AgentProcess.group))
        try serve(agent)
        guard case .reset("subscribed", _)? = try await reader.next() else { throw Unexpected("no reset") }
        #expect(try agent.stop().status == 0)
    }

    @Test func registersAMovedPresenterUnderItsNewPath() async throws {
        var agent = try AgentProcess(places, legacy: [])
        let (presenter, registeredPresenters) = (LoggingPresenter(item), registeredPresenters())
        _ = try await registeredPresenters.add(presenter, in: container)
        let moved = URL(path: places.group.appending("Moved.sqlite"))
        let coordinator = FileCoordinator(in: container, presenters: self.registeredPresenters())
        try await coordinator.coordinate(with: [.writingIntent(with: item, options: .forMoving)], deadline: .ample) {
            [item = item] _ in
            coordinator.item(at: item, didMoveTo: moved)
        }
        await presenter.log.has("is now Moved.sqlite")
        try agent.process.killAtOnce()
        await presenter.log.has("waiting")
        agent = try AgentProcess(places, legacy: [])
        await presenter.log.has("registered")
        await presenter.log.has("reacquires")
        let before = presenter.log.entries.count
        try await access(item)
        #expect(presenter.log.entries.count == before)
        try await access(moved)
        #expect(presenter.log.entries.dropFirst(before).first == "to writer")
        #expect(try agent.stop().status == 0)
    }

    /// An agent that doesn't answer may know presenters that must be asked. The deadline holds, and the access doesn't
    /// take place. A presenter continues, and is registered later.
    @Test func enforcesDeadlinesWithAStoppedAgent() async throws {
        let agent = try AgentProcess(places, legacy: [])
        try agent.process.suspend()
        let error = await #expect(throws: FileCoordinationError.self) { try await access(deadline: .milliseconds(300)) }
        #expect(error?.code == .busy)
        #expect(error?.message.contains("did not answer") == true)
        let (presenter, registeredPresenters) = (LoggingPresenter(item), registeredPresenters())
        let registered = try await registeredPresenters.add(presenter, in: container)
        // Both calls have returned while the agent is stopped.
        guard case .waiting = registered.registration else { throw Unexpected("\(registered.registration)") }
        agent.process.signal(SIGCONT)
        await presenter.log.has("registered")
        try await access()
        #expect(presenter.log.entries.contains("to writer"))
        #expect(try agent.stop().status == 0)
    }

    @Test func servesHundredsOfPresenters() async throws {
        let agent = try AgentProcess(places, legacy: [])
        let registeredPresenters = registeredPresenters()
        var presenters: [LoggingPresenter] = []
        for number in 1...300 {
            let presenter = LoggingPresenter(URL(path: places.group.appending("Notes \(number)")))
            #expect(try await registeredPresenters.add(presenter, in: container).registration == .registered)
            presenters.append(presenter)
        }
        try await access(URL(path: places.group.appending("Notes 300")))
        #expect(presenters.last?.log.entries.first == "to writer")
        #expect(try agent.stop().status == 0)
    }

    /// A registry closes its own connection to the agent when its last user releases it.
    @Test func closesARegistryAfterItsLastUser() async throws {
        let agent = try AgentProcess(places, legacy: [])
        weak var registry: RemoteRegistry?
        do {
            let made = RemoteRegistry(container, socket: socket)
            registry = made
            let (presenter, registeredPresenters) = (LoggingPresenter(item), RegisteredPresenters(registry: made))
            _ = try await registeredPresenters.add(presenter, in: container)
            registeredPresenters.remove(presenter)
        }
        while registry != nil { await Task.yield() }
        #expect(try agent.stop().status == 0)
    }
}

/// A presenter that logs its callbacks.
final class LoggingPresenter: FilePresenter {
    private let url: Mutex<URL>
    private let held = Mutex<PresentedClaim?>(nil)
    private let refuses = Mutex(false)
    let log = Log()

    struct CannotClose: Error {}

    init(_ url: URL) { self.url = Mutex(url) }

    /// Keeps the claim until a writer asks for the item.
    func hold(_ claim: PresentedClaim) { held.withLock { $0 = claim } }

    func refuse() { refuses.withLock { $0 = true } }

    var presentedItemURL: URL? { url.withLock { $0 } }

    func relinquishPresentedItemToWriter() async throws -> Reacquirer? {
        log.note("to writer")
        guard !refuses.withLock({ $0 }) else { throw CannotClose() }
        held.withLock { $0.take() }?.release()
        return { [self] in log.note("reacquires") }
    }

    func presentedItemDidChange() async { log.note("changed") }

    func presentedItemDidMove(to newURL: URL) async {
        url.withLock { $0 = newURL }
        log.note("is now \(newURL.lastPathComponent)")
    }

    func presentedItemRegistrationDidChange(to registration: FilePresenterRegistration) async {
        switch registration {
        case .registered: log.note("registered")
        case .waiting: log.note("waiting")
        case .refused(let reason): log.note("refused: \(reason)")
        }
    }
}
