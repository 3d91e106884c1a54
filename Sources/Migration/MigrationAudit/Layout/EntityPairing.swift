import ManagedObjectModels

/// The matching entities and properties of two models: those with the same renaming identifier.
struct EntityPairing {
    let old: EntityTree
    let new: EntityTree
    /// The old name of each entity, by its new name.
    let predecessors: [String: String]
    /// The new name of each entity, by its old name.
    let successors: [String: String]
    private var oldAttributes: [String: [String: (key: PropertyKey, attribute: AttributeDescription)]] = [:]
    private var oldRelationships: [String: [String: PropertyKey]] = [:]

    init(_ old: EntityTree, _ new: EntityTree) {
        self.old = old
        self.new = new
        let known = Dictionary(
            old.model.entities.map { ($0.renamingIdentifier, $0.name) }, uniquingKeysWith: { first, _ in first })
        var predecessors: [String: String] = [:]
        for entity in new.model.entities { predecessors[entity.name] = known[entity.renamingIdentifier] }
        self.predecessors = predecessors
        successors = Dictionary(predecessors.map { ($1, $0) }, uniquingKeysWith: { first, _ in first })
        for name in old.names where successors[name] != nil {
            var attributes: [String: (PropertyKey, AttributeDescription)] = [:]
            var relationships: [String: PropertyKey] = [:]
            for entity in old.lineage(of: name) {
                guard let description = old.model.entity(named: entity) else { continue }
                for attribute in description.attributes where attributes[attribute.renamingIdentifier] == nil {
                    attributes[attribute.renamingIdentifier] = (
                        PropertyKey(entity: entity, name: attribute.name), attribute
                    )
                }
                for relationship in description.relationships
                where relationships[relationship.renamingIdentifier] == nil {
                    relationships[relationship.renamingIdentifier] = PropertyKey(
                        entity: entity, name: relationship.name)
                }
            }
            oldAttributes[name] = attributes
            oldRelationships[name] = relationships
        }
    }

    /// Returns the entities with a predecessor.
    func survivors(among entities: [String]) -> [(new: String, old: String)] {
        entities.compactMap { name in predecessors[name].map { (name, $0) } }
    }

    /// Returns the old attribute of a stored value; nil if the attribute is new.
    func source(of stored: StoredAttribute, in entity: String) -> (key: AttributeKey, stored: StoredAttribute)? {
        guard let old = predecessors[entity], let found = oldAttributes[old]?[stored.identifiers[0]] else { return nil }
        let match = StoredAttribute.all(of: found.attribute).first { $0.identifiers == stored.identifiers }
        return match.map { (AttributeKey(entity: found.key.entity, path: $0.path), $0) }
    }

    /// Returns the old form of a relationship; nil if the relationship is new or wasn't stored.
    func source(of relationship: RelationshipDescription, in entity: String) -> PropertyKey? {
        guard let before = predecessors[entity],
            let key = oldRelationships[before]?[relationship.renamingIdentifier],
            old.relationship(key)?.isTransient == false
        else { return nil }
        return key
    }
}
