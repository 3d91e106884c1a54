/// What a store may hold: `NSManagedObjectModel`. A value; a change makes another model.
public struct ManagedObjectModel: Equatable, Sendable {
    /// By name.
    public let entities: [EntityDescription]
    /// What developers call this version.
    public var versionIdentifiers: Set<String>
    /// The names of the entities in each configuration.
    public let configurations: [String: [String]]
    public let fetchRequestTemplates: [FetchRequestTemplate]
    /// 32 bytes for each entity, which a store has too: the store can be opened when they are the same.
    public private(set) var entityVersionHashesByName: [String: [UInt8]] = [:]
    private let indexes: [String: Int]

    /// Checks that the parts fit together: names are unique, what is named exists, no entity inherits from itself.
    /// Throws `ModelFault`.
    public init(
        entities: [EntityDescription], versionIdentifiers: Set<String> = [],
        configurations: [String: [String]] = [:], fetchRequestTemplates: [FetchRequestTemplate] = []
    ) throws {
        let sorted = entities.sorted { $0.name.precedes($1.name) }
        self.entities = sorted
        self.versionIdentifiers = versionIdentifiers
        self.configurations = configurations
        self.fetchRequestTemplates = fetchRequestTemplates
        indexes = Dictionary(sorted.enumerated().map { ($1.name, $0) }, uniquingKeysWith: { first, _ in first })
        try ModelConsistency(self).check()
        entityVersionHashesByName = entityVersionHashes()
    }

    public var entitiesByName: [String: EntityDescription] {
        Dictionary(entities.map { ($0.name, $0) }, uniquingKeysWith: { first, _ in first })
    }

    /// Nil when there is none by that name.
    public func entity(named name: String) -> EntityDescription? { indexes[name].map { entities[$0] } }
}

extension ManagedObjectModel {
    /// The entity's ancestors, the nearest first.
    public func superentities(of entity: EntityDescription) -> [EntityDescription] {
        var found: [EntityDescription] = []
        var name = entity.superentityName
        while let superentity = name.flatMap(self.entity(named:)) {
            found.append(superentity)
            name = superentity.superentityName
        }
        return found
    }

    /// The ancestor that inherits from none, or the entity itself: its table holds all of the hierarchy's objects.
    public func rootEntity(of entity: EntityDescription) -> EntityDescription {
        superentities(of: entity).last ?? entity
    }

    /// The entities that inherit from this one directly, by name.
    public func subentities(of entity: EntityDescription) -> [EntityDescription] {
        entities.filter { $0.superentityName == entity.name }
    }

    /// What the entity declares and inherits, by name.
    public func properties(of entity: EntityDescription) -> [PropertyDescription] {
        ([entity] + superentities(of: entity)).flatMap(\.declaredProperties).sorted { $0.name.precedes($1.name) }
    }

    /// Nil when the entity neither declares nor inherits it.
    public func property(named name: String, of entity: EntityDescription) -> PropertyDescription? {
        for one in [entity] + superentities(of: entity) {
            if let found = one.attributes.first(where: { $0.name == name }) { return .attribute(found) }
            if let found = one.relationships.first(where: { $0.name == name }) { return .relationship(found) }
            if let found = one.fetchedProperties.first(where: { $0.name == name }) { return .fetched(found) }
        }
        return nil
    }

    /// The relationship that leads back; nil when none does.
    public func inverse(of relationship: RelationshipDescription) -> RelationshipDescription? {
        guard let name = relationship.inverseName, let entity = entity(named: relationship.destinationEntityName),
            case .relationship(let inverse)? = property(named: name, of: entity)
        else { return nil }
        return inverse
    }
}
