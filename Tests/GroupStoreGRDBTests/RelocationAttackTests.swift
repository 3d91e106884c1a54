import FoundationEssentials
import GRDB
import GroupStore
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreGRDB

/// Tasks read, write and observe through GRDB's protocols while the store moves back and forth. No acknowledged row may
/// be lost, no observation may stop, and nothing may block.
@Suite(.timeLimit(.minutes(60))) struct RelocationAttackTests {
    let scratch: TemporaryDirectory
    let container: GroupContainer
    let store: SharedStore

    init() throws {
        scratch = try TemporaryDirectory()
        container = try GroupContainer(identifier: "group.example", directory: URL(path: scratch.path))
        store = try SharedStore("Notes.sqlite", in: container)
    }

    private final class Progress: Sendable {
        let isOver = Mutex(false)
        let acknowledged = Mutex(Set<String>())
    }

    private static let count = "SELECT count(*) FROM note"

    private func moveBackAndForth(_ rounds: Int) async throws {
        let other = container.url.appending(path: "Moved.sqlite", directoryHint: .notDirectory)
        for round in 0..<rounds {
            let (old, new) = round.isMultiple(of: 2) ? (store.groupURL, other) : (other, store.groupURL)
            let coordinator = FileCoordinator(in: container)
            try await coordinator.coordinate(
                with: [
                    .writingIntent(with: old, options: .forMoving),
                    .writingIntent(with: new, options: .forReplacing),
                ], deadline: .ample
            ) { [container] _ in
                guard let from = FilePath(old.path).lastComponent, let to = FilePath(new.path).lastComponent
                else { return }
                // A connection that is still open, or opened since, would keep its log under the old name.
                let names = try container.directory.names().map(\.string).filter { !$0.hasPrefix(".") }
                #expect(names == [from.string], "round \(round)")
                try container.directory.rename(from, to: to, in: container.directory, .refuse)
                coordinator.item(at: old, didMoveTo: new)
                // Rows of another process, which nobody announces.
                try DatabaseQueue(path: new.path).write {
                    try $0.execute(sql: "INSERT INTO note VALUES ('moved \(round)')")
                }
            }
        }
    }

    private func attack<Connection>(_ notes: SharedDatabase<Connection>, rounds: Int) async throws {
        let writer: any DatabaseWriter = notes
        let progress = Progress()
        let observed = (0..<3).map { _ in Log() }
        let observers = observed.map { log in
            Task {
                let counts = ValueObservation.tracking { try Int.fetchOne($0, sql: Self.count) ?? 0 }
                for try await count in counts.values(in: writer) { log.note("\(count)") }
            }
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 1...8 {
                group.addTask { [writer, progress] in
                    var row = 0
                    while !progress.isOver.withLock({ $0 }) {
                        row += 1
                        let title = "task \(number) row \(row)"
                        let sql = "INSERT INTO note VALUES ('\(title)')"
                        switch number {
                        case 1, 2: try await writer.write { try $0.execute(sql: sql) }
                        case 3:
                            try await SystemThread.run(name: "sync") { try writer.write { try $0.execute(sql: sql) } }
                        case 4:
                            try await withCheckedThrowingContinuation { continuation in
                                writer.asyncWrite({ try $0.execute(sql: sql) }) { continuation.resume(with: $1) }
                            }
                        case 5: try await writer.barrierWriteWithoutTransaction { try $0.execute(sql: sql) }
                        case 6:
                            // An access inside another one's callback.
                            try await writer.writeWithoutTransaction { database in
                                try writer.unsafeReentrantWrite { try $0.execute(sql: sql) }
                                _ = try writer.unsafeReentrantRead { try Int.fetchOne($0, sql: Self.count) }
                            }
                        default:
                            let before = progress.acknowledged.withLock { $0.count }
                            let count = try await writer.read { try Int.fetchOne($0, sql: Self.count) ?? 0 }
                            #expect(count >= before)
                            continue
                        }
                        progress.acknowledged.withLock { _ = $0.insert(title) }
                        try await Task.sleep(for: .milliseconds(1))
                    }
                }
            }
            group.addTask { [self, progress] in
                defer { progress.isOver.withLock { $0 = true } }
                try await moveBackAndForth(rounds)
            }
            try await group.waitForAll()
        }
        try await writer.write { try $0.execute(sql: "INSERT INTO note VALUES ('last')") }
        let titles = try await writer.read { try String.fetchAll($0, sql: "SELECT title FROM note") }
        let expected = progress.acknowledged.withLock { $0 }
        #expect(!expected.isEmpty)
        #expect(titles.count == Set(titles).count)
        let others = (0..<rounds).map { "moved \($0)" } + ["last"]
        #expect(expected.union(others).symmetricDifference(titles) == [])
        // Each observation has come to the last row.
        for log in observed { await log.has("\(titles.count)") }
        try await notes.close()
        for observer in observers { await #expect(throws: DatabaseError.self) { try await observer.value } }
        #expect(try container.directory.names().filter { $0.string.hasSuffix("-wal") }.isEmpty)
    }

    private static func create(_ connection: some DatabaseWriter) throws {
        try connection.write { try $0.execute(sql: "CREATE TABLE IF NOT EXISTS note (title TEXT)") }
    }

    @Test(.timeLimit(.minutes(60))) func aPoolSurvivesMovesBackAndForth() async throws {
        try await attack(SharedDatabasePool(store, patience: .ample) { try Self.create($0) }, rounds: 40)
    }

    @Test(.timeLimit(.minutes(60))) func opensNothingForAnObservationOnceClosed() async throws {
        let counts = ValueObservation.tracking { try Int.fetchOne($0, sql: Self.count) ?? 0 }
        for round in 0..<50 {
            let notes = try await SharedDatabasePool(store, patience: .ample) { try Self.create($0) }
            let observers = (0..<8).map { _ in
                counts.start(
                    in: notes, scheduling: .async(onQueue: .global()), onError: { _ in }, onChange: { _ in })
            }
            try await notes.close()
            let names = try container.directory.names().map(\.string).filter { !$0.hasPrefix(".") }
            #expect(names == ["Notes.sqlite"], "round \(round)")
            for observer in observers { observer.cancel() }
        }
    }

    @Test(.timeLimit(.minutes(60))) func aQueueSurvivesMovesBackAndForth() async throws {
        try await attack(SharedDatabaseQueue(store, patience: .ample) { try Self.create($0) }, rounds: 40)
    }
}
