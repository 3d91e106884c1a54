import Testing

@testable import StoreMigration

/// Inferred migrations of relationships.
struct LightweightRelationshipTests {
    private func migrated(_ old: String, _ rows: [String], to new: String) throws -> StagedStore {
        let store = try StagedStore(old, rows)
        let target = try model(new)
        try store.migrate(to: target)
        #expect(try store.differences(from: target) == [])
        return store
    }

    private func toOne(_ name: String, to entity: String, inverse: String, _ more: String = "") -> String {
        "<relationship name='\(name)' optional='YES' maxCount='1' destinationEntity='\(entity)' "
            + "inverseName='\(inverse)' inverseEntity='\(entity)' \(more)/>"
    }

    private func toMany(_ name: String, to entity: String, inverse: String, _ more: String = "") -> String {
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
        let old = notes(toOne("tag", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tag"))
        let new = notes(
            toOne("label", to: "Tag", inverse: "notes", "elementID='tag'"),
            toMany("notes", to: "Note", inverse: "label"))
        let store = try migrated(old, rows, to: new)
        #expect(try store.rows("SELECT Z_PK, ZLABEL FROM ZNOTE ORDER BY Z_PK") == ["1 2", "2 NULL", "3 2"])
    }

    @Test func toOneBecomesToMany() throws {
        let old = notes(toOne("tag", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tag"))
        let new = notes(
            toMany("tags", to: "Tag", inverse: "notes", "elementID='tag'"), toMany("notes", to: "Note", inverse: "tags")
        )
        let store = try migrated(old, rows, to: new)
        let table = try store.rows(
            "SELECT name FROM sqlite_schema WHERE name LIKE 'Z!_1%' ESCAPE '!' AND type = 'table'")
        #expect(table.count + (try store.rows("SELECT 1 FROM sqlite_schema WHERE name = 'Z_2NOTES'")).count == 1)
        let name = table.first.map { $0.replacing("'", with: "") } ?? "Z_2NOTES"
        #expect(try store.rows("SELECT Z_1NOTES, Z_2TAGS FROM \(name) ORDER BY 1") == ["1 2", "3 2"])
    }

    @Test func manyToManyIsKeptWhenTheNumbersMove() throws {
        let old = notes(toMany("tags", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tags"))
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
        let store = try migrated(old, rows, to: "<entity name='Folder'/>" + old)
        let after = try #require(
            try store.rows("SELECT name FROM sqlite_schema WHERE sql LIKE '%Z_2NOTES%' AND type = 'table'").first
        )
        .replacing("'", with: "")
        #expect(try store.rows("SELECT Z_2NOTES, Z_3TAGS FROM \(after) ORDER BY 1") == ["1 5", "2 5"])
    }

    /// Objects without an order are ordered by their keys, with the position values that Core Data assigns.
    @Test func unorderedBecomesOrdered() throws {
        let old = notes(toOne("tag", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tag"))
        let new = notes(
            toOne("tag", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tag", "ordered='YES'"))
        let store = try migrated(old, rows, to: new)
        #expect(
            try store.rows("SELECT Z_PK, ZTAG, Z_FOK_TAG FROM ZNOTE ORDER BY Z_PK") == [
                "1 2 2048", "2 NULL NULL", "3 2 3072",
            ])
    }

    @Test func orderedBecomesUnordered() throws {
        let old = notes(
            toOne("tag", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tag", "ordered='YES'"))
        let new = notes(toOne("tag", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tag"))
        let store = try migrated(old, rows, to: new)
        #expect(try store.rows("SELECT Z_PK, ZTAG FROM ZNOTE ORDER BY Z_PK") == ["1 2", "2 NULL", "3 2"])
    }

    /// The order moves to the join table.
    @Test func anOrderedToManyBecomesManyToMany() throws {
        let old = notes(
            toOne("tag", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tag", "ordered='YES'"))
        let new = notes(
            toMany("tags", to: "Tag", inverse: "notes", "elementID='tag'"),
            toMany("notes", to: "Note", inverse: "tags", "ordered='YES'"))
        let ordered = rows + ["UPDATE ZNOTE SET Z_FOK_TAG = 5000 - Z_PK WHERE ZTAG IS NOT NULL"]
        let store = try migrated(old, ordered, to: new)
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
        let old = notes(toMany("tags", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tags"))
        let new = notes(toOne("tags", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tags"))
        let error = #expect(throws: MigrationError.self) { try StagedStore(old).migrate(to: new) }
        #expect(error?.findings.contains { $0.message.contains("to-many to a to-one") } == true)
    }

    /// The links were stored at the other end.
    @Test func fillsANewInverse() throws {
        let old = notes("<relationship name='tag' optional='YES' maxCount='1' destinationEntity='Tag'/>", "")
        let new = notes(toOne("tag", to: "Tag", inverse: "note"), toOne("note", to: "Note", inverse: "tag"))
        let rows = [
            "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTAG) VALUES (1, 1, 1, 2), (3, 1, 1, 1)",
            "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1), (2, 2, 1)",
        ]
        let store = try migrated(old, rows, to: new)
        #expect(try store.rows("SELECT Z_PK, ZNOTE FROM ZTAG ORDER BY Z_PK") == ["1 3", "2 1"])
    }

    /// A destination that gets subentities needs each object's entity too.
    @Test func fillsInTheDestinationsEntityNumber() throws {
        let old = notes(toOne("tag", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tag"))
        let store = try migrated(old, rows, to: old + "<entity name='Special' parentEntity='Tag'/>")
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

    /// Other objects lose a relationship that moves to a subentity, at both ends.
    @Test func clearsARelationshipThatMovesToASubentity() throws {
        let old = notes(toOne("tag", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tag"))
        let base = try StagedStore(
            old + "<entity name='Special' parentEntity='Tag'/>",
            [
                "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTAG, Z2_TAG) VALUES (1, 1, 1, 1, 2), (2, 1, 1, 2, 3)",
                "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1), (2, 3, 1)",
            ])
        try base.migrate(
            to: "<entity name='Note'>\(toOne("tag", to: "Special", inverse: "notes"))</entity><entity name='Tag'/>"
                + "<entity name='Special' parentEntity='Tag'>\(toMany("notes", to: "Note", inverse: "tag"))</entity>")
        #expect(try base.rows("SELECT Z_PK, ZTAG FROM ZNOTE ORDER BY 1") == ["1 NULL", "2 2"])
        // The column belongs to a new subentity, which has no objects.
        let side = try StagedStore(old, rows)
        try side.migrate(
            to: "<entity name='Note'/><entity name='Late' parentEntity='Note'>"
                + toOne("tag", to: "Tag", inverse: "notes") + "</entity>"
                + "<entity name='Tag'>\(toMany("notes", to: "Late", inverse: "tag"))</entity>")
        #expect(try side.rows("SELECT Z_PK, ZTAG FROM ZNOTE ORDER BY 1") == ["1 NULL", "2 NULL", "3 NULL"])
    }

    /// An object can be the target of only one other. The loss is counted, before the migration too.
    @Test func countsLinksThatARelationshipWithoutInverseCannotStore() throws {
        let old = notes(toOne("tag", to: "Tag", inverse: ""), "")
        let store = try StagedStore(old, rows)
        let remarks = try store.migrate(to: notes(toMany("tag", to: "Tag", inverse: ""), ""))
        #expect(try store.rows("SELECT Z_PK, Z1TAG FROM ZTAG ORDER BY 1") == ["1 NULL", "2 1"])
        #expect(remarks.count == 1)
        #expect(remarks.first?.hasPrefix("Note.tag has no inverse") == true)
        #expect(remarks.first?.hasSuffix(": 1 link is removed") == true)
    }

    @Test func aRelationshipThatIsItsOwnInverseIsRenumbered() throws {
        let people = "<entity name='Person'>\(toMany("friends", to: "Person", inverse: "friends"))</entity>"
        let store = try migrated(
            people,
            [
                "INSERT INTO ZPERSON VALUES (1, 1, 1), (2, 1, 1)",
                "INSERT INTO Z_1FRIENDS (Z_1FRIENDS, REFLEXIVE) VALUES (1, 2), (2, 1)",
            ], to: "<entity name='Animal'/>" + people)
        #expect(try store.rows("SELECT Z_2FRIENDS, REFLEXIVE FROM Z_2FRIENDS ORDER BY 1") == ["1 2", "2 1"])
        #expect(
            try store.rows("SELECT sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
                == ["'CREATE INDEX Z_2FRIENDS_REFLEXIVE_INDEX ON Z_2FRIENDS (REFLEXIVE, Z_2FRIENDS)'"])
    }

    /// Nothing refers to objects that were removed with their entity.
    @Test func clearsReferencesToRemovedObjects() throws {
        let old =
            notes(toOne("tag", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tag"))
            + "<entity name='Special' parentEntity='Tag'/>"
        let store = try StagedStore(
            old,
            [
                "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTAG, Z2_TAG) VALUES (1, 1, 1, 1, 2), (2, 1, 1, 2, 3)",
                "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT) VALUES (1, 2, 1), (2, 3, 1)",
            ])
        try store.migrate(
            to: notes(toOne("tag", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tag")))
        #expect(try store.rows("SELECT Z_PK, ZTAG FROM ZNOTE ORDER BY Z_PK") == ["1 1", "2 NULL"])
        #expect(try store.rows("SELECT Z_PK FROM ZTAG") == ["1"])
    }

    @Test func aMandatoryRelationshipWithoutObjectsIsRefused() throws {
        let old = notes(toOne("tag", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tag"))
        let store = try StagedStore(old, rows)
        let error = #expect(throws: MigrationError.self) {
            try store.migrate(to: old.replacing("name='tag' optional='YES'", with: "name='tag'"))
        }
        #expect(error?.message.contains("Note.tag") == true)
    }

    /// A store whose join table is named by the other relationship than each rule says.
    private func exceptional(_ old: String) throws -> StagedStore {
        try StagedStore(
            old,
            rows.map { $0.replacing(", ZTAG", with: "").replacing(", 2)", with: ")").replacing(", NULL)", with: ")") }
                + [
                    "DROP TABLE Z_1TAGS",
                    "CREATE TABLE Z_2NOTES ( Z_2TAGS INTEGER, Z_1NOTES INTEGER, PRIMARY KEY (Z_2TAGS, Z_1NOTES) )",
                    "INSERT INTO Z_2NOTES (Z_2TAGS, Z_1NOTES) VALUES (2, 1), (1, 3)",
                ])
    }

    private let text = "<attribute name='text' optional='YES' attributeType='String'/>"

    private func joinTables(_ store: StagedStore) throws -> [String] {
        try store.rows("SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB 'Z_[0-9]*'")
    }

    @Test func keepsTheNameOfAJoinTableThatNoRuleExplains() throws {
        let old = notes(toMany("tags", to: "Tag", inverse: "notes"), toMany("notes", to: "Note", inverse: "tags"))
        let store = try exceptional(old)
        #expect(try store.migrate(to: old.replacing("</entity>", with: text + "</entity>")).isEmpty)
        #expect(try joinTables(store) == ["'Z_2NOTES'"])
        #expect(try store.rows("SELECT Z_1NOTES, Z_2TAGS FROM Z_2NOTES ORDER BY 1") == ["1 2", "3 1"])
        // Numbers follow the entities, and names the relationships.
        let moved =
            "<entity name='First'/>"
            + old.replacing("'notes' optional", with: "'memos' elementID='notes' optional")
            .replacing("inverseName='notes'", with: "inverseName='memos'")
        #expect(try exceptional(old).migrate(to: moved).isEmpty)
        let other = try exceptional(old)
        try other.migrate(to: moved)
        #expect(try joinTables(other) == ["'Z_3MEMOS'"])
        #expect(try other.rows("SELECT Z_2MEMOS, Z_3TAGS FROM Z_3MEMOS ORDER BY 1") == ["1 2", "3 1"])
    }

    /// One more attribute makes the other side of a relationship the first in the enumeration.
    @Test func saysWhichJoinTableGetsTheNameOfTheOtherRelationship() throws {
        func trusting(_ count: Int) -> String {
            let ends =
                toMany("trusted", to: "A", inverse: "trustedBy") + toMany("trustedBy", to: "A", inverse: "trusted")
            let flags = (0..<count).map { "<attribute name='attribute\($0)' optional='YES' attributeType='Boolean'/>" }
            return entity(flags.joined() + ends)
        }
        var renamed = 0
        for count in 0..<8 {
            let store = try StagedStore(trusting(count))
            let before = try joinTables(store)
            let notes = try store.migrate(to: trusting(count + 1))
            let after = try joinTables(store)
            #expect(notes.contains { $0.contains("the join table") } == (before != after), "\(count)")
            renamed += before == after ? 0 : 1
        }
        #expect(renamed > 0)
    }
}
