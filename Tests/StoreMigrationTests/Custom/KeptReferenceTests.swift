import SystemPackage
import TestSupport
import Testing

@testable import CoreDataStore
@testable import MappingModels
@testable import StoreMigration

/// References that keep their keys are copied without a search for each object where all of them lead to new objects.
/// The result is the same as with a search.
struct KeptReferenceTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private static let content = """
        <entity name='Team'><attribute name='name' optional='YES' attributeType='String'/>
        <relationship name='members' optional='YES' toMany='YES' destinationEntity='Person' inverseName='team'/></entity>
        <entity name='Club' parentEntity='Team'/>
        <entity name='Person'><attribute name='name' optional='YES' attributeType='String'/>
        <relationship name='team' optional='YES' maxCount='1' destinationEntity='Team' inverseName='members'/></entity>
        """

    private func links(_ statements: [String], where filter: String = "", index: Bool = true) throws -> [String] {
        let people = try model(Self.content)
        let layout = StoreLayout(people)
        let team = layout.numbers.number(of: "Team"), club = layout.numbers.number(of: "Club")
        let person = layout.numbers.number(of: "Person")
        let path = try MigratedStore.make(
            people, in: directory,
            [
                "INSERT INTO ZTEAM (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1,\(team),1,'Reds'),(2,\(team),1,'x'),(4,\(club),1,'C')",
                "INSERT INTO ZPERSON (Z_PK, Z_ENT, Z_OPT, ZNAME, ZTEAM, Z\(team)_TEAM) VALUES (1,\(person),1,'Ann',1,\(team)),"
                    + "(2,\(person),1,'Bob',2,\(team)),(3,\(person),1,'Eve',NULL,NULL)",
            ] + (index ? [] : ["DROP INDEX ZPERSON_ZTEAM_INDEX"]) + statements)
        let mapping = try YAMLMappingReader.read(
            Array(
                ("mapping: 1\nentities:\n  - from: Team\n    to: Team\n" + filter
                    + "  - {from: Person, to: Person}\n").utf8))
        let store = try MigratedStore(mapping, path, from: people, to: people, in: directory)
        return try store.rows("SELECT Z_PK, ZTEAM, Z\(team)_TEAM = \(team) FROM ZPERSON ORDER BY 1")
    }

    @Test(arguments: [true, false]) func referencesLeadToTheSameObjects(index: Bool) throws {
        #expect(try links([], index: index) == ["1|1|1", "2|2|1", "3|-|-"])
    }

    @Test(arguments: [true, false]) func referencesToDroppedObjectsAreRemoved(index: Bool) throws {
        let filter = "    where: name != \"x\"\n"
        #expect(try links([], where: filter, index: index) == ["1|1|1", "2|-|-", "3|-|-"])
    }

    /// A store may have such references after a crash of another program.
    @Test(arguments: [true, false]) func referencesToMissingObjectsAreRemoved(index: Bool) throws {
        let dangling = "UPDATE ZPERSON SET ZTEAM = 99 WHERE Z_PK = 1"
        #expect(try links([dangling], index: index) == ["1|-|-", "2|2|1", "3|-|-"])
    }

    @Test(arguments: [true, false]) func referencesToObjectsOfUnmappedEntitiesAreRemoved(index: Bool) throws {
        #expect(
            try links(["UPDATE ZPERSON SET ZTEAM = 4 WHERE Z_PK = 2"], index: index) == ["1|1|1", "2|-|-", "3|-|-"])
    }

    /// The keys are looked up one after another up to a number of them.
    @Test(arguments: [3, 18, 19, 20, 21, 9000], [true, false])
    func theLastOfManyReferencesIsRemovedIfItLeadsNowhere(count: Int, isDangling: Bool) throws {
        let numbers = StoreLayout(try model(Self.content)).numbers
        let found = try links(
            [
                "DELETE FROM ZPERSON", "DELETE FROM ZTEAM",
                "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < \(count)) "
                    + "INSERT INTO ZTEAM (Z_PK, Z_ENT, Z_OPT) SELECT i, \(numbers.number(of: "Team")), 1 FROM n",
                "INSERT INTO ZPERSON (Z_PK, Z_ENT, Z_OPT, ZTEAM) "
                    + "SELECT Z_PK, \(numbers.number(of: "Person")), 1, Z_PK FROM ZTEAM",
            ] + (isDangling ? ["DELETE FROM ZTEAM WHERE Z_PK = \(count)"] : []))
        #expect(found.count == count)
        #expect(found.last == (isDangling ? "\(count)|-|-" : "\(count)|\(count)|1"))
        #expect(found.dropLast().last == "\(count - 1)|\(count - 1)|1")
    }
}
