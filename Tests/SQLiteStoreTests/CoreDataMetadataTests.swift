import Foundation
import GRDB
import PropertyLists
import Testing
import XMLDocuments

@testable import SQLiteStore

@Suite struct CoreDataMetadataTests {
    private func metadata(plist: Data?, rows: Bool = true) throws -> CoreDataMetadata? {
        let fixture = try Fixture()
        let queue = try DatabaseQueue(path: fixture.path)
        try queue.write { database in
            try database.execute(
                sql: """
                    CREATE TABLE Z_PRIMARYKEY (Z_ENT INTEGER PRIMARY KEY, Z_NAME VARCHAR, Z_SUPER INTEGER, Z_MAX INTEGER);
                    CREATE TABLE Z_METADATA (Z_VERSION INTEGER PRIMARY KEY, Z_UUID VARCHAR(255), Z_PLIST BLOB);
                    INSERT INTO Z_PRIMARYKEY VALUES (1, 'Note', 0, 7), (2, 'Draft', 1, 0);
                    """)
            if rows {
                try database.execute(
                    sql: "INSERT INTO Z_METADATA VALUES (1, 'A6E0-UUID', ?)", arguments: [plist])
            }
        }
        try queue.close()
        return try fixture.read { try CoreDataMetadata($0, parsing: { try? PropertyListValue(parsing: $0) }) }
    }

    private static func plist(_ format: PropertyListSerialization.PropertyListFormat) throws -> Data {
        try PropertyListSerialization.data(
            fromPropertyList: [
                "NSStoreType": "SQLite", "NSPersistenceFrameworkVersion": 1344,
                "NSStoreModelVersionHashes": ["Note": Data([0x01, 0xFF]), "Renamed": Data([0x02])],
                "NSStoreModelVersionIdentifiers": ["v2", ""], "NSStoreModelVersionHashesDigest": "ZGlnZXN0",
                "NSStoreModelVersionChecksumKey": "c3Vt", "_NSAutoVacuumLevel": "2", "AppSync": ["a": 1],
                "Account": "me",
            ] as [String: Any], format: format, options: 0)
    }

    @Test(arguments: [PropertyListSerialization.PropertyListFormat.binary, .xml])
    func readsEitherFormat(_ format: PropertyListSerialization.PropertyListFormat) throws {
        let found = try #require(try metadata(plist: Self.plist(format)))
        #expect(found.uuid == "A6E0-UUID")
        #expect(found.storeType == "SQLite")
        #expect(found.frameworkVersion == 1344)
        #expect(found.versionIdentifiers == ["v2", ""])
        #expect(found.hashesDigest == "ZGlnZXN0")
        #expect(found.modelChecksum == "c3Vt")
        #expect(found.applicationKeys == ["Account", "AppSync"])
        #expect(found.problem == nil)
        #expect(found.entities.map(\.name) == ["Note", "Draft", "Renamed"])
        #expect(found.entities.map(\.number) == [1, 2, nil])
        #expect(found.entities.map(\.parent) == [nil, 1, nil])
        #expect(found.entities.map(\.highestKey) == [7, 0, nil])
        #expect(found.entities.map(\.versionHash) == [[0x01, 0xFF], nil, [0x02]])
    }

    @Test func toleratesAMissingPropertyList() throws {
        let found = try #require(try metadata(plist: nil))
        #expect(found.uuid == "A6E0-UUID")
        #expect(found.problem == "Z_PLIST is NULL")
        #expect(found.entities.count == 2)
        #expect(try metadata(plist: nil, rows: false)?.problem == "Z_METADATA has no row")
    }

    /// Returns arrays nested to `depth`, each with one element, which is the next object.
    private static func nested(_ depth: Int) -> Data {
        var bytes = Array("bplist00".utf8)
        var offsets: [UInt32] = []
        for index in 0..<depth {
            offsets.append(UInt32(bytes.count))
            let next = UInt32(index + 1 == depth ? 0 : index + 1).bigEndian
            bytes.append(0xA1)
            withUnsafeBytes(of: next) { bytes += $0 }
        }
        let table = bytes.count
        for offset in offsets { withUnsafeBytes(of: offset.bigEndian) { bytes += $0 } }
        bytes += [0, 0, 0, 0, 0, 0, 4, 4]
        for value in [depth, 0, table] { withUnsafeBytes(of: UInt64(value).bigEndian) { bytes += $0 } }
        return Data(bytes)
    }

    static let malformed: [Data] = [
        Data("no property list".utf8), Data("bplist00".utf8), Data(), nested(1), nested(100_000),
        Data(
            ("<?xml version=\"1.0\"?><plist version=\"1.0\">" + String(repeating: "<array>", count: 100_000)).utf8),
        Data("bplist00".utf8) + Data(repeating: 0xFF, count: 64),
    ]

    @Test(arguments: malformed.indices) func reportsAMalformedPropertyList(_ index: Int) throws {
        let found = try #require(try metadata(plist: Self.malformed[index]))
        #expect(found.problem == "Z_PLIST is not a property list" || found.problem == "Z_PLIST is NULL")
        #expect(found.entities.count == 2)
    }

    @Test func ignoresValuesOfOtherTypes() throws {
        let plist = try PropertyListSerialization.data(
            fromPropertyList: ["NSStoreType": 5, "NSStoreModelVersionHashes": "x", "Own": true] as [String: Any],
            format: .binary, options: 0)
        let found = try #require(try metadata(plist: plist))
        #expect(found.storeType == nil)
        #expect(found.applicationKeys == ["Own"])
        #expect(found.problem == nil)
    }

    @Test func findsNoneInOtherStores() throws {
        let fixture = try Fixture()
        try fixture.make("CREATE TABLE note(a)")
        #expect(try fixture.read { try CoreDataMetadata($0) } == nil)
    }
}
