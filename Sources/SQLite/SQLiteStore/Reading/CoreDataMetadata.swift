import PropertyLists

/// The data that Core Data stores about a store and its model, in the tables `Z_METADATA` and `Z_PRIMARYKEY`.
package struct CoreDataMetadata: Equatable, Sendable {
    package struct Entity: Equatable, Sendable {
        /// The name in `Z_PRIMARYKEY`, unless `naming(_:)` has replaced it.
        package let name: String
        /// Z_ENT, or nil if only the version hashes name the entity.
        package let number: Int64?
        /// The parent's number, or nil for a root entity.
        package let parent: Int64?
        /// The highest primary key assigned so far. Core Data counts it in the root entity only.
        package let highestKey: Int64?
        /// 32 bytes, or nil if the metadata has none.
        package let versionHash: [UInt8]?
    }

    /// The store's identity in upper case. It is part of each object's URI.
    package let uuid: String?
    package let storeType: String?
    package let frameworkVersion: Int?
    package let versionIdentifiers: [String]
    /// The Base64 encoding of a SHA-512 of all names and hashes.
    package let hashesDigest: String?
    /// The Base64 encoding of a SHA-256 of all hashes. A model's `VersionInfo.plist` has it too.
    package let modelChecksum: String?
    /// The keys that the app added, sorted.
    package let applicationKeys: [String]
    /// The entities by number, followed by those without one.
    package private(set) var entities: [Entity]
    /// The reason the property list could not be read, or nil. Core Data may leave the list out.
    package let problem: String?
}

extension CoreDataMetadata {
    /// Turns the bytes of `Z_PLIST` into a value; nil if they aren't a property list.
    package typealias ListParser = @Sendable ([UInt8]) -> PropertyListValue?

    /// The parser of what Core Data writes. Core Data also reads a list in XML, as do programs with an XML parser,
    /// which this target needn't have.
    package static let binary: ListParser = { try? PropertyListValue(binary: $0) }

    /// Reads the metadata. Returns nil if the store isn't Core Data's. Throws `StoreError`.
    package init?(_ reader: StoreReader, parsing parse: ListParser = binary) throws {
        guard try reader.hasTables("Z_METADATA", "Z_PRIMARYKEY") else { return nil }
        let row = try reader.prepare("SELECT Z_UUID, Z_PLIST FROM Z_METADATA NOT INDEXED LIMIT 1")
        let hasRow = try row.step()
        uuid = hasRow ? row.text(0) : nil
        var properties: Properties?
        if hasRow, let bytes = row.bytes(1, limit: PropertyListValue.maximumSize) {
            properties = parse(bytes)?.dictionary.map(Properties.init)
            problem = properties == nil ? "Z_PLIST is not a property list" : nil
        } else {
            problem = !hasRow ? "Z_METADATA has no row" : row.isNull(1) ? "Z_PLIST is NULL" : "Z_PLIST is too long"
        }
        storeType = properties?.storeType
        frameworkVersion = properties?.frameworkVersion
        versionIdentifiers = properties?.versionIdentifiers ?? []
        hashesDigest = properties?.hashesDigest
        modelChecksum = properties?.modelChecksum
        applicationKeys = properties?.applicationKeys ?? []
        entities = try Self.entities(reader, hashes: properties?.versionHashes ?? [:])
    }

    private static func entities(_ reader: StoreReader, hashes: [String: [UInt8]]) throws -> [Entity] {
        let rows = try reader.prepare(
            "SELECT Z_ENT, Z_NAME, Z_SUPER, Z_MAX FROM Z_PRIMARYKEY NOT INDEXED ORDER BY Z_ENT")
        var unnumbered = hashes
        var found: [Entity] = []
        while try rows.step() {
            let name = rows.text(1) ?? ""
            found.append(
                Entity(
                    name: name, number: rows.integer(0), parent: rows.integer(2) == 0 ? nil : rows.integer(2),
                    highestKey: rows.integer(3), versionHash: hashes[name]))
            unnumbered[name] = nil
        }
        // The remaining hashes belong to entities that have an older name here; see `naming(_:)`.
        return found
            + unnumbered.sorted { $0.key < $1.key }.map {
                Entity(name: $0.key, number: nil, parent: nil, highestKey: nil, versionHash: $0.value)
            }
    }
}

extension CoreDataMetadata {
    /// Returns a copy with these names by entity number. `Z_PRIMARYKEY` may still have the name that an entity had
    /// before it was renamed.
    package func naming(_ names: [Int64: String]) -> CoreDataMetadata {
        let hashes = Dictionary(
            entities.compactMap { entity in entity.versionHash.map { (entity.name, $0) } },
            uniquingKeysWith: { first, _ in first })
        let numbered = entities.filter { $0.number != nil }.map { entity in
            let name = entity.number.flatMap { names[$0] } ?? entity.name
            return Entity(
                name: name, number: entity.number, parent: entity.parent, highestKey: entity.highestKey,
                versionHash: hashes[name])
        }
        let numberedNames = Set(numbered.map(\.name))
        var named = self
        named.entities = numbered + entities.filter { $0.number == nil && !numberedNames.contains($0.name) }
        return named
    }
}

/// The property list in `Z_PLIST`. A value of an unexpected type counts as missing.
private struct Properties {
    let storeType: String?
    let frameworkVersion: Int?
    let versionHashes: [String: [UInt8]]
    let versionIdentifiers: [String]
    let hashesDigest: String?
    let modelChecksum: String?
    let applicationKeys: [String]

    init(_ values: [String: PropertyListValue]) {
        storeType = values["NSStoreType"]?.string
        frameworkVersion = values["NSPersistenceFrameworkVersion"]?.integer.flatMap(Int.init(exactly:))
        let hashes = values["NSStoreModelVersionHashes"]?.dictionary ?? [:]
        let dataHashes = hashes.compactMapValues(\.data)
        versionHashes = dataHashes.count == hashes.count ? dataHashes : [:]
        let identifiers = values["NSStoreModelVersionIdentifiers"]?.array ?? []
        let textIdentifiers = identifiers.compactMap(\.string)
        versionIdentifiers = textIdentifiers.count == identifiers.count ? textIdentifiers : []
        hashesDigest = values["NSStoreModelVersionHashesDigest"]?.string
        modelChecksum = values["NSStoreModelVersionChecksumKey"]?.string
        applicationKeys = values.keys.filter { !$0.hasPrefix("NS") && !$0.hasPrefix("_NS") }.sorted()
    }
}
