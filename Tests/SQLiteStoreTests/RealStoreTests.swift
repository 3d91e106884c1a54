import Foundation
import LinuxSystem
import SystemPackage
import Testing

@testable import SQLiteFormat
@testable import SQLiteStore

/// Stores written by Core Data, in the directory named by `GROUPSTORE_REAL_STORES`.
@Suite struct RealStoreTests {
    private static let directory: String? = ProcessInfo.processInfo.environment["GROUPSTORE_REAL_STORES"]

    private static var stores: [String] {
        guard let directory, let walk = FileManager.default.enumerator(atPath: directory) else {
            print("GROUPSTORE_REAL_STORES is not set: real stores are not tested")
            return []
        }
        return walk.compactMap { $0 as? String }.map { directory + "/" + $0 }.filter { path in
            guard let handle = FileHandle(forReadingAtPath: path) else { return false }
            return (try? handle.read(upToCount: 16)) == Data("SQLite format 3\0".utf8)
        }.sorted()
    }

    private static func location(_ path: String) throws -> StoreLocation {
        let path = FilePath(path)
        let name = try #require(path.lastComponent.flatMap(StoreName.init))
        return StoreLocation(directory: try Directory(path.removingLastComponent()), name: name)
    }

    /// The same metadata, read from a copy by another implementation.
    private struct Expected: Decodable {
        let uuid: String?
        let framework: Int?
        let identifiers: [String]
        let hashes: [String: String]
        let digest: String?
        let checksum: String?
        let own: [String]
        let entities: [[Entry]]
        let rows: [String: Int64]
        /// The copy, in rollback mode.
        let copy: String

        enum Entry: Decodable, Equatable {
            case number(Int64)
            case name(String)
            init(from decoder: any Decoder) throws {
                let container = try decoder.singleValueContainer()
                self = try (try? container.decode(Int64.self)).map(Entry.number) ?? .name(container.decode(String.self))
            }
        }
    }

    private static let script = """
        import json, os, plistlib, shutil, sqlite3, sys
        source, copy = sys.argv[1:]
        for suffix in ('', '-wal', '-journal'):
            if os.path.exists(source + suffix):
                shutil.copyfile(source + suffix, copy + suffix)
        store = sqlite3.connect(copy)
        store.execute('PRAGMA journal_mode = DELETE').fetchall()
        uuid, plist = store.execute('SELECT Z_UUID, Z_PLIST FROM Z_METADATA').fetchone()
        plist = plistlib.loads(plist)
        tables = [row[0] for row in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        print(json.dumps({
            'uuid': uuid, 'framework': plist.get('NSPersistenceFrameworkVersion'),
            'identifiers': plist.get('NSStoreModelVersionIdentifiers'),
            'hashes': {k: v.hex() for k, v in plist['NSStoreModelVersionHashes'].items()},
            'digest': plist.get('NSStoreModelVersionHashesDigest'),
            'checksum': plist.get('NSStoreModelVersionChecksumKey'),
            'own': sorted(k for k in plist if not k.startswith('NS') and not k.startswith('_NS')),
            'entities': store.execute(
                'SELECT Z_ENT, Z_NAME, Z_SUPER, Z_MAX FROM Z_PRIMARYKEY ORDER BY Z_ENT').fetchall(),
            'rows': {t: store.execute('SELECT count(*) FROM "%s"' % t).fetchone()[0] for t in tables},
            'copy': copy}))
        store.close()
        """

    private static func expected(_ path: String, _ copy: String) throws -> Expected {
        let process = Process()
        process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        process.arguments = ["python3", "-c", script, path, copy]
        let output = Pipe()
        process.standardOutput = output
        try process.run()
        let bytes = output.fileHandleForReading.readDataToEndOfFile()
        process.waitUntilExit()
        return try JSONDecoder().decode(Expected.self, from: bytes)
    }

    @Test(arguments: stores) func describesWithoutATrace(_ path: String) throws {
        let location = try Self.location(path)
        let before = try Snapshot(location.directory.path)
        let description = try StoreDescription(location, busyTimeout: .zero)
        #expect(try Snapshot(location.directory.path) == before)

        let fixture = try Fixture("copy")
        let expected = try Self.expected(path, fixture.path)
        let found = try #require(description.coreData)
        #expect(found.uuid == expected.uuid)
        #expect(found.frameworkVersion == expected.framework)
        #expect(found.versionIdentifiers == expected.identifiers)
        #expect(found.hashesDigest == expected.digest)
        #expect(found.modelChecksum == expected.checksum)
        #expect(found.applicationKeys == expected.own)
        #expect(found.problem == nil)
        let hashes = found.entities.compactMap { entity in
            entity.versionHash.map { (entity.name, $0.map { String(format: "%02x", $0) }.joined()) }
        }
        #expect(Dictionary(uniqueKeysWithValues: hashes) == expected.hashes)
        let entities = found.entities.compactMap { entity in
            entity.number.map {
                [
                    Expected.Entry.number($0), .name(entity.name), .number(entity.parent ?? 0),
                    .number(entity.highestKey ?? -1),
                ]
            }
        }
        #expect(entities == expected.entities)
        let rows = description.tables.map { ($0.name, $0.rows ?? -1) }
        #expect(Dictionary(uniqueKeysWithValues: rows) == expected.rows.filter { !$0.key.hasPrefix("sqlite_") })
    }

    @Test(arguments: stores) func equalsItsCopy(_ path: String) throws {
        let location = try Self.location(path)
        let before = try Snapshot(location.directory.path)
        let fixture = try Fixture("copy")
        _ = try Self.expected(path, fixture.path)
        func difference() throws -> ContentDifference? {
            try StoreReader.read(location) { mine in
                try fixture.read { try StoreContent(mine).difference(from: StoreContent($0)) }
            }
        }
        #expect(try difference() == nil)
        try fixture.make("UPDATE Z_METADATA SET Z_UUID = lower(Z_UUID)")
        #expect(try difference() == .value(table: "Z_METADATA", column: "Z_UUID", row: 1))
        #expect(try Snapshot(location.directory.path) == before)
    }
}
