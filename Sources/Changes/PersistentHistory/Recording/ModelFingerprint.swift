import CoreDataStore
import SQLiteStore

/// A short hash of the version hashes in a Core Data store's metadata. It reveals a change of the store's model
/// version, whichever program migrated it (FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/).
package struct ModelFingerprint: Sendable, Equatable, CustomStringConvertible {
    private let value: UInt64

    /// Reads the fingerprint. Returns nil if the store isn't Core Data's or doesn't name its model version.
    init?(_ reader: StoreReader) throws {
        let entities = try CoreDataMetadata(reader, parsing: CoreDataMetadata.anyFormat)?.entities ?? []
        let hashes = entities.compactMap { entity in entity.versionHash.map { (entity.name, $0) } }
        guard !hashes.isEmpty else { return nil }
        self.init(versionHashes: hashes)
    }

    init(versionHashes: [(name: String, hash: [UInt8])]) {
        var value: UInt64 = 0xcbf2_9ce4_8422_2325
        for (name, hash) in versionHashes.sorted(by: { $0.name < $1.name }) {
            for byte in Array(name.utf8) + [0] + hash { value = (value ^ UInt64(byte)) &* 0x100_0000_01b3 }
        }
        self.value = value
    }

    /// Parses a fingerprint from a token: hexadecimal digits.
    init?(_ text: Substring) {
        guard let value = UInt64(text, radix: 16) else { return nil }
        self.value = value
    }

    package var description: String { String(value, radix: 16) }
}
