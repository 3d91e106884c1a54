import AgentProtocol
import FoundationEssentials
import GroupContainers
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStore

/// A store's changes are heard wherever the store is: at its legacy place, and under another name.
@Suite(.timeLimit(.minutes(60))) struct StorePlaceTests {
    private let scratch: TemporaryDirectory
    private let container: GroupContainer
    private let legacy: FilePath
    private let store: SharedStore
    private var socket: FilePath { scratch.path.appending("agent.sock") }
    private var group: FilePath { scratch.path.appending("group") }

    init() throws {
        scratch = try TemporaryDirectory()
        let directory = try Directory(scratch.path)
        for name in ["group", "old"] as [FilePath.Component] { try directory.makeDirectory(name, mode: 0o700) }
        container = try GroupContainer(
            identifier: "group.example", directory: URL(path: scratch.path.appending("group")))
        legacy = scratch.path.pushing("old/Notes.sqlite")
        store = try SharedStore("Notes.sqlite", in: container, legacy: URL(path: legacy))
        try sqlite(legacy, "PRAGMA journal_mode = WAL; CREATE TABLE note (text)")
    }

    @discardableResult
    private func sqlite(_ path: FilePath, _ sql: String) throws -> String {
        let done = try run("sqlite3", [Word(path), Word(sql)])
        guard done.status == 0 else { throw Unexpected("sqlite3: \(done.errors)") }
        return done.output
    }

    private func changes(of store: SharedStore? = nil) -> ChangeReader {
        let store = store ?? self.store
        return ChangeReader(
            ChangeSource(subscription: SubscribeOperation(store.address), socket: socket, store: store))
    }

    /// Returns the next change after which a reader must read.
    private func next(_ changes: ChangeReader) async throws -> StoreChange {
        while true {
            let change = try #require(try await changes.next())
            if change.changesContent { return change }
        }
    }

    /// Answers a subscription as an agent does. Logs its line.
    private func accept(_ listener: borrowing Descriptor, _ log: Log = Log()) async throws -> StandInAgent {
        let agent = try await StandInAgent.accept(on: listener) { log.note($0) }
        try agent.send(["id": 1, "ok": true, "token": "7"])
        return agent
    }

    /// The agent follows no store at its legacy place.
    @Test func deliversCommitsAtTheLegacyPlaceBesideAnAgent() async throws {
        let listener = try UnixSocket.listen(at: socket)
        let changes = changes()
        let first = Task { try await changes.nextOfAgent() }
        let agent = try await accept(listener)
        #expect(try await first.value == .reset(reason: "subscribed", token: "7"))
        for _ in 1...3 {
            try sqlite(legacy, "INSERT INTO note VALUES ('one')")
            guard case .changed(_, _, _, token: "7") = try await next(changes) else { throw Unexpected("no change") }
        }
        // An event of the agent is heard as before.
        try agent.send([
            "type": "relocated", "store": .string("group.example/Notes.sqlite"), "from": "/old", "to": "/new",
            "token": "8",
        ])
        while try await next(changes).token != "8" {}
    }

    @Test func deliversCommitsAtTheLegacyPlaceWithoutAnAgent() async throws {
        let changes = changes()
        #expect(try await changes.next() == .disconnected)
        guard case .reset("subscribed", _) = try await next(changes) else { throw Unexpected("no reset") }
        try sqlite(legacy, "INSERT INTO note VALUES ('one')")
        guard case .changed = try await next(changes) else { throw Unexpected("no change") }
        // Its arrival in the group container is a reset, and commits there are heard.
        let (old, new) = (try Directory(scratch.path.appending("old")), container.directory)
        try old.rename("Notes.sqlite", to: "Notes.sqlite", in: new, .refuse)
        while true { if case .reset = try await next(changes) { break } }
        try sqlite(group.appending("Notes.sqlite"), "INSERT INTO note VALUES ('two')")
        while true { if case .changed = try await next(changes) { break } }
    }

    /// A token says what the subscriber has read of the group's store, not what happened at the legacy place.
    @Test func aResumedSubscriptionBeginsWithAResetAtTheLegacyPlace() async throws {
        let changes = ChangeReader(
            ChangeSource(subscription: SubscribeOperation(store.address, since: "5"), socket: socket, store: store))
        #expect(try await changes.next() == .reset(reason: "subscribed", token: "5"))
    }

    @Test func aTooLongSubscriptionFails() async throws {
        let listener = try UnixSocket.listen(at: socket)
        let long = String(repeating: "t", count: WireLine.maxLength)
        let other = try SharedStore("Other.sqlite", in: container)
        let changes = ChangeReader(
            ChangeSource(subscription: SubscribeOperation(other.address, since: long), socket: socket, store: other))
        let first = Task { try await changes.next() }
        let agent = try await StandInAgent.accept(on: listener)
        try agent.greet()
        let error = await #expect(throws: GroupStoreError.self) { try await first.value }
        #expect(error?.code == .refused)
        #expect(error?.message.contains("32768") == true)
    }

    /// Moves the store, which this process presents, as another program does.
    private func rename(_ old: FilePath.Component, to new: FilePath.Component) async throws {
        let urls = [old, new].map { container.url(of: container.item($0)) }
        let coordinator = FileCoordinator(in: container)
        try await coordinator.coordinate(
            with: [.writingIntent(with: urls[0], options: .forMoving), .writingIntent(with: urls[1])],
            deadline: .ample
        ) { [container] _ in
            try container.directory.rename(old, to: new, in: container.directory, .refuse)
            coordinator.item(at: urls[0], didMoveTo: urls[1])
        }
    }

    @Test func followsAPresentedStoreToItsNewName() async throws {
        let notes = try SharedStore("Notes.sqlite", in: container)
        try sqlite(group.appending("Notes.sqlite"), "CREATE TABLE note (text)")
        let presentation = try await notes.present(open: { _ in }, close: {})
        let listener = try UnixSocket.listen(at: socket)
        let changes = changes(of: notes)
        let first = Task { try await changes.nextOfAgent() }
        let log = Log()
        let former = try await accept(listener, log)
        #expect(try await first.value?.token == "7")
        let second = Task { try await changes.nextOfAgent() }
        try await rename("Notes.sqlite", to: "Diary.sqlite")
        let later = try await accept(listener, log)
        #expect(log.entries.count == 2)
        #expect(log.entries.first?.contains("group.example/Notes.sqlite") == true)
        #expect(log.entries.last?.contains("group.example/Diary.sqlite") == true)
        #expect(log.entries.last?.contains("since") == false)
        guard case .relocated(_, let to, "7")? = try await second.value else { throw Unexpected("not relocated") }
        #expect(to.lastPathComponent == "Diary.sqlite")
        let states = (former.isClosed, later.isClosed)
        #expect(states == (true, false))
        try await presentation.end()
    }

    @Test func followsAPresentedStoreToItsNewNameWithoutAnAgent() async throws {
        let notes = try SharedStore("Notes.sqlite", in: container)
        try sqlite(group.appending("Notes.sqlite"), "CREATE TABLE note (text)")
        let presentation = try await notes.present(open: { _ in }, close: {})
        let changes = changes(of: notes)
        guard case .reset = try await next(changes) else { throw Unexpected("no reset") }
        try await rename("Notes.sqlite", to: "Diary.sqlite")
        while true { if case .relocated = try await next(changes) { break } }
        try sqlite(group.appending("Diary.sqlite"), "INSERT INTO note VALUES ('one')")
        while true { if case .changed = try await next(changes) { break } }
        try await presentation.end()
    }

    /// The agent's sentence and the claim's begin alike.
    @Test func aRefusalSaysOnceWhoRefused() {
        let holder = StoreEvent.Holder(pid: 7, program: "notes", isElsewhere: false)
        for (message, reason) in [("notes (pid 7) can't let go: busy", "busy"), ("notes (pid 7) can't let go", "")] {
            let error = WireError(code: "presenter_failed", message, holders: [holder])
            guard case .refused(let refusal) = ClaimSettlement(error) else {
                Issue.record("not refused")
                continue
            }
            #expect(refusal.message == reason)
        }
    }
}
