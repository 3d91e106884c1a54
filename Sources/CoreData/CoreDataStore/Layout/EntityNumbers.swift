import ManagedObjectModels

/// The numbers that Core Data assigns to a model's entities (`Z_ENT`), from 1: root entities by name without regard to
/// case, each followed by its descendants.
package struct EntityNumbers: Sendable {
    /// The entities in the order of their numbers.
    package let entities: [EntityDescription]
    private let numbers: [String: Int64]
    private let parents: Set<String>

    package init(_ model: ManagedObjectModel) {
        let children = Dictionary(grouping: model.entities, by: \.superentityName)
        var found: [EntityDescription] = []
        var stack = Self.sorted(children[nil] ?? [])
        while let next = stack.popLast() {
            found.append(next)
            stack += Self.sorted(children[next.name] ?? [])
        }
        entities = found
        numbers = Dictionary(
            found.enumerated().map { ($1.name, Int64($0 + 1)) }, uniquingKeysWith: { first, _ in first })
        parents = Set(model.entities.compactMap(\.superentityName))
    }

    /// The entities by name without regard to case.
    package var entitiesByName: [EntityDescription] { Self.sorted(entities).reversed() }

    /// Sorts entities by name in descending order, so that a stack yields them in ascending order.
    private static func sorted(_ entities: [EntityDescription]) -> [EntityDescription] {
        entities.sorted { lhs, rhs in
            let (first, second) = (lhs.name.lowercased(), rhs.name.lowercased())
            return first == second ? rhs.name.precedes(lhs.name) : second.precedes(first)
        }
    }

    /// Returns the number of an entity; 0 if the model doesn't have it.
    package func number(of entity: String) -> Int64 { numbers[entity] ?? 0 }

    /// Returns the entity and its descendants, by number.
    package func family(of entity: String) -> [String] {
        var found: Set<String> = [entity]
        // A parent precedes its subentities.
        for descendant in entities where descendant.superentityName.map(found.contains) ?? false {
            found.insert(descendant.name)
        }
        return entities.map(\.name).filter(found.contains)
    }

    /// Returns true if other entities inherit from the entity.
    package func hasSubentities(_ entity: String) -> Bool { parents.contains(entity) }
}
