import CoreDataStore
import ManagedObjectModels
import MappingModels

/// A property of one entity's objects.
struct EntityProperty: Hashable {
    let entity: String
    let property: String
}

/// What one step carries over. Nil stands for what can't be told beforehand, as where a policy or a condition has it.
protocol CarriedProperties {
    /// The newer entities that objects of the older become.
    func successors(of entity: String) -> [String]?
    /// What the values of the older property go into.
    func successors(of property: EntityProperty) -> [EntityProperty]?
}

/// The whole way of a store's objects and values, step by step.
struct MigrationSteps {
    private let steps: [(name: String, source: ManagedObjectModel, carried: any CarriedProperties)]

    /// Why something is lost.
    struct End {
        /// The version that has no place for it.
        let version: String
        let isLast: Bool
        let isMapped: Bool

        func reason(ofObjects: Bool) -> String {
            if isMapped { return ofObjects ? "is taken by no entity mapping" : "is read by no mapping" }
            let what = ofObjects ? "is not in" : "is not stored by"
            return isLast ? "\(what) the newer model" : "\(what) \(version), through which the migration leads"
        }
    }

    /// Throws `MappingModelError` where a mapping model doesn't lead on.
    init(_ steps: [MigrationStep]) throws {
        self.steps = try steps.map { step in
            switch step.method {
            case .inferred(let mapping):
                let succession = EntityMatching(StoreLayout(step.source), StoreLayout(step.destination), mapping)
                return (step.destinationName, step.source, InferredCarrying(succession))
            case .custom(let mapping):
                let resolved = try mapping.resolved(from: step.source, to: step.destination)
                return (step.destinationName, step.source, MappedCarrying(resolved, step.source))
            }
        }
    }

    /// Where all objects of the entity are lost; nil where some may arrive.
    func end(of entity: String) -> End? { end([entity]) { $0.successors(of: $1) } }

    /// Where all values of the property are lost, or all links of the relationship from both its ends.
    func end(of property: EntityProperty) -> End? { end([property]) { $0.successors(of: $1) } }

    private func end<Thing: Hashable>(
        _ things: Set<Thing>, _ next: (any CarriedProperties, Thing) -> [Thing]?
    ) -> End? {
        var things = things
        for (index, step) in steps.enumerated() {
            var found: Set<Thing> = []
            for thing in things {
                guard let successors = next(step.carried, thing) else { return nil }
                found.formUnion(successors)
            }
            guard !found.isEmpty else {
                return End(
                    version: step.name, isLast: index == steps.count - 1, isMapped: step.carried is MappedCarrying)
            }
            things = found
        }
        return nil
    }
}

/// By an inferred mapping.
struct InferredCarrying: CarriedProperties {
    private let succession: EntityMatching

    init(_ succession: EntityMatching) { self.succession = succession }

    func successors(of entity: String) -> [String]? { succession.successors[entity].map { [$0] } ?? [] }

    func successors(of property: EntityProperty) -> [EntityProperty]? {
        let model = succession.source.model
        guard let entity = model.entity(named: property.entity) else { return [] }
        let own = carried(property)
        guard case .relationship(let relationship)? = model.property(named: property.property, of: entity),
            let inverse = model.inverse(of: relationship)
        else { return own }
        // Links are kept where one end is.
        return own
            + succession.source.numbers.family(of: relationship.destinationEntityName).flatMap {
                carried(EntityProperty(entity: $0, property: inverse.name))
            }
    }

    private func carried(_ property: EntityProperty) -> [EntityProperty] {
        guard let successor = succession.successors[property.entity],
            let new = succession.destination.model.entity(named: successor)
        else { return [] }
        return succession.destination.model.properties(of: new).filter { candidate in
            guard !candidate.isTransient else { return false }
            switch candidate {
            case .attribute:
                return succession.attribute(candidate.name, of: successor)?.attribute.name == property.property
            case .relationship(let relationship):
                guard let was = succession.relationship(candidate.name, of: successor)?.relationship else {
                    return false
                }
                return was.name == property.property && succession.canLead(was, to: relationship)
            case .fetched: return false
            }
        }.map { EntityProperty(entity: successor, property: $0.name) }
    }
}

extension EntityMatching {
    /// Whether something that the older relationship may lead to is something that the newer may lead to.
    fileprivate func canLead(_ old: RelationshipDescription, to new: RelationshipDescription) -> Bool {
        let reachable = Set(destination.numbers.family(of: new.destinationEntityName))
        return source.numbers.family(of: old.destinationEntityName).contains {
            successors[$0].map(reachable.contains) ?? false
        }
    }
}
