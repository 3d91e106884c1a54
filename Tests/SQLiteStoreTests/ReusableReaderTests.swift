import Glibc
import SystemPackage
import Testing

@testable import SQLiteStore

@Suite struct ReusableReaderTests {
    private static let count = "SELECT count(*) FROM note"

    /// Returns the number of notes, and whether the connection was used before.
    private func read(_ reader: ReusableReader) throws -> [Int64] {
        try reader.read { [try $0.integer(Self.count) ?? -1, $0.isReused ? 1 : 0] }
    }

    @Test func readsWhatWasCommittedSinceOverTheSameConnection() throws {
        let fixture = try Fixture()
        let shell = try SQLiteShell(fixture.path)
        try shell.run(StoreReaderTests.log)
        let reader = ReusableReader(fixture.location)
        #expect(try read(reader) == [2, 0])
        try shell.run("INSERT INTO note VALUES (3, 'c');")
        #expect(try read(reader) == [3, 1])
        // It has no transaction: the log can start over.
        try shell.run(
            "PRAGMA wal_checkpoint(TRUNCATE); ALTER TABLE note ADD COLUMN more; INSERT INTO note VALUES (4, 'd', 1);")
        #expect(try fixture.size("-wal") < 20_000)
        #expect(try read(reader) == [4, 1])
        reader.close()
        #expect(!reader.isOpen)
        #expect(try read(reader) == [4, 0])
    }

    @Test func holdsNoConnectionIfNobodyElseHasTheStoreOpen() throws {
        let fixture = try Fixture()
        try fixture.make(StoreReaderTests.log)
        let reader = ReusableReader(fixture.location)
        #expect(try read(reader) == [2, 0])
        #expect(!reader.isOpen)
        #expect(try read(reader) == [2, 0])
    }

    @Test func opensAStoreThatTookTheOthersName() throws {
        let fixture = try Fixture()
        let shell = try SQLiteShell(fixture.path)
        try shell.run(StoreReaderTests.log)
        let reader = ReusableReader(fixture.location)
        #expect(try read(reader) == [2, 0])
        let other = fixture.temporary.path.appending("Other.sqlite").string
        let second = try SQLiteShell(other)
        try second.run(StoreReaderTests.log + "INSERT INTO note VALUES (3, 'c'), (4, 'd'), (5, 'e');")
        for suffix in ["", "-wal", "-shm"] { try #require(rename(other + suffix, fixture.path + suffix) == 0) }
        #expect(try read(reader) == [5, 0])
        try second.run("DELETE FROM note;")
        #expect(try read(reader) == [0, 1])
    }

    @Test func findsEverythingAfterTheLastProgramHasClosedTheStore() throws {
        let fixture = try Fixture()
        let reader = ReusableReader(fixture.location)
        do {
            let shell = try SQLiteShell(fixture.path)
            try shell.run(StoreReaderTests.log)
            #expect(try read(reader) == [2, 0])
            try shell.run("INSERT INTO note VALUES (3, 'c');")
        }
        #expect(try read(reader)[0] == 3)
        reader.close()
        let shell = try SQLiteShell(fixture.path)
        try shell.run("INSERT INTO note VALUES (4, 'd');")
        #expect(try read(reader) == [4, 0])
    }

    @Test func runsTheBodyAgainOverAnotherConnectionIfItThrows() throws {
        struct Failure: Error {}
        let fixture = try Fixture()
        let shell = try SQLiteShell(fixture.path)
        try shell.run(StoreReaderTests.log)
        let reader = ReusableReader(fixture.location)
        #expect(try read(reader) == [2, 0])
        let rows = try reader.read { connection in
            if connection.isReused { throw Failure() }
            return try connection.integer(Self.count)
        }
        #expect(rows == 2)
        #expect(throws: Failure.self) { try reader.read { _ in throw Failure() } }
        #expect(!reader.isOpen)
    }

    // MARK: Statements that are kept

    @Test func keepsStatementsWithoutTheirParametersAndRows() throws {
        let fixture = try Fixture()
        let writer = try StoreWriter(fixture.location.path, creating: true)
        writer.statementCache = StatementCache()
        try writer.execute(script: StoreReaderTests.schema)
        let sql = "SELECT title FROM note WHERE id = ?1"
        #expect(try writer.text(sql, [.integer(1)]) == "a")
        #expect(try writer.text(sql) == nil)
        // Two at once are two statements.
        let (one, other) = (try writer.prepare(sql, [.integer(1)]), try writer.prepare(sql, [.integer(2)]))
        #expect(try one.step() && other.step())
        #expect(one.text(0) == "a" && other.text(0) == "b")
        // Nothing that is kept is in the way of a change of the schema, or misses it.
        one.reset()
        other.reset()
        #expect(try writer.integer("SELECT count(*) FROM note") == 2)
        try writer.execute("DROP TABLE note")
        #expect(throws: StoreError.self) { try writer.integer("SELECT count(*) FROM note") }
        try writer.execute(script: "CREATE TABLE note (id, title); INSERT INTO note VALUES (2, 'new')")
        #expect(try writer.text(sql, [.integer(2)]) == "new")
    }

    @Test func keepsStatementsApartWhoseTextsSwiftTakesForEqual() throws {
        let fixture = try Fixture()
        let writer = try StoreWriter(fixture.location.path, creating: true)
        writer.statementCache = StatementCache()
        #expect(try writer.text("SELECT '\u{e9}'")?.utf8.count == 2)
        #expect(try writer.text("SELECT 'e\u{301}'")?.utf8.count == 3)
        #expect(try writer.text("SELECT '\u{e9}'")?.utf8.count == 2)
    }

    @Test func keepsNoStatementThatActsWhenItIsCompiled() {
        for sql in ["PRAGMA synchronous = FULL", "PRAGMA journal_mode", "PRAGMA main.user_version = 5", "DROP TABLE a"]
        {
            #expect(StatementCache.key(sql) == nil)
        }
        #expect(StatementCache.key("PRAGMA main.schema_version") != nil)
    }
}

extension Fixture {
    fileprivate func size(_ suffix: String) throws -> Int64 {
        try location.directory.status(#require(FilePath.Component(location.name.database.string + suffix)))?.size ?? 0
    }
}
