import Synchronization
import Testing

@testable import StoreMigration

/// A migration reads and writes only what its change needs. Its SQL statements are the measure.
struct MigrationCostTests {
    private func text(_ name: String, _ more: String = "optional='YES'") -> String {
        "<attribute name='\(name)' attributeType='String' \(more)/>"
    }

    private let byName = "<fetchIndex name='byName'><fetchIndexElement property='name' type='Binary'/></fetchIndex>"
    private let rows = "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1, 1, 1, 'n'), (2, 1, 1, NULL)"

    private func statements(_ old: String, _ new: String, with content: [String]) throws -> (StagedStore, [String]) {
        let store = try StagedStore(old, content)
        let (before, after) = (try model(old), try model(new))
        var manager = MigrationManager(try MigrationPlan(from: before, to: after, named: "new"))
        let recorded = Mutex<[String]>([])
        let trace = StatementTrace(level: 1) { sql, _ in recorded.withLock { $0.append(sql) } }
        manager.trace = trace
        _ = try manager.migrate(staged: store.path)
        #expect(try store.differences(from: after) == [])
        return (store, recorded.withLock { $0 })
    }

    private func indexing(_ statements: [String]) -> [String] {
        statements.filter { $0.hasPrefix("CREATE INDEX") || $0.hasPrefix("DROP INDEX") }
    }

    @Test(arguments: ["stars", "code", "renumbered"])
    func keepsAnIndexOfUnchangedColumns(_ change: String) throws {
        let old = entity(text("name") + text("code") + text("more") + byName)
        let new =
            switch change {
            case "stars":
                entity(text("name") + text("code") + text("more") + text("stars", "defaultValueString='x'") + byName)
            case "code": entity(text("name") + byName)
            default: "<entity name='0'/>" + old
            }
        let (store, executed) = try statements(old, new, with: [rows])
        #expect(indexing(executed) == [])
        #expect(try store.rows("SELECT Z_PK, ZNAME FROM ZA ORDER BY 1") == ["1 'n'", "2 NULL"])
    }

    @Test func keepsAnIndexOfARenamedColumn() throws {
        let old = entity(text("name") + text("code") + byName)
        let new = entity(text("title", "optional='YES' elementID='name'") + text("code"))
            .replacing("</entity>", with: byName.replacing("property='name'", with: "property='title'") + "</entity>")
        let (store, executed) = try statements(old, new, with: [rows])
        // The other index is named after the attribute.
        #expect(
            indexing(executed).allSatisfy { $0.contains("Z_A_name") || $0.contains("Z_A_title") },
            "\(indexing(executed))")
        #expect(try store.rows("SELECT ZTITLE FROM ZA INDEXED BY Z_A_byName WHERE ZTITLE = 'n'") == ["'n'"])
    }

    @Test func rebuildsAnIndexOfWrittenColumns() throws {
        let (store, executed) = try statements(
            entity(text("name") + byName), entity(text("name", "defaultValueString='x'") + byName), with: [rows])
        #expect(indexing(executed).count == 4)
        #expect(try store.rows("SELECT Z_PK FROM ZA INDEXED BY Z_A_byName WHERE ZNAME = 'x'") == ["2"])
    }

    /// SQLite reads the table's whole statement for each column that is renamed or added.
    @Test(arguments: [20, 300])
    func buildsANewTableForVeryManyNames(_ count: Int) throws {
        let old = entity(text("name") + (0..<count).map { text("a\($0)") }.joined())
        let new = entity(
            text("name") + (0..<count).map { text("b\($0)", "optional='YES' elementID='a\($0)'") }.joined())
        let (store, executed) = try statements(old, new, with: [rows, "UPDATE ZA SET ZA7 = 'seven' WHERE Z_PK = 1"])
        #expect(executed.filter { $0.contains("RENAME COLUMN") }.count == (count == 20 ? 20 : 0))
        #expect(try store.rows("SELECT ZNAME, ZB7 FROM ZA ORDER BY Z_PK") == ["'n' 'seven'", "NULL NULL"])
    }

    /// SQLite's own limit of an expression's depth is 1,000, that of columns 2,000.
    @Test func fillsInTheDefaultsOfVeryManyAttributes() throws {
        let names = (0..<1_100).map { "a\($0)" }
        let store = try StagedStore(
            entity(names.map { text($0) }.joined()),
            ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZA1) VALUES (1, 1, 1, 'x')"])
        try store.migrate(to: entity(names.map { text($0, "defaultValueString='d'") }.joined()))
        #expect(try store.rows("SELECT ZA0, ZA1, ZA1099 FROM ZA") == ["'d' 'x' 'd'"])
    }

    @Test func leavesRowsWithAValueUnwritten() throws {
        let (store, executed) = try statements(
            entity(text("name") + text("code")), entity(text("name", "defaultValueString='x'") + text("code")),
            with: [rows])
        #expect(
            executed.contains { $0.hasPrefix("UPDATE \"ZA\"") && $0.hasSuffix("WHERE (\"ZNAME\" IS NULL)") },
            "\(executed)")
        #expect(try store.rows("SELECT ZNAME FROM ZA") == ["'n'", "'x'"])
    }

    @Test func checksMandatoryValuesInOnePass() throws {
        let mandatory = entity(text("name", "") + text("code", ""))
        let full = "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZNAME, ZCODE) VALUES (1, 1, 1, 'n', 'c')"
        let (_, executed) = try statements(entity(text("name") + text("code")), mandatory, with: [full])
        #expect(executed.filter { $0.contains("SELECT EXISTS") && $0.contains("IS NULL") }.count == 1, "\(executed)")
        let store = try StagedStore(entity(text("name") + text("code")), [rows])
        let error = #expect(throws: MigrationError.self) { try store.migrate(to: mandatory) }
        #expect(error?.findings.map(\.property) == ["code", "name"])
    }

    @Test func findsLostValuesInOnePass() throws {
        let names = ["a", "b", "c", "d"]
        let store = try StagedStore(
            entity(names.map { text($0) }.joined() + text("kept")),
            [
                "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZB) VALUES (-5, 1, 1, 'b')",
                "INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZA, ZD) VALUES (7, 1, 1, 'a', NULL), (9, 1, 1, 'a', 'd')",
            ])
        let notes = try store.migrate(to: entity(text("kept")))
        #expect(notes.compactMap { $0.split(separator: " ").first } == ["A.a", "A.b", "A.d"])
    }
}
