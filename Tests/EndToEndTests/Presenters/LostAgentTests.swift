import EndToEndSupport
import FileCoordination
import FoundationEssentials
import GroupContainers
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStore

/// The callbacks that presenters receive, and the time of their reacquisition, when the agent dies or a new agent
/// registers them.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct LostAgentTests {
    private let places: Places
    private let container: GroupContainer
    private let socket: FilePath
    private var item: URL { URL(path: places.group.appending("Notes.sqlite")) }
    private var moved: URL { URL(path: places.group.appending("Moved.sqlite")) }

    init() throws {
        places = try Places()
        container = try GroupContainer(identifier: AgentProcess.group, directory: URL(path: places.group))
        socket = places.scratch("agent.sock")
    }

    private func registry() -> RemoteRegistry {
        RemoteRegistry(container, socket: socket, lossTime: .milliseconds(20))
    }

    /// Writes the item, logs it, and continues once `log` has `go on`. With `moving`, the item then gets another name.
    private func access(_ presenters: RegisteredPresenters, _ log: Log, moving: Bool = false) -> Task<Void, any Error> {
        let coordinator = FileCoordinator(in: container, presenters: presenters)
        return Task { [item, moved] in
            try await coordinator.coordinate(
                with: [.writingIntent(with: item, options: moving ? .forMoving : [])], deadline: .ample
            ) { _ in
                log.note("writes")
                await log.has("go on")
                if moving { coordinator.item(at: item, didMoveTo: moved) }
                log.note("has written")
            }
        }
    }

    /// The agent dies during an access, or before it learns of the access's end. The claimant's process notifies its
    /// own presenters of the move. Presenters in other processes learn that the item may have changed.
    @Test(arguments: [false, true]) func notifiesPresentersOfUnreportedChanges(_ diesLate: Bool) async throws {
        let agent = try AgentProcess(places, legacy: [])
        let (here, there) = (RegisteredPresenters(registry: registry()), RegisteredPresenters(registry: registry()))
        let (local, remote) = (LoggingPresenter(item), LoggingPresenter(item))
        _ = try await here.add(local, in: container)
        _ = try await there.add(remote, in: container)
        let log = Log()
        let access = access(here, log, moving: true)
        await log.has("writes")
        if diesLate {
            try agent.process.suspend()
        } else {
            try agent.process.killAtOnce()
            await local.log.has("waiting")
        }
        log.note("go on")
        try await access.value
        if diesLate { try agent.process.killAtOnce() }
        for presenter in [local, remote] { await presenter.log.has("reacquires") }
        await local.log.has("is now Moved.sqlite")
        #expect(local.log.entries.contains("changed"))
        #expect(remote.log.entries == ["to writer", "waiting", "changed", "reacquires"])
    }

    /// The presenter waits regardless of how long the writer takes.
    @Test func doesNotReacquireBeforeTheWriterEnds() async throws {
        let agent = try AgentProcess(places, legacy: [])
        let (here, there) = (RegisteredPresenters(registry: registry()), RegisteredPresenters(registry: registry()))
        let remote = LoggingPresenter(item)
        _ = try await there.add(remote, in: container)
        let log = Log()
        let access = access(here, log)
        await log.has("writes")
        try agent.process.killAtOnce()
        await remote.log.has("waiting")
        // The presenter has queued, and let other claims pass, several times.
        var seen: Set<String> = []
        while seen.count < 4 {
            for record in container.claimRecords() where !record.isGranted { seen.insert(record.id.rawValue) }
            await Task.yield()
        }
        #expect(!remote.log.entries.contains("reacquires"))
        log.note("go on")
        try await access.value
        await remote.log.has("reacquires")
    }

    /// A claim by another process ends for a presenter that follows its item elsewhere: the agent registers it as a new
    /// presenter.
    @Test func aPresenterThatFollowsAMoveReacquires() async throws {
        let own = registry()
        let (here, there) = (RegisteredPresenters(registry: own), RegisteredPresenters(registry: registry()))
        let presenter = LoggingPresenter(item)
        _ = try await here.add(presenter, in: container)
        let log = Log()
        // The access starts without an agent, so no process reports the move to the agent.
        let mover = access(here, log, moving: true)
        await log.has("writes")
        let agent = try AgentProcess(places, legacy: [])
        await presenter.log.has("registered")
        let other = Log()
        let writer = access(there, other)
        while own.state.withLock({ $0.presenters.values.allSatisfy(\.relinquished.isEmpty) }) { await Task.yield() }
        log.note("go on")
        try await mover.value
        await other.has("writes")
        await presenter.log.has("reacquires")
        other.note("go on")
        try await writer.value
        #expect(presenter.presentedItemURL?.lastPathComponent == "Moved.sqlite")
        #expect(try agent.stop().status == 0)
    }

    /// A claim that the agent refuses leaves nothing behind.
    @Test func aRefusedClaimLeavesNothing() async throws {
        let agent = try AgentProcess(places, legacy: [])
        let (here, there) = (registry(), RegisteredPresenters(registry: registry()))
        let presenter = LoggingPresenter(item)
        presenter.refuse()
        _ = try await there.add(presenter, in: container)
        let error = await #expect(throws: FileCoordinationError.self) {
            try await access(RegisteredPresenters(registry: here), Log()).value
        }
        #expect(error?.code == .presenterFailed)
        #expect(here.state.withLock { $0.claims.isEmpty })
        #expect(try agent.stop().status == 0)
    }
}
