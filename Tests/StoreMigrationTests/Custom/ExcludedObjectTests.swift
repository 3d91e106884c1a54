import LinuxSystem
import ManagedObjectModels
import SQLiteFormat
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import MappingModels
@testable import StoreMigration

/// A migration counts the objects that a mapping model's conditions exclude while it reads them. The forecast, which
/// counts them by a query, says the same.
struct ExcludedObjectTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private static let content = """
        <entity name='Animal'><attribute name='name' optional='YES' attributeType='String'/>\
        <attribute name='age' optional='YES' attributeType='Integer 16'/></entity>\
        <entity name='Cat' parentEntity='Animal'/><entity name='Dog' parentEntity='Animal'/>\
        <entity name='Zoo'><attribute name='name' optional='YES' attributeType='String'/></entity>
        """
    private static let rows = [
        "INSERT INTO ZANIMAL (Z_PK, Z_ENT, Z_OPT, ZNAME, ZAGE) VALUES (1,1,1,'a',1),(2,2,1,'b',2),(3,2,1,'c',NULL),"
            + "(4,3,1,'d',9),(5,3,1,NULL,1),(6,2,1,'e',7),(7,1,1,'x',NULL)",
        "INSERT INTO ZZOO (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1,4,1,'here'),(2,4,1,'there')",
    ]

    @Test(arguments: [
        (
            "  - {from: Animal, to: Animal}\n  - {from: Cat, to: Cat, where: age > 1}\n  - {from: Dog, to: Dog}\n",
            ["Cat|1"]
        ),
        (
            "  - {from: Animal, to: Animal, where: age > 100}\n  - {from: Cat, to: Cat, where: age == nil}\n"
                + "  - {from: Dog, to: Dog, where: name != nil}\n  - {from: Zoo, to: Zoo, where: name == \"here\"}\n",
            ["Animal|2", "Cat|2", "Dog|1", "Zoo|1"]
        ),
        (
            "  - {from: Cat, to: Cat, where: age > 1}\n  - {name: Rest, from: Cat, to: Dog, where: age == nil}\n"
                + "  - {from: Zoo, to: Zoo, where: TRUEPREDICATE}\n", ["Animal|2", "Dog|2"]
        ),
        (
            "  - {from: Dog, to: Zoo, where: age > 1}\n  - {from: Zoo, to: Zoo, where: name != \"here\"}\n",
            ["Animal|2", "Cat|3", "Dog|1", "Zoo|1"]
        ),
    ])
    func aRunRemovesWhatIsForecast(_ mappings: String, _ removed: [String]) throws {
        let content = try model(Self.content)
        // The store's models must differ.
        let newer = try model(
            Self.content.replacing("<entity name='Zoo'>", with: "<entity name='Zoo' versionHashModifier='2'>"))
        let path = try MigratedStore.make(content, in: directory, Self.rows)
        let mapping = try YAMLMappingReader.read(Array(("mapping: 1\nentities:\n" + mappings).utf8))
            .resolved(from: content, to: newer)
        let plan = MigrationPlan(
            steps: [MigrationStep(from: content, to: newer, named: "New", by: .custom(mapping))])
        let (directory, last) = try Directory.resolving(file: path)
        let location = StoreLocation(directory: directory, name: try #require(StoreName(last)))
        let trial = try #require(MigrationDryRun(plan))
        let forecast = try StoreReader.read(location) { try trial.run(on: $0).losses }
        let outcome = try MigrationManager(plan).migrate(staged: path)
        #expect(outcome.losses == forecast)
        let objects = outcome.losses.all.filter { $0.property == nil }.map { "\($0.entity)|\($0.count)" }
        #expect(objects.filter { removed.contains($0) } == removed, "\(objects)")
    }

    /// A mapping model makes a new store of the objects. Rows that are none are counted, so that the store is archived.
    @Test func countsRowsOfNoEntity() throws {
        let content = try model(Self.content)
        let newer = try model(
            Self.content.replacing("<entity name='Zoo'>", with: "<entity name='Zoo' versionHashModifier='2'>")
                + "<entity name='Zoo2'/>")
        let strays = "INSERT INTO ZANIMAL (Z_PK, Z_ENT, Z_OPT) VALUES (20, 5, 1), (21, NULL, 1), (22, 4, 1)"
        let path = try MigratedStore.make(content, in: directory, Self.rows + [strays])
        let mapping = try YAMLMappingReader.read(
            Array(
                ("mapping: 1\nentities:\n  - {from: Animal, to: Animal}\n  - {from: Cat, to: Cat}\n"
                    + "  - {from: Dog, to: Dog}\n  - {from: Zoo, to: Zoo}\n").utf8)
        ).resolved(from: content, to: newer)
        let step = MigrationStep(from: content, to: newer, named: "New", by: .custom(mapping))
        let outcome = try MigrationManager(MigrationPlan(steps: [step])).migrate(staged: path)
        #expect(
            outcome.losses.sentences == [
                "Animal has rows whose entity number the model doesn't have: 3 objects are removed"
            ])
        #expect(try StoreRows(path).rows("SELECT count(*) FROM ZANIMAL") == ["7"])
    }
}
