import FoundationEssentials

/// Core Data's version hashes, byte for byte. Apple documents what they cover (Core Data Model Versioning and Data
/// Migration Programming Guide, "Understanding Versions"), not how they are made: the formulas were found on stores
/// and compiled models, and reproduce those. All are SHA-256 of a concatenation, integers little-endian.
extension ManagedObjectModel {
    /// 32 bytes for each entity.
    func entityVersionHashes() -> [String: [UInt8]] {
        var hashes: [String: [UInt8]] = [:]
        var properties: [String: [(name: String, hash: [UInt8])]] = [:]
        for entity in entities {
            // Ancestors first: a hash covers the parent's.
            for one in ([entity] + superentities(of: entity)).reversed() where hashes[one.name] == nil {
                let inherited = one.superentityName.flatMap { properties[$0] } ?? []
                let own = one.declaredProperties.filter { !$0.isTransient }.compactMap { property in
                    versionHash(of: property).map { (name: property.name, hash: $0) }
                }
                let all = (inherited + own).sorted { $0.name.precedes($1.name) }
                properties[one.name] = all
                let parent = one.superentityName.flatMap { hashes[$0] }
                hashes[one.name] = Self.versionHash(of: one, parent: parent, properties: all.map(\.hash))
            }
        }
        return hashes
    }

    /// Base64 of the SHA-256 of all entities' hashes by name: `versionChecksum`, and the checksum that Xcode writes
    /// into `VersionInfo.plist`.
    public var versionChecksum: String { Self.versionChecksum(of: entityVersionHashesByName) }

    /// Base64 of the SHA-512 of all names and hashes: `NSStoreModelVersionHashesDigest` of a store's metadata.
    public var versionHashesDigest: String { Self.versionHashesDigest(of: entityVersionHashesByName) }

    /// The same of hashes that are known without their model.
    package static func versionChecksum(of hashes: [String: [UInt8]]) -> String {
        Data(SHA2.sha256(sorted(hashes).flatMap(\.value))).base64EncodedString()
    }

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

    /// Nil for a fetched property, which no hash covers.
    package func versionHash(of property: PropertyDescription) -> [UInt8]? {
        switch property {
        case .attribute(let attribute): attribute.versionHash
        case .relationship(let relationship): versionHash(of: relationship)
        case .fetched: nil
        }
    }

    private func versionHash(of relationship: RelationshipDescription) -> [UInt8] {
        var content = VersionHashBase(
            relationship.name, relationship.isOptional, relationship.isTransient, relationship.isReadOnly,
            relationship.versionHashModifier
        ).hash
        content += Array(relationship.destinationEntityName.utf8)
        if let inverse = relationship.inverseName, !isItsOwnInverse(relationship) { content += Array(inverse.utf8) }
        content += littleEndian(relationship.maxCount) + littleEndian(relationship.minCount)
        if relationship.isOrdered { content += [1, 0] }
        return SHA2.sha256(content)
    }

    /// Such as `friends` of `Person`, whose inverse is `friends`.
    private func isItsOwnInverse(_ relationship: RelationshipDescription) -> Bool {
        relationship.inverseName == relationship.name && inverse(of: relationship) == relationship
    }
}

extension AttributeDescription {
    /// 32 bytes. A composite attribute's elements follow it, each with its own (reported, not seen in a store).
    package var versionHash: [UInt8] {
        if let derivation {
            return SHA2.sha256(Array((derivation.expression + (derivation.filteringPredicate ?? "")).utf8))
        }
        var content = VersionHashBase(name, isOptional, isTransient, isReadOnly, versionHashModifier).hash
        content += littleEndian(type.rawValue)
        if allowsExternalBinaryDataStorage { content.append(1) }
        if preservesValueInHistoryOnDeletion { content.append(1) }
        return SHA2.sha256(content) + elements.flatMap(\.versionHash)
    }
}

/// What the hashes of all properties begin with.
private struct VersionHashBase {
    let hash: [UInt8]

    init(_ name: String, _ isOptional: Bool, _ isTransient: Bool, _ isReadOnly: Bool, _ modifier: String?) {
        let flags: UInt16 = (isOptional ? 1 : 0) | (isTransient ? 2 : 0) | (isReadOnly ? 4 : 0)
        hash = SHA2.sha256(Array(name.utf8) + littleEndian(flags) + Array((modifier ?? "").utf8))
    }
}

private func littleEndian(_ value: some FixedWidthInteger) -> [UInt8] {
    withUnsafeBytes(of: value.littleEndian) { Array($0) }
}
