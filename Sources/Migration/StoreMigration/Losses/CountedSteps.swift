import CoreDataStore
import ManagedObjectModels
import MappingModels
import MigrationAudit

extension MigrationStep {
    /// The step in the audit's terms.
    var counted: CountedStep {
        get throws(MappingModelError) {
            let kind: CountedStep.Kind
            switch method {
            case .inferred: kind = .inferred
            case .custom(let mapping):
                kind = .mapped(
                    try mapping.resolved(from: source, to: destination).followedEntities(from: source, to: destination))
            }
            return CountedStep(
                from: source, to: destination, named: destinationName, kind: kind, runsHandlers: stage != nil)
        }
    }
}

extension MappingModel {
    /// Returns what the entity mappings of a resolved mapping model do with each entity's content.
    fileprivate func followedEntities(
        from source: ManagedObjectModel, to destination: ManagedObjectModel
    ) -> [FollowedEntity] {
        let plan = MappingPlan(self, from: StoreLayout(source), to: StoreLayout(destination))
        return plan.entityMappings.compactMap { plan in
            guard let old = plan.source, plan.mapsObjects || plan.usesPolicy else { return nil }
            let mapping = plan.mapping
            var entity = FollowedEntity(
                source: old.name, destination: plan.destination?.name ?? "", keepsKeys: plan.keepsKeys,
                isUnconditional: mapping.filter == nil, usesPolicy: plan.usesPolicy, )
            if let filter = mapping.filter {
                entity.add(ReferencedKeys(filter))
            }
            for attribute in mapping.attributeMappings { entity.add(attribute, copying: attribute.copiedName) }
            for relationship in mapping.relationshipMappings {
                entity.add(relationship, copying: relationship.linkedName)
            }
            return entity
        }
    }
}

extension FollowedEntity {
    fileprivate mutating func add(_ property: PropertyMapping, copying source: String?) {
        if let source { return copied.append((source, property.name)) }
        guard let expression = property.valueExpression else { return }
        let keys = ReferencedKeys(expression)
        add(keys)
        readsWholeObject = readsWholeObject || keys.usesWholeObject
    }

    fileprivate mutating func add(_ keys: ReferencedKeys) {
        read.formUnion(keys.ownKeys)
        readFromOthers.formUnion(keys.relatedKeys)
    }
}
