import Dispatch
import FoundationEssentials
import GRDB
import GroupStore
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreGRDB

/// A shared database where GRDB takes any `DatabaseReader` or `DatabaseWriter`.
@Suite(.timeLimit(.minutes(60))) struct GRDBProtocolTests {
    let scratch: TemporaryDirectory
    let container: GroupContainer
    let store: SharedStore

    init() throws {
        scratch = try TemporaryDirectory()
        container = try GroupContainer(identifier: "group.example", directory: URL(path: scratch.path))
        store = try SharedStore("Notes.sqlite", in: container)
    }

    static let counts = ValueObservation.tracking { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") ?? 0 }
    private static let insert = "INSERT INTO note (title) VALUES ('one')"

    static var migrator: DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("note") { try $0.execute(sql: "CREATE TABLE note (title TEXT)") }
        return migrator
    }

    /// The two kinds, as GRDB sees them.
    enum Kind: CaseIterable {
        case pool, queue
    }

    private func open(_ kind: Kind, patience: Duration = .ample) async throws -> any DatabaseWriter {
        switch kind {
        case .pool: try await SharedDatabasePool(store, patience: patience) { try Self.migrator.migrate($0) }
        case .queue: try await SharedDatabaseQueue(store, patience: patience) { try Self.migrator.migrate($0) }
        }
    }

    /// Moves the store away and back in a coordinated access, and writes to it meanwhile if wanted.
    private func relocate(_ sql: String? = nil) async throws {
        let url = store.groupURL
        try await FileCoordinator(in: container).coordinate(
            with: [.writingIntent(with: url, options: .forMoving)], deadline: .ample
        ) { [container] _ in
            try container.directory.rename("Notes.sqlite", to: "away", in: container.directory, .refuse)
            try container.directory.rename("away", to: "Notes.sqlite", in: container.directory, .refuse)
            if let sql { try DatabaseQueue(path: url.path).write { try $0.execute(sql: sql) } }
        }
    }

    @Test(arguments: Kind.allCases) func readsAndWritesThroughTheProtocols(_ kind: Kind) async throws {
        let notes = try await open(kind)
        try await notes.write { try $0.execute(sql: Self.insert) }
        try await notes.barrierWriteWithoutTransaction { try $0.execute(sql: Self.insert) }
        #expect(try await notes.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") } == 2)
        #expect(try await notes.unsafeRead { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") } == 2)
        let copy = try DatabaseQueue()
        try await SystemThread.run(name: "sync") {
            try notes.write { try $0.execute(sql: Self.insert) }
            try notes.barrierWriteWithoutTransaction { try $0.execute(sql: Self.insert) }
            #expect(try notes.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") } == 4)
            #expect(try notes.unsafeRead { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") } == 4)
            #expect(try notes.unsafeReentrantRead { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") } == 4)
            try Self.migrator.migrate(notes)
            try notes.backup(to: copy)
            try notes.vacuum()
        }
        #expect(try await copy.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") } == 4)
        #expect(notes.path == store.groupURL.path)
        notes.interrupt()
        try await SystemThread.run(name: "close") { try notes.close() }
        await #expect(throws: SharedDatabaseUnavailable.self) { try await notes.read { _ in } }
        await #expect(throws: SharedDatabaseUnavailable.self) { try await notes.write { try $0.execute(sql: "") } }
    }

    /// Nested accesses as GRDB allows them: the relocation waits for the outer one, so the inner ones don't wait.
    @Test func nestsAccessesDuringARelocation() async throws {
        try await nest(SharedDatabasePool(store) { try Self.migrator.migrate($0) })
        try await nest(SharedDatabaseQueue(store) { try Self.migrator.migrate($0) })
    }

    private func nest<Connection>(_ notes: SharedDatabase<Connection>) async throws {
        let (container, url) = (container, store.groupURL)
        let moving = Mutex<Task<Void, any Error>?>(nil)
        try await SystemThread.run(name: "outer") {
            try notes.writeWithoutTransaction { database in
                try database.execute(sql: "DELETE FROM note")
                moving.withLock {
                    $0 = Task {
                        try await FileCoordinator(in: container).coordinate(
                            with: [.writingIntent(with: url)], deadline: .ample
                        ) { _ in }
                    }
                }
                while !notes.lifecycle.isClosing { pause(.milliseconds(1)) }
                try notes.unsafeReentrantWrite { try $0.execute(sql: Self.insert) }
                #expect(try notes.unsafeReentrantRead { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") } == 1)
                if Connection.self == DatabasePool.self {
                    #expect(try notes.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") } == 1)
                }
                let count = Mutex<Int?>(nil)
                let read = DispatchSemaphore(value: 0)
                notes.spawnConcurrentRead { result in
                    let found = try? Int.fetchOne(result.get(), sql: "SELECT count(*) FROM note")
                    count.withLock { $0 = found }
                    read.signal()
                }
                read.wait()
                #expect(count.withLock { $0 } == 1)
            }
        }
        try await moving.withLock { $0 }?.value
        try await notes.close()
    }

    /// Callbacks come in the order of the calls, also of those that were made while the database was closed.
    @Test(arguments: Kind.allCases) func keepsTheOrderOfQueuedWrites(_ kind: Kind) async throws {
        let notes = try await open(kind)
        let url = store.groupURL
        let container = container
        try await FileCoordinator(in: container).coordinate(with: [.writingIntent(with: url)]) { _ in
            for number in 1...100 {
                notes.asyncWriteWithoutTransaction { try? $0.execute(sql: "INSERT INTO note VALUES ('\(number)')") }
            }
        }
        for number in 101...200 {
            notes.asyncWriteWithoutTransaction { try? $0.execute(sql: "INSERT INTO note VALUES ('\(number)')") }
        }
        let titles = try await notes.writeWithoutTransaction {
            try String.fetchAll($0, sql: "SELECT title FROM note ORDER BY rowid")
        }
        var all = titles
        while all.count < 200 {
            all = try await notes.read { try String.fetchAll($0, sql: "SELECT title FROM note ORDER BY rowid") }
        }
        #expect(all == (1...200).map(String.init))
        try await SystemThread.run(name: "close") { try notes.close() }
    }

    @Test(arguments: Kind.allCases) func failsQueuedAccessesAfterTheirPatience(_ kind: Kind) async throws {
        let notes = try await open(kind, patience: .milliseconds(50))
        let container = container
        try await FileCoordinator(in: container).coordinate(with: [.writingIntent(with: store.groupURL)]) { _ in
            let error = await withCheckedContinuation { continuation in
                notes.asyncRead { result in
                    if case .failure(let error) = result { continuation.resume(returning: error) }
                }
            }
            #expect(error is SharedDatabaseUnavailable)
            let code = await withCheckedContinuation { continuation in
                notes.asyncWrite({ try $0.execute(sql: Self.insert) }) { _, result in
                    if case .failure(let error) = result { continuation.resume(returning: error) }
                }
            }
            #expect((code as? DatabaseError)?.resultCode == .SQLITE_AUTH)
            let thrown = try await SystemThread.run(name: "sync") {
                #expect(throws: SharedDatabaseUnavailable.self) { try notes.write { try $0.execute(sql: Self.insert) } }
            }
            guard case .away? = thrown?.reason else { throw Unexpected("\(String(describing: thrown))") }
        }
        // On a busy machine, the reopening takes longer than this patience.
        var rows: Int?
        let deadline = ContinuousClock.now + .ample
        while rows == nil, ContinuousClock.now < deadline {
            rows = try? await notes.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") }
        }
        #expect(rows == 0)
        try await SystemThread.run(name: "close") { try notes.close() }
    }

    /// Sees this process's writes, another connection's after a notification, and the database after each reopening.
    @Test(arguments: Kind.allCases) func continuesAValueObservation(_ kind: Kind) async throws {
        let notes = try await open(kind)
        var values = Self.counts.removeDuplicates().values(in: notes).makeAsyncIterator()
        func expect(_ count: Int) async throws {
            while let value = try await values.next() {
                if value == count { return }
                // Values may repeat, but not jump ahead.
                #expect(value < count)
            }
            throw Unexpected("the observation has ended")
        }
        try await expect(0)
        try await notes.write { try $0.execute(sql: Self.insert) }
        try await expect(1)
        for round in 0..<20 {
            try await relocate(Self.insert)
            try await expect(2 + 2 * round)
            try await notes.write { try $0.execute(sql: Self.insert) }
            try await expect(3 + 2 * round)
        }
        try await SystemThread.run(name: "close") { try notes.close() }
        await #expect(throws: DatabaseError.self) { while try await values.next() != nil {} }
    }

    @Test func startsAnObservationWhileTheStoreIsAway() async throws {
        let notes = try await SharedDatabasePool(store) { try Self.migrator.migrate($0) }
        let values = try await FileCoordinator(in: container).coordinate(
            with: [.writingIntent(with: store.groupURL)]
        ) { _ in
            #expect(notes.isClosed)
            return Self.counts.values(in: notes)
        }
        for try await value in values {
            #expect(value == 0)
            break
        }
        try await notes.close()
        await #expect(throws: DatabaseError.self) { for try await _ in Self.counts.values(in: notes) {} }
    }

    /// Delivers the first value in the call, and values after a reopening by its `schedule` method.
    private struct ImmediateScheduler: ValueObservationScheduler {
        let queue: DispatchQueue
        func immediateInitialValue() -> Bool { true }
        func schedule(_ action: @escaping @Sendable () -> Void) { queue.async(execute: action) }
    }

    @Test(arguments: Kind.allCases) func deliversAnImmediateValue(_ kind: Kind) async throws {
        let notes = try await open(kind)
        let (stream, continuation) = AsyncStream<Int>.makeStream()
        let queue = DispatchQueue(label: "values")
        let isInCall = Mutex(true)
        let cancellable = try await SystemThread.run(name: "immediate") {
            defer { isInCall.withLock { $0 = false } }
            return Self.counts.start(
                in: notes, scheduling: ImmediateScheduler(queue: queue), onError: { _ in continuation.finish() },
                onChange: { continuation.yield(isInCall.withLock { $0 } ? $0 : $0 + 100) })
        }
        var values = stream.makeAsyncIterator()
        #expect(await values.next() == 0)
        try await relocate(Self.insert)
        while let value = await values.next(), value != 101 {}
        cancellable.cancel()
        try await relocate()
        try await SystemThread.run(name: "close") { try notes.close() }
        // A cancelled observation reports no end.
        continuation.finish()
    }

    private final class CommitCounter: TransactionObserver, Sendable {
        let count = Mutex(0)
        func observes(eventsOfKind eventKind: DatabaseEventKind) -> Bool { true }
        func databaseDidChange(with event: DatabaseEvent) {}
        func databaseDidCommit(_ db: Database) { count.withLock { $0 += 1 } }
        func databaseDidRollback(_ db: Database) {}
    }

    /// Counts changes of a region.
    private final class RegionCounter: Sendable {
        static let observation = DatabaseRegionObservation(tracking: Table("note"))
        let count = Mutex(0)
        @Sendable func increment(_ database: Database) { count.withLock { $0 += 1 } }
        @Sendable func fail(_ error: any Error) { Issue.record(error) }
    }

    @Test func keepsTransactionObserversAndRegionObservationsOfAPool() async throws {
        let notes = try await SharedDatabasePool(store) { try Self.migrator.migrate($0) }
        let changes = RegionCounter()
        let region = RegionCounter.observation.start(in: notes, onError: changes.fail, onChange: changes.increment)
        try await observe(notes, changes, region)
    }

    @Test func keepsTransactionObserversAndRegionObservationsOfAQueue() async throws {
        let notes = try await SharedDatabaseQueue(store) { try Self.migrator.migrate($0) }
        let changes = RegionCounter()
        let region = RegionCounter.observation.start(in: notes, onError: changes.fail, onChange: changes.increment)
        try await observe(notes, changes, region)
    }

    private func observe<Connection>(
        _ notes: SharedDatabase<Connection>, _ changes: RegionCounter, _ region: AnyDatabaseCancellable
    ) async throws {
        let counter = CommitCounter()
        notes.add(transactionObserver: counter)
        for _ in 1...3 {
            let (commits, changed) = (counter.count.withLock { $0 }, changes.count.withLock { $0 })
            try await notes.write { try $0.execute(sql: Self.insert) }
            #expect(counter.count.withLock { $0 } > commits)
            #expect(changes.count.withLock { $0 } > changed)
            let before = changes.count.withLock { $0 }
            try await relocate(Self.insert)
            let deadline = Deadline(after: .ample)
            while changes.count.withLock({ $0 }) == before, deadline.remaining.map({ $0 > .zero }) ?? true {
                try await Task.sleep(for: .milliseconds(1))
            }
            #expect(changes.count.withLock { $0 } > before)
        }
        notes.remove(transactionObserver: counter)
        region.cancel()
        try await relocate()
        let (commits, changed) = (counter.count.withLock { $0 }, changes.count.withLock { $0 })
        try await notes.write { try $0.execute(sql: Self.insert) }
        #expect(counter.count.withLock { $0 } == commits)
        #expect(changes.count.withLock { $0 } == changed)
        try await notes.close()
    }

    @Test func refusesToCloseInsideAnAccess() async throws {
        let notes = try await SharedDatabaseQueue(store)
        try await SystemThread.run(name: "inside") {
            try notes.read { _ in
                let error = #expect(throws: DatabaseError.self) { try notes.close() }
                #expect(error?.resultCode == .SQLITE_BUSY)
            }
        }
        try await notes.close()
    }

    @Test func refusesToCloseInsideAnAsynchronousAccess() async throws {
        let notes = try await SharedDatabasePool(store) { try Self.migrator.migrate($0) }
        try await notes.withPool { _ in
            let error = await #expect(throws: DatabaseError.self) { try await notes.close() }
            #expect(error?.resultCode == .SQLITE_BUSY)
        }
        // It is as it was.
        try await notes.write { try $0.execute(sql: Self.insert) }
        try await notes.close()
    }

    /// Synchronous accesses in tasks block all threads of the global executor. The store comes back all the same.
    @Test func blockedTasksDontHoldUpTheReopening() async throws {
        let notes = try await SharedDatabasePool(store, patience: .ample) { try Self.migrator.migrate($0) }
        let container = container
        let url = store.groupURL
        let reads = try await SystemThread.run(name: "mover") {
            try FileCoordinator(in: container).coordinate(
                writingItemAt: url, options: .forMoving, deadline: .ample
            ) { _ in
                defer { pause(.milliseconds(200)) }
                return (1...16).map { _ in Task.detached { try Self.readBlocking(notes) } }
            }
        }
        for read in reads { #expect(try await read.value == 0) }
        try await notes.close()
    }

    /// The store is closed although the asynchronous accesses under way end while all threads of the global executor
    /// are blocked by tasks that wait for the store to come back.
    @Test(arguments: Kind.allCases) func blockedTasksDontHoldUpTheClosing(_ kind: Kind) async throws {
        switch kind {
        case .pool:
            try await blockWhileClosing(
                SharedDatabasePool(store, patience: .ample) { try Self.migrator.migrate($0) })
        case .queue:
            try await blockWhileClosing(
                SharedDatabaseQueue(store, patience: .ample) { try Self.migrator.migrate($0) })
        }
    }

    private func blockWhileClosing<Connection>(_ notes: SharedDatabase<Connection>) async throws {
        let container = container
        let url = store.groupURL
        let (isReading, mayEnd) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        // Read on a queue of GRDB's.
        let read = Task {
            try await notes.read { database in
                isReading.signal()
                mayEnd.wait()
                return try Int.fetchOne(database, sql: "SELECT count(*) FROM note")
            }
        }
        let (reads, end) = try await SystemThread.run(name: "blocker") {
            isReading.wait()
            let moved = DispatchSemaphore(value: 0)
            let mover = try SystemThread(name: "mover") {
                _ = try? FileCoordinator(in: container).coordinate(
                    writingItemAt: url, options: .forMoving, deadline: .ample
                ) { _ in moved.signal() }
            }
            while !notes.lifecycle.isClosing { pause(.milliseconds(1)) }
            let reads = (1...16).map { _ in Task.detached { try Self.readBlocking(notes) } }
            pause(.milliseconds(200))
            mayEnd.signal()
            let end = moved.wait(timeout: .now() + 60)
            return (reads, end == .success && mover.join(within: .seconds(60)))
        }
        #expect(end)
        #expect(try await read.value == 0)
        for read in reads { #expect(try await read.value == 0) }
        try await notes.close()
    }

    /// So does `close()` on threads of the global executor, which waits for asynchronous accesses to end.
    @Test func closesOnBlockedThreads() async throws {
        let notes = try await SharedDatabasePool(store, patience: .ample) { try Self.migrator.migrate($0) }
        let (isReading, mayEnd) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let read = Task {
            try await notes.read { _ in
                isReading.signal()
                mayEnd.wait()
            }
        }
        let closings = try await SystemThread.run(name: "blocker") {
            isReading.wait()
            let closings = (1...16).map { _ in Task.detached { try Self.closeBlocking(notes) } }
            pause(.milliseconds(200))
            mayEnd.signal()
            return closings
        }
        for closing in closings { try await closing.value }
        try await read.value
    }

    private static func closeBlocking(_ notes: any DatabaseReader) throws { try notes.close() }

    private static func readBlocking(_ notes: any DatabaseReader) throws -> Int? {
        try notes.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") }
    }
}
