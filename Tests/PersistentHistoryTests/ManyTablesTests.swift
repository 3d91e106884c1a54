import GRDB
import SQLiteStore
import TestSupport
import Testing

@testable import PersistentHistory

/// Tests how history's triggers are written, and that the work grows with the number of tables, not with its square.
struct ManyTablesTests {
    private static func store(tables: Int) throws -> Fixture {
        try Fixture(
            (0..<tables).map { "CREATE TABLE t\($0) (id INTEGER PRIMARY KEY, a UNIQUE, b)" }.joined(separator: ";"))
    }

    /// Counts the instructions of SQLite's virtual machine, in hundreds.
    private static func counting(_ connection: SQLiteStore.SQLiteConnection, _ work: () throws -> Void) rethrows -> Int
    {
        var hundreds = 0
        connection.interrupt(every: 100) {
            hundreds += 1
            return false
        }
        try work()
        return hundreds
    }

    /// Creates and removes the triggers of a store with this many tables.
    private static func workOfTriggers(tables: Int) throws -> Int {
        let store = try store(tables: tables)
        #expect(try store.enable().tables.count == tables)
        let connection = try HistoryConnection.open(store.location, busyTimeout: .zero)
        return try counting(connection) {
            try connection.transaction(.immediate) {
                try HistoryTables.removeTriggers(connection)
                var update = try HistoryUpdate(connection, store.location.path, isNew: false)
                try update.run()
                #expect(update.recorded.count == tables)
            }
        }
    }

    /// Reads one change with its values from a store with this many tables.
    private static func workOfBatch(tables: Int) throws -> Int {
        let store = try store(tables: tables)
        _ = try store.enable()
        try store.write("INSERT INTO t1 (a) VALUES (1); CREATE TABLE later (a)")
        return try StoreReader.read(store.location) { reader in
            try counting(reader) {
                let history = try #require(try RecordedHistory(reader))
                let batch = try RecordedBatchSource(history, encoding: history.encoding)
                #expect(try batch.unrecordedTables() == ["later"])
                _ = try ReplicatedTable.survey(DatabaseSchema(reader))
            }
        }
    }

    /// SQLite reads its whole schema for each `CREATE TRIGGER` and each `DROP TRIGGER`.
    @Test func writesTheTriggersOfManyTablesInLinearTime() throws {
        #expect(try Self.workOfTriggers(tables: 160) < 3 * Self.workOfTriggers(tables: 80))
    }

    @Test func readsABatchBesideManyTablesInLinearTime() throws {
        #expect(try Self.workOfBatch(tables: 160) < 3 * Self.workOfBatch(tables: 80))
    }

    @Test func leavesTheSchemaThatSQLiteItselfWouldWrite() throws {
        let store = try Fixture(
            """
            CREATE TABLE "a ""b' é" (id INTEGER PRIMARY KEY, "c ""d" UNIQUE, e); CREATE TABLE Note (a, b);
            CREATE TABLE w (k TEXT PRIMARY KEY, v UNIQUE) WITHOUT ROWID
            """)
        _ = try store.enable()
        let queue = try DatabaseQueue(path: store.location.path.string)
        defer { try? queue.close() }
        try queue.write { database in
            func rows() throws -> [[DatabaseValue]] {
                try Row.fetchAll(
                    database,
                    sql: "SELECT name, tbl_name, rootpage, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid"
                ).map { Array($0.databaseValues) }
            }
            let written = try rows()
            #expect(written.count > 20)
            for row in written {
                let name = try #require(String.fromDatabaseValue(row[0]))
                try database.execute(sql: "DROP TRIGGER \(name)")
            }
            for row in written {
                let sql = try #require(String.fromDatabaseValue(row[3]))
                try database.execute(sql: sql)
            }
            #expect(try rows() == written)
        }
    }

    /// A connection keeps the schema that it has read, and its prepared statements, until the schema's version changes.
    @Test func concernsConnectionsThatAreOpen() throws {
        let store = try Fixture()
        let queue = try DatabaseQueue(path: store.location.path.string)
        defer { try? queue.close() }
        func insert() throws {
            try queue.write {
                try $0.cachedStatement(sql: "INSERT INTO note (title) VALUES ('a')").execute()
            }
        }
        try insert()
        _ = try store.enable()
        try insert()
        #expect(try store.changes().map(\.operation) == [.insert])
        #expect(try HistoryInstallation(store.location).suspend())
        try insert()
        #expect(try store.changes().count == 1)
        try HistoryInstallation(store.location).resume { _ in true }
        try insert()
        #expect(try store.changes().map(\.operation).last == .insert)
        #expect(try HistoryInstallation(store.location).disable().kind == .disabled)
        try insert()
    }
}
