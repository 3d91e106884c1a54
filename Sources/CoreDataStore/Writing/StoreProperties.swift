import FoundationEssentials
import ManagedObjectModels
import PropertyLists

/// The property list in `Z_METADATA`: what Core Data writes into it for a model, and what the app has put in.
package struct StoreProperties: Sendable {
    private var values: [String: PropertyListValue]

    /// From this version of Core Data on, a store of its has the digest, or the checksum.
    private static let firstWithDigest: Int64 = 977
    private static let firstWithChecksum: Int64 = 1333
    /// Written into a new store: the first version with all that is written here (iOS 17, macOS 14).
    package static let frameworkVersion: Int64 = 1333

    /// For a new store of `model`.
    package init(for model: ManagedObjectModel) {
        values = [
            "NSStoreType": .string("SQLite"), "_NSAutoVacuumLevel": .string("2"),
            "NSPersistenceFrameworkVersion": .integer(Self.frameworkVersion),
        ]
        set(model)
    }

    /// Those of a store; nil when the bytes are no property list.
    package init?(_ bytes: [UInt8]) {
        guard let values = (try? PropertyListValue(parsing: bytes))?.dictionary else { return nil }
        self.values = values
    }

    /// Makes them those of a store of this model. What else is there stays.
    package mutating func set(_ model: ManagedObjectModel) {
        values["NSStoreModelVersionHashes"] = .dictionary(model.entityVersionHashesByName.mapValues { .data($0) })
        values["NSStoreModelVersionHashesVersion"] = .integer(3)
        let identifiers = model.versionIdentifiers.sorted { $0.precedes($1) }
        values["NSStoreModelVersionIdentifiers"] = .array(identifiers.map { .string($0) })
        let version = frameworkVersion
        let digest = "NSStoreModelVersionHashesDigest"
        let checksum = "NSStoreModelVersionChecksumKey"
        let hasDigest = version >= Self.firstWithDigest || values[digest] != nil
        let hasChecksum = version >= Self.firstWithChecksum || values[checksum] != nil
        values[digest] = hasDigest ? .string(model.versionHashesDigest) : nil
        values[checksum] = hasChecksum ? .string(model.versionChecksum) : nil
    }

    /// Core Data's own version, of the program that wrote the store last.
    package var frameworkVersion: Int64 { values["NSPersistenceFrameworkVersion"]?.integer ?? Self.frameworkVersion }

    package var bytes: [UInt8] { BinaryPropertyListWriter.bytes(of: .dictionary(values)) }
}
