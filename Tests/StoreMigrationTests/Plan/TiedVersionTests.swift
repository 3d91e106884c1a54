import CoreDataStore
import LinuxSystem
import ManagedObjectModels
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import MappingModels
@testable import StoreMigration

/// Versions with the same hashes, but different renaming identifiers of an entity.
@Suite struct TiedVersionTests {
    private static let name = "<attribute name='name' optional='YES' attributeType='String'/>"
    private static let more = name + "<attribute name='more' optional='YES' attributeType='String'/>"

    private func version(
        _ name: String, known identifier: String = "A", _ properties: String = name, called: String = ""
    ) throws -> ModelVersion {
        var content = try model(entity(properties, "elementID='\(identifier)'"))
        content.versionIdentifiers = [called]
        return ModelVersion(name: name, model: content, path: "/M.xcdatamodeld")
    }

    private func bundle(_ versions: [ModelVersion]) throws -> ModelBundle {
        try #require(ModelBundle(path: "/M.xcdatamodeld", versions: versions, currentName: versions.last?.name))
    }

    private func read(_ store: StagedStore) throws -> StoreModel {
        let (directory, last) = try Directory.resolving(file: store.path)
        let name = try #require(StoreName(last))
        let found = try StoreModel.read(StoreLocation(directory: directory, name: name))
        return try #require(found)
    }

    private func store(_ version: ModelVersion, hasCache: Bool = true) throws -> StagedStore {
        try StagedStore(
            version.model,
            ["INSERT INTO ZA (Z_PK, Z_ENT, Z_OPT, ZNAME) VALUES (1, 1, 1, 'n'), (2, 1, 1, 'm')"]
                + (hasCache ? [] : ["DELETE FROM Z_MODELCACHE"]))
    }

    /// Migrates to the bundle's current version, and returns the resulting rows and the notes.
    private func migrated(_ store: StagedStore, _ bundle: ModelBundle) throws -> (rows: [String], notes: [String]) {
        let plan = try MigrationPlan(for: read(store), to: bundle.current, in: bundle)
        let notes = try MigrationManager(plan).migrate(staged: store.path).notes
        return (try store.rows("SELECT ZNAME FROM ZA ORDER BY Z_PK"), notes)
    }

    /// The current version and one of the tied versions have the same identifier; the other tied version has another.
    @Test(arguments: [("1", "A"), ("2", "B")]) func identifiesATiedVersionByTheModelCache(
        _ name: String, _ identifier: String
    ) throws {
        let tied = [try version("1", known: "A"), try version("2", known: "B")]
        let all = try bundle(tied + [version("3", known: identifier, Self.more)])
        let own = try #require(tied.first { $0.name == name })
        let model = try read(store(own))
        #expect(all.versions(of: model).map(\.name) == [name])
        #expect(all.versionName(of: model) == name)
        let done = try migrated(store(own), all)
        #expect(done.rows == ["'n'", "'m'"] && done.notes == [])
    }

    @Test func prefersTheVersionIdentifierToTheModelCache() throws {
        let first = try version("1", known: "A", called: "one")
        let second = try version("2", known: "B", called: "two")
        let all = try bundle([first, second, version("3", known: "A", Self.more)])
        #expect(try all.versions(of: read(store(first, hasCache: false))).map(\.name) == ["1"])
        #expect(try all.versions(of: read(store(second, hasCache: false))).map(\.name) == ["2"])
        // A store with the identifier of the second version, but the cache of the first.
        let both = try version("1", known: "A", called: "two")
        #expect(try all.versions(of: read(store(both))).map(\.name) == ["2"])
        // Equal identifiers don't distinguish versions.
        let same = try bundle([version("1", known: "A"), version("2", known: "B"), version("3", Self.more)])
        #expect(try same.versions(of: read(store(version("1"), hasCache: false))).map(\.name) == ["2", "1"])
    }

    @Test func refusesAnAmbiguousVersion() throws {
        let tied = [try version("1", known: "A"), try version("2", known: "B")]
        let all = try bundle(tied + [version("3", known: "A", Self.more)])
        let store = try store(tied[0], hasCache: false)
        let error = #expect(throws: MigrationError.self) { try migrated(store, all) }
        #expect(
            error?.message.contains("2 or 1, which have the same version hashes") == true, "\(error?.message ?? "")")
        #expect(error?.isAmbiguous == true)
        #expect(try store.rows("SELECT count(*) FROM ZA") == ["2"])
        #expect(try all.versionName(of: read(store)) == "2 or 1")
    }

    /// Both versions lead to the same result.
    @Test func acceptsAnyTiedVersionIfTheResultIsTheSame() throws {
        let tied = [try version("1"), try version("2")]
        let all = try bundle(tied + [version("3", known: "A", Self.more)])
        #expect(try migrated(store(tied[0], hasCache: false), all).rows == ["'n'", "'m'"])
    }

    /// A version with the store's hashes is never a step, whatever its renaming identifiers are.
    @Test func leavesTiedVersionsOutOfThePath() throws {
        func typed(_ name: String, _ type: String, known: String) throws -> ModelVersion {
            try version(name, known: known, "<attribute name='name' optional='YES' attributeType='\(type)'/>")
        }
        let first = try typed("1", "String", known: "A")
        let tied = try typed("2", "String", known: "B")
        let last = try typed("3", "Date", known: "B")
        // A string can't become a date; without a matching entity, nothing would have to be converted.
        let error = #expect(throws: MigrationError.self) {
            let all = try bundle([first, tied, typed("4", "Date", known: "A")])
            return try migrated(store(first), all)
        }
        #expect(error?.code == CoreDataError.missingMappingModel)
        #expect(
            try MigrationPath.shortest(
                from: ("1", first.model), to: ("3", last.model), through: [("2", tied.model)],
                using: MigrationStepCache())?.map(\.destinationName) == ["3"])
    }
}
