import FoundationEssentials
import MessageDigests

/// Core Data's version hashes, byte for byte. Apple documents what they cover (Core Data Model Versioning and Data
/// Migration Programming Guide, "Understanding Versions"), but not how they are computed. The formulas were derived
/// from stores and compiled models, and reproduce their hashes. Each is the SHA-256 of a concatenation with
/// little-endian integers.
extension ManagedObjectModel {
    /// Returns the version hash of each entity, 32 bytes, by name.
    func entityVersionHashes() -> [String: [UInt8]] {
        var hashes: [String: [UInt8]] = [:]
        var properties: [String: [(name: String, hash: [UInt8])]] = [:]
        for entity in entities {
            // Ancestors come first because a hash covers the parent's hash.
            for member in ([entity] + superentities(of: entity)).reversed() where hashes[member.name] == nil {
                let inherited = member.superentityName.flatMap { properties[$0] } ?? []
                let own = member.declaredProperties.filter { !$0.isTransient }.compactMap { property in
                    versionHash(of: property).map { (name: property.name, hash: $0) }
                }
                let all = (inherited + own).sortedByName(\.name)
                properties[member.name] = all
                let parent = member.superentityName.flatMap { hashes[$0] }
                hashes[member.name] = Self.versionHash(of: member, parent: parent, properties: all.map(\.hash))
            }
        }
        return hashes
    }

    /// The Base64 SHA-256 of all entity hashes, sorted by entity name. It equals `NSManagedObjectModel.versionChecksum`
    /// and the checksum that Xcode writes into `VersionInfo.plist`.
    public var versionChecksum: String { Self.versionChecksum(of: entityVersionHashesByName) }

    /// The Base64 SHA-512 of all entity names and hashes, sorted by name. It equals `NSStoreModelVersionHashesDigest`
    /// in a store's metadata.
    public var versionHashesDigest: String { Self.versionHashesDigest(of: entityVersionHashesByName) }

    /// Returns ``versionChecksum`` for hashes whose model is unknown.
    package static func versionChecksum(of hashes: [String: [UInt8]]) -> String {
        Data(SHA2.sha256(sorted(hashes).flatMap(\.value))).base64EncodedString()
    }

    /// Returns ``versionHashesDigest`` for hashes whose model is unknown.
    package static func versionHashesDigest(of hashes: [String: [UInt8]]) -> String {
        Data(SHA2.sha512(sorted(hashes).flatMap { Array($0.key.utf8) + $0.value })).base64EncodedString()
    }

    private static func sorted(_ hashes: [String: [UInt8]]) -> [(key: String, value: [UInt8])] {
        hashes.sorted { $0.key.precedes($1.key) }
    }

    private static func versionHash(
        of entity: EntityDescription, parent: [UInt8]?, properties: [[UInt8]]
    ) -> [UInt8] {
        var content = Array(entity.name.utf8) + [entity.isAbstract ? 1 : 0] + (parent ?? [])
        for hash in properties { content += hash }
        content += Array((entity.versionHashModifier ?? "").utf8)
        let constraints = entity.uniquenessConstraints.map { $0.joined(separator: ".") }
        for constraint in constraints.sorted(by: { $0.precedes($1) }) { content += Array(constraint.utf8) }
        return SHA2.sha256(content)
    }

    /// Returns the hash of a property, 32 bytes; nil for a fetched property, which no hash covers.
    package func versionHash(of property: PropertyDescription) -> [UInt8]? {
        switch property {
        case .attribute(let attribute): attribute.versionHash
        case .relationship(let relationship): versionHash(of: relationship)
        case .fetched: nil
        }
    }

    private func versionHash(of relationship: RelationshipDescription) -> [UInt8] {
        var content = VersionHashBase(
            name: relationship.name, isOptional: relationship.isOptional, isTransient: relationship.isTransient,
            isReadOnly: relationship.isReadOnly, modifier: relationship.versionHashModifier
        ).hash
        content += Array(relationship.destinationEntityName.utf8)
        if let inverse = relationship.inverseName, !isItsOwnInverse(relationship) { content += Array(inverse.utf8) }
        content += littleEndian(relationship.maxCount) + littleEndian(relationship.minCount)
        if relationship.isOrdered { content += [1, 0] }
        return SHA2.sha256(content)
    }

    /// Returns true for a relationship such as `friends` of `Person` whose inverse is `friends`.
    private func isItsOwnInverse(_ relationship: RelationshipDescription) -> Bool {
        relationship.inverseName == relationship.name && inverse(of: relationship) == relationship
    }
}

extension AttributeDescription {
    /// The hash of the attribute, 32 bytes. In a composite attribute the hashes of its elements follow (reported; not
    /// seen in a store).
    package var versionHash: [UInt8] {
        if let derivation {
            return SHA2.sha256(Array((derivation.expression + (derivation.filteringPredicate ?? "")).utf8))
        }
        var content = VersionHashBase(
            name: name, isOptional: isOptional, isTransient: isTransient, isReadOnly: isReadOnly,
            modifier: versionHashModifier
        ).hash
        content += littleEndian(type.rawValue)
        if allowsExternalBinaryDataStorage { content.append(1) }
        if preservesValueInHistoryOnDeletion { content.append(1) }
        return SHA2.sha256(content) + elements.flatMap(\.versionHash)
    }
}

/// The hash that begins the input of every property's hash.
private struct VersionHashBase {
    let hash: [UInt8]

    init(name: String, isOptional: Bool, isTransient: Bool, isReadOnly: Bool, modifier: String?) {
        let flags: UInt16 = (isOptional ? 1 : 0) | (isTransient ? 2 : 0) | (isReadOnly ? 4 : 0)
        hash = SHA2.sha256(Array(name.utf8) + littleEndian(flags) + Array((modifier ?? "").utf8))
    }
}

private func littleEndian(_ value: some FixedWidthInteger) -> [UInt8] {
    withUnsafeBytes(of: value.littleEndian) { Array($0) }
}
