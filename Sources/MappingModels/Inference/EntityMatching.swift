import CoreDataStore
import ManagedObjectModels

/// Two models, their layouts, and which entity and property of the one became which of the other.
package struct EntityMatching {
    package let source: StoreLayout
    package let destination: StoreLayout
    /// By the source's entity.
    package let successors: [String: String]
    /// By the destination's entity.
    package let predecessors: [String: String]
    private let mappings: [String: EntityMapping]

    package init(_ source: StoreLayout, _ destination: StoreLayout, _ mapping: MappingModel) {
        self.source = source
        self.destination = destination
        var successors: [String: String] = [:]
        var predecessors: [String: String] = [:]
        var mappings: [String: EntityMapping] = [:]
        for one in mapping.entityMappings {
            guard let new = one.destinationEntityName else { continue }
            mappings[new] = one
            guard let old = one.sourceEntityName else { continue }
            successors[old] = new
            predecessors[new] = old
        }
        self.successors = successors
        self.predecessors = predecessors
        self.mappings = mappings
    }

    /// All entities' new numbers by their old ones; those that are gone are not in it.
    package var numbers: [Int64: Int64] {
        Dictionary(
            successors.map { (source.numbers.number(of: $0.key), destination.numbers.number(of: $0.value)) },
            uniquingKeysWith: { first, _ in first })
    }

    package func isCopied(_ entity: String) -> Bool { mappings[entity]?.kind == .copy }

    /// The entity of the source whose objects become those of `entity`, and its attribute that became `name`.
    package func attribute(
        _ name: String, of entity: String
    ) -> (entity: EntityDescription, attribute: AttributeDescription)? {
        guard let old = predecessors[entity].flatMap(source.model.entity(named:)),
            let found = mappings[entity]?.attributeMappings.first(where: { $0.name == name })?.sourceName,
            case .attribute(let attribute)? = source.model.property(named: found, of: old)
        else { return nil }
        return (old, attribute)
    }

    /// The same of a relationship.
    package func relationship(
        _ name: String, of entity: String
    ) -> (entity: EntityDescription, relationship: RelationshipDescription)? {
        guard let old = predecessors[entity].flatMap(source.model.entity(named:)),
            let found = mappings[entity]?.relationshipMappings.first(where: { $0.name == name })?.sourceName,
            case .relationship(let relationship)? = source.model.property(named: found, of: old)
        else { return nil }
        return (old, relationship)
    }

    /// Whether what the older relationship leads to is, at least in part, what the newer one leads to: in its table.
    package func leadsOn(_ old: RelationshipDescription, _ new: RelationshipDescription) -> Bool {
        let table = destination.table(of: new.destinationEntityName)?.name
        return source.numbers.family(of: old.destinationEntityName).contains { member in
            successors[member].flatMap { destination.table(of: $0)?.name } == table && table != nil
        }
    }

    /// Whether each object that the older relationship can lead to is one that the newer can lead to.
    package func keepsAll(_ old: RelationshipDescription, _ new: RelationshipDescription) -> Bool {
        let reachable = Set(destination.numbers.family(of: new.destinationEntityName))
        return source.numbers.family(of: old.destinationEntityName).allSatisfy { member in
            // An abstract entity has no objects.
            source.model.entity(named: member)?.isAbstract == true
                || successors[member].map(reachable.contains) ?? false
        }
    }
}
