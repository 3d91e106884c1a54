import CoreDataStore
import Glibc
import LinuxSystem
import ManagedObjectModels
import SQLiteFormat
import SystemPackage
import TestSupport
import Testing

@testable import MappingModels

/// Stores that apps have written, in `$GROUPSTORE_REAL_STORES`.
private enum RealStores {
    static let directory = getenv("GROUPSTORE_REAL_STORES").map { FilePath(String(cString: $0)) }

    static func files(_ matches: (FilePath) throws -> Bool) rethrows -> [FilePath] {
        var found: [FilePath] = []
        var pending = directory.map { [$0] } ?? []
        while let next = pending.popLast() {
            for name in (try? Directory(next).names()) ?? [] {
                let path = next.appending(name)
                if FileStatus(following: path)?.kind == .directory { pending.append(path) }
                if try matches(path) { found.append(path) }
            }
        }
        return found.sorted { $0.string < $1.string }
    }

    static func stores() throws -> [StoreLocation] {
        try files { $0.extension == "sqlite" }.map { path in
            StoreLocation(
                directory: try Directory(path.removingLastComponent()),
                name: try #require(path.lastComponent.flatMap(StoreName.init)))
        }
    }
}

@Suite(.enabled(if: RealStores.directory != nil, "GROUPSTORE_REAL_STORES is not set"))
struct RealStoreMigrationTests {
    /// Returns the number of objects and the sums of their keys and save counters, for each table.
    private func objects(_ store: StagedStore, _ layout: StoreLayout) throws -> [String] {
        try layout.tables.map { table in
            try store.rows("SELECT count(*), sum(Z_PK), sum(Z_OPT) FROM \(table.name)").joined()
        }
    }

    /// Migrates each store to each later version for which a mapping can be inferred. The schema is that version's, and
    /// no object of a remaining entity is lost or added.
    @Test func migratesToEachLaterVersion() throws {
        let bundles = try RealStores.files { $0.extension == "xcdatamodeld" }.map { try ModelBundle(reading: $0) }
        var migrated = 0
        for location in try RealStores.stores() {
            let metadata = try #require(try StoreModel.read(location)).metadata
            for bundle in bundles {
                guard let version = bundle.versions(matching: metadata.versionHashes).first,
                    let place = bundle.versions.firstIndex(where: { $0.name == version.name })
                else { continue }
                for later in bundle.versions[(place + 1)...] {
                    guard let mapping = try? MappingModel.inferred(from: version.model, to: later.model),
                        mapping.entityMappings.contains(where: { $0.kind != .copy })
                    else { continue }
                    let store = try StagedStore(copyOf: location, version.model)
                    let succession = EntityMatching(
                        from: StoreLayout(version.model), to: StoreLayout(later.model), mapping: mapping)
                    let same =
                        version.model.entities.count == succession.successors.count
                        && StoreLayout(later.model).tables.count == StoreLayout(version.model).tables.count
                    let before = try objects(store, StoreLayout(version.model))
                    try store.migrate(to: later.model)
                    #expect(try store.differences(from: later.model) == [], "\(location.path) to \(later.name)")
                    if same { #expect(try objects(store, StoreLayout(later.model)) == before) }
                    migrated += 1
                }
            }
        }
        #expect(migrated >= 10, "\(migrated)")
    }

    /// Compares our migration of a store with Core Data's own migration in place: every table, column and row is the
    /// same.
    @Test func matchesCoreDatasOwnMigration() throws {
        let stores = try RealStores.stores().filter { $0.name.database.string.hasPrefix("SampleModel_V") }
        try #require(stores.count == 2)
        let target = try #require(try StoreModel.read(stores[1])?.cachedModel)
        let source = try #require(try StoreModel.read(stores[0])?.cachedModel)
        let ours = try StagedStore(copyOf: stores[0], source)
        let theirs = try StagedStore(copyOf: stores[1], target)
        try ours.migrate(to: target)
        let layout = StoreLayout(target)
        var columns = Dictionary(
            uniqueKeysWithValues: layout.tables.map { ($0.name, ["Z_PK", "Z_ENT", "Z_OPT"] + $0.columns.map(\.name)) })
        columns["Z_PRIMARYKEY"] = ["Z_ENT", "Z_NAME", "Z_SUPER", "Z_MAX"]
        for (table, names) in columns {
            let query = "SELECT \(names.joined(separator: ", ")) FROM \(table) ORDER BY 1"
            #expect(try ours.rows(query) == theirs.rows(query), "\(table)")
        }
        #expect(try ours.rows("SELECT count(*) FROM ZCAR") == ["125"])
        #expect(try ours.differences(from: target) == theirs.differences(from: target))
    }
}
