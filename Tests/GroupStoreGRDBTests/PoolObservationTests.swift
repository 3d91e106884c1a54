import FoundationEssentials
import GRDB
import GroupStore
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreGRDB

@Suite(.timeLimit(.minutes(60))) struct PoolObservationTests {
    let scratch: TemporaryDirectory
    let container: GroupContainer
    let notes: SharedDatabasePool

    private static let counts = ValueObservation.tracking {
        try Int.fetchOne($0, sql: "SELECT count(*) FROM note") ?? 0
    }.removeDuplicates()

    init() async throws {
        scratch = try TemporaryDirectory()
        container = try GroupContainer(identifier: "group.example", directory: URL(path: scratch.path))
        let store = try SharedStore("Notes.sqlite", in: container)
        notes = try await SharedDatabasePool(store) { pool in
            try pool.write { try $0.execute(sql: "CREATE TABLE IF NOT EXISTS note (title TEXT)") }
        }
    }

    /// Writes with another connection, which GRDB doesn't notice by itself.
    private func writeElsewhere() throws {
        try DatabaseQueue(path: notes.url.path).write { try $0.execute(sql: "INSERT INTO note VALUES ('one')") }
    }

    @Test(arguments: [.everything, .tables(["note"]), .tables(["NOTE", "unknown"])] as [ExternalChanges.Region])
    func deliversAFreshValueAfterANotification(_ region: ExternalChanges.Region) async throws {
        var values = notes.values(of: Self.counts).makeAsyncIterator()
        #expect(try await values.next() == 0)
        try writeElsewhere()
        try await notes.withPool { try await ExternalChanges.notify(region, $0) }
        #expect(try await values.next() == 1)
        try await notes.close()
        #expect(try await values.next() == nil)
    }

    /// GRDB's own pool: a shared one hears of the other connection's commit by itself.
    @Test func deliversNoValueForOtherTables() async throws {
        let pool = try DatabasePool(path: notes.url.path)
        try await pool.write { try $0.execute(sql: "CREATE TABLE tag (name TEXT)") }
        var values = Self.counts.values(in: pool, bufferingPolicy: .unbounded).makeAsyncIterator()
        #expect(try await values.next() == 0)
        // GRDB reads a second time when it begins to observe, which may be after the first value.
        try await pool.write { try $0.execute(sql: "INSERT INTO note VALUES ('first')") }
        #expect(try await values.next() == 1)
        try writeElsewhere()
        try await ExternalChanges.notify(.tables(["tag"]), pool)
        try await pool.write { try $0.execute(sql: "INSERT INTO note VALUES ('two')") }
        // A value after the notice would have been 2.
        #expect(try await values.next() == 3)
        try pool.close()
        try await notes.close()
    }

    /// Without an agent, and without an announcement.
    @Test func deliversAFreshValueAfterAnotherConnectionsCommit() async throws {
        var values = notes.values(of: Self.counts).makeAsyncIterator()
        #expect(try await values.next() == 0)
        try writeElsewhere()
        #expect(try await values.next() == 1)
        try await notes.close()
    }

    /// The pool is closed and reopened in between.
    @Test func continuesObservingAfterAMove() async throws {
        var values = notes.values(of: Self.counts).makeAsyncIterator()
        #expect(try await values.next() == 0)
        let url = notes.url
        try await FileCoordinator(in: container).coordinate(with: [.writingIntent(with: url)]) { _ in
            try DatabaseQueue(path: url.path).write { try $0.execute(sql: "INSERT INTO note VALUES ('moved')") }
        }
        #expect(try await values.next() == 1)
        try await notes.write { try $0.execute(sql: "INSERT INTO note VALUES ('more')") }
        #expect(try await values.next() == 2)
        try await notes.close()
    }

    @Test func removesACancelledObserver() async throws {
        for _ in 1...10 {
            let values = notes.values(of: Self.counts)
            let task = Task { for try await _ in values {} }
            task.cancel()
            try await task.value
        }
        try await notes.close()
        var late = notes.values(of: Self.counts).makeAsyncIterator()
        #expect(try await late.next() == nil)
    }

    @Test func mapsEventsToRegions() {
        #expect(ExternalChanges.region(of: .changed(tables: ["a"], isComplete: true, token: "")) == .tables(["a"]))
        #expect(ExternalChanges.region(of: .changed(tables: ["a"], isComplete: false, token: "")) == .everything)
        #expect(ExternalChanges.region(of: .changed(tables: nil, isComplete: false, token: "")) == .everything)
        let schema = StoreChange.changed(tables: ["a", "sqlite_schema"], isComplete: true, token: "")
        #expect(ExternalChanges.region(of: schema) == .everything)
        #expect(ExternalChanges.region(of: .reset(reason: "epoch", token: "")) == .everything)
        #expect(ExternalChanges.region(of: .disconnected) == nil)
    }
}
