import ManagedObjectModels

/// The entities and properties of a model by the names that an XML store gives them: entities in upper case, properties
/// in lower case.
struct XMLStoreNames {
    private let model: ManagedObjectModel
    private let entities: [String: [EntityDescription]]
    private var properties: [String: [String: [PropertyDescription]]] = [:]

    init(_ model: ManagedObjectModel) {
        self.model = model
        entities = Dictionary(grouping: model.entities) { $0.name.uppercased() }
    }

    /// Returns the entity of a name in a file. Throws a reason if there is none, or more than one.
    func entity(_ name: String, line: Int) throws(XMLStoreObject.Fault) -> EntityDescription {
        let found = entities[name.uppercased()] ?? []
        // Core Data's own files don't say which of two names that differ only in case is meant.
        if name != name.uppercased(), let exact = found.first(where: { $0.name == name }) { return exact }
        guard let entity = found.first, found.count == 1 else {
            let reason =
                found.isEmpty
                ? "the model has no entity “\(name)”" : "several entities of the model are called “\(name)” in the file"
            throw XMLStoreObject.Fault(reason: reason, line: line)
        }
        return entity
    }

    /// Returns the property of an entity, its inherited ones included. Throws a reason if there is none, or more than
    /// one.
    mutating func property(
        _ name: String, of entity: EntityDescription, line: Int
    ) throws(XMLStoreObject.Fault) -> PropertyDescription {
        let all = properties[entity.name] ?? Dictionary(grouping: model.properties(of: entity)) { $0.name.lowercased() }
        properties[entity.name] = all
        let found = (all[name.lowercased()] ?? []).filter { !$0.isTransient }
        if name != name.lowercased(), let exact = found.first(where: { $0.name == name }) { return exact }
        guard let property = found.first, found.count == 1 else {
            let reason =
                found.isEmpty
                ? "\(entity.name) has no stored property “\(name)” in the model"
                : "several properties of \(entity.name) are called “\(name)” in the file"
            throw XMLStoreObject.Fault(reason: reason, line: line)
        }
        return property
    }
}
