import Testing

@testable import MappingModels
@testable import StoreMigration

/// Inferred migrations of entities and hierarchies.
struct LightweightEntityTests {
    private let name = "<attribute name='name' optional='YES' attributeType='String'/>"
    private let count = "<attribute name='count' optional='YES' attributeType='Integer 16' defaultValueString='4'/>"

    private func migrated(_ old: String, _ rows: [String], to new: String) throws -> StagedStore {
        let store = try StagedStore(old, rows)
        let target = try model(new)
        try store.migrate(to: target)
        #expect(try store.differences(from: target) == [])
        return store
    }

    @Test func anAddedEntityMovesTheNumbers() throws {
        let old = "<entity name='B'>\(name)</entity>"
        let rows = ["INSERT INTO ZB VALUES (7, 1, 2, 'x')", "UPDATE Z_PRIMARYKEY SET Z_MAX = 9"]
        let store = try migrated(old, rows, to: "<entity name='A'>\(name)</entity>" + old)
        #expect(try store.rows("SELECT * FROM ZB") == ["7 2 2 'x'"])
        #expect(try store.rows("SELECT * FROM Z_PRIMARYKEY") == ["1 'A' 0 0", "2 'B' 0 9"])
    }

    @Test func removingAnEntityDropsItsTable() throws {
        let old = "<entity name='A'>\(name)</entity><entity name='B'>\(name)</entity>"
        let rows = ["INSERT INTO ZA VALUES (1, 1, 1, 'a')", "INSERT INTO ZB VALUES (1, 2, 1, 'b')"]
        let store = try migrated(old, rows, to: "<entity name='B'>\(name)</entity>")
        #expect(try store.rows("SELECT * FROM ZB") == ["1 1 1 'b'"])
    }

    /// The name in `Z_PRIMARYKEY` stays, as after Core Data's own migration.
    @Test func aRenamedEntityKeepsItsObjects() throws {
        let rows = ["INSERT INTO ZA VALUES (3, 1, 2, 'x')", "UPDATE Z_PRIMARYKEY SET Z_MAX = 3"]
        let store = try migrated(entity(name), rows, to: "<entity name='Z' elementID='A'>\(name)</entity>")
        #expect(try store.rows("SELECT * FROM ZZ") == ["3 1 2 'x'"])
        #expect(try store.rows("SELECT * FROM Z_PRIMARYKEY") == ["1 'A' 0 3"])
    }

    @Test func entitiesExchangeTheirNames() throws {
        let old = "<entity name='A'>\(name)</entity><entity name='B'>\(count)</entity>"
        let new = "<entity name='B' elementID='A'>\(name)</entity><entity name='A' elementID='B'>\(count)</entity>"
        let rows = ["INSERT INTO ZA VALUES (1, 1, 1, 'was a')", "INSERT INTO ZB VALUES (2, 2, 1, 5)"]
        let store = try migrated(old, rows, to: new)
        #expect(try store.rows("SELECT * FROM ZB") == ["1 2 1 'was a'"])
        #expect(try store.rows("SELECT * FROM ZA") == ["2 1 1 5"])
    }

    private let family =
        "<entity name='P'>NAME</entity><entity name='C' parentEntity='P'>OWN</entity>"
        + "<entity name='D' parentEntity='P'>OTHER</entity>"

    private func family(_ parent: String, _ child: String, _ other: String = "") -> String {
        family.replacing("NAME", with: parent).replacing("OWN", with: child).replacing("OTHER", with: other)
    }

    /// A default applies to objects of the entity that declares it, and of its subentities.
    @Test func aDefaultIsForTheDeclaringEntityOnly() throws {
        let rows = ["INSERT INTO ZP VALUES (1, 1, 1, 'p'), (2, 2, 1, 'c'), (3, 3, 1, 'd')"]
        let store = try migrated(family(name, ""), rows, to: family(name, count))
        #expect(try store.rows("SELECT Z_ENT, ZCOUNT FROM ZP") == ["1 NULL", "2 4", "3 NULL"])
    }

    /// The children's columns have different names, and become one column of their parent.
    @Test func aPropertyMovesUp() throws {
        let rows = [
            "INSERT INTO ZP (Z_PK, Z_ENT, Z_OPT, ZCOUNT, ZCOUNT1) VALUES (1,1,1,NULL,NULL), (2,2,1,8,NULL), (3,3,1,NULL,9)"
        ]
        let store = try migrated(family("", count, count), rows, to: family(count, ""))
        #expect(try store.rows("SELECT Z_ENT, ZCOUNT FROM ZP") == ["1 4", "2 8", "3 9"])
    }

    @Test func aPropertyMovesDown() throws {
        let rows = ["INSERT INTO ZP (Z_PK, Z_ENT, Z_OPT, ZCOUNT) VALUES (1,1,1,7), (2,2,1,8), (3,3,1,9)"]
        let store = try migrated(family(count, ""), rows, to: family("", count))
        #expect(try store.rows("SELECT Z_ENT, ZCOUNT FROM ZP") == ["1 NULL", "2 8", "3 NULL"])
    }

    @Test func anEntityLeavesItsHierarchy() throws {
        let new = "<entity name='P'>\(name)</entity><entity name='C'>\(name)\(count)</entity>"
        let old = "<entity name='P'>\(name)</entity><entity name='C' parentEntity='P'>\(count)</entity>"
        let rows = [
            "INSERT INTO ZP (Z_PK, Z_ENT, Z_OPT, ZNAME, ZCOUNT) VALUES (1,1,1,'p',NULL), (2,2,5,'c',8)",
            "UPDATE Z_PRIMARYKEY SET Z_MAX = 2 WHERE Z_ENT = 1",
        ]
        let store = try migrated(old, rows, to: new)
        #expect(try store.rows("SELECT Z_PK, Z_ENT, Z_OPT, ZNAME FROM ZP") == ["1 2 1 'p'"])
        #expect(try store.rows("SELECT Z_PK, Z_ENT, Z_OPT, ZNAME, ZCOUNT FROM ZC") == ["2 1 5 'c' 8"])
        #expect(try store.rows("SELECT * FROM Z_PRIMARYKEY") == ["1 'C' 0 2", "2 'P' 0 2"])
    }

    @Test func anEntityGetsAParent() throws {
        let new =
            "<entity name='P' isAbstract='YES'>\(count)</entity><entity name='C' parentEntity='P'>\(name)</entity>"
        let rows = ["INSERT INTO ZC VALUES (4, 1, 1, 'c')", "UPDATE Z_PRIMARYKEY SET Z_MAX = 6"]
        let store = try migrated("<entity name='C'>\(name)</entity>", rows, to: new)
        #expect(try store.rows("SELECT Z_PK, Z_ENT, ZNAME, ZCOUNT FROM ZP") == ["4 2 'c' 4"])
        #expect(try store.rows("SELECT * FROM Z_PRIMARYKEY") == ["1 'P' 0 6", "2 'C' 1 0"])
    }

    @Test func twoHierarchiesDoNotBecomeOne() throws {
        let old = "<entity name='A'>\(name)</entity><entity name='B'>\(name)</entity>"
        let new =
            "<entity name='P'/><entity name='A' parentEntity='P'>\(name)</entity><entity name='B' parentEntity='P'>\(name)</entity>"
        let error = #expect(throws: MigrationError.self) { try StagedStore(old).migrate(to: new) }
        #expect(error?.code == CoreDataError.missingMappingModel)
    }

    @Test(arguments: [0, 1, 2]) func saysHowManyObjectsOfAnAbstractEntityNoRequestFinds(_ count: Int) throws {
        let old = "<entity name='P'>\(name)</entity><entity name='C' parentEntity='P'/>"
        let store = try StagedStore(
            old,
            (0..<count).map { "INSERT INTO ZP VALUES (\($0 + 1), 1, 1, 'p')" } + [
                "INSERT INTO ZP VALUES (9, 2, 1, 'c')"
            ])
        let notes = try store.migrate(to: old.replacing("name='P'>", with: "name='P' isAbstract='YES'>"))
        let found = notes.filter { $0.contains("becomes abstract") }
        #expect(found.count == min(count, 1) && found.allSatisfy { $0.contains("\(count) object") }, "\(notes)")
        #expect(try store.rows("SELECT count(*) FROM ZP") == ["\(count + 1)"])
    }
}
