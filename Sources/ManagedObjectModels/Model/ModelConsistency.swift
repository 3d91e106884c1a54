/// Whether a model's parts fit together.
struct ModelConsistency {
    /// Far more than any real model has; a stranger's model can't take all memory by its inherited properties.
    private static let mostEntities = 20_000
    private static let deepestHierarchy = 200
    private static let mostProperties = 2_000_000

    private let model: ManagedObjectModel

    init(_ model: ManagedObjectModel) { self.model = model }

    /// Throws `ModelFault`.
    func check() throws {
        guard model.entities.count <= Self.mostEntities else {
            throw ModelFault(
                "the model has \(model.entities.count) entities",
                remedy: "\(Self.mostEntities) is the most that is read")
        }
        try checkNames()
        try checkHierarchy()
        var count = 0
        for entity in model.entities {
            let ancestors = model.superentities(of: entity)
            count += ancestors.reduce(entity.propertyCount) { $0 + $1.propertyCount }
            guard count <= Self.mostProperties else {
                throw ModelFault("the model has too many properties", remedy: "\(Self.mostProperties) is the most")
            }
            try checkProperties(of: entity, ancestors)
        }
    }

    private func checkNames() throws {
        for (one, next) in zip(model.entities, model.entities.dropFirst()) where one.name == next.name {
            throw ModelFault(entity: one.name, "there are two entities of this name", remedy: "rename one of them")
        }
        if let unnamed = model.entities.first(where: \.name.isEmpty) {
            throw ModelFault(entity: unnamed.name, "an entity has no name", remedy: "name it")
        }
        for (configuration, names) in model.configurations {
            for name in names where model.entity(named: name) == nil {
                throw ModelFault(
                    entity: name, "the configuration “\(configuration)” names this entity, which is not there",
                    remedy: "add the entity or take it out of the configuration")
            }
        }
    }

    private func checkHierarchy() throws {
        for entity in model.entities {
            var depth = 0
            var current = entity
            while let name = current.superentityName {
                guard let parent = model.entity(named: name) else {
                    throw ModelFault(
                        entity: current.name, "its parent entity “\(name)” is not in the model",
                        remedy: "add the parent, or let the entity have none")
                }
                guard parent.name != entity.name else {
                    throw ModelFault(
                        entity: entity.name, "the entity inherits from itself", remedy: "break the circle of parents")
                }
                depth += 1
                guard depth <= Self.deepestHierarchy else {
                    throw ModelFault(
                        entity: entity.name, "its ancestors don't end after \(Self.deepestHierarchy) entities",
                        remedy: "break the circle of parents, or flatten the hierarchy")
                }
                current = parent
            }
        }
    }

    private func checkProperties(of entity: EntityDescription, _ ancestors: [EntityDescription]) throws {
        var names: Set<String> = []
        for ancestor in ancestors { names.formUnion(ancestor.propertyNames) }
        for name in entity.propertyNames {
            guard names.insert(name).inserted else {
                throw ModelFault(
                    entity: entity.name, property: name,
                    "there are two properties of this name, inherited ones counted",
                    remedy: "rename one of them")
            }
        }
        for relationship in entity.relationships { try check(relationship, of: entity) }
        for constraint in entity.uniquenessConstraints {
            for name in constraint where !names.contains(name.prefixOfKeyPath) {
                throw ModelFault(
                    entity: entity.name, property: name, "a uniqueness constraint names a property that is not there",
                    remedy: "name a property of the entity")
            }
        }
    }

    private func check(_ relationship: RelationshipDescription, of entity: EntityDescription) throws {
        func fault(_ message: String, _ remedy: String) -> ModelFault {
            ModelFault(entity: entity.name, property: relationship.name, message, remedy: remedy)
        }
        guard let destination = model.entity(named: relationship.destinationEntityName) else {
            throw fault(
                "its destination “\(relationship.destinationEntityName)” is not in the model",
                "choose a destination, or merge the model that has it")
        }
        guard let name = relationship.inverseName else { return }
        guard case .relationship? = model.property(named: name, of: destination) else {
            throw fault(
                "its inverse “\(name)” is no relationship of \(destination.name)", "choose the inverse again")
        }
    }
}

extension EntityDescription {
    fileprivate var propertyCount: Int { attributes.count + relationships.count + fetchedProperties.count }
    fileprivate var propertyNames: [String] {
        attributes.map(\.name) + relationships.map(\.name) + fetchedProperties.map(\.name)
    }
}

extension String {
    /// A composite attribute's element is named by a key path; the property is its first part.
    fileprivate var prefixOfKeyPath: String { String(prefix { $0 != "." }) }
}
