import CoreDataStore
import Testing

@testable import StoreMigration

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

    private static let more = "<entity name='B' parentEntity='A'/><entity name='C' parentEntity='A'/>"

    /// A row with a number that the new model gives to an entity must not become its object: in a table that is left
    /// alone, one that is altered, one that is rebuilt, and one of other numbers.
    @Test(arguments: [
        ("", "String", more), ("<attribute name='x' optional='YES' attributeType='String'/>", "String", more),
        ("", "Double", more), ("renumbered", "String", more), ("renumbered", "Double", ""),
    ])
    func neverBecomeObjects(_ change: String, _ type: String, _ more: String) throws {
        let number = name.replacing("String", with: "Integer 16")
        let store = try StagedStore(
            entity(type == "Double" ? number : name),
            ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (2, 3, 4), (3, NULL, 1), (4, 9, 1), (5, 2, 1)"])
        let new = entity(name.replacing("String", with: type) + (change == "renumbered" ? "" : change))
        let first = change == "renumbered" ? "<entity name='0'/><entity name='01'/>" : ""
        let destination = try model(first + new + more)
        let notes = try store.migrate(to: destination)
        let numbers = StoreLayout(destination).numbers
        let taken = Set(numbers.family(of: "A").map(numbers.number))
        let expected: [(Int64, Int64?)] = [
            (1, numbers.number(of: "A")), (2, taken.contains(3) ? -3 : 3), (3, nil), (4, 9),
            (5, taken.contains(2) ? -2 : 2),
        ]
        #expect(
            try store.rows("SELECT Z_PK, Z_ENT FROM ZA ORDER BY 1")
                == expected.map { "\($0.0) \($0.1.map(String.init) ?? "NULL")" })
        #expect(try store.rows("SELECT Z_OPT FROM ZA WHERE Z_PK = 2") == ["4"])
        for number in [2, 3] as [Int64] where taken.contains(number) {
            #expect(
                notes.contains(
                    "ZA has 1 row whose entity number \(number) is not in the model, but in the new one: it gets the number "
                        + "-\(number), and is not an object"), "\(notes)")
        }
    }

    @Test func reportsNothingIfThereAreNone() throws {
        let store = try StagedStore(entity(name), ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (2, 1, 1)"])
        #expect(try store.migrate(to: "<entity name='0'/>" + entity(name)) == [])
    }
}
