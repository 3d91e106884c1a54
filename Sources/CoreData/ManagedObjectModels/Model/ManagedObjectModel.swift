/// The schema of a store: its entities and their properties (`NSManagedObjectModel`).
///
/// A model is a consistent value; a change creates another model. Use ``ModelBundle`` to read one from a file, or build
/// it in code:
///
/// ```swift
/// var note = EntityDescription(name: "Note")
/// note.attributes = [AttributeDescription(name: "title", type: .string)]
/// let model = try ManagedObjectModel(entities: [note])
/// print(model.versionChecksum)
/// ```
public struct ManagedObjectModel: Equatable, Sendable {
    /// The entities, sorted by name.
    public let entities: [EntityDescription]
    /// The identifiers that developers give this version (`versionIdentifiers`).
    public var versionIdentifiers: Set<String>
    /// The names of the entities in each configuration, by configuration name.
    public let configurations: [String: [String]]
    /// The stored fetch requests.
    public let fetchRequestTemplates: [FetchRequestTemplate]
    /// The version hash of each entity, 32 bytes (Documentation/Formats.md). A store records them; Core Data opens it
    /// only with a model of equal hashes.
    public private(set) var entityVersionHashesByName: [String: [UInt8]] = [:]
    private let indexes: [String: Int]
    /// The place of each declared property in its entity's list, by the entity's index and the property's name.
    private let places: [[String: Int]]
    /// An object that this model shares with its copies.
    private let identity = ModelIdentity()

    /// The identity of the model and its copies, which have the same entities.
    package var identifier: ObjectIdentifier { ObjectIdentifier(identity) }

    /// Creates a model and validates it: names are unique, references resolve, and no entity inherits from itself.
    ///
    /// - Throws: ``ModelFault`` for the first inconsistency.
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
        places = sorted.map { entity in
            let lists = [
                entity.attributes.map(\.name), entity.relationships.map(\.name), entity.fetchedProperties.map(\.name),
            ]
            let pairs = lists.flatMap { list in list.enumerated().map { ($1, $0) } }
            return Dictionary(pairs, uniquingKeysWith: { first, _ in first })
        }
        try ModelValidator(self).validate()
        entityVersionHashesByName = entityVersionHashes()
    }

    /// The entities by name.
    public var entitiesByName: [String: EntityDescription] {
        Dictionary(entities.map { ($0.name, $0) }, uniquingKeysWith: { first, _ in first })
    }

    /// Returns the entity with this name, or nil.
    public func entity(named name: String) -> EntityDescription? { indexes[name].map { entities[$0] } }
}

/// Takes no part in comparisons of models.
private final class ModelIdentity: Equatable, Sendable {
    static func == (_: ModelIdentity, _: ModelIdentity) -> Bool { true }
}

extension ManagedObjectModel {
    /// Returns the entity's ancestors, nearest first.
    public func superentities(of entity: EntityDescription) -> [EntityDescription] {
        var found: [EntityDescription] = []
        var name = entity.superentityName
        while let superentity = name.flatMap(self.entity(named:)) {
            found.append(superentity)
            name = superentity.superentityName
        }
        return found
    }

    /// Returns the root of the entity's hierarchy, which may be the entity itself. Its table holds all objects of the
    /// hierarchy.
    public func rootEntity(of entity: EntityDescription) -> EntityDescription {
        superentities(of: entity).last ?? entity
    }

    /// Returns the direct subentities, sorted by name.
    public func subentities(of entity: EntityDescription) -> [EntityDescription] {
        entities.filter { $0.superentityName == entity.name }
    }

    /// Returns the declared and inherited properties, sorted by name.
    public func properties(of entity: EntityDescription) -> [PropertyDescription] {
        ([entity] + superentities(of: entity)).flatMap(\.unsortedProperties).sortedByName(\.name)
    }

    /// Returns the declared or inherited property with this name, or nil.
    public func property(named name: String, of entity: EntityDescription) -> PropertyDescription? {
        var ancestor: EntityDescription? = entity
        while let current = ancestor {
            if let found = declaredProperty(named: name, of: current) { return found }
            ancestor = current.superentityName.flatMap(self.entity(named:))
        }
        return nil
    }

    /// Returns the property that the entity itself declares. The time doesn't depend on the number of properties.
    package func declaredProperty(named name: String, of entity: EntityDescription) -> PropertyDescription? {
        guard let index = indexes[entity.name], let place = places[index][name] else { return nil }
        if entity.attributes.indices.contains(place), entity.attributes[place].name == name {
            return .attribute(entity.attributes[place])
        }
        if entity.relationships.indices.contains(place), entity.relationships[place].name == name {
            return .relationship(entity.relationships[place])
        }
        if entity.fetchedProperties.indices.contains(place), entity.fetchedProperties[place].name == name {
            return .fetched(entity.fetchedProperties[place])
        }
        return nil
    }

    /// Returns the inverse of the relationship; nil if it has none.
    public func inverse(of relationship: RelationshipDescription) -> RelationshipDescription? {
        guard let name = relationship.inverseName, let entity = entity(named: relationship.destinationEntityName),
            case .relationship(let inverse)? = property(named: name, of: entity)
        else { return nil }
        return inverse
    }
}
