import ManagedObjectModels

/// A fetch index that the model requests but groupstore doesn't create, because it is unknown how Core Data writes it.
package struct UnsupportedIndex: Equatable, Sendable {
    package let entity: String
    package let name: String
    /// The part of the index that isn't supported.
    package let reason: String

    /// The message for users.
    package var message: String { "the fetch index \(name) is not created: \(reason)" }
}

extension StoreLayout {
    /// The unsupported indexes, by entity number. Fetch requests are slower without them but return the same objects.
    package var unsupportedIndexes: [UnsupportedIndex] {
        numbers.entities.flatMap { entity in
            entity.indexes.compactMap { index in
                unsupportedPart(of: index, in: entity).map {
                    UnsupportedIndex(entity: entity.name, name: index.name, reason: $0)
                }
            }
        }
    }

    private func unsupportedPart(of index: FetchIndexDescription, in entity: EntityDescription) -> String? {
        if let predicate = index.partialIndexPredicate,
            index.elements.first?.kind == .rTree || condition(of: index, entity) == nil
        {
            return "it is a partial index, where \(predicate)"
        }
        let missing = index.elements.first { column(of: $0.property, of: entity.name) == nil }
        return missing.map { "“\($0.property)” is not a stored attribute or to-one relationship" }
    }
}
