import CoreDataStore
import ManagedObjectModels
import MappingModels

/// A property of one entity's objects.
struct EntityProperty: Hashable {
    let entity: String
    let property: String
}

/// The entities and properties that one migration step carries content to. Nil means that this can't be determined in
/// advance, because it depends on a policy or a condition.
protocol StepSuccessors {
    /// Returns the newer entities that objects of the older entity become.
    func successors(of entity: String) -> [String]?
    /// Returns the newer properties that receive the older property's values.
    func successors(of property: EntityProperty) -> [EntityProperty]?
}

/// The whole path of a store's objects and values, step by step.
struct MigrationSteps {
    private let steps: [(name: String, source: ManagedObjectModel, successors: any StepSuccessors)]

    /// The step at which content is lost.
    struct LossPoint {
        /// The version that can't store the content.
        let version: String
        let isLast: Bool
        let isMapped: Bool

        /// Returns the predicate of a sentence whose subject is the lost content.
        func reason(ofObjects: Bool) -> String {
            if isMapped { return ofObjects ? "has no entity mapping" : "is not read by any mapping" }
            let verb = ofObjects ? "is not in" : "is not stored by"
            return isLast ? "\(verb) the newer model" : "\(verb) \(version), a version on the migration path"
        }
    }

    /// Throws `MappingModelError` if a mapping model doesn't fit its step.
    init(_ steps: [MigrationStep]) throws {
        self.steps = try steps.map { step in
            switch step.method {
            case .inferred(let mapping):
                let matching = EntityMatching(
                    from: StoreLayout(step.source), to: StoreLayout(step.destination), mapping: mapping)
                return (step.destinationName, step.source, InferredSuccessors(matching))
            case .custom(let mapping):
                let resolved = try mapping.resolved(from: step.source, to: step.destination)
                return (step.destinationName, step.source, MappedSuccessors(resolved, step.source))
            }
        }
    }

    /// Returns the step at which all objects of the entity are lost; nil if some may survive.
    func lossPoint(of entity: String) -> LossPoint? { lossPoint([entity]) { $0.successors(of: $1) } }

    /// Returns the step at which all values of the property are lost, or all links of the relationship from both its
    /// ends.
    func lossPoint(of property: EntityProperty) -> LossPoint? { lossPoint([property]) { $0.successors(of: $1) } }

    private func lossPoint<Item: Hashable>(
        _ items: Set<Item>, _ next: (any StepSuccessors, Item) -> [Item]?
    ) -> LossPoint? {
        var items = items
        for (index, step) in steps.enumerated() {
            var found: Set<Item> = []
            for item in items {
                guard let successors = next(step.successors, item) else { return nil }
                found.formUnion(successors)
            }
            guard !found.isEmpty else {
                return LossPoint(
                    version: step.name, isLast: index == steps.count - 1,
                    isMapped: step.successors is MappedSuccessors)
            }
            items = found
        }
        return nil
    }
}

/// The successors by an inferred mapping.
struct InferredSuccessors: StepSuccessors {
    private let matching: EntityMatching

    init(_ matching: EntityMatching) { self.matching = matching }

    func successors(of entity: String) -> [String]? { matching.successors[entity].map { [$0] } ?? [] }

    func successors(of property: EntityProperty) -> [EntityProperty]? {
        let model = matching.source.model
        guard let entity = model.entity(named: property.entity) else { return [] }
        let own = carried(property)
        guard case .relationship(let relationship)? = model.property(named: property.property, of: entity),
            let inverse = model.inverse(of: relationship)
        else { return own }
        // Links survive if either end does.
        return own
            + matching.source.numbers.family(of: relationship.destinationEntityName).flatMap {
                carried(EntityProperty(entity: $0, property: inverse.name))
            }
    }

    private func carried(_ property: EntityProperty) -> [EntityProperty] {
        guard let successor = matching.successors[property.entity],
            let new = matching.destination.model.entity(named: successor)
        else { return [] }
        return matching.destination.model.properties(of: new).filter { candidate in
            guard !candidate.isTransient else { return false }
            switch candidate {
            case .attribute:
                return matching.attribute(candidate.name, of: successor)?.attribute.name == property.property
            case .relationship(let relationship):
                guard let former = matching.relationship(candidate.name, of: successor)?.relationship else {
                    return false
                }
                return former.name == property.property && matching.sharesTargets(former, relationship)
            case .fetched: return false
            }
        }.map { EntityProperty(entity: successor, property: $0.name) }
    }
}

extension EntityMatching {
    /// True if some objects can be targets of both the older and the newer relationship.
    fileprivate func sharesTargets(_ old: RelationshipDescription, _ new: RelationshipDescription) -> Bool {
        let reachable = Set(destination.numbers.family(of: new.destinationEntityName))
        return source.numbers.family(of: old.destinationEntityName).contains {
            successors[$0].map(reachable.contains) ?? false
        }
    }
}
