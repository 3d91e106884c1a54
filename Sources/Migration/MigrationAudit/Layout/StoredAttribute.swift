import ManagedObjectModels

/// A stored value: an attribute, or an element of a composite attribute.
struct StoredAttribute {
    /// The path of names, beginning with the attribute. Names may contain any letter, so they are not joined.
    let path: [String]
    /// The path of renaming identifiers.
    let identifiers: [String]
    /// The description of the attribute or element.
    let description: AttributeDescription
    /// The attribute that the entity declares.
    let attribute: AttributeDescription

    var isElement: Bool { path.count > 1 }

    /// Returns the stored values of a declared attribute, in the order in which columns get their names.
    static func all(of attribute: AttributeDescription) -> [StoredAttribute] {
        attribute.isTransient ? [] : leaves(of: attribute, path: [], identifiers: [], attribute: attribute)
    }

    private static func leaves(
        of description: AttributeDescription, path: [String], identifiers: [String],
        attribute: AttributeDescription
    ) -> [StoredAttribute] {
        let path = path + [description.name]
        let identifiers = identifiers + [description.renamingIdentifier]
        switch description.type {
        case .undefined, .objectID: return []
        case .composite:
            return description.elements.flatMap {
                leaves(of: $0, path: path, identifiers: identifiers, attribute: attribute)
            }
        default:
            return [
                StoredAttribute(path: path, identifiers: identifiers, description: description, attribute: attribute)
            ]
        }
    }
}

/// A stored attribute and the entity that declares it.
struct AttributeKey: Hashable {
    let entity: String
    let path: [String]
}
