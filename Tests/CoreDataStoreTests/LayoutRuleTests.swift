import ManagedObjectModels
import Testing

@testable import CoreDataStore

/// The layout rules one by one. `RealStoreLayoutTests` verifies that they predict real stores.
@Suite struct LayoutRuleTests {
    private static func entity(
        _ name: String, parent: String? = nil, _ attributes: [(String, AttributeType)] = [],
        _ relationships: [RelationshipDescription] = []
    ) -> EntityDescription {
        var entity = EntityDescription(name: name)
        entity.superentityName = parent
        entity.attributes = attributes.map { AttributeDescription(name: $0.0, type: $0.1) }
        entity.relationships = relationships
        return entity
    }

    private static func relationship(
        _ name: String, to destination: String, inverse: String?, most: Int32 = 1, ordered: Bool = false
    ) -> RelationshipDescription {
        var relationship = RelationshipDescription(name: name, destinationEntityName: destination)
        relationship.inverseName = inverse
        relationship.maxCount = most
        relationship.isOrdered = ordered
        return relationship
    }

    @Test func numbersEntities() throws {
        let model = try ManagedObjectModel(entities: [
            Self.entity("SContact"), Self.entity("ScheduledTag"), Self.entity("beta"), Self.entity("Alpha"),
            Self.entity("Z1", parent: "beta"), Self.entity("a1", parent: "beta"), Self.entity("deep", parent: "a1"),
        ])
        let numbers = StoreLayout(model).numbers
        #expect(
            numbers.entities.map(\.name) == ["Alpha", "beta", "a1", "deep", "Z1", "ScheduledTag", "SContact"])
        #expect(numbers.number(of: "deep") == 4)
        #expect(numbers.family(of: "beta") == ["beta", "a1", "deep", "Z1"])
        #expect(numbers.hasSubentities("a1") && !numbers.hasSubentities("deep"))
    }

    @Test func namesAndOrdersColumns() throws {
        var scratch = AttributeDescription(name: "scratch", type: .date)
        scratch.isTransient = true
        var note = Self.entity(
            "Note",
            [
                ("text", .string), ("size", .integer32), ("bytes", .binaryData), ("image", .transformable),
                ("id", .uuid), ("price", .decimal),
            ],
            [Self.relationship("folder", to: "Folder", inverse: "notes")])
        note.attributes.append(scratch)
        let model = try ManagedObjectModel(entities: [
            note, Self.entity("Long", parent: "Note", [("text2", .string), ("made", .date)]),
            Self.entity("Short", parent: "Note", [("flag", .boolean), ("any", .undefined)]),
            Self.entity(
                "Folder", [], [Self.relationship("notes", to: "Note", inverse: "folder", most: 0, ordered: true)]),
            Self.entity("SubFolder", parent: "Folder"),
        ])
        let table = try #require(StoreLayout(model).tables.first { $0.name == "ZNOTE" })
        #expect(table.isHierarchy)
        #expect(
            table.creation
                == "CREATE TABLE ZNOTE ( Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZSIZE INTEGER, "
                + "ZFOLDER INTEGER, Z1_FOLDER INTEGER, Z_FOK_FOLDER INTEGER, ZFLAG INTEGER, ZMADE TIMESTAMP, "
                + "ZPRICE DECIMAL, ZTEXT VARCHAR, ZTEXT2 VARCHAR, ZID BLOB, ZIMAGE BLOB, ZBYTES BLOB )")
    }

    /// Two entities of one table have an attribute of the same name. Another attribute's name looks like a numbered
    /// one.
    @Test func numbersColumnNamesInUse() throws {
        let model = try ManagedObjectModel(entities: [
            Self.entity("Root"), Self.entity("A", parent: "Root", [("text", .string), ("ent", .string)]),
            Self.entity("B", parent: "Root", [("text", .string), ("text1", .string)]),
            Self.entity("C", parent: "Root", [("text", .integer16)]),
        ])
        let columns = StoreLayout(model).tables[0].columns
        #expect(columns.map(\.name) == ["ZENT", "ZTEXT", "ZTEXT1", "ZTEXT11", "ZTEXT2"])
        #expect(columns[2].content == .attribute(entity: "B", path: ["text"]))
        #expect(columns[4].type == "INTEGER")
    }

    @Test func createsJoinTables() throws {
        let model = try ManagedObjectModel(entities: [
            Self.entity(
                "Author", [], [Self.relationship("books", to: "Book", inverse: "authors", most: 0, ordered: true)]),
            Self.entity("Book", [], [Self.relationship("authors", to: "Author", inverse: "books", most: 0)]),
            Self.entity("Person", [], [Self.relationship("friends", to: "Person", inverse: "friends", most: 0)]),
        ])
        #expect(
            StoreLayout(model).joinTables.map(\.creation) == [
                "CREATE TABLE Z_1BOOKS ( Z_1AUTHORS INTEGER, Z_2BOOKS INTEGER, Z_FOK_2BOOKS INTEGER, "
                    + "PRIMARY KEY (Z_1AUTHORS, Z_2BOOKS) )",
                "CREATE TABLE Z_3FRIENDS ( Z_3FRIENDS INTEGER, REFLEXIVE INTEGER, PRIMARY KEY (Z_3FRIENDS, REFLEXIVE) )",
            ])
    }

    /// As in Apple's Notes, entities are enumerated by name, not by number, which follows the hierarchy.
    @Test func namesJoinTablesOfAHierarchyByEntityName() throws {
        let model = try ManagedObjectModel(entities: [
            Self.entity("Object"),
            Self.entity(
                "Note", parent: "Object", [],
                [
                    Self.relationship("folders", to: "Folder", inverse: "notes", most: 0)
                ]),
            Self.entity("NoteContainer", parent: "Object"),
            Self.entity(
                "Folder", parent: "NoteContainer", [],
                [
                    Self.relationship("notes", to: "Note", inverse: "folders", most: 0)
                ]),
        ])
        let table = try #require(StoreLayout(model).joinTables.first)
        #expect(
            table.creation
                == "CREATE TABLE Z_4NOTES ( Z_4FOLDERS INTEGER, Z_2NOTES INTEGER, PRIMARY KEY (Z_4FOLDERS, Z_2NOTES) )")
    }

    /// One more attribute can make the other side of a relationship the first in the enumeration.
    @Test func ordersPropertiesByAllPropertiesOfTheEntity() throws {
        func table(_ attributes: [String]) throws -> String? {
            let relationships = [
                Self.relationship("trusted", to: "A", inverse: "trustedBy", most: 0),
                Self.relationship("trustedBy", to: "A", inverse: "trusted", most: 0),
            ]
            return StoreLayout(
                try ManagedObjectModel(entities: [Self.entity("A", attributes.map { ($0, .boolean) }, relationships)])
            ).joinTables.first?.name
        }
        let names = try (0..<20).compactMap { count in try table((0..<count).map { "attribute\($0)" }) }
        #expect(names.count == 20)
        #expect(Set(names) == ["Z_1TRUSTED", "Z_1TRUSTEDBY"])
        #expect(PropertyOrder.hash("abc") != PropertyOrder.hash("abd"))
        // Only the first 8 and the last 16 characters of a long name count.
        #expect(PropertyOrder.hash("abcdefgh1ijklmnopqrstuvwx") == PropertyOrder.hash("abcdefgh2ijklmnopqrstuvwx"))
    }

    /// Names are in capitals. The second of two columns gets a number; two tables are an error.
    @Test func refusesTablesWhoseNamesDifferOnlyInCase() throws {
        func layout(most: Int32, _ names: [String] = ["tags", "Tags"]) throws -> StoreLayout {
            StoreLayout(
                try ManagedObjectModel(entities: [
                    Self.entity(
                        "Note", [], names.map { Self.relationship($0, to: "Tag", inverse: "notes" + $0, most: most) }),
                    Self.entity(
                        "Tag", [], names.map { Self.relationship("notes" + $0, to: "Note", inverse: $0, most: 0) }),
                ]))
        }
        try layout(most: 1).validate()
        #expect(try layout(most: 1).table(of: "Note")?.columns.map(\.name) == ["ZTAGS", "ZTAGS1"])
        try layout(most: 0, ["tags", "labels"]).validate()
        let many = try layout(most: 0)
        let fault = #expect(throws: ModelFault.self) { try many.validate() }
        #expect(fault?.entity == "Note" && fault?.message.contains("Z_1TAGS is also that of Note.") == true)
        let entities = StoreLayout(try ManagedObjectModel(entities: [Self.entity("Note"), Self.entity("NOTE")]))
        #expect(throws: ModelFault.self) { try entities.validate() }
    }

    @Test(arguments: ["A B", "a\"b", "x;--", "x.y"]) func refusesNamesThatSQLiteRejects(name: String) throws {
        let entity = StoreLayout(try ManagedObjectModel(entities: [Self.entity(name)]))
        #expect(#expect(throws: ModelFault.self) { try entity.validate() }?.entity == name)
        let attribute = StoreLayout(try ManagedObjectModel(entities: [Self.entity("A", [(name, .string)])]))
        #expect(#expect(throws: ModelFault.self) { try attribute.validate() }?.property == name)
        try StoreLayout(try ManagedObjectModel(entities: [Self.entity("_Größe1", [("日本$", .string)])])).validate()
    }

    @Test func refusesTablesThatSQLiteRejects() throws {
        for name in ["_Metadata", "_primaryKey", "_ModelCache"] {
            let layout = StoreLayout(try ManagedObjectModel(entities: [Self.entity(name)]))
            #expect(#expect(throws: ModelFault.self) { try layout.validate() }?.entity == name)
        }
        let wide = (0..<1998).map { ("a\($0)", AttributeType.string) }
        let layout = StoreLayout(try ManagedObjectModel(entities: [Self.entity("A", wide)]))
        #expect(#expect(throws: ModelFault.self) { try layout.validate() }?.message.contains("2001 columns") == true)
    }

    @Test func placesAToManyWithoutInverseInTheDestination() throws {
        let model = try ManagedObjectModel(entities: [
            Self.entity("A", [], [Self.relationship("parts", to: "B", inverse: nil, most: 0, ordered: true)]),
            Self.entity("B"),
        ])
        #expect(StoreLayout(model).tables[1].columns.map(\.name) == ["Z1PARTS", "Z_FOK_1PARTS"])
    }
}
