import CoreDataStore
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import MappingModels
@testable import StoreMigration

/// Entity numbers, keys and names in Core Data's own tables, and in other frameworks'.
@Suite struct ObjectReferenceTests {
    private static func entities(_ names: String...) -> String {
        names.map { "<entity name='\($0)'><attribute name='k' optional='YES' attributeType='String'/></entity>" }
            .joined()
    }

    private static let tables = [
        "CREATE TABLE ANSCKRECORDMETADATA (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZENTITYID INTEGER, "
            + "ZENTITYPK INTEGER, ZCKRECORDNAME VARCHAR)",
        "CREATE UNIQUE INDEX Z_NSCKRecordMetadata_UNIQUE_entityId_entityPK ON ANSCKRECORDMETADATA (ZENTITYID, ZENTITYPK)",
        "CREATE TABLE ANSCKHISTORYANALYZERSTATE (Z_PK INTEGER PRIMARY KEY, ZENTITYID INTEGER, ZENTITYPK INTEGER)",
        "CREATE TABLE ANSCKRECORDZONEMOVERECEIPT (Z_PK INTEGER PRIMARY KEY, ZRECORDMETADATA INTEGER)",
        "CREATE TABLE ANSCKEVENT (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, ZCLOUDKITEVENTTYPE INTEGER)",
        "INSERT INTO ANSCKEVENT VALUES (1, 17004, 2)",
    ]

    private static func records(_ numbers: Int64...) -> [String] {
        tables
            + numbers.flatMap { number in
                [
                    "INSERT INTO ANSCKRECORDMETADATA VALUES (\(number), 17010, 1, \(number), 1, 'CK-\(number)')",
                    "INSERT INTO ANSCKHISTORYANALYZERSTATE VALUES (\(number), \(number), 1)",
                    "INSERT INTO ANSCKRECORDZONEMOVERECEIPT VALUES (\(number), \(number))",
                ]
            }
    }

    private static let all = "SELECT ZENTITYID, ZENTITYPK, ZCKRECORDNAME FROM ANSCKRECORDMETADATA ORDER BY 1"

    private func losses(_ count: Int, _ tables: String...) -> [String] {
        tables.map {
            "CloudKit's table ANSCK\($0) loses \(count) \(count == 1 ? "row" : "rows") about removed entities or relationships"
        }
    }

    /// The number of the removed entity is another one's in the new model.
    @Test func aRemovedEntitysRecordsAreNoOtherEntitys() throws {
        let store = try StagedStore(Self.entities("Note", "Tag"), Self.records(1, 2))
        let notes = try store.migrate(to: Self.entities("Tag"))
        #expect(try store.rows(Self.all) == ["1 1 'CK-2'"])
        #expect(try store.rows("SELECT ZENTITYID FROM ANSCKHISTORYANALYZERSTATE") == ["1"])
        #expect(try store.rows("SELECT Z_PK FROM ANSCKRECORDZONEMOVERECEIPT") == ["2"])
        #expect(try store.rows("SELECT * FROM ANSCKEVENT") == ["1 17004 2"])
        #expect(notes.sorted() == losses(1, "HISTORYANALYZERSTATE", "RECORDMETADATA", "RECORDZONEMOVERECEIPT"))
    }

    @Test func aRemovedSubentitysRecordsGoWithIt() throws {
        let parent = Self.entities("Base", "Other")
        let children = "<entity name='Left' parentEntity='Base'/><entity name='Right' parentEntity='Base'/>"
        let store = try StagedStore(parent + children, Self.records(1, 2, 3, 4))
        try store.migrate(to: parent + "<entity name='Right' parentEntity='Base'/>")
        #expect(try store.rows(Self.all) == ["1 1 'CK-1'", "2 1 'CK-3'", "3 1 'CK-4'"])
    }

    /// An earlier migration, by another program, has left rows of an entity that it removed.
    @Test func anEarlierEntitysRecordsAreNotAnAddedOnes() throws {
        let history = [
            "CREATE TABLE ACHANGE (Z_PK INTEGER PRIMARY KEY, Z_ENT INTEGER, Z_OPT INTEGER, ZCHANGETYPE INTEGER, "
                + "ZENTITY INTEGER, ZENTITYPK INTEGER, ZTRANSACTIONID INTEGER, ZCOLUMNS BLOB)",
            "INSERT INTO ACHANGE VALUES (1, 16001, NULL, 0, 1, 1, 1, NULL), (2, 16001, NULL, 0, 2, 1, 1, NULL)",
        ]
        let store = try StagedStore(Self.entities("Note"), Self.records(1, 2, 17) + history)
        let notes = try store.migrate(to: Self.entities("Another", "Note"))
        #expect(try store.rows(Self.all) == ["2 1 'CK-1'", "17 1 'CK-17'"])
        #expect(try store.rows("SELECT ZENTITY FROM ACHANGE") == ["2"])
        #expect(notes.contains("persistent history loses 1 change of removed entities"))
        #expect(notes.count == 4)
    }

    /// Numbers are exchanged where number and key are unique together. A number below zero is nobody's, before and
    /// after.
    @Test func exchangesNumbersUnderAUniqueIndex() throws {
        let store = try StagedStore(Self.entities("B", "C", "D"), Self.records(1, 2, 3, -1, -2))
        let named = ["Z", "C", "A"].enumerated().map {
            "<entity name='\($1)' elementID='\(["B", "C", "D"][$0])'><attribute name='k' optional='YES' "
                + "attributeType='String'/></entity>"
        }
        #expect(try store.migrate(to: named.joined()) == [])
        #expect(
            try store.rows(Self.all)
                == ["-2 1 'CK--2'", "-1 1 'CK--1'", "1 1 'CK-3'", "2 1 'CK-2'", "3 1 'CK-1'"])
    }

    private static func linked(
        _ first: String, _ second: String, _ links: [(String, String)], elements: [String: String] = [:]
    ) -> String {
        func entity(_ name: String, _ other: String, _ links: [(own: String, inverse: String)]) -> String {
            let relationships = links.map { link in
                let element = elements[link.own].map { " elementID='\($0)'" } ?? ""
                return "<relationship name='\(link.own)' optional='YES' toMany='YES' destinationEntity='\(other)' "
                    + "inverseName='\(link.inverse)' inverseEntity='\(other)'\(element)/>"
            }
            let element = elements[name].map { " elementID='\($0)'" } ?? ""
            return "<entity name='\(name)'\(element)>\(relationships.joined())</entity>"
        }
        return entity(first, second, links.map { (own: $0.0, inverse: $0.1) })
            + entity(second, first, links.map { (own: $0.1, inverse: $0.0) })
    }

    private static let mirrored = [
        "CREATE TABLE ANSCKMIRROREDRELATIONSHIP (Z_PK INTEGER PRIMARY KEY, ZCDENTITYNAME VARCHAR, "
            + "ZRELATEDENTITYNAME VARCHAR, ZRELATIONSHIPNAME VARCHAR)",
        "INSERT INTO ANSCKMIRROREDRELATIONSHIP VALUES (1, 'Note', 'Tag', 'tags'), (2, 'Tag', 'Note', 'marks'), "
            + "(3, 'Gone', 'Tag', 'tags'), (4, NULL, NULL, NULL)",
    ]
    private static let names =
        "SELECT Z_PK, ZCDENTITYNAME, ZRELATEDENTITYNAME, ZRELATIONSHIPNAME FROM ANSCKMIRROREDRELATIONSHIP ORDER BY 1"

    @Test func forgetsARemovedRelationshipsLinks() throws {
        let old = Self.linked("Note", "Tag", [("tags", "notes"), ("others", "marks")])
        let store = try StagedStore(old, Self.mirrored)
        let notes = try store.migrate(to: Self.linked("Note", "Tag", [("tags", "notes")]))
        #expect(
            try store.rows(Self.names)
                == ["1 'Note' 'Tag' 'tags'", "3 'Gone' 'Tag' 'tags'", "4 NULL NULL NULL"])
        #expect(notes == losses(1, "MIRROREDRELATIONSHIP"))
    }

    /// The new entity `Gone` has nothing to do with the older one of that name.
    @Test func namesFollowTheirEntities() throws {
        let old = Self.linked("Note", "Tag", [("tags", "notes"), ("others", "marks")])
        let store = try StagedStore(old, Self.mirrored)
        let elements = ["Tag": "Note", "Note": "Tag", "labels": "tags", "tags": "marks"]
        let new = Self.linked("Tag", "Note", [("labels", "notes"), ("others", "tags")], elements: elements)
        let notes = try store.migrate(to: new + Self.entities("Gone"))
        #expect(
            try store.rows(Self.names)
                == ["1 'Tag' 'Note' 'labels'", "2 'Note' 'Tag' 'tags'", "4 NULL NULL NULL"])
        #expect(notes.filter { $0.hasPrefix("CloudKit") } == losses(1, "MIRROREDRELATIONSHIP"))
    }

    /// A dry run and `model check` report the same as the migration.
    @Test func countsTheRowsBefore() throws {
        let old = try model(Self.entities("Note", "Tag"))
        let store = try StagedStore(old, Self.records(1, 2))
        let plan = try MigrationPlan(
            from: old, to: try model(Self.entities("Tag")), named: "new", options: MigrationOptions())
        let last = try #require(store.path.lastComponent)
        let name = try #require(StoreName(last))
        let location = StoreLocation(directory: try Directory(store.path.removingLastComponent()), name: name)
        let before = try StoreReader.read(location) { try MigrationDryRun(plan)?.run(on: $0).notes }
        let after = try store.migrate(to: Self.entities("Tag"))
        #expect(before == after)
        #expect(before?.count == 3)
    }

    /// What another framework keeps isn't known: its tables are left unchanged, and named.
    @Test func namesColumnsOfOtherFrameworks() throws {
        let foreign = [
            "CREATE TABLE XINDEX (ZENTITYID INTEGER, ZENTITYPK INTEGER)", "INSERT INTO XINDEX VALUES (1, 1), (2, 1)",
        ]
        let store = try StagedStore(Self.entities("Note", "Tag"), foreign)
        let notes = try store.migrate(to: Self.entities("Tag"))
        #expect(try store.rows("SELECT ZENTITYID FROM XINDEX") == ["1", "2"])
        #expect(notes.count == 1 && notes[0].contains("left unchanged: XINDEX.ZENTITYID"))
        let kept = try StagedStore(Self.entities("Note", "Tag"), foreign)
        #expect(try kept.migrate(to: Self.entities("Note", "Tag").replacing("'k'", with: "'l'")) == [])
    }

    /// A mapping model makes new objects, with other numbers and keys: nothing that described the older ones is left.
    @Test func aMappingModelDropsTheRecords() throws {
        let directory = try TemporaryDirectory()
        let (old, new) = (try model(Self.entities("Note", "Tag")), try model(Self.entities("Tag")))
        let foreign = "CREATE TABLE XINDEX (ZENTITYID INTEGER, ZENTITYPK INTEGER)"
        let path = try MigratedStore.make(
            old, in: directory, Self.records(1, 2) + [foreign, "INSERT INTO XINDEX VALUES (2, 1)"])
        let mapping = try YAMLMappingReader.read(Array("mapping: 1\nentities:\n- {from: Tag, to: Tag}".utf8))
        let migrated = try MigratedStore(mapping, path, from: old, to: new, in: directory)
        #expect(try migrated.rows("SELECT name FROM sqlite_schema WHERE name LIKE '%ANSCK%'") == [])
        #expect(try migrated.rows("SELECT ZENTITYID FROM XINDEX") == ["2"])
        #expect(migrated.notes.contains { $0.contains("ANSCKRECORDMETADATA (2 rows)") }, "\(migrated.notes)")
        #expect(migrated.notes.contains { $0.contains("copied unchanged: XINDEX.ZENTITYID") }, "\(migrated.notes)")
    }
}
