import SystemPackage
import TestSupport
import Testing

@testable import CoreDataStore
@testable import MappingModels
@testable import StoreMigration

/// A many-to-many relationship is joined from one end where the other end would find the same links. The result is the
/// same as from both.
struct JoinedOnceTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private static let content = """
        <entity name='Note'><attribute name='text' optional='YES' attributeType='String'/>
        <relationship name='tags' optional='YES' toMany='YES' destinationEntity='Tag' inverseName='notes'/>
        <relationship name='next' optional='YES' toMany='YES' destinationEntity='Note' inverseName='last'/>
        <relationship name='last' optional='YES' toMany='YES' destinationEntity='Note' inverseName='next'/></entity>
        <entity name='Tag'><attribute name='text' optional='YES' attributeType='String'/>
        <relationship name='notes' optional='YES' toMany='YES' destinationEntity='Note' inverseName='tags'/></entity>
        """

    /// Returns the links of `tags` and of `next` as `note-tag` and `note-next`.
    private func links(_ entities: String, _ statements: [String] = []) throws -> (tags: [String], next: [String]) {
        let notes = try model(Self.content)
        let layout = StoreLayout(notes)
        func join(_ name: String) throws -> (table: String, owner: String, target: String) {
            let found = try #require(
                layout.joinTables.first { [$0.owner.relationship, $0.inverse.relationship].contains(name) })
            // A column of an entity's objects belongs to the relationship of that entity.
            let isOwner = found.owner.relationship == name
            return (
                found.name, isOwner ? found.owner.column : found.inverse.column,
                isOwner ? found.inverse.column : found.owner.column
            )
        }
        let (tags, next) = (try join("tags"), try join("next"))
        let path = try MigratedStore.make(
            notes, in: directory,
            [
                "INSERT INTO ZNOTE (Z_PK, Z_ENT, Z_OPT, ZTEXT) VALUES (1,1,1,'a'),(2,1,1,'b'),(3,1,1,'c')",
                "INSERT INTO ZTAG (Z_PK, Z_ENT, Z_OPT, ZTEXT) VALUES (1,2,1,'x'),(2,2,1,'y'),(7,2,1,'z')",
                "INSERT INTO \(tags.table) (\(tags.owner), \(tags.target)) VALUES (1,1),(1,2),(2,2),(3,7),(2,99),(99,1)",
                "INSERT INTO \(next.table) (\(next.owner), \(next.target)) VALUES (1,2),(2,3),(3,3),(3,99)",
            ] + statements)
        let mapping = try YAMLMappingReader.read(Array(("mapping: 1\nentities:\n" + entities).utf8))
        let store = try MigratedStore(mapping, path, from: notes, to: notes, in: directory)
        func rows(_ join: (table: String, owner: String, target: String)) throws -> [String] {
            try store.rows("SELECT \(join.owner) || '-' || \(join.target) FROM \(join.table) ORDER BY 1")
        }
        return (try rows(tags), try rows(next))
    }

    private static let tag = "  - {from: Tag, to: Tag}\n"
    private static let note = "  - {from: Note, to: Note}\n"

    @Test(arguments: [note + tag, tag + note]) func allLinksBetweenNewObjectsAreThere(_ entities: String) throws {
        let found = try links(entities)
        #expect(found.tags == ["1-1", "1-2", "2-2", "3-7"])
        #expect(found.next == ["1-2", "2-3", "3-3"])
    }

    @Test(arguments: [
        "  - {from: Note, to: Note, where: text != \"b\"}\n" + tag,
        tag + "  - {from: Note, to: Note, where: text != \"b\"}\n",
    ])
    func linksOfExcludedObjectsAreNot(_ entities: String) throws {
        let found = try links(entities)
        #expect(found.tags == ["1-1", "1-2", "3-7"])
        #expect(found.next == ["3-3"])
    }

    /// One end has no value: the other one must set it, whichever comes first.
    @Test(arguments: [
        note + "  - {from: Tag, to: Tag, relationships: {notes: ~}}\n",
        "  - {from: Tag, to: Tag, relationships: {notes: ~}}\n" + note,
        tag + "  - {from: Note, to: Note, relationships: {tags: ~}}\n",
        "  - {from: Note, to: Note, relationships: {tags: ~}}\n" + tag,
    ])
    func linksOfOneEndAreAll(_ entities: String) throws {
        #expect(try links(entities).tags == ["1-1", "1-2", "2-2", "3-7"])
    }

    /// The ends take their links from different older relationships, and so both count.
    @Test func linksOfDifferentRelationshipsAreAdded() throws {
        let swapped =
            "  - {from: Note, to: Note, relationships: {last: {mapping: NoteToNote, from: last}, "
            + "next: {mapping: NoteToNote, from: last}}}\n"
        #expect(try links(swapped + Self.tag).next == ["1-2", "2-1", "2-3", "3-2", "3-3"])
    }
}
