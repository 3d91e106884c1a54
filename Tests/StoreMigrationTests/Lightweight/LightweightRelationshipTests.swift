import Testing

@testable import StoreMigration

/// What inferred migrations do to relationships.
struct LightweightRelationshipTests {
    private func migrated(_ old: String, _ rows: [String], _ new: String) throws -> StagedStore {
        let store = try StagedStore(old, rows)
        let target = try model(new)
        try store.migrate(to: target)
        #expect(try store.differences(from: target) == [])
        return store
    }

    private func one(_ name: String, _ entity: String, _ inverse: String, _ more: String = "") -> String {
        "<relationship name='\(name)' optional='YES' maxCount='1' destinationEntity='\(entity)' "
            + "inverseName='\(inverse)' inverseEntity='\(entity)' \(more)/>"
    }

    private func many(_ name: String, _ entity: String, _ inverse: String, _ more: String = "") -> String {
        "<relationship name='\(name)' optional='YES' toMany='YES' destinationEntity='\(entity)' "
            + "inverseName='\(inverse)' inverseEntity='\(entity)' \(more)/>"
    }

    private func notes(_ note: String, _ tag: String) -> String {
        "<entity name='Note'>\(note)</entity><entity name='Tag'>\(tag)</entity>"
    }

    private let rows = [
        "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTAG) VALUES (1, 1, 1, 2), (2, 1, 1, NULL), (3, 1, 1, 2)",
        "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1), (2, 2, 1)",
    ]

    @Test func aToOneRelationshipIsKept() throws {
        let old = notes(one("tag", "Tag", "notes"), many("notes", "Note", "tag"))
        let new = notes(one("label", "Tag", "notes", "elementID='tag'"), many("notes", "Note", "label"))
        let store = try migrated(old, rows, new)
        #expect(try store.rows("SELECT Z_PK, ZLABEL FROM ZNOTE ORDER BY Z_PK") == ["1 2", "2 NULL", "3 2"])
    }

    @Test func toOneBecomesToMany() throws {
        let old = notes(one("tag", "Tag", "notes"), many("notes", "Note", "tag"))
        let new = notes(many("tags", "Tag", "notes", "elementID='tag'"), many("notes", "Note", "tags"))
        let store = try migrated(old, rows, new)
        let table = try store.rows(
            "SELECT name FROM sqlite_schema WHERE name LIKE 'Z!_1%' ESCAPE '!' AND type = 'table'")
        #expect(table.count + (try store.rows("SELECT 1 FROM sqlite_schema WHERE name = 'Z_2NOTES'")).count == 1)
        let name = table.first.map { $0.replacing("'", with: "") } ?? "Z_2NOTES"
        #expect(try store.rows("SELECT Z_1NOTES, Z_2TAGS FROM \(name) ORDER BY 1") == ["1 2", "3 2"])
    }

    @Test func manyToManyIsKeptWhenTheNumbersMove() throws {
        let old = notes(many("tags", "Tag", "notes"), many("notes", "Note", "tags"))
        let join = try #require(
            try StagedStore(old).rows("SELECT name FROM sqlite_schema WHERE sql LIKE '%Z_1NOTES%' AND type = 'table'")
                .first
        )
        .replacing("'", with: "")
        let rows = [
            "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT) VALUES (1, 1, 1), (2, 1, 1)",
            "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT) VALUES (5, 2, 1)",
            "INSERT INTO \(join) (Z_1NOTES, Z_2TAGS) VALUES (1, 5), (2, 5)",
        ]
        let store = try migrated(old, rows, "<entity name='Folder'/>" + old)
        let after = try #require(
            try store.rows("SELECT name FROM sqlite_schema WHERE sql LIKE '%Z_2NOTES%' AND type = 'table'").first
        )
        .replacing("'", with: "")
        #expect(try store.rows("SELECT Z_2NOTES, Z_3TAGS FROM \(after) ORDER BY 1") == ["1 5", "2 5"])
    }

    /// Objects without an order get that of their keys, in the steps in which Core Data gives orders out.
    @Test func unorderedBecomesOrdered() throws {
        let old = notes(one("tag", "Tag", "notes"), many("notes", "Note", "tag"))
        let new = notes(one("tag", "Tag", "notes"), many("notes", "Note", "tag", "ordered='YES'"))
        let store = try migrated(old, rows, new)
        #expect(
            try store.rows("SELECT Z_PK, ZTAG, Z_FOK_TAG FROM ZNOTE ORDER BY Z_PK") == [
                "1 2 2048", "2 NULL NULL", "3 2 3072",
            ])
    }

    @Test func orderedBecomesUnordered() throws {
        let old = notes(one("tag", "Tag", "notes"), many("notes", "Note", "tag", "ordered='YES'"))
        let new = notes(one("tag", "Tag", "notes"), many("notes", "Note", "tag"))
        let store = try migrated(old, rows, new)
        #expect(try store.rows("SELECT Z_PK, ZTAG FROM ZNOTE ORDER BY Z_PK") == ["1 2", "2 NULL", "3 2"])
    }

    /// The order goes with the objects to where it is kept now.
    @Test func anOrderedToManyBecomesManyToMany() throws {
        let old = notes(one("tag", "Tag", "notes"), many("notes", "Note", "tag", "ordered='YES'"))
        let new = notes(many("tags", "Tag", "notes", "elementID='tag'"), many("notes", "Note", "tags", "ordered='YES'"))
        let ordered = rows + ["UPDATE ZNOTE SET Z_FOK_TAG = 5000 - Z_PK WHERE ZTAG IS NOT NULL"]
        let store = try migrated(old, ordered, new)
        let join = try #require(
            try store.rows("SELECT name FROM sqlite_schema WHERE sql LIKE '%Z_FOK_1NOTES%' AND type = 'table'").first
        )
        .replacing("'", with: "")
        #expect(
            try store.rows("SELECT Z_1NOTES, Z_2TAGS, Z_FOK_1NOTES FROM \(join) ORDER BY 1") == [
                "1 2 4999", "3 2 4997",
            ])
    }

    @Test func toManyDoesNotBecomeToOne() throws {
        let old = notes(many("tags", "Tag", "notes"), many("notes", "Note", "tags"))
        let new = notes(one("tags", "Tag", "notes"), many("notes", "Note", "tags"))
        let error = #expect(throws: MigrationError.self) { try StagedStore(old).migrate(to: new) }
        #expect(error?.findings.contains { $0.message.contains("to-many to a to-one") } == true)
    }

    /// The other side was the one that kept it.
    @Test func aNewInverseFindsItsObjects() throws {
        let old = notes("<relationship name='tag' optional='YES' maxCount='1' destinationEntity='Tag'/>", "")
        let new = notes(one("tag", "Tag", "note"), one("note", "Note", "tag"))
        let rows = [
            "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTAG) VALUES (1, 1, 1, 2), (3, 1, 1, 1)",
            "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1), (2, 2, 1)",
        ]
        let store = try migrated(old, rows, new)
        #expect(try store.rows("SELECT Z_PK, ZNOTE FROM ZTAG ORDER BY Z_PK") == ["1 3", "2 1"])
    }

    /// A destination that gets subentities needs each object's entity too.
    @Test func theDestinationsEntityIsFound() throws {
        let old = notes(one("tag", "Tag", "notes"), many("notes", "Note", "tag"))
        let store = try migrated(old, rows, old + "<entity name='Special' parentEntity='Tag'/>")
        #expect(
            try store.rows("SELECT Z_PK, ZTAG, Z2_TAG FROM ZNOTE ORDER BY Z_PK") == ["1 2 2", "2 NULL NULL", "3 2 2"])
        let moved = try StagedStore(
            old + "<entity name='Special' parentEntity='Tag'/>",
            [
                "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTAG, Z2_TAG) VALUES (1, 1, 1, 2, 3)",
                "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT) VALUES (2, 3, 1)",
            ])
        try moved.migrate(to: "<entity name='Early'/>" + old + "<entity name='Special' parentEntity='Tag'/>")
        #expect(try moved.rows("SELECT Z_PK, Z_ENT, ZTAG, Z3_TAG FROM ZNOTE") == ["1 2 2 4"])
    }

    /// A relationship that only a subentity has any more is let go of by the other objects, on both sides.
    @Test func aRelationshipThatIsLoweredLeavesOtherObjects() throws {
        let old = notes(one("tag", "Tag", "notes"), many("notes", "Note", "tag"))
        let base = try StagedStore(
            old + "<entity name='Special' parentEntity='Tag'/>",
            [
                "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTAG, Z2_TAG) VALUES (1, 1, 1, 1, 2), (2, 1, 1, 2, 3)",
                "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1), (2, 3, 1)",
            ])
        try base.migrate(
            to: "<entity name='Note'>\(one("tag", "Special", "notes"))</entity><entity name='Tag'/>"
                + "<entity name='Special' parentEntity='Tag'>\(many("notes", "Note", "tag"))</entity>")
        #expect(try base.rows("SELECT Z_PK, ZTAG FROM ZNOTE ORDER BY 1") == ["1 NULL", "2 2"])
        // The column is of a new subentity now, which has no objects.
        let side = try StagedStore(old, rows)
        try side.migrate(
            to: "<entity name='Note'/><entity name='Late' parentEntity='Note'>\(one("tag", "Tag", "notes"))</entity>"
                + "<entity name='Tag'>\(many("notes", "Late", "tag"))</entity>")
        #expect(try side.rows("SELECT Z_PK, ZTAG FROM ZNOTE ORDER BY 1") == ["1 NULL", "2 NULL", "3 NULL"])
    }

    /// One object can be led to by one only: the loss is counted, beforehand too.
    @Test func countsLinksThatARelationshipWithoutInverseHasNoPlaceFor() throws {
        let old = notes(one("tag", "Tag", ""), "")
        let store = try StagedStore(old, rows)
        let told = try store.migrate(to: notes(many("tag", "Tag", ""), ""))
        #expect(try store.rows("SELECT Z_PK, Z1TAG FROM ZTAG ORDER BY 1") == ["1 NULL", "2 1"])
        #expect(told.count == 1)
        #expect(told.first?.hasPrefix("Note.tag has no inverse") == true)
        #expect(told.first?.hasSuffix(": 1 link is removed") == true)
    }

    @Test func aRelationshipThatIsItsOwnInverseIsRenumbered() throws {
        let people = "<entity name='Person'>\(many("friends", "Person", "friends"))</entity>"
        let store = try migrated(
            people,
            [
                "INSERT INTO ZPERSON VALUES (1, 1, 1), (2, 1, 1)",
                "INSERT INTO Z_1FRIENDS (Z_1FRIENDS, REFLEXIVE) VALUES (1, 2), (2, 1)",
            ], "<entity name='Animal'/>" + people)
        #expect(try store.rows("SELECT Z_2FRIENDS, REFLEXIVE FROM Z_2FRIENDS ORDER BY 1") == ["1 2", "2 1"])
        #expect(
            try store.rows("SELECT sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
                == ["'CREATE INDEX Z_2FRIENDS_REFLEXIVE_INDEX ON Z_2FRIENDS (REFLEXIVE, Z_2FRIENDS)'"])
    }

    /// Objects that went with their entity are no longer referred to.
    @Test func referencesToRemovedObjectsAreLetGo() throws {
        let old =
            notes(one("tag", "Tag", "notes"), many("notes", "Note", "tag"))
            + "<entity name='Special' parentEntity='Tag'/>"
        let store = try StagedStore(
            old,
            [
                "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTAG, Z2_TAG) VALUES (1, 1, 1, 1, 2), (2, 1, 1, 2, 3)",
                "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1), (2, 3, 1)",
            ])
        try store.migrate(to: notes(one("tag", "Tag", "notes"), many("notes", "Note", "tag")))
        #expect(try store.rows("SELECT Z_PK, ZTAG FROM ZNOTE ORDER BY Z_PK") == ["1 1", "2 NULL"])
        #expect(try store.rows("SELECT Z_PK FROM ZTAG") == ["1"])
    }

    @Test func aMandatoryRelationshipWithoutObjectsIsRefused() throws {
        let old = notes(one("tag", "Tag", "notes"), many("notes", "Note", "tag"))
        let store = try StagedStore(old, rows)
        let error = #expect(throws: MigrationError.self) {
            try store.migrate(to: old.replacing("name='tag' optional='YES'", with: "name='tag'"))
        }
        #expect(error?.message.contains("Note.tag") == true)
    }
}
