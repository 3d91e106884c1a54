import Foundation
import GRDB
import SystemPackage
import Testing

@testable import SQLiteStore

@Suite struct StoreContentTests {
    private static let sql = """
        CREATE TABLE note(id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT, extra);
        CREATE TABLE tag(name TEXT COLLATE NOCASE PRIMARY KEY, n) WITHOUT ROWID;
        CREATE TABLE pair(a, b, PRIMARY KEY(a, b));
        CREATE TABLE shadowed(rowid TEXT, _rowid_ TEXT, oid TEXT, "quo""ted" INTEGER);
        CREATE INDEX note_title ON note(title) WHERE title <> '';
        CREATE VIEW titles AS SELECT title FROM note;
        CREATE TRIGGER t AFTER DELETE ON note BEGIN SELECT unknown_function(1); END;
        CREATE VIRTUAL TABLE search USING fts5(body);
        INSERT INTO note VALUES (1, 'a', 1), (2, 'b', 2.5), (7, NULL, x'00FF'), (9, 'c' || char(0) || 'd', '');
        INSERT INTO tag VALUES ('x', 1), ('B', 2), ('a', 3);
        INSERT INTO pair VALUES (1, 2), (2, 1);
        INSERT INTO shadowed VALUES ('1', '2', '3', 4);
        INSERT INTO search VALUES ('some words');
        PRAGMA user_version = 3;
        """

    private func pair(_ change: String = "SELECT 1") throws -> (Fixture, Fixture) {
        let (one, other) = (try Fixture(), try Fixture())
        try one.make(Self.sql)
        try other.make(Self.sql + change)
        return (one, other)
    }

    @Test(arguments: [
        "PRAGMA journal_mode = WAL;", "VACUUM;", "PRAGMA page_size = 1024; VACUUM;",
        "INSERT INTO pair VALUES (8, 8); DELETE FROM pair WHERE a = 8; INSERT INTO tag VALUES ('q', 0); "
            + "DELETE FROM tag WHERE name = 'Q';", "PRAGMA auto_vacuum = 2; VACUUM;", "ANALYZE;",
    ]) func ignoresTheLayoutOnDisk(_ change: String) throws {
        let (one, other) = try pair(change)
        #expect(try Data(contentsOf: one.url()) != Data(contentsOf: other.url()))
        #expect(try one.difference(from: other) == nil)
    }

    @Test func readsContentInAWAL() throws {
        let (one, other) = (try Fixture(), try Fixture())
        try one.make(Self.sql)
        try other.makeCrashed("PRAGMA journal_mode = WAL;" + Self.sql, parts: ["", "-wal"])
        #expect(try one.difference(from: other) == nil)
    }

    static let changes: [(String, ContentDifference)] = [
        ("UPDATE note SET title = 'A' WHERE id = 1", .value(table: "note", column: "title", row: 1)),
        ("UPDATE note SET extra = 1.0 WHERE id = 1", .value(table: "note", column: "extra", row: 1)),
        ("UPDATE note SET extra = '1' WHERE id = 1", .value(table: "note", column: "extra", row: 1)),
        ("UPDATE note SET title = '' WHERE id = 7", .value(table: "note", column: "title", row: 3)),
        ("UPDATE note SET extra = x'' WHERE id = 9", .value(table: "note", column: "extra", row: 4)),
        ("UPDATE note SET title = 'c' WHERE id = 9", .value(table: "note", column: "title", row: 4)),
        ("UPDATE note SET id = 8 WHERE id = 7", .value(table: "note", column: "rowid", row: 3)),
        ("INSERT INTO note VALUES (10, 'e', 0)", .missingRow(table: "note", row: 5)),
        ("DELETE FROM pair WHERE a = 2", .missingRow(table: "pair", row: 2)),
        ("UPDATE pair SET rowid = 9 WHERE a = 2", .value(table: "pair", column: "rowid", row: 2)),
        ("UPDATE tag SET name = 'A' WHERE name = 'a'", .value(table: "tag", column: "name", row: 1)),
        ("UPDATE shadowed SET \"quo\"\"ted\" = 5", .value(table: "shadowed", column: "quo\"ted", row: 1)),
        ("UPDATE sqlite_sequence SET seq = 99", .value(table: "sqlite_sequence", column: "seq", row: 1)),
        ("DROP VIEW titles", .schema(type: "view", name: "titles")),
        ("CREATE TABLE zzz(a)", .schema(type: "table", name: "zzz")),
        ("DROP INDEX note_title", .schema(type: "index", name: "note_title")),
        ("PRAGMA user_version = 4", .setting("user_version")),
        ("PRAGMA application_id = 4", .setting("application_id")),
    ]

    @Test(arguments: changes) func findsADifference(_ change: String, _ difference: ContentDifference) throws {
        let (one, other) = try pair(change)
        #expect(try one.difference(from: other) == difference)
        #expect(try other.difference(from: one) == difference)
    }

    @Test func comparesAFullTextIndexByItsTables() throws {
        let (one, other) = try pair("INSERT INTO search VALUES ('more words')")
        #expect(try one.difference(from: other)?.description.contains("search_") == true)
    }

    @Test func anotherEncodingIsADifference() throws {
        let (one, other) = (try Fixture(), try Fixture())
        try one.make("CREATE TABLE t(a)")
        try other.make("PRAGMA encoding = 'UTF-16le'; CREATE TABLE t(a)")
        #expect(try one.difference(from: other) == .setting("encoding"))
    }

    /// Core Data's collations, and functions in generated columns, exist only in the store's own program.
    @Test func worksWithoutTheProgramsOwnCollationsAndFunctions() throws {
        let (one, other) = (try Fixture(), try Fixture())
        for (fixture, title) in [(one, "b"), (other, "c")] {
            var configuration = Configuration()
            configuration.prepareDatabase { database in
                database.add(collation: DatabaseCollation("NSCollateOwn") { $1.compare($0) })
                database.add(
                    function: DatabaseFunction("own", argumentCount: 1, pure: true) { $0.first ?? DatabaseValue.null })
            }
            let queue = try DatabaseQueue(path: fixture.path, configuration: configuration)
            try queue.write { database in
                try database.execute(
                    sql: """
                        CREATE TABLE note(title TEXT COLLATE NSCollateOwn UNIQUE, copy AS (own(title)) STORED);
                        CREATE TABLE tag(name TEXT COLLATE NSCollateOwn PRIMARY KEY) WITHOUT ROWID;
                        INSERT INTO note(title) VALUES ('a'), (?);
                        INSERT INTO tag VALUES ('a'), ('b');
                        """, arguments: [title])
            }
            try queue.close()
        }
        #expect(try one.describe().tables.map(\.rows) == [2, 2])
        #expect(try one.difference(from: one) == nil)
        #expect(try one.difference(from: other) == .value(table: "note", column: "title", row: 2))
        #expect(try !one.isEmptyOrSchemaOnly())
    }

    @Test func countsRows() throws {
        let (one, _) = try pair()
        let counts = try one.read { try StoreContent($0).rowCounts() }
        let own = Dictionary(uniqueKeysWithValues: counts.filter { !$0.table.hasPrefix("search") })
        #expect(own == ["note": 4, "tag": 3, "pair": 2, "shadowed": 1])
    }

    @Test(arguments: [
        ("CREATE TABLE t(a);", true),
        ("CREATE TABLE t(a); INSERT INTO t VALUES (NULL);", false),
        ("CREATE TABLE t(id INTEGER PRIMARY KEY AUTOINCREMENT); INSERT INTO t VALUES (1); DELETE FROM t;", true),
        (metadata + "INSERT INTO Z_METADATA VALUES (1, 'u', x''); CREATE TABLE ZNOTE(Z_PK);", true),
        (metadata + "INSERT INTO Z_METADATA VALUES (1, 'u', x''), (2, 'v', x'');", false),
        (metadata + "CREATE TABLE ZNOTE(Z_PK); INSERT INTO ZNOTE VALUES (1);", false),
        ("CREATE TABLE Z_METADATA(a); INSERT INTO Z_METADATA VALUES (1);", false),
        (
            "CREATE TABLE room_master_table(id, identity_hash, note); INSERT INTO room_master_table VALUES (1, 2, 3);",
            false
        ),
        ("CREATE TABLE \"Z_PRIMARY\u{212A}EY\"(a); INSERT INTO \"Z_PRIMARY\u{212A}EY\" VALUES (1);", false),
        (
            "CREATE TABLE grdb_migrations(identifier TEXT NOT NULL PRIMARY KEY); "
                + "INSERT INTO grdb_migrations VALUES ('v1'), ('v2'); CREATE TABLE note(a);", true
        ),
        ("CREATE VIRTUAL TABLE f USING fts5(body); CREATE VIRTUAL TABLE r USING rtree(id, a, b);", true),
        ("CREATE VIRTUAL TABLE f USING fts5(body); INSERT INTO f VALUES ('a');", false),
        ("CREATE VIRTUAL TABLE f USING fts5(body, content=''); INSERT INTO f(rowid, body) VALUES (1, 'a');", false),
        ("CREATE VIRTUAL TABLE r USING rtree(id, a, b); INSERT INTO r VALUES (1, 0, 1);", false),
        ("PRAGMA user_version = 2;", true),
    ]) func detectsSchemaOnlyStores(_ sql: String, _ expected: Bool) throws {
        let fixture = try Fixture()
        try fixture.make(sql)
        #expect(try fixture.isEmptyOrSchemaOnly() == expected)
    }

    private static let metadata = "CREATE TABLE Z_METADATA(Z_VERSION INTEGER PRIMARY KEY, Z_UUID, Z_PLIST);"

    /// A table is a virtual table's shadow only if its module has such a table. An ordinary table may have the same
    /// name.
    @Test(arguments: [
        (
            "CREATE TABLE n_data(id INTEGER PRIMARY KEY, body); CREATE VIRTUAL TABLE n USING fts4(content='n_data', body)",
            "n_data"
        ),
        ("CREATE TABLE n_config(k, v); CREATE VIRTUAL TABLE n USING fts4(body)", "n_config"),
        ("CREATE TABLE n_node(nodeno, data); CREATE VIRTUAL TABLE n USING fts5(body)", "n_node"),
        ("CREATE TABLE n_data(id, block); CREATE VIRTUAL TABLE n USING rtree(a, b, c)", "n_data"),
        (
            "CREATE TABLE n_content(id INTEGER PRIMARY KEY, c0); CREATE VIRTUAL TABLE n USING fts5(c0, content=n_content)",
            "n_content"
        ),
        ("CREATE TABLE n_data(id, block); CREATE TABLE n_docsize(a); CREATE TABLE n(a)", "n_data"),
        ("CREATE TABLE n_data(id, block); CREATE TABLE n_docsize(a); CREATE VIEW n AS SELECT 1", "n_data"),
        ("CREATE TABLE n_data(id, block); CREATE VIRTUAL TABLE \"n\" /* USING fts5 */ USING fts4(body)", "n_data"),
        ("CREATE TABLE n_data(id, block); CREATE VIRTUAL TABLE n USING fts3(using, fts5)", "n_data"),
        ("CREATE VIRTUAL TABLE \"e\u{301}\" USING fts5(body); CREATE TABLE \"\u{E9}_data\"(id, block)", "\u{E9}_data"),
    ]) func anOrdinaryTableWithAShadowsNameHasRows(_ sql: String, _ table: String) throws {
        let fixture = try Fixture()
        try fixture.make(sql + ";")
        #expect(try fixture.isEmptyOrSchemaOnly())
        try fixture.make("INSERT INTO \"\(table)\" SELECT 1, 2;")
        #expect(try !fixture.isEmptyOrSchemaOnly())
    }

    @Test(
        arguments: [
            ("CREATE VIRTUAL TABLE n USING fts5(a)", "fts5"), ("create virtual table [n] using FTS4", "fts4"),
            ("CREATE VIRTUAL TABLE \"using \"\"fts5\" USING 'rtree'(id, a, b)", "rtree"),
            ("CREATE VIRTUAL TABLE -- USING fts5\n `using` /**/ USING/* fts3 */\"geopoly\"()", "geopoly"),
            ("CREATE VIRTUAL TABLE \"using\" using x$1(fts5)", "x$1"),
            ("CREATE TABLE n(a, using, fts5)", nil), ("CREATE VIRTUAL TABLE n USIN fts5", nil),
            ("CREATE VIRTUAL TABLE \"n USING fts5", nil), ("", nil), ("CREATE VIRTUAL TABLE n USING (fts5)", nil),
        ] as [(String, String?)]) func readsTheModuleFromTheDeclaration(_ sql: String, _ module: String?)
    {
        #expect(VirtualTableModule.name(declaredIn: sql) == module)
    }
}
