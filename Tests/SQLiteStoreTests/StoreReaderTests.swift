import Foundation
import GRDB
import LinuxSystem
import SystemPackage
import Testing

@testable import SQLiteStore

@Suite struct StoreReaderTests {
    static let schema =
        "CREATE TABLE note(id INTEGER PRIMARY KEY, title TEXT); INSERT INTO note VALUES (1, 'a'), (2, 'b');"
    static let log = "PRAGMA journal_mode = WAL; " + schema
    /// A transaction so large that some of its pages are in the database file before it is committed.
    static let hot =
        schema + """
            PRAGMA cache_size = 1; BEGIN;
            WITH RECURSIVE n(i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
            INSERT INTO note SELECT i, hex(randomblob(200)) FROM n;
            UPDATE note SET title = 'lost' WHERE id = 1;
            """

    /// A store's files, and the method that reads them.
    struct State: Sendable, CustomTestStringConvertible {
        let name: String
        let sql: String
        /// The files that a crash leaves, or nil if the store was closed properly.
        let parts: [String]?
        var emptied: String?
        let method: ReadingMethod
        var testDescription: String { name }
    }

    static let states = [
        State(name: "rollback", sql: schema, parts: nil, method: .locked),
        State(name: "wal, closed", sql: log, parts: nil, method: .immutable),
        State(name: "wal, crashed", sql: log, parts: ["", "-wal", "-shm"], method: .unlockedWAL),
        State(name: "wal, no shm", sql: log, parts: ["", "-wal"], method: .unlockedWAL),
        State(name: "wal, empty shm", sql: log, parts: ["", "-wal", "-shm"], emptied: "-shm", method: .unlockedWAL),
        State(
            name: "empty wal", sql: log + "PRAGMA wal_checkpoint(TRUNCATE)", parts: ["", "-wal"],
            method: .unlockedWAL),
        State(
            name: "empty wal with shm", sql: log + "PRAGMA wal_checkpoint(TRUNCATE)", parts: ["", "-wal", "-shm"],
            method: .unlockedWAL),
        State(name: "hot journal", sql: hot, parts: ["", "-journal"], method: .locked),
        State(
            name: "cold journal", sql: "PRAGMA journal_mode = PERSIST;" + schema, parts: ["", "-journal"],
            method: .locked),
    ]

    @Test(arguments: states, [mode_t(0o755), 0o555]) func readsWithoutATrace(_ state: State, mode: mode_t) throws {
        let fixture = try Fixture("a note's \"store\"\n%41?x=#&")
        if let parts = state.parts {
            try fixture.makeCrashed(state.sql, parts: parts)
        } else {
            try fixture.make(state.sql)
        }
        if let emptied = state.emptied { try Data().write(to: fixture.url(emptied)) }
        fixture.temporary.path.withPlatformString { _ = chmod($0, mode) }
        defer { fixture.temporary.path.withPlatformString { _ = chmod($0, 0o755) } }
        let before = try Snapshot(fixture.temporary.path)

        let preparation = try ReadingPreparation(fixture.location, deadline: Deadline(after: .zero))
        #expect(preparation.method == state.method)
        let titles = try fixture.read { try $0.text("SELECT group_concat(title) FROM note") }
        #expect(titles == "a,b")
        let description = try fixture.describe()
        #expect(description.tables.map(\.name) == ["note"])
        #expect(description.rows == 2)
        #expect(try Snapshot(fixture.temporary.path) == before)
    }

    @Test func readsANameThatIsNotUTF8() throws {
        let fixture = try Fixture(FilePath.Component(bytes: [0x4E, 0xFF, 0x2E, 0x64, 0x62]))
        let plain = try Fixture()
        try plain.makeCrashed(Self.log, parts: ["", "-wal"])
        for (from, to) in [
            (plain.location.name.database, fixture.location.name.database),
            (plain.location.name.wal, fixture.location.name.wal),
        ] {
            try plain.location.directory.rename(from, to: to, in: fixture.location.directory, .refuse)
        }
        let before = try Snapshot(fixture.temporary.path)
        #expect(try fixture.describe().rows == 2)
        #expect(try Snapshot(fixture.temporary.path) == before)
    }

    @Test(arguments: ["DELETE", "WAL"]) func readsBesideAnotherProgram(_ mode: String) throws {
        let fixture = try Fixture()
        let shell = try SQLiteShell(fixture.path)
        try shell.run("PRAGMA journal_mode = \(mode); \(Self.schema)")
        let before = try Snapshot(fixture.temporary.path).content
        #expect(try fixture.describe().rows == 2)
        #expect(try Snapshot(fixture.temporary.path).content == before)
        // Uncommitted rows are invisible. Commits become visible and are not blocked.
        try shell.run("BEGIN; INSERT INTO note VALUES (3, 'c');")
        let inTransaction = try Snapshot(fixture.temporary.path).content
        #expect(try fixture.describe().rows == 2)
        #expect(try Snapshot(fixture.temporary.path).content == inTransaction)
        try shell.run("COMMIT;")
        let description = try fixture.describe()
        #expect(description.rows == 3)
        #expect(description.holders.map(\.program) == ["sqlite3"])
    }

    @Test func reportsBusyWhileAProgramIsExclusive() throws {
        let fixture = try Fixture()
        let shell = try SQLiteShell(fixture.path)
        try shell.run("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; \(Self.schema)")
        let before = try Snapshot(fixture.temporary.path)
        #expect(throws: StoreError.busy(fixture.location.path)) { try fixture.describe() }
        #expect(try Snapshot(fixture.temporary.path) == before)
    }

    @Test func reportsBusyWhileAWriterHoldsALock() throws {
        let fixture = try Fixture()
        let shell = try SQLiteShell(fixture.path)
        try shell.run("\(Self.schema) BEGIN EXCLUSIVE;")
        #expect(throws: StoreError.busy(fixture.location.path)) { try fixture.describe() }
    }

    @Test func repeatsAReadAfterAConcurrentChange() throws {
        let fixture = try Fixture()
        try fixture.make(Self.log)
        var rounds = 0
        let rows = try fixture.read { reader in
            rounds += 1
            let rows = try reader.integer("SELECT count(*) FROM note")
            if rounds == 1 { try SQLiteShell(fixture.path).run("INSERT INTO note VALUES (3, 'c');") }
            return rows
        }
        #expect(rounds == 2)
        #expect(rows == 3)
    }

    @Test func reportsAMissingFile() throws {
        let fixture = try Fixture()
        #expect(throws: StoreError.missing(fixture.location.path)) { try fixture.describe() }
        try FileManager.default.createDirectory(at: fixture.url(), withIntermediateDirectories: false)
        #expect(throws: StoreError.notAFile(fixture.location.path)) { try fixture.describe() }
    }

    @Test func namesTheFormatOfAForeignFile() throws {
        let fixture = try Fixture()
        try Data("id,title\n".utf8).write(to: fixture.url())
        #expect(throws: StoreError.foreign(.text, fixture.location.path)) { try fixture.describe() }
    }
}
