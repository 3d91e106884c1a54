/// The validation of a model: unique names, resolved references, no inheritance cycles.
struct ModelValidator {
    /// Limits far above any real model. They keep the inherited properties of a hostile model from exhausting memory.
    private static let maximumEntityCount = 20_000
    private static let maximumHierarchyDepth = 200
    private static let maximumPropertyCount = 2_000_000

    private let model: ManagedObjectModel

    init(_ model: ManagedObjectModel) { self.model = model }

    /// Throws `ModelFault` for the first inconsistency.
    func validate() throws {
        guard model.entities.count <= Self.maximumEntityCount else {
            throw ModelFault(
                "the model has \(model.entities.count) entities",
                remedy: "use at most \(Self.maximumEntityCount) entities")
        }
        try validateNames()
        try validateHierarchy()
        var count = 0
        for entity in model.entities {
            let ancestors = model.superentities(of: entity)
            count += ancestors.reduce(entity.propertyCount) { $0 + $1.propertyCount }
            guard count <= Self.maximumPropertyCount else {
                throw ModelFault(
                    "the model has too many properties", remedy: "use at most \(Self.maximumPropertyCount) properties")
            }
            try validateProperties(of: entity, ancestors)
        }
    }

    private func validateNames() throws {
        for (entity, next) in zip(model.entities, model.entities.dropFirst()) where entity.name == next.name {
            throw ModelFault(entity: entity.name, "there are two entities of this name", remedy: "rename one of them")
        }
        if let unnamed = model.entities.first(where: \.name.isEmpty) {
            throw ModelFault(entity: unnamed.name, "an entity has no name", remedy: "name it")
        }
        for (configuration, names) in model.configurations {
            for name in names where model.entity(named: name) == nil {
                throw ModelFault(
                    entity: name,
                    "the configuration “\(configuration)” contains this entity, which is not in the model",
                    remedy: "add the entity, or remove it from the configuration")
            }
        }
    }

    private func validateHierarchy() throws {
        for entity in model.entities {
            var depth = 0
            var current = entity
            while let name = current.superentityName {
                guard let parent = model.entity(named: name) else {
                    throw ModelFault(
                        entity: current.name, "its parent entity “\(name)” is not in the model",
                        remedy: "add the parent, or remove it from the entity")
                }
                guard parent.name != entity.name else {
                    throw ModelFault(
                        entity: entity.name, "the entity inherits from itself", remedy: "break the cycle of parents")
                }
                depth += 1
                guard depth <= Self.maximumHierarchyDepth else {
                    throw ModelFault(
                        entity: entity.name, "it has more than \(Self.maximumHierarchyDepth) ancestors",
                        remedy: "break the cycle of parents, or flatten the hierarchy")
                }
                current = parent
            }
        }
    }

    private func validateProperties(of entity: EntityDescription, _ ancestors: [EntityDescription]) throws {
        var names: Set<String> = []
        for ancestor in ancestors { names.formUnion(ancestor.propertyNames) }
        for name in entity.propertyNames {
            guard names.insert(name).inserted else {
                throw ModelFault(
                    entity: entity.name, property: name,
                    "the entity declares or inherits two properties of this name",
                    remedy: "rename one of them")
            }
        }
        for relationship in entity.relationships { try validate(relationship, of: entity) }
        for constraint in entity.uniquenessConstraints {
            for name in constraint where !names.contains(name.firstKeyPathComponent) {
                throw ModelFault(
                    entity: entity.name, property: name,
                    "a uniqueness constraint names a property that the entity doesn't have",
                    remedy: "name a property of the entity")
            }
        }
    }

    private func validate(_ relationship: RelationshipDescription, of entity: EntityDescription) throws {
        func fault(_ message: String, _ remedy: String) -> ModelFault {
            ModelFault(entity: entity.name, property: relationship.name, message, remedy: remedy)
        }
        guard let destination = model.entity(named: relationship.destinationEntityName) else {
            throw fault(
                "its destination “\(relationship.destinationEntityName)” is not in the model",
                "choose a destination, or merge the model that contains it")
        }
        guard let name = relationship.inverseName else { return }
        guard case .relationship? = model.property(named: name, of: destination) else {
            throw fault(
                "its inverse “\(name)” is not a relationship of \(destination.name)", "choose the inverse again")
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
    /// The first component of a key path: the property. A key path names an element of a composite attribute.
    fileprivate var firstKeyPathComponent: String { String(prefix { $0 != "." }) }
}
