import CoreDataStore
import ManagedObjectModels

/// The links between the objects of an XML store, as both ends say. Each is kept once, seen from one of the two
/// relationships.
struct XMLStoreLinks {
    /// A relationship by the entity that declares it.
    struct Key: Hashable {
        let entity: String
        let name: String

        static func < (one: Key, other: Key) -> Bool { (one.entity, one.name) < (other.entity, other.name) }
    }

    /// Two objects by their positions in the file.
    struct Pair: Hashable {
        let owner: Int
        let target: Int
    }

    struct Link {
        /// The position of the target among the owner's targets, and of the owner among the target's owners; nil if the
        /// file doesn't say.
        var targetPlace: Int?
        var ownerPlace: Int?
        let line: Int
    }

    private let layout: StoreLayout
    private(set) var links: [Key: [Pair: Link]] = [:]
    private(set) var relationships: [Key: RelationshipDescription] = [:]

    init(_ layout: StoreLayout) { self.layout = layout }

    /// Adds the links that one end lists: `targets` in their order.
    mutating func add(
        _ relationship: RelationshipDescription, of entity: EntityDescription, owner: Int, targets: [Int], line: Int
    ) {
        guard let declaring = layout.declaringEntity(of: relationship.name, of: entity.name)?.name else { return }
        let own = Key(entity: declaring, name: relationship.name)
        let inverse = layout.model.inverse(of: relationship)
        let other = inverse.flatMap { inverse in
            layout.declaringEntity(of: inverse.name, of: relationship.destinationEntityName).map {
                Key(entity: $0.name, name: inverse.name)
            }
        }
        let isReversed = other.map { $0 < own } ?? false
        let key = isReversed ? other ?? own : own
        relationships[key] = isReversed ? inverse : relationship
        for (place, target) in targets.enumerated() {
            let pair = isReversed ? Pair(owner: target, target: owner) : Pair(owner: owner, target: target)
            var link = links[key]?[pair] ?? Link(line: line)
            if isReversed { link.ownerPlace = place } else { link.targetPlace = place }
            links[key, default: [:]][pair] = link
            // The relationship of two objects with each other.
            if other == own {
                let mirrored = Pair(owner: target, target: owner)
                if links[key]?[mirrored] == nil { links[key, default: [:]][mirrored] = Link(line: line) }
            }
        }
    }

    /// The sources of one row for each link of a relationship, and for each link of its inverse if that has columns of
    /// its own.
    func storages() -> [(storage: Storage, links: [(pair: Pair, link: Link)])] {
        relationships.sorted { $0.key < $1.key }.flatMap { key, relationship in
            let found = (links[key] ?? [:]).sorted { ($0.key.owner, $0.key.target) < ($1.key.owner, $1.key.target) }
                .map { (pair: $0.key, link: $0.value) }
            var storages = [(Storage(relationship, key, layout), found)]
            if let inverse = layout.model.inverse(of: relationship), !relationship.isToMany, !inverse.isToMany,
                let declaring = layout.declaringEntity(of: inverse.name, of: relationship.destinationEntityName)?.name,
                Key(entity: declaring, name: inverse.name) != key
            {
                // Each end of a one-to-one relationship has a column of its own.
                let other = Key(entity: declaring, name: inverse.name)
                let reversed = found.map { pair, link in
                    (
                        pair: Pair(owner: pair.target, target: pair.owner),
                        link: Link(targetPlace: link.ownerPlace, ownerPlace: link.targetPlace, line: link.line)
                    )
                }
                storages.append((Storage(inverse, other, layout), reversed))
            }
            return storages.compactMap { storage, links in storage.map { ($0, links) } }
        }
    }

    /// Where a relationship's links are stored.
    struct Storage {
        let relationship: RelationshipDescription
        let key: Key
        let link: LinkStorage
        /// The column of the entity number that belongs to the reference; nil if there is none.
        let entityColumn: String?
        /// True if each owner may have one target only, and if each target may have one owner only.
        let hasOneTarget: Bool
        let hasOneOwner: Bool

        init?(_ relationship: RelationshipDescription, _ key: Key, _ layout: StoreLayout) {
            guard let link = LinkStorage(of: relationship, declaredFor: key.entity, in: layout) else { return nil }
            let inverse = layout.model.inverse(of: relationship)
            self.relationship = relationship
            self.key = key
            self.link = link
            hasOneTarget = !relationship.isToMany
            // A to-many relationship without an inverse is a column of its targets.
            hasOneOwner = inverse.map { !$0.isToMany } ?? relationship.isToMany
            entityColumn =
                (LinkStorage.columns(of: relationship, declaredFor: key.entity, in: layout)
                ?? inverse.flatMap {
                    LinkStorage.columns(of: $0, declaredFor: relationship.destinationEntityName, in: layout)
                })?.entity
        }
    }
}
