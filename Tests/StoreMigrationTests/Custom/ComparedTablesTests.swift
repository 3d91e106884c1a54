import Glibc
import ManagedObjectModels
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import CoreDataStore
@testable import MappingModels
@testable import MigrationAudit
@testable import StoreMigration

/// The audit compares a large table as soon as it is filled, and need not do so again: none of its pages is written or
/// moved while indexes are built. It needs a second processor.
@Suite(.enabled(if: sysconf(Int32(_SC_NPROCESSORS_ONLN)) > 1))
struct ComparedTablesTests {
    private static let content = """
        <entity name='Team'><attribute name='name' optional='YES' attributeType='String'/>
        <relationship name='members' optional='YES' toMany='YES' destinationEntity='Person' inverseName='team'/>
        <fetchIndex name='byName'><fetchIndexElement property='name' type='Binary' order='ascending'/></fetchIndex></entity>
        <entity name='Person'><attribute name='name' optional='YES' attributeType='String'/>
        <relationship name='team' optional='YES' maxCount='1' destinationEntity='Team' inverseName='members'/>
        <fetchIndex name='byName'><fetchIndexElement property='name' type='Binary' order='ascending'/></fetchIndex></entity>
        """

    @Test func largeTablesAreProvenWhileIndexesAreBuilt() throws {
        let directory = try TemporaryDirectory()
        let people = try model(Self.content)
        let layout = StoreLayout(people)
        #expect(layout.indexes.count > 2)
        let numbers = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 20000) "
        let path = try MigratedStore.make(
            people, in: directory,
            ["Team", "Person"].map { entity in
                numbers + "INSERT INTO Z\(entity.uppercased()) (Z_PK, Z_ENT, Z_OPT, ZNAME) "
                    + "SELECT i, \(layout.numbers.number(of: entity)), 1, 'name ' || i FROM n"
            } + ["UPDATE ZPERSON SET ZTEAM = Z_PK % 100 + 1"])
        let mapping = try YAMLMappingReader.read(
            Array("mapping: 1\nentities:\n  - {from: Team, to: Team}\n  - {from: Person, to: Person}\n".utf8))
        let kind = MigratedStoreAudit.Kind.mapped(
            copied: try mapping.resolved(from: people, to: people).copiedEntities(from: people, to: people))
        let comparison = EarlyComparison(MigratedStoreAudit(from: people, to: people, kind: kind), before: path)
        let new = directory.path.appending("New.sqlite")
        do {
            var migration = try MappingMigration(
                mapping, into: StoreWriter(new, creating: true), from: path, of: people, to: people)
            migration.comparison = comparison
            try migration.run()
        }
        let reader = try ComparisonReader(new, beside: path)
        let context = try AuditContext(
            reader, search: RowSearch(reader, before: path, after: new, isCancelled: { false }), from: people,
            to: people, writes: nil)
        let proofs = try comparison.proofs(for: context, in: new, isCancelled: { false })
        #expect(Set(proofs.keys) == ["Team", "Person"])
        let store = try StoreWriter(new)
        try store.checkIntegrity()
        #expect(try store.integer("SELECT count(*) FROM sqlite_schema WHERE name GLOB 'gs_*'") == 0)
        let indexes = try store.integer("SELECT count(*) FROM sqlite_schema WHERE type = 'index'")
        #expect(indexes == Int64(layout.indexes.count))
        #expect(try store.integer("PRAGMA freelist_count") == 0)
    }
}
