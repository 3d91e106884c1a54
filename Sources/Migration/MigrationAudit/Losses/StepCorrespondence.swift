import ManagedObjectModels

/// The entities and properties of one step's newer model that receive the content of the older one's.
struct StepCorrespondence {
    struct Successor {
        let entity: String
        let keepsKeys: Bool
        /// True if each object becomes one of this entity.
        let isCertain: Bool
        fileprivate let mapping: FollowedEntity?
    }

    /// What becomes of a property of one entity's objects.
    enum Continuation<Property> {
        case property(Property)
        /// Nothing has its content.
        case none
        /// An expression or an app's own code decides.
        case undecided
    }

    let step: CountedStep
    let old: EntityTree
    let new: EntityTree
    private let pairing: EntityPairing
    private let mappings: [String: [FollowedEntity]]
    /// The properties that expressions of any mapping read from related objects.
    private let readElsewhere: Set<String>
    private var attributes: [String: [AttributeKey: AttributeKey]] = [:]
    private var relationships: [String: [PropertyKey: PropertyKey]] = [:]

    init(_ step: CountedStep) {
        self.step = step
        old = EntityTree(step.source)
        new = EntityTree(step.destination)
        pairing = EntityPairing(old, new)
        if case .mapped(let entities) = step.kind {
            mappings = Dictionary(grouping: entities, by: \.source)
            readElsewhere = entities.reduce(into: []) { $0.formUnion($1.readFromOthers) }
        } else {
            (mappings, readElsewhere) = ([:], [])
            for (entity, successor) in pairing.successors {
                attributes[entity] = attributes(in: successor)
                relationships[entity] = relationships(in: successor)
            }
        }
    }

    func successors(of entity: String) -> [Successor] {
        guard step.isMapped else {
            let found = pairing.successors[entity]
            return found.map { [Successor(entity: $0, keepsKeys: true, isCertain: true, mapping: nil)] } ?? []
        }
        return (mappings[entity] ?? []).map {
            Successor(
                entity: $0.destination, keepsKeys: $0.keepsKeys, isCertain: $0.isUnconditional && !$0.usesPolicy,
                mapping: $0)
        }
    }

    func attribute(_ key: AttributeKey, of entity: String, in successor: Successor) -> Continuation<AttributeKey> {
        guard let mapping = successor.mapping else {
            return attributes[entity]?[key].map { .property($0) } ?? .none
        }
        return continuation(of: key.path[0], mapping) { name in
            guard key.path.count == 1, let declaring = new.declaring(name, of: mapping.destination),
                let attribute = new.attribute(PropertyKey(entity: declaring, name: name)), !attribute.isTransient
            else { return nil }
            return AttributeKey(entity: declaring, path: [name])
        }
    }

    func relationship(_ key: PropertyKey, of entity: String, in successor: Successor) -> Continuation<PropertyKey> {
        guard let mapping = successor.mapping else {
            return relationships[entity]?[key].map { .property($0) } ?? .none
        }
        return continuation(of: key.name, mapping) { name in
            guard let declaring = new.declaring(name, of: mapping.destination) else { return nil }
            let key = PropertyKey(entity: declaring, name: name)
            return new.relationship(key).flatMap { $0.isTransient ? nil : key }
        }
    }

    /// Returns true if a relationship of the newer entity has no older one. It then takes the order of the one whose
    /// links it shares.
    func isNew(_ key: PropertyKey, of entity: String, in successor: Successor) -> Bool {
        successor.mapping == nil && relationships[entity]?.values.contains(key) != true
    }

    private func continuation<Property>(
        of name: String, _ mapping: FollowedEntity, _ find: (String) -> Property?
    ) -> Continuation<Property> {
        guard !mapping.usesPolicy, !mapping.readsWholeObject else { return .undecided }
        let copies = mapping.copied.filter { $0.source == name }.compactMap { find($0.destination) }
        if copies.count == 1 { return .property(copies[0]) }
        let isRead = mapping.read.contains(name) || readElsewhere.contains(name)
        return !copies.isEmpty || isRead ? .undecided : .none
    }

    // MARK: By renaming identifiers

    /// Returns the attributes of a newer entity's objects, by the older ones.
    private func attributes(in successor: String) -> [AttributeKey: AttributeKey] {
        var found: [AttributeKey: AttributeKey] = [:]
        for declaring in new.lineage(of: successor) {
            for attribute in new.model.entity(named: declaring)?.attributes ?? [] {
                for stored in StoredAttribute.all(of: attribute) {
                    guard let source = pairing.source(of: stored, in: successor) else { continue }
                    found[source.key] = AttributeKey(entity: declaring, path: stored.path)
                }
            }
        }
        return found
    }

    /// Returns the relationships of a newer entity's objects, by the older ones.
    private func relationships(in successor: String) -> [PropertyKey: PropertyKey] {
        var found: [PropertyKey: PropertyKey] = [:]
        for declaring in new.lineage(of: successor) {
            for relationship in new.model.entity(named: declaring)?.relationships ?? [] where !relationship.isTransient
            {
                guard let source = pairing.source(of: relationship, in: successor) else { continue }
                found[source] = PropertyKey(entity: declaring, name: relationship.name)
            }
        }
        return found
    }
}

extension EntityTree {
    /// Returns the attribute that an entity declares.
    func attribute(_ key: PropertyKey) -> AttributeDescription? {
        guard let entity = model.entity(named: key.entity),
            case .attribute(let attribute)? = model.declaredProperty(named: key.name, of: entity)
        else { return nil }
        return attribute
    }

    /// Returns the description of a stored value: an attribute, or an element of a composite one.
    func stored(_ key: AttributeKey) -> StoredAttribute? {
        attribute(PropertyKey(entity: key.entity, name: key.path[0])).flatMap { attribute in
            StoredAttribute.all(of: attribute).first { $0.path == key.path }
        }
    }

    /// Returns true if objects of `entity` have the relationship or attribute that `declaring` declares.
    func inherits(_ entity: String, from declaring: String) -> Bool { lineage(of: entity).contains(declaring) }
}
