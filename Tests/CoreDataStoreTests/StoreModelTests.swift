import Glibc
import LinuxSystem
import ManagedObjectModels
import SQLiteStore
import SystemPackage
import TestSupport
import Testing

@testable import CoreDataStore

@Suite struct StoreModelTests {
    /// The model in each store's cache has the hashes, digest and checksum that Core Data wrote into its metadata.
    @Test(.enabled(if: RealStores.directory != nil, "GROUPSTORE_REAL_STORES is not set"))
    func readsTheModelOfEveryRealStore() throws {
        let stores = try RealStores.all()
        try #require(!stores.isEmpty)
        for path in stores {
            let store = try #require(try StoreModel.read(RealStores.location(path)))
            #expect(store.cacheProblem == nil, "\(path)")
            let model = try #require(store.cachedModel, "\(path)")
            #expect(model.entityVersionHashesByName == store.metadata.versionHashes, "\(path)")
            if let digest = store.metadata.hashesDigest { #expect(model.versionHashesDigest == digest, "\(path)") }
            if let checksum = store.metadata.modelChecksum { #expect(model.versionChecksum == checksum, "\(path)") }
        }
    }

    /// A store whose model is among the sources has exactly that version's entities.
    @Test(.enabled(if: RealStores.directory != nil, "GROUPSTORE_REAL_STORES is not set"))
    func findsTheVersionOfARealStore() throws {
        let versions = try RealStores.files { $0.extension == "xcdatamodel" }.map {
            try ModelBundle(reading: $0).current
        }
        let known = Dictionary(
            versions.map { ($0.model.entityVersionHashesByName, $0) }, uniquingKeysWith: { first, _ in first })
        var found = 0
        for path in try RealStores.all() {
            let store = try #require(try StoreModel.read(RealStores.location(path)))
            let version = known[store.metadata.versionHashes]
            guard let version, let cached = store.cachedModel else { continue }
            found += 1
            #expect(version.model.entities.map(\.name) == cached.entities.map(\.name))
            for (source, cached) in zip(version.model.entities, cached.entities) {
                #expect(
                    source.attributes.map(\.name).sorted() == cached.attributes.map(\.name), "\(path) \(source.name)")
                #expect(source.relationships.map(\.name).sorted() == cached.relationships.map(\.name))
            }
        }
        #expect(found > 0)
    }

    /// An entity has the model's name for its number. SampleModel_V2 still has ExpensiveSportCar in `Z_PRIMARYKEY`.
    @Test(.enabled(if: RealStores.directory != nil, "GROUPSTORE_REAL_STORES is not set"))
    func namesEntitiesAfterTheModel() throws {
        var renamed = 0
        for path in try RealStores.all() {
            let store = try #require(try StoreModel.read(RealStores.location(path)))
            guard let model = store.cachedModel else { continue }
            let numbers = EntityNumbers(model)
            for entity in store.metadata.entities {
                let number = try #require(entity.number, "\(path) \(entity.name)")
                guard number < 16_000 else { continue }
                #expect(numbers.number(of: entity.name) == number, "\(path) \(entity.name)")
                #expect(entity.versionHash == store.metadata.versionHashes[entity.name])
            }
            guard path.stem == "SampleModel_V2" else { continue }
            renamed += 1
            let car = try #require(store.metadata.entities.first { $0.name == "LuxuryCar" })
            #expect(!store.metadata.entities.contains { $0.name == "ExpensiveSportCar" })
            let counts = try StoreReader.read(store.location) { try ObjectCounts($0, store.metadata.entities) }
            #expect(car.number == 3 && counts[car] == 5)
        }
        #expect(renamed > 0)
    }

    /// The cache is missing, damaged or not a model.
    @Test(arguments: [
        ("", nil), ("CREATE TABLE Z_MODELCACHE (Z_CONTENT BLOB)", nil),
        ("CREATE TABLE Z_MODELCACHE (Z_CONTENT BLOB); INSERT INTO Z_MODELCACHE VALUES (x'00112233')", "damaged"),
        ("CREATE TABLE Z_MODELCACHE (Z_CONTENT BLOB); INSERT INTO Z_MODELCACHE VALUES (x'0300')", "not a model"),
    ])
    func rejectsAnUnusableModelCache(_ sql: String, _ problem: String?) throws {
        let directory = try TemporaryDirectory()
        let path = directory.path.appending("S.sqlite")
        let plist =
            "<plist><dict><key>NSStoreModelVersionHashes</key><dict><key>A</key><data>AAEC</data></dict></dict></plist>"
        try run(
            "sqlite3",
            [
                Word(path),
                Word(
                    """
                    CREATE TABLE Z_METADATA (Z_VERSION INTEGER PRIMARY KEY, Z_UUID VARCHAR(255), Z_PLIST BLOB);
                    CREATE TABLE Z_PRIMARYKEY (Z_ENT INTEGER PRIMARY KEY, Z_NAME VARCHAR, Z_SUPER INTEGER, Z_MAX INTEGER);
                    INSERT INTO Z_METADATA VALUES (1, 'U', CAST('\(plist)' AS BLOB)); \(sql)
                    """),
            ])
        let store = try #require(try StoreModel.read(RealStores.location(path)))
        #expect(store.cachedModel == nil)
        #expect(store.metadata.versionHashes == ["A": [0, 1, 2]])
        if let problem {
            #expect(store.cacheProblem?.contains(problem) == true, "\(store.cacheProblem ?? "nil")")
        } else {
            #expect(store.cacheProblem == nil)
        }
    }
}
