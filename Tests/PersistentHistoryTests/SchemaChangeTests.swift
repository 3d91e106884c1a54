import GRDB
import SQLiteStore
import TestSupport
import Testing

@testable import PersistentHistory

/// Tests schema changes by apps, and rows replaced under all kinds of unique columns.
struct SchemaChangeTests {
    @Test(arguments: [
        ("b", "b"), ("lower(b)", "b"), ("a) WHERE (b = 1", "b"), ("a, b COLLATE NOCASE", "b"), ("g", "g"),
        ("g || b) WHERE (g IS NOT b", "g"), ("a) WHERE (g > 1", "g"),
    ])
    func survivesAColumnDroppedAfterItsIndex(_ terms: String, _ column: String) throws {
        let store = try Fixture(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, a UNIQUE, b TEXT, c, g AS (lower(c))); "
                + "CREATE UNIQUE INDEX i ON t (\(terms))")
        _ = try store.enable()
        try store.write(
            """
            INSERT INTO t (id, a, b) VALUES (1, 1, 'x'); DROP INDEX i; ALTER TABLE t DROP COLUMN \(column);
            INSERT INTO t (id, a) VALUES (2, 2); REPLACE INTO t (id, a) VALUES (3, 2); UPDATE t SET a = 5 WHERE id = 1;
            DELETE FROM t WHERE id = 1
            """)
        #expect(try store.changes().map(\.operation) == [.insert, .insert, .delete, .insert, .update, .delete])
    }

    /// GRDB defines these collations and functions in each of its connections.
    @Test func recordsTablesWithGRDBsCollations() throws {
        let store = try Fixture(
            """
            CREATE TABLE w (t COLLATE swiftLocalizedCompare PRIMARY KEY, u) WITHOUT ROWID;
            CREATE TABLE t (id INTEGER PRIMARY KEY, a COLLATE swiftCaseInsensitiveCompare UNIQUE);
            CREATE INDEX i ON t (swiftUppercaseString(a));
            INSERT INTO w VALUES ('a', 1); INSERT INTO t VALUES (1, 'a')
            """)
        let outcome = try store.enable()
        #expect(outcome.tables == ["t", "w"] && outcome.gaps.isEmpty)
        try store.write("INSERT INTO w VALUES ('b', 2); REPLACE INTO t VALUES (2, 'A')")
        #expect(try store.changes().map(\.operation) == [.insert, .delete, .insert])
        #expect(try HistoryInstallation(store.location).disable().kind == .disabled)
    }

    /// SQLite runs the newest trigger first.
    @Test func recordsALaterTriggerInOrderAfterEnable() throws {
        let store = try Fixture(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, a); CREATE TRIGGER one AFTER DELETE ON t BEGIN UPDATE t SET a = 1; END"
        )
        _ = try store.enable()
        try store.write(
            "CREATE TRIGGER two AFTER INSERT ON t WHEN NEW.a = 'x' BEGIN DELETE FROM t WHERE id = NEW.id; END")
        let outcome = try store.enable()
        #expect(outcome.kind == .updated && outcome.gaps.isEmpty)
        #expect(try store.enable().kind == .unchanged)
        try store.write("INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        #expect(try store.changes().map(\.operation) == [.insert, .delete, .insert])
    }

    /// Several rows have the value that the index kept unique, while the old triggers are still installed.
    @Test(arguments: ["", "WITHOUT ROWID"])
    func recordsNoReplacementForADroppedIndex(_ kind: String) throws {
        let store = try Fixture("CREATE TABLE t (id INTEGER PRIMARY KEY, a) \(kind); CREATE UNIQUE INDEX i ON t (a)")
        _ = try store.enable()
        try store.write(
            """
            DROP INDEX i; CREATE INDEX i ON t (a); INSERT INTO t VALUES (1, 'x'); INSERT INTO t VALUES (2, 'x');
            INSERT INTO t VALUES (3, 'x'); UPDATE t SET a = 'y'; UPDATE t SET a = 'x'; REPLACE INTO t VALUES (4, 'x')
            """)
        let changes = try store.changes()
        #expect(changes.filter { $0.operation == .delete }.isEmpty)
        #expect(changes.filter { $0.operation == .insert }.count == 4)
    }

    /// Arguments: columns, an index, existing rows, a statement, and the rows that it removes.
    @Test(
        arguments: [
            (
                "v, w, g AS (v || w)", "g", "(1, 'x', 'y'), (2, 'p', 'q')",
                "UPDATE OR REPLACE t SET v = 'x', w = 'y' WHERE id = 2", [1]
            ),
            (
                "v, w, g AS (v || w)", "g", "(1, 'x', 'y'), (2, 'p', 'y')",
                "UPDATE OR REPLACE t SET v = 'x' WHERE id = 2", [1]
            ),
            (
                "v, w, g AS (lower(v)) STORED UNIQUE ON CONFLICT REPLACE", "w", "(1, 'x', 1), (2, 'p', 2)",
                "UPDATE t SET v = 'X' WHERE id = 2", [1]
            ),
            (
                "v, w, g AS (trim(v, 'm')) UNIQUE", "w", "(1, 'mx', 1), (2, 'y', 2)",
                "UPDATE OR REPLACE t SET v = 'xm' WHERE id = 2", [1]
            ),
            ("v TEXT, w", "w) WHERE (v > 3", "(1, '5', 7)", "REPLACE INTO t VALUES (2, '1', 7)", []),
            ("v INTEGER, w", "w) WHERE (v > '3'", "(1, 5, 7)", "REPLACE INTO t VALUES (2, 1, 7)", []),
            ("v INTEGER, w", "w) WHERE (v = '1'", "(1, 1, 7)", "REPLACE INTO t VALUES (2, 1, 7)", [1]),
            (
                "v TEXT COLLATE NOCASE, w", "(v = 'x')", "(1, 'X', 0), (2, 'b', 0)",
                "REPLACE INTO t VALUES (3, 'x', 0)", [1]
            ),
            ("v TEXT, w", "(v > 5)", "(1, '9', 0), (2, '1', 0)", "REPLACE INTO t VALUES (3, '10', 0)", [2]),
            ("v TEXT, w", "(v = 5)", "(1, '5', 0), (2, '1', 0)", "REPLACE INTO t VALUES (3, '5', 0)", [1]),
            ("v TEXT, w", "w) WHERE (v IN (1, 2)", "(1, '1', 5)", "REPLACE INTO t VALUES (3, '2', 5)", [1]),
            ("v VARCHAR(9), w", "w) WHERE (v BETWEEN 1 AND 5", "(1, '1', 5)", "REPLACE INTO t VALUES (3, '2', 5)", [1]),
            (
                "v TEXT NOT NULL DEFAULT 'd', w, g AS (lower(v)) UNIQUE", "w", "(1, 'D', 1)",
                "REPLACE INTO t VALUES (2, NULL, 2)", [1]
            ),
            (
                "v, w", "v", "(1, 'a' || char(0) || 'b', 1), (2, 'a' || char(0) || 'c', 2)",
                "REPLACE INTO t VALUES (3, 'a' || char(0) || 'b', 3)", [1]
            ),
            (
                "v, w", "v, w", "(1, 'a' || char(0) || 'b', 1), (2, 'a' || char(0) || 'c', 1)",
                "REPLACE INTO t VALUES (3, 'a' || char(0) || 'b', 1)", [1]
            ),
        ] as [(String, String, String, String, [Int64])])
    func recordsReplacedRows(
        _ columns: String, _ terms: String, _ rows: String, _ statement: String, _ gone: [Int64]
    ) throws {
        let store = try Fixture(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, \(columns)); CREATE UNIQUE INDEX i ON t (\(terms))")
        _ = try store.enable()
        try store.write("INSERT INTO t (id, v, w) VALUES \(rows)")
        let token = try store.current()
        let filled =
            columns.contains(" AS ")
            ? statement.replacing("INTO t VALUES", with: "INTO t (id, v, w) VALUES") : statement
        try store.write(filled)
        let changes = try store.changes(after: token)
        #expect(changes.filter { $0.operation == .delete }.map(\.key) == gone.map { [.integer($0)] }, "\(changes)")
        #expect(!changes.contains { $0.operation == .gap }, "\(changes)")
    }

    @Test(arguments: ["UTF-8", "UTF-16le", "UTF-16be"])
    func recordsAKeyWithANul(_ encoding: String) throws {
        let store = try Fixture(
            "CREATE TABLE t (a, b, PRIMARY KEY (a, b)) WITHOUT ROWID", name: "n.sqlite", encoding: encoding
        )
        _ = try store.enable()
        try store.write(
            """
            INSERT INTO t VALUES ('a' || char(0) || 'é', 1), ('a' || char(0), 1), ('a', 1), (x'610062', 1);
            UPDATE t SET a = 'a' || char(0) || 'c' WHERE a = 'a' || char(0)
            """)
        #expect(
            try StoreReader.read(store.location) {
                try $0.integer("SELECT count(*) FROM pragma_encoding WHERE encoding = '\(encoding)'")
            } == 1)
        let keys = try store.changes().map(\.key)
        #expect(
            keys == [
                [.text("a\0é"), .integer(1)], [.text("a\0"), .integer(1)], [.text("a"), .integer(1)],
                [.blob([0x61, 0, 0x62]), .integer(1)], [.text("a\0"), .integer(1)], [.text("a\0c"), .integer(1)],
            ])
    }

    /// A change recorded between a rename and `enable` is reported under a name of its own table. Names that came to
    /// another table, or to none, have a gap. `;;` stands for `enable`.
    @Test(arguments: [
        ("a", "ALTER TABLE a RENAME TO z", "z", ["a", "z"]),
        ("a", "ALTER TABLE a RENAME TO z;;ALTER TABLE z RENAME TO a", "a", ["a", "z"]),
        ("a", "ALTER TABLE a RENAME TO z; ALTER TABLE z DROP COLUMN w", "z", ["a", "z"]),
        ("a", "ALTER TABLE a RENAME TO z; ALTER TABLE z RENAME TO A", "A", []),
        ("a", "ALTER TABLE a RENAME TO old; CREATE TABLE a (k INTEGER PRIMARY KEY, v, w)", "old", ["a", "old"]),
        ("a b", "ALTER TABLE a RENAME TO z; ALTER TABLE b RENAME TO a; ALTER TABLE z RENAME TO b", "a", ["a", "b"]),
        ("a b", "DROP TABLE b; ALTER TABLE a RENAME TO b", "b", ["a", "b"]),
        ("a b", "DROP TABLE b;;ALTER TABLE a RENAME TO b", "b", ["a", "b"]),
        (
            "a b", "ALTER TABLE a RENAME TO z; ALTER TABLE b RENAME TO a; ALTER TABLE z RENAME TO b; DROP TABLE b", "a",
            ["a", "b"]
        ),
        (
            "a b c",
            "ALTER TABLE a RENAME TO z; ALTER TABLE b RENAME TO a; ALTER TABLE c RENAME TO b; ALTER TABLE z RENAME TO c",
            "b", ["a", "b", "c"]
        ),
    ])
    func reportsRowsOfARenamedTableUnderItsName(
        _ tables: String, _ change: String, _ name: String, _ gaps: [String]
    ) throws {
        let names = tables.split(separator: " ")
        let creation = names.map { "CREATE TABLE \"\($0)\" (k INTEGER PRIMARY KEY, v, w)" }
        let store = try Fixture(creation.joined(separator: ";"))
        _ = try store.enable()
        let token = try store.current()
        for step in change.split(separator: ";;").map(String.init).enumerated() {
            if step.offset > 0 { _ = try store.enable() }
            try store.write("BEGIN; \(step.element); COMMIT")
        }
        try store.write("INSERT INTO \(name) (k) VALUES (7)")
        func inserted() throws -> [String] {
            try store.changes(after: token).filter { $0.operation == .insert }.map(\.table)
        }
        #expect(try inserted() == [name])
        #expect(try store.read { try $0.summary().doubtfulTables.sorted() } == gaps)
        let outcome = try store.enable()
        #expect(outcome.kind == .updated && outcome.gaps.sorted() == gaps)
        #expect(try inserted() == [name])
        #expect(try store.changes(after: token).suffix(gaps.count).map(\.table).sorted() == gaps)
        #expect(try store.enable().kind == .unchanged)
        try store.write("INSERT INTO \(name) (k) VALUES (8)")
        #expect(try inserted() == [name, name])
    }

    /// Nothing has the name any more that a table had when it was dropped.
    @Test(arguments: [
        ("", ["a"]), ("CREATE TABLE z (k INTEGER PRIMARY KEY); INSERT INTO z VALUES (9)", ["a", "z"]),
        ("CREATE TABLE a (k INTEGER PRIMARY KEY); INSERT INTO a VALUES (9)", ["a"]),
    ])
    func reportsRowsOfARenamedAndDroppedTableUnderItsLastKnownName(_ later: String, _ gaps: [String]) throws {
        let store = try Fixture("CREATE TABLE a (k INTEGER PRIMARY KEY)")
        _ = try store.enable()
        let token = try store.current()
        try store.write("INSERT INTO a VALUES (1); ALTER TABLE a RENAME TO z; INSERT INTO z VALUES (2); DROP TABLE z")
        if !later.isEmpty { try store.write(later) }
        #expect(try store.read { try $0.summary().doubtfulTables.sorted() } == gaps)
        #expect(try store.enable().gaps.sorted() == gaps)
        let changes = try store.changes(after: token)
        #expect(changes.filter { $0.operation == .insert }.map(\.table) == ["a", "a"])
        #expect(changes.filter { $0.operation == .gap }.map(\.table).sorted() == gaps)
    }

    /// The triggers of swapped columns are as they would be made; with a dropped column they are made again.
    @Test(arguments: ["", "ALTER TABLE t DROP COLUMN x;"]) func namesTheColumnsOfTheTriggers(_ more: String) throws {
        let store = try Fixture("CREATE TABLE t (k INTEGER PRIMARY KEY, v, w, x); INSERT INTO t VALUES (1, 2, 3, 4)")
        _ = try store.enable()
        try store.write(
            "ALTER TABLE t RENAME COLUMN v TO y; ALTER TABLE t RENAME COLUMN w TO v; ALTER TABLE t RENAME COLUMN y TO w;"
                + "\(more) UPDATE t SET v = 5")
        #expect(try store.changes().map(\.columns) == [["v"]])
        #expect(try store.enable().kind == .updated)
        #expect(try store.changes().map(\.columns) == [["v"]])
        #expect(try store.enable().kind == .unchanged)
    }

    @Test func namesADoubtfulTableOnce() throws {
        let store = try Fixture("CREATE TABLE t (k INTEGER PRIMARY KEY)")
        _ = try store.enable()
        try store.write("DROP TABLE t; CREATE TABLE t (k INTEGER PRIMARY KEY)")
        #expect(try store.read { try $0.summary().doubtfulTables } == ["t"])
    }

    /// The triggers of version 2 for the table `note` that differ from the current ones.
    private static let version2 = """
        CREATE TRIGGER GS_1_X AFTER INSERT ON "note" WHEN EXISTS (SELECT 1 FROM GS_REPLACED WHERE table_id = 1) BEGIN
        INSERT INTO GS_CHANGE (table_id, operation, key, nonce, time, author) SELECT 1, 2, n.key, random(),
        julianday('now'), (SELECT name FROM GS_AUTHOR) FROM GS_REPLACED AS n WHERE n.table_id = 1 AND n.rule = 1
        AND n.value = NEW."u" AND n.key IS NOT NEW.rowid AND (SELECT c.operation FROM GS_CHANGE AS c
        WHERE c.number > n.number AND c.table_id = 1 AND c.key = n.key ORDER BY c.number DESC LIMIT 1) IS NOT 2
        AND ((SELECT c.operation FROM GS_CHANGE AS c WHERE c.number > n.number AND c.table_id = 1 AND c.key = n.key
        ORDER BY c.number DESC LIMIT 1) IS NULL OR NOT EXISTS (SELECT 1 FROM "note" WHERE "note".rowid = n.key)); END;
        CREATE TRIGGER GS_1_R AFTER UPDATE OF "u" ON "note" WHEN EXISTS (SELECT 1 FROM GS_REPLACED WHERE table_id = 1)
        BEGIN INSERT INTO GS_CHANGE (table_id, operation, key, nonce, time, author) SELECT 1, 2, n.key, random(),
        julianday('now'), (SELECT name FROM GS_AUTHOR) FROM GS_REPLACED AS n WHERE n.table_id = 1 AND n.rule = 1
        AND n.value = NEW."u" AND n.key IS NOT NEW.rowid AND n.key IS NOT OLD.rowid; END;
        UPDATE GS_HISTORY SET version = 2; DROP TABLE GS_REPLACED;
        CREATE TABLE GS_REPLACED (table_id INTEGER NOT NULL, rule INTEGER NOT NULL, value NOT NULL, key,
        number INTEGER NOT NULL, PRIMARY KEY (table_id, rule, value)) WITHOUT ROWID
        """

    /// The triggers don't know a unique index that was created after them.
    @Test(arguments: [false, true])
    func replacesOlderTriggersWithoutAGap(_ hasNewIndex: Bool) throws {
        let store = try Fixture("CREATE TABLE note (id INTEGER PRIMARY KEY, u UNIQUE)")
        _ = try store.enable()
        try store.write(
            "INSERT INTO note VALUES (1, 'a'); DROP TRIGGER GS_1_X; DROP TRIGGER GS_1_R; \(Self.version2)")
        if hasNewIndex { try store.write("CREATE UNIQUE INDEX later ON note (id, u)") }
        let token = try store.current()
        let outcome = try store.enable()
        #expect(outcome.kind == .updated && outcome.gaps == (hasNewIndex ? ["note"] : []))
        try store.write("REPLACE INTO note VALUES (2, 'a')")
        #expect(
            try store.changes(after: token).map(\.operation) == (hasNewIndex ? [.gap] : []) + [.delete, .insert])
        #expect(try store.enable().kind == .unchanged)
    }

    /// Older triggers may have missed rows of a partial index.
    @Test func recordsAGapForAnOlderHistoryOfAPartialIndex() throws {
        let store = try Fixture("CREATE TABLE t (a, b); CREATE UNIQUE INDEX i ON t (a) WHERE b > 1")
        _ = try store.enable()
        try store.write("UPDATE GS_HISTORY SET version = 2; DROP TRIGGER GS_1_X")
        #expect(try store.enable().gaps == ["t"])
    }
}
