import ManagedObjectModels

/// One stored value of an attribute: the attribute itself, or one element of a composite one.
struct StoredAttribute {
    /// The names on the way to it, the attribute's first: names may hold any letter, so they are never joined.
    let path: [String]
    /// The renaming identifiers on the way to it.
    let identifiers: [String]
    /// What the value is like: the attribute, or the element.
    let description: AttributeDescription
    /// The attribute that the entity declares.
    let attribute: AttributeDescription

    var isElement: Bool { path.count > 1 }

    /// The columns' attributes of one that an entity declares, in the order in which columns get their names.
    static func all(of attribute: AttributeDescription) -> [StoredAttribute] {
        attribute.isTransient ? [] : leaves(attribute, [], [], attribute)
    }

    private static func leaves(
        _ description: AttributeDescription, _ path: [String], _ identifiers: [String],
        _ attribute: AttributeDescription
    ) -> [StoredAttribute] {
        let path = path + [description.name]
        let identifiers = identifiers + [description.renamingIdentifier]
        switch description.type {
        case .undefined, .objectID: return []
        case .composite: return description.elements.flatMap { leaves($0, path, identifiers, attribute) }
        default:
            return [
                StoredAttribute(path: path, identifiers: identifiers, description: description, attribute: attribute)
            ]
        }
    }
}

/// A stored attribute, by the entity that declares it.
struct AttributeKey: Hashable {
    let entity: String
    let path: [String]
}
