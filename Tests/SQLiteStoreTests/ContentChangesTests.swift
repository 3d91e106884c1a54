import Testing

@testable import SQLiteStore

@Suite struct ContentChangesTests {
    private static let sql = """
        CREATE TABLE note(id INTEGER PRIMARY KEY, title TEXT);
        CREATE TABLE tag(name TEXT PRIMARY KEY, n);
        CREATE TABLE entry(text);
        INSERT INTO note VALUES (1, 'a'), (2, 'b'), (3, 'c');
        INSERT INTO tag VALUES ('x', 1), ('y', 2), ('z', 3);
        INSERT INTO entry VALUES ('one'), ('two');
        """

    /// Returns what a change does to the store.
    private func changes(_ change: String) throws -> ContentChanges {
        let (before, after) = (try Fixture(), try Fixture())
        try before.make(Self.sql)
        try after.make(Self.sql + change)
        return try before.read { copy in
            try after.read { try StoreContent(copy).changes(to: StoreContent($0)) }
        }
    }

    /// The numbers of rows that came, went and changed, by table.
    private func counts(_ change: String) throws -> [String: [Int64]] {
        var found: [String: [Int64]] = [:]
        for table in try changes(change).tables where !table.isSame {
            found[table.name] = [table.came, table.went, table.changed]
        }
        return found
    }

    @Test func countsTheRowsOfEachTable() throws {
        #expect(try counts("VACUUM;").isEmpty)
        let mixed = """
            INSERT INTO note VALUES (4, 'd'), (5, 'e'); DELETE FROM note WHERE id = 1;
            UPDATE note SET title = 'B' WHERE id = 2; DELETE FROM entry; CREATE TABLE new(a); INSERT INTO new VALUES (1);
            """
        #expect(try counts(mixed) == ["note": [2, 1, 1], "entry": [0, 2, 0], "new": [1, 0, 0]])
    }

    @Test func pairsRowsByTheirPrimaryKeyWhenATableIsMadeAnew() throws {
        let rebuilt = """
            DELETE FROM tag WHERE name = 'x'; CREATE TABLE tag2(name TEXT PRIMARY KEY, n, more);
            INSERT INTO tag2 SELECT name, n, NULL FROM tag; DROP TABLE tag; ALTER TABLE tag2 RENAME TO tag;
            """
        let found = try changes(rebuilt)
        #expect(try counts(rebuilt) == ["tag": [0, 1, 0]])
        #expect(found.schema == [.init(kind: .changed, type: "table", name: "tag")])
    }

    /// A key that isn't an INTEGER PRIMARY KEY may be NULL, in any number of rows.
    @Test func rowsWithoutAKeyAreToldApart() throws {
        let nulls = "INSERT INTO tag VALUES (NULL, 1), (NULL, 2), (NULL, 2);"
        let (before, after) = (try Fixture(), try Fixture())
        try before.make(Self.sql + nulls)
        try after.make(Self.sql + nulls + "DELETE FROM tag WHERE name IS NULL AND n = 1;")
        let found = try before.read { copy in try after.read { try StoreContent(copy).changes(to: StoreContent($0)) } }
        let tag = try #require(found.tables.first { $0.name == "tag" })
        #expect([tag.came, tag.went, tag.changed] == [0, 1, 0] && tag.isLoss)
    }

    @Test func aDroppedTableOrColumnIsALoss() throws {
        let dropped = try changes("DROP TABLE tag; ALTER TABLE note DROP COLUMN title; CREATE INDEX i ON entry(text);")
        let tables = Dictionary(uniqueKeysWithValues: dropped.tables.map { ($0.name, $0) })
        #expect(tables["tag"]?.went == 3 && tables["tag"]?.isLoss == true)
        #expect(tables["note"]?.changed == 3 && tables["note"]?.isLoss == true)
        #expect(tables["entry"]?.isLoss == false)
        #expect(
            dropped.schema.map { "\($0.kind) \($0.type) \($0.name)" } == [
                "created index i", "changed table note", "dropped table tag",
            ])
    }

    private static let withoutRowid = """
        CREATE TABLE tag2(name TEXT PRIMARY KEY, n) WITHOUT ROWID; INSERT INTO tag2 SELECT * FROM tag; DROP TABLE tag;
        ALTER TABLE tag2 RENAME TO tag;
        """

    /// Returns what a second change does to a store on which a first one was made.
    private func changes(after first: String, _ second: String) throws -> ContentChanges {
        let (before, after) = (try Fixture(), try Fixture())
        try before.make(Self.sql + first)
        try after.make(Self.sql + first + second)
        return try before.read { copy in
            try after.read { try StoreContent(copy).changes(to: StoreContent($0)) }
        }
    }

    @Test func comparesATableThatIsRebuiltWithoutRowidOrBack() throws {
        let lost = "DELETE FROM tag WHERE name = 'x'; UPDATE tag SET n = 7 WHERE name = 'y';"
        #expect(try counts(Self.withoutRowid).isEmpty)
        #expect(try counts(Self.withoutRowid + lost) == ["tag": [0, 1, 1]])
        let note = """
            CREATE TABLE note2(id INTEGER PRIMARY KEY, title TEXT) WITHOUT ROWID; INSERT INTO note2 SELECT * FROM note;
            DROP TABLE note; ALTER TABLE note2 RENAME TO note; DELETE FROM note WHERE id = 2;
            """
        #expect(try counts(note) == ["note": [0, 1, 0]])
        let back = """
            CREATE TABLE tag2(name TEXT PRIMARY KEY, n); INSERT INTO tag2 SELECT * FROM tag; DROP TABLE tag;
            ALTER TABLE tag2 RENAME TO tag; DELETE FROM tag WHERE name = 'z';
            """
        let found = try changes(after: Self.withoutRowid, back)
        let tag = try #require(found.tables.first { $0.name == "tag" })
        #expect([tag.came, tag.went, tag.changed] == [0, 1, 0] && tag.obstacle == nil)
    }

    @Test func comparesATableWhoseNamesChangeInCaseOnly() throws {
        let renamed = """
            ALTER TABLE tag RENAME TO tag2; ALTER TABLE tag2 RENAME TO TAG; ALTER TABLE TAG RENAME COLUMN name TO x;
            ALTER TABLE TAG RENAME COLUMN x TO Name;
            """
        let found = try changes(renamed)
        #expect(found.tables.map(\.name) == ["TAG", "entry", "note"] && found.tables.allSatisfy(\.isSame))
        #expect(found.schema == [.init(kind: .changed, type: "table", name: "TAG")])
        #expect(try counts(renamed + "DELETE FROM tag WHERE name = 'x';") == ["TAG": [0, 1, 0]])
    }

    /// SQLite folds ASCII letters alone, and compares all else byte by byte.
    @Test(arguments: [("\u{E9}", "e\u{301}"), ("\u{E9}", "\u{C9}")])
    func keepsNamesApartThatSQLiteKeepsApart(former: String, present: String) throws {
        let table = "CREATE TABLE \(former.sqlName)(id INTEGER PRIMARY KEY); INSERT INTO \(former.sqlName) VALUES (1);"
        let found = try changes(after: table, "ALTER TABLE \(former.sqlName) RENAME TO \(present.sqlName);")
        let lost = try #require(found.tables.first { $0.name.utf8.elementsEqual(former.utf8) })
        #expect(lost.isLoss && lost.went == 1)
        #expect(Set(found.schema.map(\.kind)) == [.created, .dropped])
    }

    @Test(arguments: [
        (
            "CREATE TABLE x(name, n PRIMARY KEY); INSERT INTO x SELECT * FROM tag; DROP TABLE tag; "
                + "ALTER TABLE x RENAME TO tag;",
            "has other keys in tag"
        ),
        (
            "CREATE TABLE x(name TEXT PRIMARY KEY, m, n AS (m)); INSERT INTO x SELECT * FROM tag; DROP TABLE tag; "
                + "ALTER TABLE x RENAME TO tag;",
            "computes the column n in tag"
        ),
        (
            "ALTER TABLE tag RENAME TO x; CREATE VIRTUAL TABLE tag USING fts5(name, n); "
                + "INSERT INTO tag SELECT * FROM x; DROP TABLE x;",
            "has a virtual table tag"
        ),
    ])
    func rowsThatCannotBeComparedAreNeitherLostNorKept(rebuilt: String, obstacle: String) throws {
        let tag = try #require(try changes(rebuilt).tables.first { $0.name == "tag" })
        #expect(tag.obstacle == obstacle && !tag.isLoss && !tag.isSame)
    }

    @Test func countsRowsWhoseKeysHaveBecomeOneAsLost() throws {
        let merged = """
            CREATE TABLE x(name TEXT COLLATE NOCASE PRIMARY KEY, n); INSERT OR IGNORE INTO x SELECT * FROM tag;
            DROP TABLE tag; ALTER TABLE x RENAME TO tag;
            """
        let found = try changes(after: "INSERT INTO tag VALUES ('X', 1);", merged)
        let tag = try #require(found.tables.first { $0.name == "tag" })
        #expect([tag.came, tag.went] == [0, 1] && tag.isLoss)
    }

    @Test(arguments: ["fts5(body)", "fts4(body)"]) func countsTheRowsOfAVirtualTable(module: String) throws {
        let table = "CREATE VIRTUAL TABLE f USING \(module); INSERT INTO f VALUES ('a'), ('b'), ('c');"
        let found = try changes(after: table, "DELETE FROM f WHERE body = 'b';").tables.filter { $0.name.first == "f" }
        #expect(found.map(\.name) == ["f"])
        #expect(found.map { [$0.before, $0.after, $0.came, $0.went] } == [[3, 2, 0, 1]])
        #expect(found.allSatisfy { $0.isLoss && $0.obstacle != nil })
        let other = try changes(after: table, "INSERT INTO note VALUES (99, 'other');").tables.first { $0.name == "f" }
        #expect(other?.isSame == true)
        let swapped = "DELETE FROM f WHERE body = 'b'; INSERT INTO f VALUES ('d');"
        let replaced = try changes(after: table, swapped).tables.first { $0.name == "f" }
        #expect(replaced?.isSame == false && replaced?.obstacle != nil && replaced?.isLoss == false)
        let dropped = try changes(after: table, "DROP TABLE f;").tables.first { $0.name == "f" }
        #expect(dropped?.isLoss == true && dropped?.went == 3)
    }

    @Test func countsFewerRowsInATableThatHasBecomeVirtualAsLost() throws {
        let tag = try changes("DROP TABLE tag; CREATE VIRTUAL TABLE tag USING fts5(name, n);").tables
            .first { $0.name == "tag" }
        #expect(tag?.isLoss == true && tag?.after == 0)
    }

    /// Another row takes the place of the one that is gone, so that as many are there.
    @Test(arguments: [("NOCASE", "X"), ("RTRIM", "x ")])
    func findsALostRowWhoseKeyAnotherCollationTakesForAnotherOnes(collation: String, key: String) throws {
        let rebuilt = """
            CREATE TABLE t2(name TEXT COLLATE \(collation) PRIMARY KEY, n);
            INSERT INTO t2 SELECT * FROM tag WHERE name <> '\(key)'; INSERT INTO t2 VALUES ('new', 9);
            DROP TABLE tag; ALTER TABLE t2 RENAME TO tag;
            """
        let found = try changes(after: "INSERT INTO tag VALUES ('\(key)', 1);", rebuilt)
        let tag = try #require(found.tables.first { $0.name == "tag" })
        #expect([tag.came, tag.went] == [1, 1] && tag.isLoss)
    }

    /// SQLite compares a key with a column of another type after it has converted it: two of the copy's find one.
    @Test(arguments: [
        ("TEXT", "('7', 1), ('07', 1)", "INTEGER", "(7, 1), (8, 9)", 1),
        ("TEXT", "('7', 1), ('07', 1), ('7.0', 1)", "REAL", "(7, 1), (8, 9)", 2),
        ("", "(1, 1), ('1', 1)", "TEXT", "('1', 1), ('2', 9)", 1),
        ("TEXT", "('1', 1), ('2', 1)", "INT", "(1, 1), (2, 1)", 0),
    ])
    func findsALostRowWhoseKeyAnotherTypeTakesForAnotherOnes(
        type: String, rows: String, newType: String, newRows: String, lost: Int64
    ) throws {
        for suffix in ["", " WITHOUT ROWID"] {
            let table = "CREATE TABLE f(k \(type) PRIMARY KEY, n)\(suffix); INSERT INTO f VALUES \(rows);"
            let rebuilt = """
                DROP TABLE f; CREATE TABLE f(k \(newType) PRIMARY KEY, n)\(suffix); INSERT INTO f VALUES \(newRows);
                """
            let found = try #require(try changes(after: table, rebuilt).tables.first { $0.name == "f" })
            #expect(found.went == lost && found.isLoss == (lost > 0), "\(found)")
            #expect(found.before - found.went + found.came == found.after && found.obstacle == nil)
        }
    }

    @Test(arguments: ["fts5(t, content='h', content_rowid='id')", "fts4(t, content=\"h\")"])
    func theRowsThatAFullTextTableShowsAreTheOtherTables(module: String) throws {
        let table = """
            CREATE TABLE h(id INTEGER PRIMARY KEY, t); INSERT INTO h VALUES (1, 'a'), (2, 'b');
            CREATE VIRTUAL TABLE f USING \(module);
            """
        let same = try changes(after: table, "INSERT INTO note VALUES (99, 'other');").tables.first { $0.name == "f" }
        #expect(same?.isSame == true)
        let other = try changes(after: table, "DELETE FROM h WHERE id = 1; INSERT INTO h VALUES (7, 'c');").tables
        #expect(other.first { $0.name == "f" }?.obstacle != nil)
    }

    @Test func aColumnThatAVirtualTableNoLongerHasIsALoss() throws {
        let table = "CREATE VIRTUAL TABLE f USING fts5(x, y); INSERT INTO f VALUES ('a', 'b');"
        let rebuilt = "DROP TABLE f; CREATE VIRTUAL TABLE f USING fts5(x); INSERT INTO f VALUES ('a');"
        let found = try #require(try changes(after: table, rebuilt).tables.first { $0.name == "f" })
        #expect(found.isLoss && found.obstacle == "has no column y in f")
        let wider = "DROP TABLE f; CREATE VIRTUAL TABLE f USING fts5(X, y, z); INSERT INTO f VALUES ('a', 'b', 'c');"
        #expect(try changes(after: table, wider).tables.first { $0.name == "f" }?.isLoss == false)
    }

    @Test func theRowsOfAVirtualTableWithoutItsModuleAreNeitherLostNorKept() throws {
        let table = """
            PRAGMA writable_schema = ON;
            INSERT INTO sqlite_schema VALUES ('table', 'v', 'v', 0, 'CREATE VIRTUAL TABLE v USING nowhere(x)');
            """
        let found = try #require(try changes(after: table, "").tables.first { $0.name == "v" })
        #expect(found.obstacle != nil && !found.isLoss && !found.isSame)
    }

    /// VACUUM and a rebuilt table number rows without a key anew: another row has a lost one's rowid.
    @Test(arguments: [
        ("DELETE FROM line WHERE text = 'r1'; VACUUM; INSERT INTO line VALUES ('new');", [1, 1]),
        (
            "CREATE TABLE line2(text); INSERT INTO line2 SELECT text FROM line WHERE text <> 'r5'; DROP TABLE line;"
                + "ALTER TABLE line2 RENAME TO line; INSERT INTO line VALUES ('new'), ('newer');", [2, 1]
        ),
        (
            "CREATE TABLE line2(text); INSERT INTO line2 SELECT text FROM line ORDER BY text DESC; DROP TABLE line;"
                + "ALTER TABLE line2 RENAME TO line;", [0, 0]
        ),
        ("INSERT INTO line VALUES ('r1'); DELETE FROM line WHERE rowid = 3; VACUUM;", [1, 1]),
    ])
    func findsALostRowWithoutAKeyThatAnotherHasTheRowidOf(change: String, counted: [Int64]) throws {
        let rows = "INSERT INTO line SELECT 'r' || value FROM json_each('[1,2,3,4,5,6,7,8]');"
        let found = try changes(after: "CREATE TABLE line(text); \(rows)", change)
        let table = try #require(found.tables.first { ["line", "t"].contains($0.name) })
        #expect([table.came, table.went] == counted && table.changed == 0 && !table.isUncertain)
    }

    /// By its rowid alone, an update can't be told from another row in the place of a lost one.
    @Test(arguments: [
        ("CREATE TABLE t(v);", "DELETE FROM t WHERE v = 3; INSERT INTO t VALUES (4);", true),
        ("CREATE TABLE t(v);", "UPDATE t SET v = v + 10;", true),
        ("CREATE TABLE t(v UNIQUE NOT NULL);", "UPDATE t SET v = v + 10;", true),
        ("CREATE TABLE t(v, id INTEGER PRIMARY KEY);", "UPDATE t SET v = v + 10;", false),
    ])
    func aChangedRowWithoutAKeyIsUncertain(schema: String, change: String, isUncertain: Bool) throws {
        let found = try changes(after: schema + "INSERT INTO t(v) VALUES (1), (2), (3);", change)
        let table = try #require(found.tables.first { ["line", "t"].contains($0.name) })
        #expect(table.changed > 0 && table.went == 0 && table.isUncertain == isUncertain)
    }

    @Test(arguments: [
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v);",
        "CREATE TABLE t(id INTEGER PRIMARY KEY, v AS (id + 1)); INSERT INTO t(id) VALUES (1);",
    ])
    func aColumnWithoutValuesOfItsOwnIsALossToo(schema: String) throws {
        let found = try changes(after: schema, "ALTER TABLE t DROP COLUMN v;")
        let table = try #require(found.tables.first { $0.name == "t" })
        #expect(table.isLoss && table.obstacle == "has no column v in t")
    }

    /// The rows are read in parts if there are very many.
    @Test(arguments: [1, 3, 1000]) func countsCommonRowsInParts(limit: Int64) throws {
        let (one, other) = (try Fixture(), try Fixture())
        try one.make(
            "CREATE TABLE t(a, b); INSERT INTO t VALUES (1, 2), (1, 2), (1, 2.0), ('1', 2), (x'31', 2), (NULL, 3);")
        try other.make(
            "CREATE TABLE t(b, a); INSERT INTO t(a, b) VALUES (NULL, 3), (1, 2), (1, 2), (1, 2), ('1', '2');")
        let common = try one.read { one in
            try other.read { other in
                let content = try StoreContent(one)
                let table = try #require(content.schema.table("t"))
                return try content.commonRows(of: table, in: StoreContent(other), limit: limit)
            }
        }
        #expect(common == 3)
    }
}
