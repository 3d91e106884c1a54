import FoundationEssentials
import GRDB
import GroupStore
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import GroupStoreGRDB

/// One call that brings an old store to its group container, migrates it and opens it. No agent runs.
@Suite(.timeLimit(.minutes(60))) struct LoadingTests {
    let scratch: TemporaryDirectory
    let container: GroupContainer
    var legacy: URL { URL(path: scratch.path.appending("legacy/Old.sqlite")) }

    init() throws {
        scratch = try TemporaryDirectory()
        let directory = try Directory(scratch.path)
        try directory.makeDirectory("group", mode: 0o700)
        try directory.makeDirectory("legacy", mode: 0o700)
        container = try GroupContainer(
            identifier: "group.example", directory: URL(path: scratch.path.appending("group")))
    }

    private static let titles = "SELECT title FROM note ORDER BY rowid"

    /// Both migrations fail if they run twice.
    private static func migrator(_ runs: Log = Log()) -> DatabaseMigrator {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("note") {
            try $0.execute(sql: "CREATE TABLE note (title TEXT)")
            runs.note("note")
        }
        migrator.registerMigration("colour") {
            try $0.execute(sql: "ALTER TABLE note ADD COLUMN colour TEXT; INSERT INTO note VALUES ('first', 'red')")
            runs.note("colour")
        }
        return migrator
    }

    private func makeLegacyStore() throws {
        let queue = try DatabaseQueue(path: legacy.path)
        var migrator = DatabaseMigrator()
        migrator.registerMigration("note") { try $0.execute(sql: "CREATE TABLE note (title TEXT)") }
        try migrator.migrate(queue)
        try queue.write { try $0.execute(sql: "INSERT INTO note VALUES ('old')") }
        try queue.close()
    }

    @Test func createsAndMigratesANewStore() async throws {
        let notes = try await SharedDatabasePool.load("Notes.sqlite", in: container, migrator: Self.migrator())
        #expect(try await notes.read { try String.fetchAll($0, sql: Self.titles) } == ["first"])
        try await notes.close()
        let again = try await SharedDatabaseQueue.load("Notes.sqlite", in: container, migrator: Self.migrator())
        #expect(try await again.read { try String.fetchAll($0, sql: Self.titles) } == ["first"])
        try await again.close()
        #expect(try container.directory.names().filter { $0.string.contains("schema") }.isEmpty)
    }

    @Test func relocatesAndMigratesAnOldStore() async throws {
        try makeLegacyStore()
        let steps = Log()
        let notes = try await SharedDatabasePool.load(
            "Notes.sqlite", in: container, relocating: legacy, migrator: Self.migrator(),
            prepareStore: { steps.note("prepare \($0.lastPathComponent)") },
            progress: { if case .finished(let outcome, _, let url) = $0 { steps.note("\(outcome) \(url.path)") } },
            prepare: { _ in steps.note("open") })
        #expect(steps.entries == ["relocated \(notes.url.path)", "prepare Notes.sqlite", "open"])
        #expect(notes.url.path == notes.store.groupURL.path)
        #expect(try await notes.read { try String.fetchAll($0, sql: Self.titles) } == ["old", "first"])
        #expect(!FileManager.default.fileExists(atPath: legacy.path))
        try await notes.close()
    }

    @Test func opensAnOldStoreWhereItIsIfAsked() async throws {
        try makeLegacyStore()
        let notes = try await SharedDatabasePool.load(
            "Notes.sqlite", in: container, relocating: legacy, migrator: Self.migrator(), relocatesNow: false)
        #expect(notes.url.path == legacy.path)
        try await notes.close()
    }

    /// Many loads begin at once: one relocates, one migrates, all find the same store.
    @Test func loadsOnceFromManyTasks() async throws {
        for round in 1...10 {
            try makeLegacyStore()
            let runs = Log()
            let name = "Notes \(round).sqlite"
            let pools = try await withThrowingTaskGroup(of: SharedDatabasePool.self) { group in
                for _ in 1...6 {
                    group.addTask { [self] in
                        try await SharedDatabasePool.load(
                            name, in: container, relocating: legacy, migrator: Self.migrator(runs))
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(runs.entries == ["colour"])
            for pool in pools {
                #expect(try await pool.read { try String.fetchAll($0, sql: Self.titles) } == ["old", "first"])
                try await pool.close()
            }
        }
    }

    /// The old store is open elsewhere: nothing changes.
    @Test func reportsTheHoldersOfAnOldStore() async throws {
        try makeLegacyStore()
        let holder = try DatabaseQueue(path: legacy.path)
        try await holder.read { _ = try Int.fetchOne($0, sql: "SELECT count(*) FROM note") }
        let error = await #expect(throws: GroupStoreError.self) {
            try await SharedDatabasePool.load(
                "Notes.sqlite", in: container, relocating: legacy, deadline: .milliseconds(300))
        }
        #expect(error?.code == .busy)
        #expect(try container.directory.status("Notes.sqlite") == nil)
        try holder.close()
        #expect(FileManager.default.fileExists(atPath: legacy.path))
    }

    @Test func reportsAConflict() async throws {
        try makeLegacyStore()
        let path = URL(path: scratch.path.appending("group/Notes.sqlite")).path
        try await DatabaseQueue(path: path).write {
            try $0.execute(sql: "CREATE TABLE a (b); INSERT INTO a VALUES (1)")
        }
        let error = await #expect(throws: GroupStoreError.self) {
            try await SharedDatabasePool.load("Notes.sqlite", in: container, relocating: legacy)
        }
        #expect(error?.code == .refused)
        #expect(FileManager.default.fileExists(atPath: legacy.path))
    }

    /// A migration waits for a writer of an older version, although GRDB's default busy mode doesn't.
    @Test func migratesWhileAnOlderVersionWrites() async throws {
        try makeLegacyStore()
        let first = try await SharedDatabasePool.load("Notes.sqlite", in: container, relocating: legacy)
        let log = Log()
        let writing = Task.detached {
            try await first.write { database in
                try database.execute(sql: "INSERT INTO note VALUES ('slow')")
                log.note("writing")
                pause(.milliseconds(300))
            }
        }
        await log.has("writing")
        let second = try await SharedDatabasePool.load("Notes.sqlite", in: container, migrator: Self.migrator())
        try await writing.value
        #expect(try await second.read { try String.fetchAll($0, sql: Self.titles) } == ["old", "slow", "first"])
        #expect(try await first.read { try String.fetchAll($0, sql: Self.titles) } == ["old", "slow", "first"])
        try await first.close()
        try await second.close()
    }

    /// The migration's error is the call's, and the store can be opened again afterwards.
    @Test func reportsAFailedMigration() async throws {
        var migrator = DatabaseMigrator()
        migrator.registerMigration("bad") { try $0.execute(sql: "CREATE TABLE") }
        let failing = migrator
        await #expect(throws: DatabaseError.self) {
            try await SharedDatabasePool.load("Notes.sqlite", in: container, migrator: failing)
        }
        let notes = try await SharedDatabasePool.load("Notes.sqlite", in: container, migrator: Self.migrator())
        try await notes.close()
    }

    /// A store that another process has replaced by one of an older schema is migrated when it is opened again.
    @Test func migratesAgainAfterAReplacement() async throws {
        let notes = try await SharedDatabasePool.load("Notes.sqlite", in: container, migrator: Self.migrator())
        let url = notes.url
        try await FileCoordinator(in: container).coordinate(
            with: [.writingIntent(with: url, options: .forReplacing)], deadline: .ample
        ) { _ in
            let queue = try DatabaseQueue(path: url.path)
            try queue.write {
                try $0.execute(
                    sql: """
                        ALTER TABLE note DROP COLUMN colour; DELETE FROM note;
                        DELETE FROM grdb_migrations WHERE identifier = 'colour'
                        """)
            }
            try queue.close()
        }
        #expect(try await notes.read { try String.fetchAll($0, sql: Self.titles) } == ["first"])
        try await notes.close()
    }
}
