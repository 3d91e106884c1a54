import ManagedObjectModels

/// The numbers that Core Data gives a model's entities (`Z_ENT`): roots in the order of their names, case not looked
/// at, each followed by all that inherit from it, from 1.
package struct EntityNumbers: Sendable {
    /// In the order of their numbers.
    package let entities: [EntityDescription]
    private let numbers: [String: Int64]
    private let parents: Set<String>

    package init(_ model: ManagedObjectModel) {
        let children = Dictionary(grouping: model.entities, by: \.superentityName)
        var found: [EntityDescription] = []
        var waiting = Self.sorted(children[nil] ?? [])
        while let next = waiting.popLast() {
            found.append(next)
            waiting += Self.sorted(children[next.name] ?? [])
        }
        entities = found
        numbers = Dictionary(
            found.enumerated().map { ($1.name, Int64($0 + 1)) }, uniquingKeysWith: { first, _ in first })
        parents = Set(model.entities.compactMap(\.superentityName))
    }

    /// In the order of their names, case not looked at.
    package var entitiesByName: [EntityDescription] { Self.sorted(entities).reversed() }

    /// The last one first, to be taken from the end.
    private static func sorted(_ entities: [EntityDescription]) -> [EntityDescription] {
        entities.sorted { one, other in
            let (first, second) = (one.name.lowercased(), other.name.lowercased())
            return first == second ? other.name.precedes(one.name) : second.precedes(first)
        }
    }

    /// 0 for an entity that the model doesn't have.
    package func number(of entity: String) -> Int64 { numbers[entity] ?? 0 }

    /// The entity and all that inherit from it, directly or not, by number.
    package func family(of entity: String) -> [String] {
        var found: Set<String> = [entity]
        // Each comes after what it inherits from.
        for one in entities where one.superentityName.map(found.contains) ?? false { found.insert(one.name) }
        return entities.map(\.name).filter(found.contains)
    }

    package func hasSubentities(_ entity: String) -> Bool { parents.contains(entity) }
}
