import Testing

/// Rows whose entity number isn't in the model: Core Data creates no objects from them, and a migration reports them.
struct UnknownEntityRowTests {
    private let name = "<attribute name='name' optional='YES' attributeType='String'/>"
    private let rows = ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (2, 7, 1), (3, NULL, 1)"]

    private func note(_ count: Int) -> String {
        "ZA has \(count) rows whose entity number is not in the model: they are left unchanged, and are not objects"
    }

    @Test func areReportedWhenNumbersChange() throws {
        let store = try StagedStore(entity(name), rows)
        #expect(try store.migrate(to: "<entity name='0'/>" + entity(name)) == [note(2)])
        #expect(try store.rows("SELECT Z_PK, Z_ENT FROM ZA") == ["1 2", "2 7", "3 NULL"])
    }

    @Test func areReportedInANewTable() throws {
        let store = try StagedStore(
            entity("<attribute name='name' optional='YES' attributeType='Integer 16'/>"), rows)
        #expect(
            try store.migrate(to: entity("<attribute name='name' optional='YES' attributeType='Double'/>")) == [note(2)]
        )
    }

    @Test func areReportedInAHierarchy() throws {
        let more = "<entity name='B' parentEntity='A'/>"
        let store = try StagedStore(entity(name) + more, rows)
        #expect(
            try store.migrate(to: entity(name + name.replacing("name='name'", with: "name='other'")) + more) == [
                note(2)
            ])
    }

    private static let other =
        "<entity name='B'><attribute name='other' optional='YES' attributeType='String'/></entity>"

    /// The rows stay with the hierarchy's root, or what is left of it.
    @Test(arguments: [("A", "", "ZA"), ("A", other, "ZA"), ("Z", other, "ZB")])
    func stayWithTheRootWhenAHierarchyIsSplit(_ root: String, _ more: String, _ table: String) throws {
        let store = try StagedStore(
            entity(name) + Self.other.replacing("name='B'", with: "name='B' parentEntity='A'"),
            ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (2, 7, 1), (3, NULL, 1), (4, 2, 1)"])
        let notes = try store.migrate(to: entity(name).replacing("name='A'", with: "name='\(root)'") + more)
        #expect(notes.filter { $0.contains("has 2 rows whose entity number") }.count == 1, "\(notes)")
        #expect(try store.rows("SELECT Z_PK FROM \(table) WHERE Z_ENT = 7 OR Z_ENT IS NULL") == ["2", "3"])
    }

    @Test func reportsNothingIfThereAreNone() throws {
        let store = try StagedStore(entity(name), ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (2, 1, 1)"])
        #expect(try store.migrate(to: "<entity name='0'/>" + entity(name)) == [])
    }
}
