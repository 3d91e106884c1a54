import Glibc
import LinuxSystem
import ManagedObjectModel
import PersistentStore
import SystemPackage
import TestSupport
import Testing

@testable import CoreDataStore

@Suite struct StoreModelTests {
    private static let directory = getenv("GROUPSTORE_REAL_STORES").map { FilePath(String(cString: $0)) }

    private static func files(_ matches: (FilePath) throws -> Bool) rethrows -> [FilePath] {
        var found: [FilePath] = []
        var waiting = directory.map { [$0] } ?? []
        while let next = waiting.popLast() {
            for name in (try? Directory(next).names()) ?? [] {
                let path = next.appending(name)
                let kind = FileStatus(following: path)?.kind
                if kind == .directory { waiting.append(path) }
                if try matches(path) { found.append(path) }
            }
        }
        return found.sorted { $0.string < $1.string }
    }

    private static func isStore(_ path: FilePath) throws -> Bool {
        guard FileStatus(following: path)?.kind == .regular else { return false }
        let file = try Descriptor(opening: path, flags: O_RDONLY)
        return try file.read(count: 16, at: 0) == Array("SQLite format 3\0".utf8)
    }

    private static func location(_ path: FilePath) throws -> StoreLocation {
        StoreLocation(
            directory: try Directory(path.removingLastComponent()),
            name: try #require(path.lastComponent.flatMap(StoreName.init)))
    }

    /// The model in each store's cache has the hashes, digest and checksum that Core Data wrote into its metadata.
    @Test(.enabled(if: directory != nil, "GROUPSTORE_REAL_STORES is not set"))
    func everyRealStoreCarriesItsModel() throws {
        let stores = try Self.files(Self.isStore)
        try #require(!stores.isEmpty)
        for path in stores {
            let store = try #require(try StoreModel.read(Self.location(path)))
            #expect(store.cacheProblem == nil, "\(path)")
            let model = try #require(store.cachedModel, "\(path)")
            #expect(model.entityVersionHashesByName == store.metadata.versionHashes, "\(path)")
            if let digest = store.metadata.hashesDigest { #expect(model.versionHashesDigest == digest, "\(path)") }
            if let checksum = store.metadata.modelChecksum { #expect(model.versionChecksum == checksum, "\(path)") }
        }
    }

    /// A store whose model is among the sources has exactly that version's entities; that one is found.
    @Test(.enabled(if: directory != nil, "GROUPSTORE_REAL_STORES is not set"))
    func theVersionOfARealStoreIsFound() throws {
        let versions = try Self.files { $0.extension == "xcdatamodel" }.map { try ModelBundle(reading: $0).current }
        let known = Dictionary(
            versions.map { ($0.model.entityVersionHashesByName, $0) }, uniquingKeysWith: { first, _ in first })
        var found = 0
        for path in try Self.files(Self.isStore) {
            let store = try #require(try StoreModel.read(Self.location(path)))
            let version = known[store.metadata.versionHashes]
            guard let version, let cached = store.cachedModel else { continue }
            found += 1
            #expect(version.model.entities.map(\.name) == cached.entities.map(\.name))
            for (one, other) in zip(version.model.entities, cached.entities) {
                #expect(one.attributes.map(\.name).sorted() == other.attributes.map(\.name), "\(path) \(one.name)")
                #expect(one.relationships.map(\.name).sorted() == other.relationships.map(\.name))
            }
        }
        #expect(found > 0)
    }

    /// A store without a cache, or with one that is damaged, compressed beyond all measure, or another version's.
    @Test(arguments: [
        ("", nil), ("CREATE TABLE Z_MODELCACHE (Z_CONTENT BLOB)", nil),
        ("CREATE TABLE Z_MODELCACHE (Z_CONTENT BLOB); INSERT INTO Z_MODELCACHE VALUES (x'00112233')", "damaged"),
        ("CREATE TABLE Z_MODELCACHE (Z_CONTENT BLOB); INSERT INTO Z_MODELCACHE VALUES (x'0300')", "no model"),
    ])
    func aStoreWithoutAUsableCache(_ sql: String, _ problem: String?) throws {
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
        let store = try #require(try StoreModel.read(Self.location(path)))
        #expect(store.cachedModel == nil)
        #expect(store.metadata.versionHashes == ["A": [0, 1, 2]])
        if let problem {
            #expect(store.cacheProblem?.contains(problem) == true, "\(store.cacheProblem ?? "nil")")
        } else {
            #expect(store.cacheProblem == nil)
        }
    }
}
