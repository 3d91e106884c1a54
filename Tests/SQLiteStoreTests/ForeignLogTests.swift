import Foundation
import GRDB
import LinuxSystem
import SystemPackage
import Testing

@testable import SQLiteFormat
@testable import SQLiteStore

/// Logs that lie beside another database than their own.
@Suite struct ForeignLogTests {
    private static let wal = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; "
    private static let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) "

    /// A database, and the one whose log lies beside it.
    struct Pair: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let database: String
        let log: String
    }

    static let pairs = [
        Pair(
            testDescription: "a smaller database", database: wal + "CREATE TABLE b (y); INSERT INTO b VALUES (1)",
            log: wal + "CREATE TABLE a (x); \(rows) INSERT INTO a SELECT hex(randomblob(500)) FROM n"),
        Pair(
            testDescription: "a database of the same size",
            database: wal + "CREATE TABLE b (y); \(rows) INSERT INTO b SELECT hex(randomblob(500)) FROM n",
            log: wal + "CREATE TABLE a (x); \(rows) INSERT INTO a SELECT hex(randomblob(500)) FROM n"),
        Pair(
            testDescription: "a database without a log", database: "CREATE TABLE b (y); INSERT INTO b VALUES (1)",
            log: wal + "CREATE TABLE b (y); INSERT INTO b VALUES (2)"),
        Pair(
            testDescription: "other pages",
            database: "PRAGMA page_size = 1024; \(wal) CREATE TABLE b (y); INSERT INTO b VALUES (1)",
            log: wal + "CREATE TABLE b (y); INSERT INTO b VALUES (2)"),
        Pair(
            testDescription: "an older state of the database",
            database: wal + "CREATE TABLE b (y); INSERT INTO b VALUES (1)",
            log: wal + "CREATE TABLE b (y); PRAGMA wal_checkpoint(TRUNCATE); \(rows) INSERT INTO b SELECT "
                + "hex(randomblob(500)) FROM n; PRAGMA wal_checkpoint(TRUNCATE); UPDATE b SET y = 1"),
        Pair(
            testDescription: "pages of another kind",
            database: wal + "CREATE TABLE b (y); CREATE INDEX i ON b (y); INSERT INTO b VALUES (1)",
            log: wal + "CREATE TABLE b (y); CREATE TABLE c (y); INSERT INTO c VALUES (0); "
                + "PRAGMA wal_checkpoint(TRUNCATE); UPDATE c SET y = 2"),
    ]

    private func make(_ pair: Pair) throws -> Fixture {
        let fixture = try Fixture()
        try fixture.makeCrashed(pair.log, parts: ["", "-wal", "-shm"])
        try FileManager.default.removeItem(at: fixture.url())
        let other = try Fixture()
        try other.make(pair.database)
        try FileManager.default.copyItem(at: other.url(), to: fixture.url())
        return fixture
    }

    @Test(arguments: pairs) func readsTheDatabaseAlone(_ pair: Pair) throws {
        let fixture = try make(pair)
        let (rows, intact) = try fixture.read {
            (try $0.integer("SELECT count(*) FROM b WHERE length(y) <> 3"), try $0.integrityFindings().isEmpty)
        }
        #expect((rows ?? 0) > 0)
        #expect(intact)
    }

    /// Not even a writer's open makes SQLite replay the log.
    @Test(arguments: pairs) func refusesToReplayIt(_ pair: Pair) throws {
        let fixture = try make(pair)
        let before = try ["", "-wal"].map { try Data(contentsOf: fixture.url($0)) }
        for open in [
            { try WALCheckpoint.perform(fixture.location) },
            { _ = try StoreConnection(fixture.location, busyTimeout: .zero) },
            { _ = try ReplicaConnection(fixture.location, busyTimeout: .zero) },
        ] {
            let error = #expect(throws: StoreError.self) { try open() }
            #expect(error?.errorCode == "foreign_log")
        }
        #expect(try ["", "-wal"].map { try Data(contentsOf: fixture.url($0)) } == before)
    }

    /// Every state in which a crash may leave a database and its own log, also amid a checkpoint whose pages reach the
    /// disk in any order.
    @Test(arguments: 0..<6 as Range<UInt64>) func acceptsEachStateOfItsOwnLog(seed: UInt64) throws {
        var random = Generator(state: seed &+ 1)
        let source = try Fixture()
        let queue = try DatabaseQueue(path: source.path)
        func run(_ sql: String) throws { try queue.writeWithoutTransaction { try $0.execute(sql: sql) } }
        try run("PRAGMA page_size = \([512, 4096][Int(seed % 2)]); PRAGMA auto_vacuum = \(seed % 3); \(Self.wal)")
        try run("CREATE TABLE t0 (a INTEGER PRIMARY KEY, b)")
        for step in 1...40 {
            let (size, row) = (random.next() % 900, random.next() % 30)
            switch random.next() % 12 {
            case 0: try run("CREATE TABLE t\(step) (a INTEGER PRIMARY KEY, b); CREATE INDEX i\(step) ON t0 (b)")
            case 1: try run("VACUUM")
            case 2: try run("PRAGMA wal_checkpoint(TRUNCATE)")
            case 3: try run("PRAGMA wal_checkpoint(RESTART)")
            case 4: try run("DELETE FROM t0 WHERE a < \(row)")
            case 5, 6: try run("UPDATE t0 SET b = zeroblob(\(size)) WHERE a = \(row)")
            case 7: try run("UPDATE t0 SET b = a")
            default: try run("\(Self.rows) INSERT INTO t0 (b) SELECT hex(zeroblob(\(size))) FROM n LIMIT \(row)")
            }
            let copy = try Fixture()
            let wal = try Data(contentsOf: source.url("-wal"))
            try wal.write(to: copy.url("-wal"))
            var database = try Data(contentsOf: source.url())
            try database.write(to: copy.url())
            #expect(try copy.location.foreignLog() == nil, "seed \(seed), step \(step)")
            guard !wal.isEmpty else { continue }
            let log = try copy.location.directory.open(copy.location.name.wal, flags: O_RDONLY)
            try WriteAheadLog.forEachFrame(log, path: copy.location.path) { page, content, _ in
                guard random.next() % 2 == 0 else { return true }
                let offset = Int(page - 1) * content.count
                if database.count < offset { database.append(Data(count: offset - database.count)) }
                database.replaceSubrange(offset..<min(offset + content.count, database.count), with: content)
                return true
            }
            try database.write(to: copy.url())
            #expect(try copy.location.foreignLog() == nil, "seed \(seed), step \(step), a partial checkpoint")
        }
        try queue.close()
    }

    /// A small generator, so that a failure can be repeated by its seed.
    private struct Generator {
        var state: UInt64

        mutating func next() -> UInt64 {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            return state >> 33
        }
    }

    /// Auto-vacuum moves pages of the schema, which changes page 1 but not the schema's version.
    @Test func takesAnAutoVacuumStoresLogForItsOwn() throws {
        let fixture = try Fixture()
        let tables = (0..<8).map { "CREATE TABLE t\($0) (a INTEGER PRIMARY KEY, b); " }.joined()
        try fixture.makeCrashed(
            "PRAGMA page_size = 1024; PRAGMA auto_vacuum = FULL; \(Self.wal) \(tables) \(Self.rows) INSERT INTO t0 SELECT i, "
                + "hex(randomblob(500)) FROM n; CREATE VIEW v AS SELECT * FROM t1; PRAGMA wal_checkpoint(TRUNCATE); "
                + "DELETE FROM t0 WHERE a % 2", parts: ["", "-wal", "-shm"])
        #expect(try fixture.location.foreignLog() == nil)
    }
}
