import ManagedObjectModels

/// A fetch index that the model asks for and that isn't made here: no store shows how Core Data writes it.
package struct UnmadeIndex: Equatable, Sendable {
    package let entity: String
    package let name: String
    /// What it has that the others haven't.
    package let reason: String

    package var sentence: String { "the fetch index \(name) isn't made here: \(reason)" }
}

extension StoreLayout {
    /// By entity number. Without it requests are slower, no less right.
    package var unmadeIndexes: [UnmadeIndex] {
        numbers.entities.flatMap { entity in
            entity.indexes.compactMap { index in
                reason(against: index, of: entity).map {
                    UnmadeIndex(entity: entity.name, name: index.name, reason: $0)
                }
            }
        }
    }

    private func reason(against index: FetchIndexDescription, of entity: EntityDescription) -> String? {
        if let predicate = index.partialIndexPredicate,
            index.elements.first?.kind == .rTree || condition(of: index, entity) == nil
        {
            return "it is of some objects only, where \(predicate)"
        }
        let missing = index.elements.first { column(of: $0.property, of: entity.name) == nil }
        return missing.map { "“\($0.property)” is no stored attribute or to-one relationship" }
    }
}
