import ManagedObjectModels

extension EntityDescription {
    /// Returns the declared attribute that a path names, or the element of a composite attribute; nil where there is
    /// none.
    package func attribute(at path: [String]) -> AttributeDescription? {
        guard let first = path.first, let attribute = attributes.first(where: { $0.name == first }) else { return nil }
        return path.dropFirst().reduce(attribute) { found, name in found?.elements.first { $0.name == name } }
    }
}
