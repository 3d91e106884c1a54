import ManagedObjectModels

extension ManagedObjectModel {
    /// Returns the attribute of an entity that a path names, or the element of a composite attribute; nil for none.
    package func attribute(at path: [String], of entity: String) -> AttributeDescription? {
        guard let first = path.first, let entity = self.entity(named: entity),
            case .attribute(let attribute)? = property(named: first, of: entity)
        else { return nil }
        return path.dropFirst().reduce(attribute) { found, name in found?.elements.first { $0.name == name } }
    }
}
