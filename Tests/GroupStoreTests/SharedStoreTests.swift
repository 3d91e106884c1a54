import AgentProtocol
import FoundationEssentials
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import GroupContainers
@testable import GroupStore

@Suite(.timeLimit(.minutes(60))) struct SharedStoreTests {
    let scratch: TemporaryDirectory
    let container: GroupContainer
    let legacy: Directory
    let store: SharedStore

    init() throws {
        scratch = try TemporaryDirectory()
        for name in ["group", "legacy"] as [FilePath.Component] {
            try Directory(scratch.path).makeDirectory(name, mode: 0o700)
        }
        container = try GroupContainer(
            identifier: "group.example", directory: URL(path: scratch.path.appending("group")))
        legacy = try Directory(scratch.path.appending("legacy"))
        store = try SharedStore(
            "Notes.sqlite", in: container, legacy: URL(path: legacy.path.appending("Notes.sqlite")))
    }

    private func make(_ name: FilePath.Component, in directory: Directory) throws -> FileIdentity {
        try DurableFile.write(Array("content".utf8), as: name, in: directory, mode: 0o600)
        guard let status = try directory.status(name) else { throw Unexpected("not there") }
        return status.identity
    }

    @Test func reportsAMissingContainer() throws {
        let missing = #expect(throws: GroupStoreError.self) {
            try GroupContainer(identifier: "group.example", directory: URL(filePath: "/nonexistent/group.example"))
        }
        #expect(missing?.code == .noContainer)
        #expect(missing?.remedy.contains("mkdir") == true)
        let bad = #expect(throws: GroupStoreError.self) { try GroupContainer(identifier: "../group") }
        #expect(bad?.code == .badIdentifier)
        #expect(throws: GroupStoreError.self) { try SharedStore("a/b", in: container) }
    }

    /// SQLite and Core Data give these names to another store's files.
    @Test(arguments: [
        "Notes.sqlite-wal", "Notes.sqlite-shm", "Notes.sqlite-journal", ".Notes_SUPPORT", ".groupstore", "", "..",
        "a/b",
        "a\0b", String(repeating: "a", count: 250),
    ])
    func refusesANameOfAnotherStoresFiles(_ name: String) {
        let refused = #expect(throws: GroupStoreError.self) { try SharedStore(name, in: container) }
        #expect(refused?.code == .badName)
    }

    /// Opening the store would remove the database that has the name of its log.
    @Test func doesNotOpenAStoreWhoseSideFileIsADatabase() async throws {
        let database = Array("SQLite format 3\0".utf8)
        try DurableFile.write(database, as: "Notes.sqlite-wal", in: container.directory, mode: 0o600)
        let store = try SharedStore("Notes.sqlite", in: container)
        let opened = Opened()
        let refused = await #expect(throws: GroupStoreError.self) {
            _ = try await store.present(open: { _ in opened.note("open") }, close: { opened.note("close") })
        }
        #expect(refused?.code == .badName && refused?.message.contains("Notes.sqlite-wal") == true)
        #expect(opened.notes.isEmpty)
    }

    /// The store is opened where other processes look for it.
    @Test func followsAReplacedContainer() async throws {
        let path = container.directory.path
        let parent = try Directory(scratch.path)
        try parent.rename("group", to: "group.bak", in: parent, .refuse)
        try parent.makeDirectory("group", mode: 0o700)
        let identity = try make("Notes.sqlite", in: Directory(path))
        #expect(store.location == .group)
        let presentation = try await store.present(open: { _ in }, close: {})
        #expect(FileStatus(following: FilePath(presentation.url.path))?.identity == identity)
        // Its lock is in the new directory, and nothing was made in the old one.
        #expect(try Directory(path).status(".groupstore") != nil)
        #expect(try container.directory.status(".groupstore") == nil)
        try await presentation.end()
    }

    @Test func findsTheStoreInEitherLocation() throws {
        #expect(store.url == store.groupURL)
        _ = try make("Notes.sqlite", in: legacy)
        #expect(store.url == store.legacyURL)
        _ = try make("Notes.sqlite", in: container.directory)
        #expect(store.url == store.groupURL)
    }

    /// The state after a relocation that was killed between withdrawing the old name and publishing the new one.
    @Test(arguments: [true, false]) func returnsTheDatabaseOfAnInterruptedRelocation(_ isCommitting: Bool) throws {
        let identity = try make("Notes.sqlite", in: legacy)
        let transfer = Transfer(
            id: TransferIdentifier(), purpose: .publish(as: StoredPath("Notes.sqlite")), directory: legacy.path,
            name: "Notes.sqlite", database: identity, support: nil, copies: false, retirement: .delete, hadWAL: true)
        let state: TransferState =
            isCommitting ? .committing(database: identity, support: nil, receipt: nil) : .withdrawn
        try container.write(TransferJournal(transfer: transfer, state: state))
        try legacy.makeDirectory(transfer.id.hiddenName(), mode: 0o500)
        try legacy.rename("Notes.sqlite", to: transfer.id.hiddenName(), in: legacy, .exchange)
        #expect(store.location == .moving)

        #expect(try store.settledURL(Deadline(after: .ample)) == store.legacyURL)
        #expect(try legacy.status("Notes.sqlite")?.identity == identity)
        // The next run undoes the rest.
        #expect(try container.journal() != nil)
    }

    @Test func opensAnArrivedStoreBeforeBookkeepingEnds() throws {
        let identity = try make("Notes.sqlite", in: container.directory)
        let transfer = Transfer(
            id: TransferIdentifier(), purpose: .publish(as: StoredPath("Notes.sqlite")), directory: legacy.path,
            name: "Notes.sqlite", database: identity, support: nil, copies: false, retirement: .delete, hadWAL: true)
        try container.write(
            TransferJournal(transfer: transfer, state: .committing(database: identity, support: nil, receipt: nil)))
        // Another process holds the lock.
        let lock = try container.lock()
        #expect(try store.settledURL(Deadline(after: .zero)) == store.groupURL)
        _ = consume lock
    }

    @Test func waitsForARelocationAndNamesItsProcess() throws {
        try legacy.makeDirectory("Notes.sqlite", mode: 0o500)
        let lock = try container.lock()
        try lock?.write(note: Array("4711 groupstore".utf8))
        let error = #expect(throws: GroupStoreError.self) { try store.settledURL(Deadline(after: .milliseconds(20))) }
        #expect(error?.code == .busy)
        #expect(error?.message.contains("4711 groupstore") == true)
        _ = consume lock
    }

    @Test func reportsAMissingAgentOnce() async throws {
        let changes = StoreChanges(
            subscription: SubscribeOperation(store.address), socket: scratch.path.appending("none"))
        let task = Task {
            var seen: [StoreChange] = []
            for try await change in changes { seen.append(change) }
            return seen
        }
        var iterator = changes.makeAsyncIterator()
        #expect(try await iterator.next() == .disconnected)
        task.cancel()
        #expect(try await task.value.count <= 1)
    }

    @Test func opensAPresentedStoreWithoutAnAgent() async throws {
        _ = try make("Notes.sqlite", in: legacy)
        let opened = Opened()
        let presentation = try await store.present(
            open: { opened.note("open \($0.path)") }, close: { opened.note("close") })
        #expect(presentation.isOpen)
        try await presentation.end()
        #expect(opened.notes == ["open \(legacy.path)/Notes.sqlite", "close"])
        #expect(!presentation.isOpen)
    }

    /// A coordinator in the same process asks the presentation to close the store, without an agent.
    @Test func closesAPresentedStoreForAWriter() async throws {
        _ = try make("Notes.sqlite", in: container.directory)
        let opened = Opened()
        let presentation = try await store.present(open: { _ in opened.note("open") }, close: { opened.note("close") })
        let coordinator = FileCoordinator(in: container)
        try await coordinator.coordinate(with: [.writingIntent(with: store.groupURL, options: .forMoving)]) { _ in
            opened.note("moved")
        }
        while !presentation.isOpen { await Task.yield() }
        try await presentation.end()
        #expect(opened.notes == ["open", "close", "moved", "open", "close"])
    }

    /// Moves the store in a coordinated access, and calls `body` inside it.
    private func move(
        _ old: FilePath.Component, to new: FilePath.Component, _ coordinator: FileCoordinator,
        _ body: @Sendable () async throws -> Void = {}
    ) async throws {
        let (from, to) = (URL(path: container.directory.path.appending(old)), container.url.appending(path: new.string))
        try await coordinator.coordinate(
            with: [.writingIntent(with: from, options: .forMoving), .writingIntent(with: to, options: .forReplacing)],
            deadline: .ample
        ) { [container] _ in
            try await body()
            try container.directory.rename(old, to: new, in: container.directory, .refuse)
            coordinator.item(at: from, didMoveTo: to)
        }
    }

    @Test func followsAMovedStore() async throws {
        _ = try make("Notes.sqlite", in: container.directory)
        let opened = Opened()
        let presentation = try await store.present(
            open: { opened.note("open \($0.lastPathComponent)") }, close: { opened.note("close") })
        try await move("Notes.sqlite", to: "Moved.sqlite", FileCoordinator(in: container))
        while !presentation.isOpen { await Task.yield() }
        #expect(presentation.presentedItemURL?.lastPathComponent == "Moved.sqlite")
        #expect(presentation.presentedStore?.name == "Moved.sqlite")
        // From here on it is asked about its new location.
        try await move("Moved.sqlite", to: "Notes.sqlite", FileCoordinator(in: container))
        while !presentation.isOpen { await Task.yield() }
        try await presentation.end()
        #expect(
            opened.notes == ["open Notes.sqlite", "close", "open Moved.sqlite", "close", "open Notes.sqlite", "close"])
    }

    /// The presentation begins while the store is moved: it waits for the move, and follows the store.
    @Test func followsAStoreMovedWhilePresentationBegins() async throws {
        _ = try make("Notes.sqlite", in: container.directory)
        let opened = Opened()
        let coming = Mutex<Task<StorePresentation, any Error>?>(nil)
        let (store, container) = (store, container)
        try await move("Notes.sqlite", to: "Moved.sqlite", FileCoordinator(in: container)) {
            coming.withLock {
                $0 = Task {
                    try await store.present(open: { opened.note("open \($0.lastPathComponent)") }, close: {})
                }
            }
            while RegisteredPresenters.shared(in: container).registry.presenters(of: store.item).isEmpty {
                await Task.yield()
            }
        }
        let presentation = try await coming.withLock { $0 }?.value
        #expect(opened.notes == ["open Moved.sqlite"])
        try await presentation?.end()
    }

    /// A presentation isn't notified of its own coordinator's access.
    @Test func followsAMoveByItsOwnCoordinator() async throws {
        _ = try make("Notes.sqlite", in: container.directory)
        let presentation = try await store.present(open: { _ in }, close: {})
        try await move("Notes.sqlite", to: "Moved.sqlite", FileCoordinator(in: container, filePresenter: presentation))
        #expect(presentation.presentedItemURL?.lastPathComponent == "Moved.sqlite")
        try await presentation.end()
    }

    /// Only the first opening may create the store. `failed` receives the error, and may end the presentation.
    @Test func doesNotOpenAStoreThatIsGone() async throws {
        _ = try make("Notes.sqlite", in: container.directory)
        let opened = Opened()
        let ending = Mutex<StorePresentation?>(nil)
        let presentation = try await store.present(
            open: { _ in opened.note("open") }, close: { opened.note("close") },
            failed: { error in
                opened.note((error as? GroupStoreError)?.code.rawValue ?? "\(error)")
                try? await ending.withLock { $0 }?.end()
                opened.note("ended")
            })
        ending.withLock { $0 = presentation }
        let directory = container.directory
        try await FileCoordinator(in: container).coordinate(
            with: [.writingIntent(with: store.groupURL, options: .forDeleting)], deadline: .ample
        ) { _ in try directory.removeFile("Notes.sqlite") }
        let deadline = Deadline(after: .seconds(30))
        while !opened.notes.contains("ended"), !deadline.hasPassed { await Task.yield() }
        #expect(opened.notes == ["open", "close", "no_store", "ended"])
    }
}

final class Opened: Sendable {
    private let entries = Mutex<[String]>([])
    var notes: [String] { entries.withLock { $0 } }
    func note(_ entry: String) { entries.withLock { $0.append(entry) } }
}
