import ManagedObjectModels

/// Which entities and properties of the older model live on as which of the newer one: those of the same renaming
/// identifier.
struct EntityPairing {
    let old: EntityTree
    let new: EntityTree
    /// By the name in the newer model.
    let predecessors: [String: String]
    /// By the name in the older model.
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
            for entity in old.line(of: name) {
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

    /// The new entities that objects come to, with their older ones.
    func survivors(among entities: [String]) -> [(new: String, old: String)] {
        entities.compactMap { name in predecessors[name].map { (name, $0) } }
    }

    /// What a stored value of a new entity was in the older one; nil when it is new.
    func source(of stored: StoredAttribute, in entity: String) -> (key: AttributeKey, stored: StoredAttribute)? {
        guard let old = predecessors[entity], let found = oldAttributes[old]?[stored.identifiers[0]] else { return nil }
        let match = StoredAttribute.all(of: found.attribute).first { $0.identifiers == stored.identifiers }
        return match.map { (AttributeKey(entity: found.key.entity, path: $0.path), $0) }
    }

    /// The attribute that an attribute of a new entity was, stored or not; nil when it is new.
    func attribute(before attribute: AttributeDescription, in entity: String) -> AttributeDescription? {
        predecessors[entity].flatMap { oldAttributes[$0]?[attribute.renamingIdentifier]?.attribute }
    }

    /// What a relationship of a new entity was in the older one; nil when it is new, or wasn't stored.
    func source(of relationship: RelationshipDescription, in entity: String) -> PropertyKey? {
        guard let before = predecessors[entity],
            let key = oldRelationships[before]?[relationship.renamingIdentifier],
            old.relationship(key)?.isTransient == false
        else { return nil }
        return key
    }
}
