import ManagedObjectModels

/// The order in which Core Data meets an entity's properties: that of a hash table, CoreFoundation's `CFDictionary` as it
/// was in Mac OS X 10.4 (CFDictionary.c and CFString.c of CF-368, opensource.apple.com). Which side of a many-to-many
/// relationship names the table depends on it, and so on every property that the entity has.
struct PropertyOrder {
    /// How many keys fit, and how many buckets there are then.
    private static let sizes = [
        (4, 5), (8, 11), (17, 23), (29, 41), (47, 67), (76, 113), (123, 199), (199, 317), (322, 521), (521, 839),
        (843, 1361), (1364, 2207), (2207, 3571), (3571, 5779), (5778, 9349),
    ]

    private let entity: EntityDescription
    private let keys: [String]

    init(_ entity: EntityDescription, _ model: ManagedObjectModel, _ numbers: EntityNumbers) {
        self.entity = entity
        var keys = ["_ent", "_pk", "_opt"]
        for one in ([entity] + model.superentities(of: entity)).reversed() {
            keys += one.attributes.filter { !$0.isTransient }.map(\.name).sorted { $0.precedes($1) }
            for relationship in one.relationships.sorted(by: { $0.name.precedes($1.name) }) {
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

    /// The relationships that the entity declares itself, in that order.
    var declaredRelationships: [RelationshipDescription] {
        let declared = Dictionary(entity.relationships.map { ($0.name, $0) }, uniquingKeysWith: { first, _ in first })
        return buckets.compactMap { key in key.flatMap { declared[$0] } }
    }

    private var buckets: [String?] {
        let count = Self.sizes.first { $0.0 >= keys.count }?.1 ?? keys.count * 2 + 1
        var buckets = [String?](repeating: nil, count: count)
        for key in keys {
            var place = Int(Self.hash(key) % UInt32(count))
            while buckets[place] != nil, buckets[place] != key { place = (place + 1) % count }
            buckets[place] = key
        }
        return buckets
    }

    /// Of a long name, the first 8 and the last 16 characters count.
    static func hash(_ key: String) -> UInt32 {
        let units = Array(key.utf16)
        let counted = units.count > 23 ? Array(units.prefix(8) + units.suffix(16)) : units
        let hash = counted.reduce(UInt32(units.count)) { $0 &* 257 &+ UInt32($1) }
        return hash &+ (hash << UInt32(units.count & 31))
    }
}
