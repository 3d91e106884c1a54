import ManagedObjectModels

/// The order in which Core Data enumerates an entity's properties. It is that of a hash table: CoreFoundation's
/// `CFDictionary` of Mac OS X 10.4 (CFDictionary.c and CFString.c of CF-368, opensource.apple.com), and lately its
/// `CFBasicHash` (CFBasicHash.c of CF-1153). The order determines which side of a many-to-many relationship names the
/// table, so the name depends on every property of the entity.
struct PropertyOrder {
    /// The capacity and bucket count of each table size of `CFBasicHash`.
    private static let basicSizes = [
        (3, 3), (6, 7), (11, 13), (19, 23), (32, 41), (52, 71), (85, 127), (118, 191), (155, 251), (237, 383),
        (390, 631), (672, 1087), (1065, 1723), (1732, 2803), (2795, 4523), (4543, 7351), (7391, 11959),
    ]

    /// The same of the older `CFDictionary`.
    private static let sizes = [
        (4, 5), (8, 11), (17, 23), (29, 41), (47, 67), (76, 113), (123, 199), (199, 317), (322, 521), (521, 839),
        (843, 1361), (1364, 2207), (2207, 3571), (3571, 5779), (5778, 9349),
    ]

    private let keys: [String]
    private let relationships: [RelationshipDescription]
    private let rule: JoinTableNaming.Rule

    init(
        _ entity: EntityDescription, in model: ManagedObjectModel, numbers: EntityNumbers,
        rule: JoinTableNaming.Rule
    ) {
        self.rule = rule
        let inherited = rule == .declared ? [] : model.superentities(of: entity)
        relationships = ([entity] + inherited).flatMap(\.relationships)
        var keys = ["_ent", "_pk", "_opt"]
        for member in ([entity] + model.superentities(of: entity)).reversed() {
            keys += member.attributes.filter { !$0.isTransient }.map(\.name).sorted { $0.precedes($1) }
            for relationship in member.relationships.sorted(by: { $0.name.precedes($1.name) }) {
                if !relationship.isToMany {
                    keys.append("_Z" + relationship.name.uppercased())
                    if numbers.hasSubentities(relationship.destinationEntityName) {
                        let number = numbers.number(of: relationship.destinationEntityName)
                        keys.append("_Z\(number)_" + relationship.name.uppercased())
                    }
                }
                keys.append(relationship.name)
            }
        }
        self.keys = keys
    }

    /// The relationships of the entity in that order, with those that it inherits if the rule says so.
    var orderedRelationships: [RelationshipDescription] {
        let byName = Dictionary(relationships.map { ($0.name, $0) }, uniquingKeysWith: { first, _ in first })
        return buckets.compactMap { key in key.flatMap { byName[$0] } }
    }

    private var buckets: [String?] {
        let sizes = rule == .wideHash ? Self.basicSizes : Self.sizes
        let count = sizes.first { $0.0 >= keys.count }?.1 ?? keys.count * 2 + 1
        var buckets = [String?](repeating: nil, count: count)
        for key in keys {
            var bucket = Int(Self.hash(key, isWide: rule == .wideHash) % UInt64(count))
            while buckets[bucket] != nil, buckets[bucket] != key { bucket = (bucket + 1) % count }
            buckets[bucket] = key
        }
        return buckets
    }

    /// Returns the hash of a key. Only the first 8 and the last 16 characters of a long key count.
    static func hash(_ key: String, isWide: Bool = false) -> UInt64 {
        let units = Array(key.utf16)
        let counted = units.count > 23 ? Array(units.prefix(8) + units.suffix(16)) : units
        let hash = counted.reduce(UInt64(units.count)) { $0 &* 257 &+ UInt64($1) }
        // Sums, products and shifts to the left modulo 2^32 don't depend on the upper half.
        let whole = hash &+ (hash << UInt64(units.count & 31))
        return isWide ? whole : whole & 0xFFFF_FFFF
    }
}
