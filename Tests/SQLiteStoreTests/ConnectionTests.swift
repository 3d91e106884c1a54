import Foundation
import GRDB
import LinuxSystem
import SQLiteFormat
import SystemPackage
import Testing

@testable import SQLiteStore

/// Transactions, values and errors of this project's connections; GRDB's are the oracle.
@Suite struct ConnectionTests {
    private let fixture: Fixture

    init() throws {
        fixture = try Fixture()
        try fixture.make("CREATE TABLE note (id INTEGER PRIMARY KEY, text, UNIQUE (text))")
    }

    private func open() throws -> StoreConnection { try StoreConnection(fixture.location, busyTimeout: .zero) }

    /// Reads with GRDB.
    private func grdb(_ sql: String) throws -> [String] {
        let queue = try DatabaseQueue(path: fixture.path)
        defer { try? queue.close() }
        return try queue.read { try String.fetchAll($0, sql: sql) }
    }

    /// SQLite gets a path that leads through an open directory; its number says nothing to anybody else.
    @Test func errorsNameTheDirectoryAndNotItsDescriptor() throws {
        let directory = try Directory(fixture.location.directory.path)
        let missing = StoreLocation(directory: directory, name: try #require(StoreName("missing.sqlite")))
        #expect(missing.pathForSQLite.string.hasPrefix("/proc/self/fd/"))
        let error = #expect(throws: StoreError.self) { _ = try StoreWriter(missing.pathForSQLite) }
        #expect(error?.path == missing.path)
        #expect(SystemError("open", .noSpace, path: missing.pathForSQLite).path == missing.path)
        for path: FilePath in ["/proc/self/fd/999/a", "/proc/self/fd/0", "/proc/self/maps", "a"] {
            #expect(path.namingItsDirectory == path)
        }
    }

    private struct Failure: Error {}

    /// A name may be any bytes but a slash and NUL, and a string only UTF-8.
    @Test func writesAndAttachesStoresWhoseNamesArentUTF8() throws {
        let path = fixture.location.path.removingLastComponent()
        let first = try #require(FilePath(bytes: path.bytes + [0x2F, 0xFF, 0xFE]))
        let second = first.appending(suffix: "-new %20?#")
        #expect(second.bytes == first.bytes + Array("-new %20?#".utf8))
        for path in [first, second] {
            try StoreWriter(path, creating: true).execute("CREATE TABLE t AS SELECT 1 AS x")
            #expect(FileStatus(following: path) != nil)
        }
        let writer = try StoreWriter(first)
        try writer.execute("ATTACH ?1 AS other", [.text(second.sqliteURI)])
        #expect(try writer.integer("SELECT count(*) FROM t JOIN other.t USING (x)") == 1)
    }

    // MARK: Transactions

    @Test(arguments: [StoreConnection.TransactionKind.deferred, .immediate])
    func commitsATransaction(_ kind: StoreConnection.TransactionKind) throws {
        let row = try open().transaction(kind) { 7 }
        #expect(row == 7)
        let connection = try open()
        try connection.transaction(kind) { try connection.execute("INSERT INTO note VALUES (1, 'a')") }
        #expect(connection.changes == 1 && connection.lastInsertedRow == 1)
        #expect(try grdb("SELECT text FROM note") == ["a"])
    }

    @Test(arguments: [StoreConnection.TransactionKind.deferred, .immediate])
    func rollsBackIfTheBodyThrows(_ kind: StoreConnection.TransactionKind) throws {
        let connection = try open()
        #expect(throws: Failure.self) {
            try connection.transaction(kind) {
                try connection.execute("INSERT INTO note VALUES (1, 'a')")
                throw Failure()
            }
        }
        try connection.transaction(kind) { try connection.execute("INSERT INTO note VALUES (2, 'b')") }
        #expect(try grdb("SELECT text FROM note") == ["b"])
    }

    /// A COMMIT that a deferred constraint refuses leaves the transaction open.
    @Test func rollsBackIfTheCommitIsRefused() throws {
        let connection = try open()
        try connection.execute(
            script: """
                PRAGMA foreign_keys = ON;
                CREATE TABLE tag (note REFERENCES note DEFERRABLE INITIALLY DEFERRED)
                """)
        let error = #expect(throws: StoreError.self) {
            try connection.transaction(.immediate) { try connection.execute("INSERT INTO tag VALUES (1)") }
        }
        #expect(error?.code == 787 && error?.sqliteMessage == "FOREIGN KEY constraint failed")
        try connection.transaction(.immediate) { try connection.execute("INSERT INTO note VALUES (2, 'b')") }
        #expect(try grdb("SELECT text FROM note UNION ALL SELECT note FROM tag") == ["b"])
    }

    /// In a store with a rollback journal, a reader keeps a writer from committing.
    @Test func rollsBackIfAReaderPreventsTheCommit() throws {
        let shell = try SQLiteShell(fixture.path)
        try shell.run("BEGIN; SELECT count(*) FROM note;")
        let connection = try open()
        let error = #expect(throws: StoreError.self) {
            try connection.transaction(.immediate) { try connection.execute("INSERT INTO note VALUES (1, 'a')") }
        }
        #expect(error == .busy(fixture.location.path, code: 5, message: "database is locked"))
        try shell.run("COMMIT;")
        try connection.transaction(.immediate) { try connection.execute("INSERT INTO note VALUES (2, 'b')") }
        #expect(try grdb("SELECT text FROM note") == ["b"])
    }

    /// What follows a rollback by SQLite itself would otherwise be committed statement by statement.
    @Test func endsATransactionThatSQLiteRolledBack() throws {
        let connection = try open()
        try connection.execute("INSERT INTO note VALUES (1, 'a')")
        let error = #expect(throws: StoreError.self) {
            try connection.transaction(.immediate) {
                try connection.execute("INSERT INTO note VALUES (2, 'b')")
                try? connection.execute("INSERT OR ROLLBACK INTO note VALUES (3, 'a')")
                try connection.execute("INSERT INTO note VALUES (4, 'd')")
            }
        }
        #expect(error?.code == 4 && error?.sqliteMessage == "Transaction was aborted")
        #expect(throws: StoreError.self) {
            try connection.transaction(.immediate) {
                try? connection.execute("INSERT OR ROLLBACK INTO note VALUES (3, 'a')")
            }
        }
        #expect(try grdb("SELECT text FROM note") == ["a"])
    }

    // MARK: Statements

    @Test func runsAllStatementsOfAScript() throws {
        let connection = try open()
        try connection.execute(
            script: """
                ; -- A comment; it is no statement.
                INSERT INTO note VALUES (1, 'a;b'); SELECT * FROM note;
                /* another */ INSERT INTO note VALUES (2, 'c') ;;
                """)
        #expect(try grdb("SELECT text FROM note ORDER BY id") == ["a;b", "c"])
        try connection.execute(script: "")
        #expect(throws: StoreError.self) {
            try connection.execute(
                script: "INSERT INTO note VALUES (3, 'd'); INSERT INTO nowhere VALUES (1); DELETE FROM note")
        }
        #expect(try grdb("SELECT text FROM note ORDER BY id") == ["a;b", "c", "d"])
    }

    @Test func runsOnlyTheFirstStatementOtherwise() throws {
        try open().execute("INSERT INTO note VALUES (1, 'a'); DELETE FROM note")
        #expect(try grdb("SELECT text FROM note") == ["a"])
    }

    // MARK: Values

    @Test(arguments: [
        (SQLiteStore.SQLiteValue.null, "null "), (.integer(.max), "integer 39323233333732303336383534373735383037"),
        (.integer(.min), "integer 2D39323233333732303336383534373735383038"), (.real(0.5), "real 302E35"),
        (.text(""), "text "), (.text("a\0b"), "text 610062"), (.text("\0"), "text 00"),
        (.text("é\u{1F600}"), "text C3A9F09F9880"),
        (.blob([]), "blob "), (.blob([0, 255]), "blob 00FF"),
    ])
    func keepsAnyValue(_ value: SQLiteStore.SQLiteValue, _ stored: String) throws {
        let connection = try open()
        try connection.execute("INSERT INTO note VALUES (1, ?)", [value])
        #expect(try grdb("SELECT typeof(text) || ' ' || coalesce(hex(CAST(text AS BLOB)), '') FROM note") == [stored])
        let row = try connection.prepare("SELECT text FROM note")
        #expect(try row.step())
        #expect(row.value(0) == value)
    }

    /// The bytes are those in the file; as text, they are repaired.
    @Test func readsTextThatIsNotUTF8() throws {
        try fixture.make("INSERT INTO note VALUES (1, CAST(x'61FF0062' AS TEXT))")
        let row = try open().prepare("SELECT text FROM note")
        #expect(try row.step())
        #expect(row.bytes(0, limit: 10) == [0x61, 0xFF, 0, 0x62])
        #expect(row.value(0) == .text("a\u{FFFD}\0b"))
    }

    // MARK: Errors

    /// Each error has the code and message that GRDB reports.
    @Test(arguments: [
        "SELECT nothing", "INSERT INTO note VALUES (1, 'a')", "SELECT \"nothing\" FROM note", "PRAGMA journal_mode = (",
        "COMMIT",
        "SELECT 'é' ORDER BY 1 COLLATE app",
    ])
    func hasTheCodeAndMessageOfSQLite(_ sql: String) throws {
        try fixture.make("INSERT INTO note VALUES (1, 'a')")
        let error = #expect(throws: StoreError.self) { try open().execute(sql) }
        let queue = try DatabaseQueue(path: fixture.path)
        let expected = #expect(throws: DatabaseError.self) {
            try queue.writeWithoutTransaction { try $0.execute(sql: sql) }
        }
        try queue.close()
        #expect(error?.code == expected?.extendedResultCode.rawValue)
        #expect(error?.sqliteMessage == expected?.message)
    }

    /// Wrongly ordered entries in an index would be lost to the store's own program.
    @Test func writesNoIndexWithAnUnknownCollation() throws {
        let shell = try SQLiteShell(fixture.path)
        try shell.run("PRAGMA writable_schema = ON;")
        try shell.run("CREATE TABLE word (text COLLATE NOCASE UNIQUE);")
        try shell.run("UPDATE sqlite_schema SET sql = replace(sql, 'NOCASE', 'app') WHERE name = 'word';")
        let error = #expect(throws: StoreError.self) { try open().execute("INSERT INTO word VALUES ('a')") }
        #expect(error?.sqliteMessage == "no such collation sequence: app")
        // A staged copy is read with any collation.
        #expect(try fixture.read { try $0.integer("SELECT count(*) FROM word WHERE text = 'a'") } == 0)
    }

    /// Statements may name what GRDB defines in each connection, but what needs it is not committed.
    @Test func commitsNothingThatNeedsGRDBsCollations() throws {
        let queue = try DatabaseQueue(path: fixture.path)
        try queue.write {
            try $0.execute(
                sql: """
                    CREATE TABLE word (text COLLATE swiftLocalizedCompare PRIMARY KEY) WITHOUT ROWID;
                    CREATE INDEX upper ON note (swiftUppercaseString(text));
                    INSERT INTO word VALUES ('b');
                    """)
        }
        try queue.close()
        #expect(throws: StoreError.self) { try open().text("SELECT text FROM word") }
        let connection = try open()
        try connection.acceptGRDBNames()
        #expect(try connection.text("SELECT text FROM word LIMIT 1") == "b")
        #expect(throws: StoreError.self) {
            try connection.transaction(.immediate) { try connection.execute("INSERT INTO word VALUES ('a')") }
        }
        #expect(throws: StoreError.self) { try connection.execute("INSERT INTO note VALUES (1, 'a')") }
        #expect(try grdb("SELECT text FROM word UNION ALL SELECT text FROM note") == ["b"])
    }
}
