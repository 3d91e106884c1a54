import EndToEndSupport
import FileCoordination
import FoundationEssentials
import Glibc
import GroupContainers
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStore

/// A file coordinator in this process asks presenters in other processes through the agent.
@Suite(.ownThreads, .timeLimit(.minutes(60))) struct CoordinationTests {
    @Test func asksAPresenterInAnotherProcess() async throws {
        var apps = try PresenterTests.Apps()
        let agent = try AgentProcess(apps.places, legacy: [])
        try apps.start(rows: 300, rate: 100)
        let container = try GroupContainer(identifier: AgentProcess.group, directory: URL(path: apps.places.group))
        let registry = RemoteRegistry(container, socket: agent.socket)
        let coordinator = FileCoordinator(in: container, presenters: RegisteredPresenters(registry: registry))
        let store = URL(path: apps.published)
        let legacy = apps.store.path
        try await coordinator.coordinate(with: [.writingIntent(with: store, options: .forMoving)]) { _ in
            // The app has closed its store: SQLite removes the log with the last connection.
            #expect(try Directory(legacy.removingLastComponent()).status("Notes.sqlite-wal") == nil)
            let status = try #require(FileStatus(following: legacy))
            #expect(FileHolder.of(status.identity).isEmpty)
        }
        // The app has reopened the store: it writes all of its rows.
        try apps.finish(at: legacy)
    }

    @Test func namesAStoppedPresenterInAnotherProcess() async throws {
        var apps = try PresenterTests.Apps()
        let agent = try AgentProcess(apps.places, legacy: [])
        try apps.start(rows: 200, rate: 100)
        let app = try #require(apps.running.first)
        try app.suspend()
        let container = try GroupContainer(identifier: AgentProcess.group, directory: URL(path: apps.places.group))
        let coordinator = FileCoordinator(
            in: container, presenters: RegisteredPresenters(registry: RemoteRegistry(container, socket: agent.socket)))
        let error = await #expect(throws: FileCoordinationError.self) {
            try await coordinator.coordinate(
                with: [.writingIntent(with: URL(path: apps.published))], deadline: .milliseconds(500)
            ) { _ in }
        }
        #expect(error?.code == .busy)
        #expect(error?.holders.map(\.pid) == [app.pid])
        app.signal(SIGCONT)
        try apps.finish(at: apps.store.path)
    }
}
