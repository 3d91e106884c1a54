import Testing

/// Rows of an entity number that isn't the model's: Core Data makes no object of them, and a migration says so.
struct UnknownEntityRowTests {
    private let name = "<attribute name='name' optional='YES' attributeType='String'/>"
    private let rows = ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (2, 7, 1), (3, NULL, 1)"]

    private func note(_ count: Int) -> String {
        "ZA has \(count) rows whose entity number is none of the model's: they stay as they are, and are no objects"
    }

    @Test func areNamedWhenNumbersChange() throws {
        let store = try StagedStore(entity(name), rows)
        #expect(try store.migrate(to: "<entity name='0'/>" + entity(name)) == [note(2)])
        #expect(try store.rows("SELECT Z_PK, Z_ENT FROM ZA") == ["1 2", "2 7", "3 NULL"])
    }

    @Test func areNamedInANewTable() throws {
        let store = try StagedStore(
            entity("<attribute name='name' optional='YES' attributeType='Integer 16'/>"), rows)
        #expect(
            try store.migrate(to: entity("<attribute name='name' optional='YES' attributeType='Double'/>")) == [note(2)]
        )
    }

    @Test func areNamedInAHierarchy() throws {
        let more = "<entity name='B' parentEntity='A'/>"
        let store = try StagedStore(entity(name) + more, rows)
        #expect(
            try store.migrate(to: entity(name + name.replacing("name='name'", with: "name='other'")) + more) == [
                note(2)
            ])
    }

    private static let other =
        "<entity name='B'><attribute name='other' optional='YES' attributeType='String'/></entity>"

    /// They stay with the hierarchy's root, or what is left of it.
    @Test(arguments: [("A", "", "ZA"), ("A", other, "ZA"), ("Z", other, "ZB")])
    func stayWhereTheHierarchyIsTakenApart(_ root: String, _ more: String, _ table: String) throws {
        let store = try StagedStore(
            entity(name) + Self.other.replacing("name='B'", with: "name='B' parentEntity='A'"),
            ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (2, 7, 1), (3, NULL, 1), (4, 2, 1)"])
        let notes = try store.migrate(to: entity(name).replacing("name='A'", with: "name='\(root)'") + more)
        #expect(notes.filter { $0.contains("has 2 rows whose entity number") }.count == 1, "\(notes)")
        #expect(try store.rows("SELECT Z_PK FROM \(table) WHERE Z_ENT = 7 OR Z_ENT IS NULL") == ["2", "3"])
    }

    @Test func thereAreNone() throws {
        let store = try StagedStore(entity(name), ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (2, 1, 1)"])
        #expect(try store.migrate(to: "<entity name='0'/>" + entity(name)) == [])
    }
}
