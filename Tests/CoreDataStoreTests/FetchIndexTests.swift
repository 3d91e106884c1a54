import ManagedObjectModels
import Testing

@testable import CoreDataStore

/// The statements are those that FreeCoreData's tests expect of Apple's Core Data on macOS.
struct FetchIndexTests {
    private static func layout(_ indexes: [FetchIndexDescription]) throws -> StoreLayout {
        var note = EntityDescription(name: "Note")
        note.attributes = [
            AttributeDescription(name: "title", type: .string), AttributeDescription(name: "stamp", type: .date),
            AttributeDescription(name: "lat", type: .float),
        ]
        note.indexes = indexes
        note.relationships = [RelationshipDescription(name: "folder", destinationEntityName: "Folder")]
        note.relationships[0].inverseName = "notes"
        var folder = EntityDescription(name: "Folder")
        folder.relationships = [RelationshipDescription(name: "notes", destinationEntityName: "Note")]
        folder.relationships[0].inverseName = "folder"
        folder.relationships[0].maxCount = 0
        note.relationships[0].maxCount = 1
        return StoreLayout(try ManagedObjectModel(entities: [note, folder]))
    }

    private static func index(_ elements: [(String, Bool)], where predicate: String? = nil) -> FetchIndexDescription {
        FetchIndexDescription(
            name: "byIt", elements: elements.map { .init(property: $0.0, isAscending: $0.1) },
            partialIndexPredicate: predicate)
    }

    private static func statements(_ index: FetchIndexDescription) throws -> [String] {
        try layout([index]).indexes.map(\.creation).filter { !$0.hasSuffix("_INDEX ON ZNOTE (ZFOLDER)") }
    }

    @Test func indexesSeveralAndDescendingColumns() throws {
        #expect(
            try Self.statements(Self.index([("stamp", false), ("title", true)])) == [
                "CREATE INDEX Z_Note_byIt ON ZNOTE (ZSTAMP COLLATE BINARY DESC, ZTITLE COLLATE BINARY ASC)"
            ])
        #expect(
            try Self.statements(Self.index([("folder", true), ("title", false)])) == [
                "CREATE INDEX Z_Note_byIt ON ZNOTE (ZFOLDER COLLATE BINARY ASC, ZTITLE COLLATE BINARY DESC)"
            ])
    }

    @Test func createsPartialIndexes() throws {
        let index = Self.index([("title", true)], where: "title != nil")
        #expect(
            try Self.statements(index) == [
                "CREATE INDEX Z_Note_title ON ZNOTE (ZTITLE COLLATE BINARY ASC)",
                "CREATE INDEX Z_Note_byIt ON ZNOTE (ZTITLE COLLATE BINARY ASC) WHERE ZTITLE IS NOT NULL",
            ])
        #expect(try Self.layout([index]).unsupportedIndexes == [])
        let other = Self.index([("title", true)], where: "folder == NULL")
        #expect(try Self.statements(other).last?.hasSuffix(" WHERE ZFOLDER IS NULL") == true)
    }

    @Test(arguments: ["title != 'x'", "title != nil AND lat > 3", "gone != nil", "nil != title", ""])
    func reportsUnsupportedPartialIndexes(_ predicate: String) throws {
        let index = Self.index([("title", true)], where: predicate)
        #expect(try Self.statements(index).map { $0.contains("byIt") } == [false])
        #expect(try Self.layout([index]).unsupportedIndexes.map(\.name) == ["byIt"])
    }

    /// Only an ascending index of its own marks an attribute as indexed.
    @Test func doesNotMarkAnAttributeForADescendingIndex() throws {
        #expect(
            try Self.statements(Self.index([("title", false)])) == [
                "CREATE INDEX Z_Note_byIt ON ZNOTE (ZTITLE COLLATE BINARY DESC)"
            ])
    }

    @Test func skipsAnIndexThatTheReferenceHas() throws {
        let index = Self.index([("folder", true)])
        #expect(try Self.layout([index]).indexes.map(\.name) == ["ZNOTE_ZFOLDER_INDEX"])
        #expect(try Self.layout([index]).unsupportedIndexes == [])
    }

    @Test func reportsAPartialSpatialIndex() throws {
        let index = FetchIndexDescription(
            name: "byPlace", elements: [.init(property: "lat", kind: .rTree)], partialIndexPredicate: "lat != nil")
        #expect(try Self.layout([index]).spatialIndexes == [])
        #expect(try Self.layout([index]).unsupportedIndexes.map(\.name) == ["byPlace"])
    }
}
