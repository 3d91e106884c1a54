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
}
