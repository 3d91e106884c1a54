import ManagedObjectModels
import MappingModels

/// By a mapping model.
struct MappedCarrying: CarriedProperties {
    private let mapping: MappingModel
    private let model: ManagedObjectModel
    /// What expressions read beyond an object's own properties, and conditions: it goes into something that isn't the
    /// property's value any more.
    private let consumed: Set<String>

    /// `mapping` is resolved.
    init(_ mapping: MappingModel, _ source: ManagedObjectModel) {
        self.mapping = mapping
        model = source
        var consumed: Set<String> = []
        for one in mapping.entityMappings {
            if let filter = one.filter {
                let read = ReferencedKeys(filter)
                consumed.formUnion(read.first.union(read.others))
            }
            for property in one.attributeMappings + one.relationshipMappings {
                if let expression = property.valueExpression { consumed.formUnion(ReferencedKeys(expression).others) }
            }
        }
        self.consumed = consumed
    }

    private func mappings(of entity: String) -> [EntityMapping] {
        mapping.entityMappings.filter { $0.sourceEntityName == entity }
    }

    func successors(of entity: String) -> [String]? {
        let all = mappings(of: entity)
        // What a policy does is its own affair.
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
        for one in mappings(of: property.entity) {
            guard one.entityMigrationPolicyClassName == nil else { return nil }
            guard let destination = one.destinationEntityName else { continue }
            for mapped in one.attributeMappings + one.relationshipMappings {
                guard let expression = mapped.valueExpression else { continue }
                let read = ReferencedKeys(expression)
                if read.isWholeObject { return nil }
                guard read.first.contains(property.property) else { continue }
                found.append(EntityProperty(entity: destination, property: mapped.name))
            }
        }
        return found
    }
}
