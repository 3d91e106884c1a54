import FoundationEssentials
import ManagedObjectModels
import PropertyLists
import XMLDocuments

/// The property list in `Z_METADATA`: Core Data's entries for a model, and the app's own.
package struct StoreProperties: Sendable {
    private var values: [String: PropertyListValue]

    /// The first versions of Core Data that write the digest and the checksum.
    private static let firstWithDigest: Int64 = 977
    private static let firstWithChecksum: Int64 = 1333
    /// The version in a new store: the first that writes all of these entries (iOS 17, macOS 14).
    package static let frameworkVersion: Int64 = 1333

    /// Creates the properties of a new store.
    package init(for model: ManagedObjectModel) {
        values = [
            "NSStoreType": .string("SQLite"), "_NSAutoVacuumLevel": .string("2"),
            "NSPersistenceFrameworkVersion": .integer(Self.frameworkVersion),
        ]
        set(model)
    }

    /// Reads the properties of a store; nil if the bytes are not a property list.
    package init?(_ bytes: [UInt8]) {
        guard let values = (try? PropertyListValue(parsing: bytes))?.dictionary else { return nil }
        self.values = values
    }

    /// Takes over the metadata of a store of another kind, such as an XML store: the app's own entries, and those of
    /// the model, which `set(_:)` replaces.
    package init(takingOver values: [String: PropertyListValue]) {
        self.values = values
        self.values["NSStoreType"] = .string("SQLite")
        self.values["_NSAutoVacuumLevel"] = .string("2")
        self.values["NSStoreUUID"] = nil
        if self.values["NSPersistenceFrameworkVersion"]?.integer == nil {
            self.values["NSPersistenceFrameworkVersion"] = .integer(Self.frameworkVersion)
        }
    }

    /// Replaces the entries of the model. Other entries stay.
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

    /// The Core Data version of the program that last wrote the store.
    package var frameworkVersion: Int64 { values["NSPersistenceFrameworkVersion"]?.integer ?? Self.frameworkVersion }

    package var bytes: [UInt8] { BinaryPropertyListWriter.bytes(of: .dictionary(values)) }
}
