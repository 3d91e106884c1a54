import Foundation
import GRDB
import GroupStore
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreGRDB

@Suite(.timeLimit(.minutes(60))) struct SharedDatabasePoolTests {
    let scratch: TemporaryDirectory
    let container: GroupContainer
    let store: SharedStore

    init() throws {
        scratch = try TemporaryDirectory()
        container = try GroupContainer(identifier: "group.example", directory: URL(path: scratch.path))
        store = try SharedStore("Notes.sqlite", in: container)
    }

    private func open(patience: Duration = .ample) async throws -> SharedDatabasePool {
        try await SharedDatabasePool(store, patience: patience) { pool in
            try pool.write { try $0.execute(sql: "CREATE TABLE IF NOT EXISTS note (title TEXT)") }
        }
    }

    @Test func leavesNoWALAfterClosing() async throws {
        let notes = try await open()
        try await notes.write { try $0.execute(sql: "INSERT INTO note VALUES ('one')") }
        #expect(try await notes.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") } == 1)
        try await notes.close()
        #expect(try container.directory.status("Notes.sqlite-wal") == nil)
        let error = await #expect(throws: SharedDatabasePool.Unavailable.self) { try await notes.read { _ in } }
        guard case .closed? = error?.reason else { throw Unexpected("\(String(describing: error))") }
        #expect(error?.message == "Notes.sqlite is closed")
    }

    @Test(
        arguments: [
            SharedDatabaseUnavailable(store: "Notes.sqlite", reason: .closed),
            SharedDatabaseUnavailable(
                store: "Notes.sqlite", reason: .notOpened(SystemError("open", .ioError, path: "/srv/Notes.sqlite"))),
            SharedDatabaseNotFollowed(message: "the agent doesn't serve the group", remedy: "add it"),
        ] as [any ActionableError])
    func anErrorShowsItsRemedy(_ error: any ActionableError) {
        let unknown: any Error = error
        #expect(error.shapeDefects == [])
        #expect("\(unknown)" == "\(error.message) (\(error.remedy))")
        #expect(unknown.localizedDescription == "\(unknown)")
    }

    /// SQLite doesn't call the busy handler when a store switches to write-ahead mode.
    @Test func waitsForAWriterWhenOpening() async throws {
        var unsafe = GRDB.Configuration()
        unsafe.allowsUnsafeTransactions = true
        let writer = try DatabaseQueue(path: store.groupURL.path, configuration: unsafe)
        try await writer.writeWithoutTransaction {
            try $0.execute(sql: "CREATE TABLE note (title TEXT); BEGIN IMMEDIATE; INSERT INTO note VALUES ('one')")
        }
        var configuration = GRDB.Configuration()
        configuration.busyMode = .callback { tries in
            if tries == 2 { try? writer.writeWithoutTransaction { try $0.execute(sql: "COMMIT") } }
            return tries < 1000
        }
        let notes = try await SharedDatabasePool(store, configuration: configuration)
        #expect(try await notes.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") } == 1)
        try await notes.close()
    }

    /// Several pools open a new store at once, without a busy timeout.
    @Test func opensANewStoreFromManyPoolsAtOnce() async throws {
        for round in 1...10 {
            let store = try SharedStore("Store \(round).sqlite", in: container)
            try await withThrowingTaskGroup(of: Void.self) { group in
                for _ in 1...6 { group.addTask { try await SharedDatabasePool(store).close() } }
                try await group.waitForAll()
            }
        }
    }

    /// The pool must not leak, nor its descriptors.
    @Test func deallocatesAClosedPool() async throws {
        weak var pool: SharedDatabasePool?
        do {
            let notes = try await open()
            pool = notes
            try await notes.close()
        }
        let deadline = Deadline(after: .seconds(30))
        while pool != nil, !deadline.hasPassed { await Task.yield() }
        #expect(pool == nil)
    }

    /// A pool that is dropped without `close()` holds neither the store nor its claim.
    @Test func closesADroppedPool() async throws {
        do {
            let notes = try await open()
            try await notes.write { try $0.execute(sql: "INSERT INTO note VALUES ('one')") }
        }
        // The claim is granted once the store is no longer presented.
        try await FileCoordinator(in: container).coordinate(
            with: [.writingIntent(with: store.groupURL, options: .forMoving)], deadline: .ample
        ) { _ in }
        let identity = try #require(try container.directory.status("Notes.sqlite")?.identity)
        #expect(!Descriptor.isOpen(identity))
        #expect(try container.directory.status("Notes.sqlite-wal") == nil)
    }

    @Test func staysOpenWhileItIsObserved() async throws {
        let log = Log()
        let cancellable = try await {
            let notes = try await open()
            return ValueObservation.tracking { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") ?? 0 }
                .removeDuplicates().start(
                    in: notes, scheduling: .task, onError: { log.note("\($0)") }, onChange: { log.note("\($0)") })
        }()
        await log.has("0")
        try await DatabaseQueue(path: store.groupURL.path, configuration: .sharedStore).write {
            try $0.execute(sql: "INSERT INTO note VALUES ('one')")
        }
        await log.has("1")
        cancellable.cancel()
    }

    /// Without a configuration, a write waits for that of another process.
    @Test func waitsForAnotherWriterByDefault() async throws {
        let notes = try await open()
        var unsafe = GRDB.Configuration()
        unsafe.allowsUnsafeTransactions = true
        let writer = try DatabaseQueue(path: store.groupURL.path, configuration: unsafe)
        try await writer.writeWithoutTransaction {
            try $0.execute(sql: "BEGIN IMMEDIATE; INSERT INTO note VALUES ('one')")
        }
        let other = Task { try await notes.write { try $0.execute(sql: "INSERT INTO note VALUES ('two')") } }
        try await writer.writeWithoutTransaction { try $0.execute(sql: "COMMIT") }
        try await other.value
        #expect(notes.configuration.busyMode.isPatient)
        try await notes.close()
    }

    private func rename(_ old: URL, to new: URL, by coordinator: FileCoordinator) async throws {
        try await coordinator.coordinate(
            with: [
                .writingIntent(with: old, options: .forMoving), .writingIntent(with: new, options: .forReplacing),
            ], deadline: .ample
        ) { [container] _ in
            guard let from = FilePath(old.path).lastComponent, let to = FilePath(new.path).lastComponent else { return }
            try container.directory.rename(from, to: to, in: container.directory, .refuse)
            coordinator.item(at: old, didMoveTo: new)
        }
    }

    @Test func reopensAMovedStoreAtItsNewLocation() async throws {
        let notes = try await open()
        try await notes.write { try $0.execute(sql: "INSERT INTO note VALUES ('one')") }
        let moved = container.url.appending(path: "Moved.sqlite", directoryHint: .notDirectory)
        let coordinator = FileCoordinator(in: container)
        for url in [moved, store.groupURL] {
            try await rename(notes.url, to: url, by: coordinator)
            try await notes.write { try $0.execute(sql: "INSERT INTO note VALUES ('after a move')") }
            #expect(notes.url.lastPathComponent == url.lastPathComponent)
            #expect(try container.directory.names().filter { $0.string.hasSuffix(".sqlite") }.count == 1)
        }
        #expect(try await notes.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") } == 3)
        try await notes.close()
    }

    /// The process that took the store away may bring it back. Until then there is no store, and no empty one in its
    /// place.
    @Test func doesNotRecreateAStoreThatIsGone() async throws {
        let notes = try await open(patience: .milliseconds(200))
        try await notes.write { try $0.execute(sql: "INSERT INTO note VALUES ('one')") }
        let directory = container.directory
        try await FileCoordinator(in: container).coordinate(
            with: [.writingIntent(with: store.groupURL, options: .forMoving)], deadline: .ample
        ) { _ in
            try directory.rename("Notes.sqlite", to: "away", in: directory, .refuse)
        }
        var isReported = false
        while !isReported {
            let error = await #expect(throws: SharedDatabasePool.Unavailable.self) { try await notes.read { _ in } }
            guard let error else { throw Unexpected("the store was created again") }
            guard case .notOpened(let reason) = error.reason else { continue }
            isReported = (reason as? GroupStoreError)?.code == .noStore
        }
        #expect(try directory.status("Notes.sqlite") == nil)
        try directory.rename("away", to: "Notes.sqlite", in: directory, .refuse)
        while notes.isClosed { await Task.yield() }
        #expect(try await notes.read { try String.fetchAll($0, sql: "SELECT title FROM note") } == ["one"])
        try await notes.close()
    }

    /// Migrations ask the store's presenters, and avoid versions that would lock one out.
    @Test func declaresTheVersionsItCanOpen() async throws {
        let notes = try await SharedDatabasePool(store, openableModelVersions: ["Notes 2"])
        #expect(notes.openableModelVersions == ["Notes 2"])
        try await notes.close()
        let any = try await open()
        #expect(any.openableModelVersions == nil)
        try await any.close()
    }

    @Test func makesAccessesWaitDuringARelocation() async throws {
        let notes = try await open()
        let coordinator = FileCoordinator(in: container)
        let url = store.groupURL
        let waiting = try await coordinator.coordinate(with: [.writingIntent(with: url, options: .forMoving)]) { _ in
            let log = try container.directory.status("Notes.sqlite-wal")
            #expect(log == nil)
            return Task { try await notes.write { try $0.execute(sql: "INSERT INTO note VALUES ('late')") } }
        }
        try await waiting.value
        #expect(try await notes.read { try String.fetchAll($0, sql: "SELECT title FROM note") } == ["late"])
        try await notes.close()
    }

    @Test func completesAnAccessBeforeClosingThePool() async throws {
        let notes = try await open()
        let url = store.groupURL
        let container = container
        let moving = try await notes.withPool { pool in
            let moving = Task {
                try await FileCoordinator(in: container).coordinate(with: [.writingIntent(with: url)]) { _ in }
            }
            // The move waits in line for this access now.
            while !container.claimRecords().contains(where: { $0.accesses.contains(where: \.writes) }) {
                await Task.yield()
            }
            try await pool.write { try $0.execute(sql: "INSERT INTO note VALUES ('in time')") }
            return moving
        }
        try await moving.value
        #expect(try await notes.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") } == 1)
        try await notes.close()
    }

    /// A nested access doesn't wait for the relocation, which waits for the outer access.
    @Test func runsANestedAccessDuringARelocation() async throws {
        let notes = try await open(patience: .milliseconds(50))
        let url = store.groupURL
        let container = container
        let moving = try await notes.withPool { _ in
            let moving = Task {
                try await FileCoordinator(in: container).coordinate(
                    with: [.writingIntent(with: url)], deadline: .ample
                ) { _ in }
            }
            while !container.claimRecords().contains(where: { $0.accesses.contains(where: \.writes) }) {
                await Task.yield()
            }
            // Accesses from outside wait now, or soon.
            try await notes.write { try $0.execute(sql: "INSERT INTO note VALUES ('inside')") }
            while (try? await Task.detached { try await notes.read { _ in } }.value) != nil { await Task.yield() }
            #expect(try await notes.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") } == 1)
            return moving
        }
        try await moving.value
        try await notes.close()
    }

    /// After a relocation gives up because of a long access, all other accesses continue at once.
    @Test func resumesAccessesWhenARelocationGivesUp() async throws {
        let notes = try await open()
        let url = store.groupURL
        let container = container
        try await notes.withPool { _ in
            let error = await #expect(throws: FileCoordinationError.self) {
                try await FileCoordinator(in: container).coordinate(
                    with: [.writingIntent(with: url)], deadline: .milliseconds(300)
                ) { _ in }
            }
            #expect(error?.code == .busy)
            // From outside, during this access.
            try await Task.detached {
                try await notes.write { try $0.execute(sql: "INSERT INTO note VALUES ('outside')") }
            }.value
        }
        #expect(try await notes.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") } == 1)
        try await notes.close()
    }

    /// The pool is closed while a relocation waits for an access: all three end, and nothing stays open.
    @Test func closesDuringARelocationWithoutADeadlock() async throws {
        for _ in 1...10 {
            let notes = try await open()
            let url = store.groupURL
            let container = container
            let moving = try await notes.withPool { _ in
                let moving = Task {
                    try await FileCoordinator(in: container).coordinate(
                        with: [.writingIntent(with: url)], deadline: .ample
                    ) { _ in try container.directory.status("Notes.sqlite-wal") != nil }
                }
                Task { try await notes.close() }
                while !container.claimRecords().contains(where: { $0.accesses.contains(where: \.writes) }) {
                    await Task.yield()
                }
                return moving
            }
            #expect(try await moving.value == false)
            try await notes.close()
            #expect(notes.isClosed)
        }
    }

    @Test func failsAnAccessAfterItsPatience() async throws {
        let notes = try await open(patience: .milliseconds(50))
        let url = store.groupURL
        try await FileCoordinator(in: container).coordinate(with: [.writingIntent(with: url)]) { _ in
            _ = await #expect(throws: SharedDatabasePool.Unavailable.self) { try await notes.read { _ in } }
        }
        try await notes.close()
    }
}

extension Database.BusyMode {
    fileprivate var isPatient: Bool { if case .timeout(let seconds) = self { seconds >= 5 } else { false } }
}
