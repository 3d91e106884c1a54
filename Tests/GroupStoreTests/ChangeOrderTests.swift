import AgentProtocol
import FoundationEssentials
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import GroupContainers
@testable import GroupStore

/// A subscriber that presents the store hears of a relocation when it can read the store.
@Suite(.timeLimit(.minutes(60))) struct ChangeOrderTests {
    let scratch: TemporaryDirectory
    let container: GroupContainer
    let store: SharedStore
    var socket: FilePath { scratch.path.appending("agent.sock") }

    init() throws {
        scratch = try TemporaryDirectory()
        try Directory(scratch.path).makeDirectory("group", mode: 0o700)
        container = try GroupContainer(
            identifier: "group.example", directory: URL(path: scratch.path.appending("group")))
        store = try SharedStore("Notes.sqlite", in: container)
        try write("a store", to: scratch.path.appending("group/Notes.sqlite"))
    }

    private final class OpenState: Sendable {
        private let value = Mutex(false)
        var isOpen: Bool {
            get { value.withLock { $0 } }
            set { value.withLock { $0 = newValue } }
        }
    }

    private func write(_ text: String, to path: FilePath) throws {
        try text.write(to: URL(path: path), atomically: false, encoding: .utf8)
    }

    /// Returns an agent's connection that the reader has subscribed on, after its first change.
    private func subscribe(_ reader: ChangeReader, _ listener: borrowing Descriptor) async throws -> StandInAgent {
        let first = Task { try await reader.nextOfAgent() }
        let agent = try await StandInAgent.accept(on: listener) { _ in }
        try agent.send(["id": 1, "ok": true, "token": "0"])
        #expect(try await first.value?.token == "0")
        return agent
    }

    private func relocated(_ token: Int) -> JSONObject {
        [
            "type": "relocated", "store": .string("group.example/Notes.sqlite"), "from": "/old", "to": "/new",
            "token": .string("\(token)"),
        ]
    }

    /// The agent reports the relocation to the subscriber while the presenter still opens the store.
    @Test func deliversRelocatedAfterTheStoreIsOpenAgain() async throws {
        let state = OpenState()
        let presentation = try await store.present(
            open: { _ in
                try await Task.sleep(for: .milliseconds(2))
                state.isOpen = true
            }, close: { state.isOpen = false })
        let listener = try UnixSocket.listen(at: socket)
        let reader = ChangeReader(
            ChangeSource(subscription: SubscribeOperation(store.address), socket: socket, store: store))
        let agent = try await subscribe(reader, listener)
        for round in 1...300 {
            let next = Task {
                let change = try await reader.next()
                return (change, state.isOpen)
            }
            try await FileCoordinator(in: container).coordinate(
                with: [.writingIntent(with: store.groupURL, options: .forMoving)], deadline: .ample
            ) { _ in
                #expect(!state.isOpen)
            }
            // The presenter has been told to open the store, at most.
            try agent.send(relocated(round))
            let (change, wasOpen) = try await next.value
            #expect(change?.token == "\(round)")
            #expect(wasOpen)
        }
        try await presentation.end()
        // Nobody presents the store any more.
        try agent.send(relocated(0))
        #expect(try await reader.next()?.token == "0")
    }

    /// A store that can't be opened again holds up the sequence, but not its end.
    @Test func endsWhileTheStoreIsNotOpen() async throws {
        let presentation = try await store.present(open: { _ in }, close: {})
        let listener = try UnixSocket.listen(at: socket)
        let reader = ChangeReader(
            ChangeSource(subscription: SubscribeOperation(store.address), socket: socket, store: store))
        let agent = try await subscribe(reader, listener)
        let path = scratch.path.appending("group")
        try await FileCoordinator(in: container).coordinate(
            with: [.writingIntent(with: store.groupURL, options: .forMoving)], deadline: .ample
        ) { _ in try Directory(path).rename("Notes.sqlite", to: "away", in: Directory(path), .refuse) }
        try agent.send(relocated(1))
        let next = Task { try await reader.next() }
        try await Task.sleep(for: .milliseconds(50))
        next.cancel()
        #expect(try await next.value == nil)
        try await presentation.end()
    }

    /// The token and the content need no `switch`.
    @Test func describesChangesWithoutASwitch() {
        let change = StoreChange.changed(tables: ["note"], isComplete: true, token: "1")
        #expect((change.token, change.tables, change.changesContent) == ("1", ["note"], true))
        #expect(StoreChange.changed(tables: ["note"], isComplete: false, token: "1").tables == nil)
        #expect(StoreChange.reset(reason: "lagged", token: "2").changesContent)
        #expect(!StoreChange.disconnected.changesContent)
        #expect(StoreChange.disconnected.token == nil)
    }
}
