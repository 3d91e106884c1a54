import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import MappingModels
@testable import StoreMigration

/// The order of a model's versions, and the version of a store.
@Suite struct VersionOrderTests {
    private func version(_ name: String, _ properties: String = "") throws -> ModelVersion {
        ModelVersion(name: name, model: try model("<entity name='A'>\(properties)</entity>"), path: "/M.xcdatamodeld")
    }

    private func attribute(_ name: String, _ type: String = "String") -> String {
        "<attribute name='\(name)' optional='YES' attributeType='\(type)'/>"
    }

    private func bundle(_ versions: [ModelVersion], current: String) throws -> ModelBundle {
        try #require(ModelBundle(path: "/M.xcdatamodeld", versions: versions, currentName: current))
    }

    private func order(_ names: [String], current: String) throws -> [String] {
        try VersionOrder(bundle(names.map { try version($0) }, current: current)).versions.map(\.name)
    }

    @Test func theCurrentVersionIsTheNewest() throws {
        #expect(try order(["Alpha", "Notes", "Notes 2", "Notes 10"], current: "Alpha").last == "Alpha")
        #expect(try order(["v10", "v2", "v1"], current: "v10") == ["v1", "v2", "v10"])
        #expect(try order(["Zebra", "Base", "App"], current: "Base") == ["App", "Zebra", "Base"])
        // Except for versions whose names continue its numbering.
        #expect(try order(["Notes", "Notes 2", "Notes 3", "Zebra"], current: "Notes 2").last == "Notes 3")
        #expect(try order(["Notes", "Notes 2"], current: "Notes") == ["Notes", "Notes 2"])
        #expect(
            try order(["Notes3", "Notes3_v2", "Notes3_old"], current: "Notes3") == [
                "Notes3_old", "Notes3", "Notes3_v2",
            ])
    }

    @Test func ordersVersionsByNumberWhateverSeparatesIt() throws {
        #expect(
            try order(["Net 5", "Net3", "Net 4", "Net_2", "Net"], current: "Net 5") == [
                "Net", "Net_2", "Net3", "Net 4", "Net 5",
            ])
        // Separators between two numbers count.
        #expect(
            try order(["v1.10", "v1.2", "v3", "v 12", "end"], current: "end") == ["v1.2", "v1.10", "v3", "v 12", "end"])
        // Without a mark, the last one is current.
        #expect(
            try bundle(["Net3", "Net 10", "Net 4"].map { try version($0) }, current: "none").current.name == "Net 10")
    }

    private func read(_ store: StagedStore) throws -> StoreModel {
        let (directory, last) = try Directory.resolving(file: store.path)
        let name = try #require(StoreName(last))
        let found = try StoreModel.read(StoreLocation(directory: directory, name: name))
        return try #require(found)
    }

    private func migrated(_ stored: ModelVersion, to target: ModelVersion, in bundle: ModelBundle) throws -> [String] {
        let store = try StagedStore(stored.model)
        return try MigrationPlan(for: read(store), to: target, in: bundle).steps.map(\.destinationName)
    }

    @Test func aStoreOfAVersionWithALaterNameIsMigrated() throws {
        let first = try version("Zebra", attribute("x"))
        let next = try version("Zoo", attribute("y"))
        let current = try version("Ape", attribute("y") + attribute("z"))
        let all = try bundle([first, next, current], current: "Ape")
        #expect(try migrated(first, to: current, in: all) == ["Ape"])
        #expect(try migrated(next, to: current, in: all) == ["Ape"])
        let refused = #expect(throws: MigrationError.self) { try migrated(current, to: next, in: all) }
        #expect(refused?.code == CoreDataError.incompatibleVersionHash)
        let later = try version("Ape 2", attribute("z"))
        let four = try bundle([first, next, current, later], current: "Ape")
        let newer = #expect(throws: MigrationError.self) { try migrated(later, to: current, in: four) }
        #expect(newer?.code == CoreDataError.incompatibleVersionHash)
    }

    /// By name `Addendum` precedes `Base`; only a path through it can change the type.
    @Test func mappingModelsDecideWhichVersionIsNewer() throws {
        let versions = [
            try version("Base", attribute("x")), try version("Addendum", attribute("n", "Integer 16")),
            try version("Current", attribute("n", "Double")),
        ]
        let directory = try TemporaryDirectory()
        let path = directory.path.appending("BaseToAddendum.mapping.yaml")
        let entities = "entities:\n  - {from: A, to: A}\n"
        try TextFile.write("mapping: 1\nsource: Base\ndestination: Addendum\n" + entities, to: path)
        let bundle = try bundle(versions, current: "Current")
        let order = VersionOrder(bundle, mappings: [try MappingModelFile(reading: path)])
        #expect(order.versions.map(\.name) == ["Base", "Addendum", "Current"])
        #expect(order.between(versions[0], versions[2]).map(\.name) == ["Addendum"])
        #expect(VersionOrder(bundle).between(versions[0], versions[2]).isEmpty)
        // A mapping model that names no versions may fit backwards.
        try TextFile.write("mapping: 1\n" + entities, to: path)
        let either = VersionOrder(bundle, mappings: [try MappingModelFile(reading: path)])
        #expect(!either.leads(from: versions[2], to: versions[0]))
    }

    // MARK: Configurations

    private let configured =
        "<entity name='Local'>NAME</entity><entity name='Shared'>NAME</entity>"
        + "<configuration name='Cloud'><memberEntity name='Shared'/></configuration>"
        + "<configuration name='Private'><memberEntity name='Local'/></configuration>"

    /// Core Data lays out and hashes all entities, whichever configuration a store is added with.
    @Test func treatsAModelWithConfigurationsAsAWhole() throws {
        let old = try model(configured.replacing("NAME", with: attribute("name")))
        let new = try model(configured.replacing("NAME", with: attribute("name") + attribute("url")))
        #expect(old.configurations.count == 2)
        let store = try StagedStore(old, ["INSERT INTO ZSHARED VALUES (1, 2, 1, 'kept')"])
        let versions = [("1", old), ("2", new)].map { ModelVersion(name: $0, model: $1, path: "/M.xcdatamodeld") }
        let bundle = try bundle(versions, current: "2")
        #expect(bundle.versions(matching: try read(store).metadata.versionHashes).map(\.name) == ["1"])
        try store.migrate(to: new)
        #expect(try store.differences(from: new) == [])
        #expect(try store.rows("SELECT * FROM ZSHARED") == ["1 2 1 'kept' NULL"])
        let migrated = try read(store)
        #expect(migrated.metadata.versionHashes == new.entityVersionHashesByName)
        #expect(migrated.cachedModel?.configurations == new.configurations)
    }

    /// Core Data has no model for such a store either. The error names what is missing.
    @Test func refusesMetadataOfOnlySomeEntities() throws {
        let first = try model(configured.replacing("NAME", with: attribute("name")))
        let part = try model("<entity name='Local'>\(attribute("name"))</entity>")
        let next = try model(configured.replacing("NAME", with: attribute("url")))
        let versions = [("1", first), ("2", next)].map { ModelVersion(name: $0, model: $1, path: "/M.xcdatamodeld") }
        let bundle = try bundle(versions, current: "2")
        let store = try StagedStore(part)
        let refused = #expect(throws: MigrationError.self) {
            try MigrationPlan(for: read(store), to: versions[1], in: bundle)
        }
        #expect(refused?.code == CoreDataError.missingSourceModel)
        #expect(refused?.description.contains("the hashes of 1, but not those of Shared") == true)
    }
}
