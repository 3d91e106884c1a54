import SQLiteStore

/// By what it is noticed that a Core Data store is of another version of its model than before, whoever migrated it, and
/// wherever: the version hashes in its metadata, in short (FNV-1a, http://www.isthe.com/chongo/tech/comp/fnv/).
package struct ModelFingerprint: Sendable, Equatable, CustomStringConvertible {
    private let value: UInt64

    /// Nil for a store that isn't Core Data's, and for one that doesn't say of which version it is.
    init?(_ reader: StoreReader) throws {
        let entities = try CoreDataMetadata(reader)?.entities ?? []
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

    /// As a token has it: hexadecimal digits.
    init?(_ text: Substring) {
        guard let value = UInt64(text, radix: 16) else { return nil }
        self.value = value
    }

    package var description: String { String(value, radix: 16) }
}
