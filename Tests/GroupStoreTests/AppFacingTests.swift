import AgentProtocol
import FoundationEssentials
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupContainers
@testable import GroupStore

/// Whatever an app waits for ends, and errors have public types.
@Suite(.timeLimit(.minutes(60))) struct AppFacingTests {
    let scratch: TemporaryDirectory
    let container: GroupContainer
    let store: SharedStore
    var socket: FilePath { scratch.path.appending("agent.sock") }

    init() throws {
        scratch = try TemporaryDirectory()
        try Directory(scratch.path).makeDirectory("group", mode: 0o700)
        container = try GroupContainer(
            identifier: "group.example", directory: URL(path: scratch.path.appending("group")))
        store = try SharedStore(
            "Notes.sqlite", in: container, legacy: URL(path: scratch.path.appending("Notes.sqlite")))
    }

    @Test func endsASequenceAfterAnError() async throws {
        let listener = try UnixSocket.listen(at: socket)
        let reader = ChangeReader(
            ChangeSource(subscription: SubscribeOperation(store.address), socket: socket, store: nil))
        let first = Task { try await reader.nextOfAgent() }
        let agent = try await StandInAgent.accept(on: listener) { _ in }
        try agent.send([
            "id": 1, "ok": false, "error": .object(["code": "not_watchable", "message": "there are too many watches"]),
        ])
        await #expect(throws: GroupStoreError.self) { () async throws in _ = try await first.value }
        #expect(try await reader.next() == nil)
    }

    /// An agent may run where this process can't look for it: no other process asks the presenter.
    @Test func aPresenterIsNotRegisteredWithoutASocket() throws {
        let registry = AgentRegistries.registry(of: container, socket: nil)
        let admission = try registry.add(
            container.item("Notes.sqlite"), FileHolder(pid: 7, program: "app"), versions: nil,
            receive: { _ in })
        guard case .waiting(let reason) = admission.registration else { throw Unexpected("\(admission)") }
        #expect(reason.contains("GROUPSTORE_SOCKET"))
    }

    /// A relocation that is cancelled before the agent's greeting sends no request.
    @Test func cancelsARelocationBeforeTheGreeting() async throws {
        let listener = try UnixSocket.listen(at: socket)
        let task = Task { [store, socket] in
            for try await _ in store.relocate(deadline: .seconds(Int64.max), socket: socket) {}
        }
        let agent = try await StandInAgent.accept(on: listener)
        task.cancel()
        _ = await task.result
        // The client may be gone by now.
        try? agent.greet()
        #expect(try await agent.line() == nil)
    }

    /// A presenter handles requests while the app still handles the report of a refusal.
    @Test func reportsARefusalWithoutBlockingThePresenter() async throws {
        let log = Log()
        let presentation = try await store.present(
            open: { _ in }, close: {},
            failed: { _ in
                log.note("refused")
                await log.has("go on")
                log.note("heard")
            })
        await presentation.presentedItemRegistrationDidChange(to: .refused(reason: "no"))
        await log.has("refused")
        #expect(!log.entries.contains("heard"))
        log.note("go on")
        await log.has("heard")
        try await presentation.end()
    }

    /// An unreadable journal of a relocation is reported with the library's error.
    @Test func reportsAnUnreadableJournal() async throws {
        try DurableFile.write(
            Array("{}".utf8), as: GroupContainer.journalName, in: container.bookkeeping(), mode: 0o600)
        let error = await #expect(throws: GroupStoreError.self) { () async throws in
            _ = try await store.present(open: { _ in }, close: {})
        }
        #expect(error?.code == .interrupted)
        #expect(error?.message.contains("journal") == true)
    }
}
