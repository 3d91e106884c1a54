import ManagedObjectModels
import MappingModels

/// The successors by a mapping model.
struct MappedSuccessors: StepSuccessors {
    private let mapping: MappingModel
    private let model: ManagedObjectModel
    /// The keys that conditions read, and that expressions read beyond an object's own properties. Their values go into
    /// something other than a successor property.
    private let consumed: Set<String>

    /// - Parameter mapping: A resolved mapping model.
    init(_ mapping: MappingModel, _ source: ManagedObjectModel) {
        self.mapping = mapping
        model = source
        var consumed: Set<String> = []
        for entityMapping in mapping.entityMappings {
            if let filter = entityMapping.filter {
                let read = ReferencedKeys(filter)
                consumed.formUnion(read.ownKeys.union(read.relatedKeys))
            }
            for property in entityMapping.attributeMappings + entityMapping.relationshipMappings {
                guard let expression = property.valueExpression else { continue }
                consumed.formUnion(ReferencedKeys(expression).relatedKeys)
            }
        }
        self.consumed = consumed
    }

    private func mappings(of entity: String) -> [EntityMapping] {
        mapping.entityMappings.filter { $0.sourceEntityName == entity }
    }

    func successors(of entity: String) -> [String]? {
        let all = mappings(of: entity)
        // A policy's effect can't be known in advance.
        guard !all.contains(where: { $0.entityMigrationPolicyClassName != nil }) else { return nil }
        return all.compactMap(\.destinationEntityName)
    }

    func successors(of property: EntityProperty) -> [EntityProperty]? {
        guard let own = carried(property) else { return nil }
        var found = own
        if let entity = model.entity(named: property.entity),
            case .relationship(let relationship)? = model.property(named: property.property, of: entity),
            let inverse = model.inverse(of: relationship)
        {
            for member in model.family(of: relationship.destinationEntityName) {
                guard let other = carried(EntityProperty(entity: member, property: inverse.name)) else { return nil }
                found += other
            }
        }
        return found.isEmpty && consumed.contains(property.property) ? nil : found
    }

    private func carried(_ property: EntityProperty) -> [EntityProperty]? {
        var found: [EntityProperty] = []
        for mapping in mappings(of: property.entity) {
            guard mapping.entityMigrationPolicyClassName == nil else { return nil }
            guard let destination = mapping.destinationEntityName else { continue }
            for mapped in mapping.attributeMappings + mapping.relationshipMappings {
                guard let expression = mapped.valueExpression else { continue }
                let read = ReferencedKeys(expression)
                if read.usesWholeObject { return nil }
                guard read.ownKeys.contains(property.property) else { continue }
                found.append(EntityProperty(entity: destination, property: mapped.name))
            }
        }
        return found
    }
}
