import CoreDataStore
import ManagedObjectModels

/// Two models with their layouts, and the correspondence of their entities and properties.
package struct EntityMatching {
    package let source: StoreLayout
    package let destination: StoreLayout
    /// The destination entities by their source entities.
    package let successors: [String: String]
    /// The source entities by their destination entities.
    package let predecessors: [String: String]
    private let mappings: [String: EntityMapping]
    /// The source's names of attributes, by destination entity and attribute.
    private let attributeSources: [String: [String: String]]
    /// The same of relationships.
    private let relationshipSources: [String: [String: String]]

    package init(from source: StoreLayout, to destination: StoreLayout, mapping: MappingModel) {
        self.source = source
        self.destination = destination
        var successors: [String: String] = [:]
        var predecessors: [String: String] = [:]
        var mappings: [String: EntityMapping] = [:]
        for entityMapping in mapping.entityMappings {
            guard let new = entityMapping.destinationEntityName else { continue }
            mappings[new] = entityMapping
            guard let old = entityMapping.sourceEntityName else { continue }
            successors[old] = new
            predecessors[new] = old
        }
        self.successors = successors
        self.predecessors = predecessors
        self.mappings = mappings
        attributeSources = mappings.mapValues { Self.sources($0.attributeMappings) }
        relationshipSources = mappings.mapValues { Self.sources($0.relationshipMappings) }
    }

    private static func sources(_ mappings: [PropertyMapping]) -> [String: String] {
        Dictionary(
            mappings.compactMap { mapping in mapping.sourceName.map { (mapping.name, $0) } },
            uniquingKeysWith: { first, _ in first })
    }

    /// The new entity numbers by the old ones, without removed entities.
    package var numbers: [Int64: Int64] {
        Dictionary(
            successors.map { (source.numbers.number(of: $0.key), destination.numbers.number(of: $0.value)) },
            uniquingKeysWith: { first, _ in first })
    }

    /// Returns true if the destination entity is the source entity unchanged.
    package func isCopied(_ entity: String) -> Bool { mappings[entity]?.kind == .copy }

    /// Returns the source entity whose objects become those of `entity`, and its attribute that became `name`.
    package func attribute(
        _ name: String, of entity: String
    ) -> (entity: EntityDescription, attribute: AttributeDescription)? {
        guard let old = predecessors[entity].flatMap(source.model.entity(named:)),
            let found = attributeSources[entity]?[name],
            case .attribute(let attribute)? = source.model.property(named: found, of: old)
        else { return nil }
        return (old, attribute)
    }

    /// Returns the source entity whose objects become those of `entity`, and its relationship that became `name`.
    package func relationship(
        _ name: String, of entity: String
    ) -> (entity: EntityDescription, relationship: RelationshipDescription)? {
        guard let old = predecessors[entity].flatMap(source.model.entity(named:)),
            let found = relationshipSources[entity]?[name],
            case .relationship(let relationship)? = source.model.property(named: found, of: old)
        else { return nil }
        return (old, relationship)
    }

    /// Returns true if at least some destinations of the older relationship end up in the table of the newer one's.
    package func destinationsOverlap(_ old: RelationshipDescription, _ new: RelationshipDescription) -> Bool {
        let table = destination.table(of: new.destinationEntityName)?.name
        return source.numbers.family(of: old.destinationEntityName).contains { member in
            successors[member].flatMap { destination.table(of: $0)?.name } == table && table != nil
        }
    }

    /// Returns true if every possible destination of the older relationship is also one of the newer one.
    package func keepsAllDestinations(_ old: RelationshipDescription, _ new: RelationshipDescription) -> Bool {
        let reachable = Set(destination.numbers.family(of: new.destinationEntityName))
        return source.numbers.family(of: old.destinationEntityName).allSatisfy { member in
            // An abstract entity has no objects.
            source.model.entity(named: member)?.isAbstract == true
                || successors[member].map(reachable.contains) ?? false
        }
    }
}
