import SystemPackage
import Testing

@testable import SQLiteStore

@Suite struct DatabaseSchemaTests {
    private func schema(_ sql: String) throws -> DatabaseSchema {
        let fixture = try Fixture()
        try fixture.make(sql)
        return try fixture.read { try DatabaseSchema($0) }
    }

    @Test(
        arguments: [
            ("(a)", "rowid", nil), ("(rowid, a)", "_rowid_", nil), ("(RowID, _ROWID_)", "oid", nil),
            ("(a, rowid AS (a))", "_rowid_", nil), ("(rowid, _rowid_, oid)", nil, nil),
            ("(rowid, _rowid_, OID INTEGER PRIMARY KEY)", "OID", "OID"), ("(id INTEGER PRIMARY KEY)", "rowid", "id"),
            ("(a, id integer, PRIMARY KEY (id))", "rowid", "id"), ("(id INTEGER PRIMARY KEY DESC)", "rowid", nil),
            ("(id INT PRIMARY KEY)", "rowid", nil), ("(id INTEGER, b, PRIMARY KEY (id, b))", "rowid", nil),
            ("(id INTEGER PRIMARY KEY) WITHOUT ROWID", nil, nil),
        ] as [(String, String?, String?)])
    func findsTheNameThatReachesTheRowid(_ columns: String, _ rowid: String?, _ alias: String?) throws {
        let fixture = try Fixture()
        try fixture.make("CREATE TABLE t \(columns)")
        try fixture.read { reader in
            let table = try #require(try DatabaseSchema(reader).table("t"))
            #expect(table.rowid == rowid)
            #expect(table.rowidAlias == alias)
            // A name that reached no column would be an error.
            if let rowid { #expect(try reader.integer("SELECT t.\(rowid.sqlName) FROM t") == nil) }
        }
    }

    @Test func describesColumnsIndexesAndForeignKeys() throws {
        let schema = try schema(
            """
            CREATE TABLE album (id INTEGER PRIMARY KEY);
            CREATE TABLE song (
                a TEXT COLLATE NOCASE NOT NULL DEFAULT 'x', b UNIQUE, c AS (b + 1) STORED, d AS (b),
                e REFERENCES album ON DELETE CASCADE, f REFERENCES Album (id), PRIMARY KEY (b, a));
            CREATE INDEX first ON song (lower(a), e DESC) WHERE e > 0;
            CREATE TRIGGER added AFTER INSERT ON song BEGIN SELECT 1; END;
            CREATE VIEW songs AS SELECT a FROM song;
            """)
        let song = try #require(schema.table("Song"))
        #expect(song.columns.map(\.name) == ["a", "b", "c", "d", "e", "f"])
        #expect(song.columns.map(\.storage) == [.ordinary, .ordinary, .stored, .virtual, .ordinary, .ordinary])
        #expect(song.assignableColumns.map(\.name) == ["a", "b", "e", "f"])
        #expect(song.primaryKey.map(\.name) == ["b", "a"])
        #expect(song.column("A")?.defaultValue == "'x'" && song.column("A")?.isMandatory == true)
        #expect(song.indexes.map(\.origin) == [.statement, .primaryKey, .uniqueConstraint])
        #expect(song.indexes.map(\.isUnique) == [false, true, true])
        #expect(song.indexes.map(\.isPartial) == [true, false, false])
        #expect(song.indexes.map { $0.creation != nil } == [true, false, false])
        #expect(song.indexes.map { $0.terms.map(\.column) } == [[nil, "e"], ["b", "a"], ["b"]])
        #expect(song.indexes[0].terms.map(\.isExpression) == [true, false])
        #expect(song.indexes[1].terms.map(\.collation) == ["BINARY", "NOCASE"])
        #expect(song.foreignKeys.map(\.column) == ["f", "e"])
        #expect(song.foreignKeys.map(\.target) == ["id", nil])
        #expect(song.foreignKeys.map(\.hasAction) == [false, true])
        #expect(schema.objects.map(\.name) == ["album", "song", "first", "added", "songs"])
        #expect(schema.objects(.trigger).map(\.table) == ["song"])
        #expect(schema.tables.map(\.name) == ["album", "song"])
    }

    /// Swift takes both spellings of "é" for equal. SQLite compares only ASCII letters without case.
    @Test func comparesNamesAsSQLiteDoes() throws {
        let (one, two) = ("caf\u{E9}", "cafe\u{301}")
        let schema = try schema(
            "CREATE TABLE \(one.sqlName) (a); CREATE TABLE \(two.sqlName) (b); CREATE TABLE \"%c3%a9\" (c); "
                + "CREATE TABLE \"\u{E9}\" (d); CREATE TABLE sqliteish (e)")
        #expect(schema.table(one.uppercased()) == nil)
        #expect(schema.table("CAF\u{E9}")?.columns.map(\.name) == ["a"])
        #expect(schema.table(two)?.columns.map(\.name) == ["b"])
        #expect(schema.table("%C3%A9")?.columns.map(\.name) == ["c"])
        #expect(schema.table("\u{E9}")?.columns.map(\.name) == ["d"])
        #expect(schema.table("SQLITEISH") != nil)
    }

    @Test(arguments: ["a\"b", "\"", "a\"\u{301}b", "x'y", "[a]", " ", "select"])
    func quotesAnyName(_ name: String) throws {
        let fixture = try Fixture()
        try fixture.make("CREATE TABLE \(name.sqlName) (\(name.sqlName)); INSERT INTO \(name.sqlName) VALUES (1)")
        try fixture.read { reader in
            let table = try #require(try DatabaseSchema(reader, only: name).table(name))
            #expect(Array(table.name.utf8) == Array(name.utf8))
            #expect(table.columns.map { Array($0.name.utf8) } == [Array(name.utf8)])
            #expect(try reader.integer("SELECT \(name.sqlName) FROM \(name.sqlName)") == 1)
            #expect(try reader.text("SELECT \(name.sqlText)").map { Array($0.utf8) } == Array(name.utf8))
        }
    }

    @Test func readsTheOthersBesideWhatOnlyAnotherProgramCanUse() throws {
        let fixture = try Fixture()
        try fixture.make(
            """
            CREATE TABLE note (a UNIQUE, b AS (abs(a))); CREATE VIEW broken AS SELECT gone FROM nowhere;
            PRAGMA writable_schema = ON;
            INSERT INTO sqlite_schema VALUES ('table', 'map', 'map', 0, 'CREATE VIRTUAL TABLE map USING Unknown(a, b)');
            UPDATE sqlite_schema SET sql = 'CREATE TABLE note (a COLLATE theirs UNIQUE, b AS (theirs(a)))'
            WHERE name = 'note';
            """)
        try fixture.read { reader in
            let schema = try DatabaseSchema(reader)
            #expect(schema.tables.map(\.name) == ["note", "map"])
            #expect(schema.table("note")?.columns.map(\.name) == ["a", "b"])
            #expect(schema.table("note")?.indexes.map(\.unknownCollation) == ["theirs"])
            #expect(schema.table("map")?.kind == .virtual && schema.table("map")?.module == "unknown")
            #expect(schema.table("map")?.columns.isEmpty == true)
            for name in ["map", "broken"] {
                #expect(throws: StoreError.self) { try DatabaseSchema.columns(of: name, in: reader) }
            }
        }
    }

    @Test func tellsVirtualShadowAndKeyedTablesApart() throws {
        let fixture = try Fixture()
        try fixture.make(
            """
            CREATE VIRTUAL TABLE search USING fts5(body); CREATE TABLE search_other (a);
            CREATE TABLE tag (name PRIMARY KEY) WITHOUT ROWID; CREATE VIEW tags (n) AS SELECT name FROM tag;
            CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT);
            """)
        try fixture.read { reader in
            let schema = try DatabaseSchema(reader)
            #expect(schema.tables.filter { !$0.isShadow }.map(\.name) == ["search", "search_other", "tag", "counted"])
            #expect(schema.tables.filter(\.isShadow).count == 5)
            #expect(
                ["search", "search_idx", "tag", "counted"].map { schema.table($0)?.kind }
                    == [.virtual, .withoutRowid, .withoutRowid, .rowid])
            #expect(schema.objects(.table).contains { $0.name == "sqlite_sequence" })
            #expect(try DatabaseSchema.tableNames(in: reader) == ["counted", "search", "search_other", "tag"])
            #expect(try DatabaseSchema.columns(of: "search", in: reader).filter(\.isAssignable).map(\.name) == ["body"])
            #expect(try DatabaseSchema.columns(of: "tags", in: reader).map(\.name) == ["n"])
            #expect(try reader.hasTables("tag", "sqlite_sequence"))
            #expect(try !reader.hasTables("tag", "Search"))
        }
    }

    @Test func readsAnAttachedDatabase() throws {
        let (one, other) = (try Fixture(), try Fixture())
        try one.make("CREATE TABLE note (a); CREATE TABLE mine (b)")
        try other.make("CREATE TABLE note (k PRIMARY KEY, v) WITHOUT ROWID; CREATE INDEX i ON note (v)")
        let writer = try StoreWriter(FilePath(one.path))
        try writer.execute("ATTACH ?1 AS \"the other\"", [.text(other.path)])
        let schema = try DatabaseSchema(writer, in: "the other")
        #expect(schema.tables.map(\.name) == ["note"])
        #expect(schema.table("note")?.kind == .withoutRowid)
        #expect(schema.table("note")?.columns.map(\.name) == ["k", "v"])
        #expect(schema.table("note")?.indexes.map(\.name) == ["i", "sqlite_autoindex_note_1"])
        let single = try DatabaseSchema(writer, only: "NOTE")
        #expect(single.tables.map(\.name) == ["note"] && single.objects.map(\.name) == ["note"])
        #expect(single.table("note")?.columns.map(\.name) == ["a"])
    }

    @Test func refusesASchemaThatDoesNotParse() throws {
        let fixture = try Fixture()
        try fixture.make(
            "CREATE TABLE t (a); PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'CREATE TABLE t ('")
        #expect(throws: StoreError.self) { try fixture.read { try DatabaseSchema($0) } }
    }

    /// SQLite would read the list of all tables again for each.
    @Test func readsManyTablesInLinearTime() throws {
        func work(tables: Int) throws -> Int {
            let fixture = try Fixture()
            try fixture.make(
                (0..<tables).map { "CREATE TABLE t\($0) (a UNIQUE, b REFERENCES t0)" }.joined(separator: ";"))
            return try fixture.read { reader in
                var steps = 0
                reader.interrupt(every: 10) {
                    steps += 1
                    return false
                }
                let schema = try DatabaseSchema(reader)
                #expect(schema.tables.count == tables)
                return steps
            }
        }
        #expect(try work(tables: 200) < 3 * work(tables: 100))
    }
}
