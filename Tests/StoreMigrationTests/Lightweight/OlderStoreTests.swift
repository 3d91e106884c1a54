import CoreDataStore
import PropertyLists
import SQLiteStore
import Testing

/// Stores of older versions of Core Data keep those versions' conventions.
struct OlderStoreTests {
    private let name = "<attribute name='name' optional='YES' attributeType='String' indexed='YES'/>"
    private let code = "<attribute name='code' optional='YES' attributeType='String'/>"
    private let compound =
        "<compoundIndexes><compoundIndex><index value='name'/><index value='code'/></compoundIndex></compoundIndexes>"

    private func store(_ content: String, framework: Int64, _ statements: [String]) throws -> StagedStore {
        let store = try StagedStore(content, statements)
        let writer = try StoreWriter(store.path)
        let row = try writer.prepare("SELECT Z_PLIST FROM Z_METADATA")
        #expect(try row.step())
        var values = try #require(try PropertyListValue(binary: row.bytes(0, limit: 1 << 20) ?? []).dictionary)
        row.reset()
        values["NSPersistenceFrameworkVersion"] = .integer(framework)
        let bytes = BinaryPropertyListWriter.bytes(of: .dictionary(values))
        try writer.execute("UPDATE Z_METADATA SET Z_PLIST = ?", [.blob(bytes)])
        return store
    }

    private func indexes(_ store: StagedStore) throws -> [String] {
        try store.rows("SELECT sql FROM sqlite_schema WHERE type = 'index' AND sql NOT NULL ORDER BY name")
    }

    @Test(arguments: [641, 754]) func namesIndexesAfterTheirTable(framework: Int64) throws {
        let old = [
            "DROP INDEX Z_A_name", "DROP INDEX Z_A_name_code", "CREATE INDEX ZA_ZNAME_INDEX ON ZA (ZNAME)",
            "CREATE INDEX ZA_ZNAME_ZCODE ON ZA (ZNAME, ZCODE)",
        ]
        let note = "<attribute name='note' optional='YES' attributeType='String' indexed='YES'/>"
        let store = try store(entity(name + code + compound), framework: framework, old)
        try store.migrate(to: entity(name + code + note + compound))
        #expect(
            try indexes(store) == [
                "'CREATE INDEX ZA_ZNAME_INDEX ON ZA (ZNAME)'", "'CREATE INDEX ZA_ZNAME_ZCODE ON ZA (ZNAME, ZCODE)'",
                "'CREATE INDEX ZA_ZNOTE_INDEX ON ZA (ZNOTE)'",
            ])
    }

    @Test func namesIndexesAfterTheirEntitySinceFetchIndexes() throws {
        let store = try store(entity(name), framework: 847, [])
        try store.migrate(to: entity(name + code))
        #expect(try indexes(store) == ["'CREATE INDEX Z_A_name ON ZA (ZNAME COLLATE BINARY ASC)'"])
    }

    /// Core Data of 2015 declared unique columns in the table's own statement.
    @Test func dropsUniquenessThatTheTableDeclares() throws {
        let unique =
            "<uniquenessConstraints><uniquenessConstraint><constraint value='code'/></uniquenessConstraint>"
            + "</uniquenessConstraints>"
        let old = [
            "DROP TABLE ZA",
            "CREATE TABLE ZA ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCODE VARCHAR, "
                + "CONSTRAINT ZCODE UNIQUE (ZCODE))", "INSERT INTO ZA VALUES (1, 1, 1, 'x')",
        ]
        let store = try store(entity(code + unique), framework: 637, old)
        try store.migrate(to: entity(code))
        #expect(try store.rows("SELECT * FROM ZA") == ["1 1 1 'x'"])
        try StoreWriter(store.path).execute("INSERT INTO ZA VALUES (2, 1, 1, 'x')")
    }

    /// The column's definition is what Core Data's ALTER leaves, and an unaffected index isn't rebuilt.
    @Test func writesAnAddedColumnLikeCoreData() throws {
        let store = try StagedStore(entity(code), ["CREATE INDEX mine ON ZA (ZCODE)"])
        let pages = "SELECT name, rootpage FROM sqlite_schema WHERE name IN ('ZA', 'mine') ORDER BY 1"
        let before = try store.rows(pages)
        try store.migrate(to: entity(code + "<attribute name='note' optional='YES' attributeType='String'/>"))
        #expect(
            try store.rows("SELECT sql FROM sqlite_schema WHERE name = 'ZA'") == [
                "'CREATE TABLE ZA ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCODE VARCHAR , "
                    + "ZNOTE VARCHAR)'"
            ])
        #expect(try store.rows(pages) == before)
    }

    @Test func raisesAHighestKeyThatIsTooLow() throws {
        let store = try StagedStore(entity(code), ["INSERT INTO ZA VALUES (9, 1, 1, 'x')"])
        try store.migrate(to: entity(name + code))
        #expect(try store.rows("SELECT Z_MAX FROM Z_PRIMARYKEY") == ["9"])
    }
}
