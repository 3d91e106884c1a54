import ManagedObjectModels

extension MappingModel {
    /// Returns this mapping model with all implicit parts filled in for two models: automatic properties get
    /// expressions, as Xcode's compiler creates them, and entities get the models' version hashes.
    ///
    ///     let resolved = try file.mappingModel.resolved(from: old, to: new)
    ///
    /// - Throws: ``MappingModelError`` if the mapping names elements that the models don't have, or other version
    ///   hashes.
    public func resolved(
        from source: ManagedObjectModel, to destination: ManagedObjectModel
    ) throws(MappingModelError) -> MappingModel {
        do { return try MappingResolution(self, from: source, to: destination).resolved() } catch {
            throw MappingModelError(error, code: .unfitting, at: nil)
        }
    }

    /// Returns true if the mapping can be resolved for the two models: all elements that it names exist, and its
    /// version hashes match. ``MappingModelFile/fits(from:to:)`` also compares the names of the versions.
    public func fits(from source: ManagedObjectModel, to destination: ManagedObjectModel) -> Bool {
        (try? resolved(from: source, to: destination)) != nil
    }
}

/// Fills in the implicit parts of a mapping model from the two models.
struct MappingResolution {
    private let mapping: MappingModel
    private let source: ManagedObjectModel
    private let destination: ManagedObjectModel

    init(_ mapping: MappingModel, from source: ManagedObjectModel, to destination: ManagedObjectModel) {
        self.mapping = mapping
        self.source = source
        self.destination = destination
    }

    func resolved() throws(MappingFault) -> MappingModel {
        var resolved = mapping
        resolved.entityMappings = []
        var names: Set<String> = []
        for mapping in mapping.entityMappings {
            guard names.insert(mapping.name).inserted else {
                throw MappingFault("two entity mappings have this name", remedy: "rename one", element: mapping.name)
            }
            resolved.entityMappings.append(try entityMapping(mapping))
        }
        for step in mapping.preparations { try check(step, for: source, "older") }
        for step in mapping.completions { try check(step, for: destination, "newer") }
        return resolved
    }

    private func check(
        _ step: MappingStep, for model: ManagedObjectModel, _ side: String
    ) throws(MappingFault) {
        guard case .drop(let name, _) = step, model.entity(named: name) == nil else { return }
        throw MappingFault("the \(side) model has no such entity to drop", remedy: "check the name", element: name)
    }

    private func entityMapping(_ mapping: EntityMapping) throws(MappingFault) -> EntityMapping {
        var resolved = mapping
        let old = try entity(mapping.sourceEntityName, of: source, "older", in: mapping)
        let new = try entity(mapping.destinationEntityName, of: destination, "newer", in: mapping)
        resolved.sourceEntityVersionHash = try hash(
            of: old, in: source, expected: mapping.sourceEntityVersionHash, "older", mapping: mapping)
        resolved.destinationEntityVersionHash = try hash(
            of: new, in: destination, expected: mapping.destinationEntityVersionHash, "newer", mapping: mapping)
        guard let new else { return resolved }
        guard !new.isAbstract || mapping.entityMigrationPolicyClassName != nil || old == nil else {
            throw MappingFault(
                "\(new.name) is abstract and has no objects", remedy: "map to an entity that inherits from it",
                element: mapping.name)
        }
        if resolved.kind == .transform, let old, old.name == new.name,
            resolved.sourceEntityVersionHash == resolved.destinationEntityVersionHash
        {
            resolved.kind = .copy
        }
        if !mapping.mapsOnlyWhatIsListed {
            resolved.addAutomatic(destination.properties(of: new))
            resolved.mapsOnlyWhatIsListed = true
        }
        resolved.attributeMappings = try properties(
            resolved.attributeMappings, from: old, to: new, in: mapping, isAttribute: true)
        resolved.relationshipMappings = try properties(
            resolved.relationshipMappings, from: old, to: new, in: mapping, isAttribute: false)
        return resolved
    }

    private func entity(
        _ name: String?, of model: ManagedObjectModel, _ side: String, in mapping: EntityMapping
    ) throws(MappingFault) -> EntityDescription? {
        guard let name else { return nil }
        guard let entity = model.entity(named: name) else {
            throw MappingFault(
                "the \(side) model has no entity “\(name)”", remedy: "name the models that it was written for",
                element: mapping.name)
        }
        return entity
    }

    private func hash(
        of entity: EntityDescription?, in model: ManagedObjectModel, expected: [UInt8]?, _ side: String,
        mapping: EntityMapping
    ) throws(MappingFault) -> [UInt8]? {
        guard let entity else { return nil }
        let hash = model.entityVersionHashesByName[entity.name]
        guard expected == nil || expected == hash else {
            throw MappingFault(
                "it was written for another version of the \(side) model: \(entity.name) has another version hash",
                remedy: "compile it again for these models", element: mapping.name)
        }
        return hash
    }

    // MARK: Properties

    private func properties(
        _ mappings: [PropertyMapping], from old: EntityDescription?, to new: EntityDescription,
        in entityMapping: EntityMapping, isAttribute: Bool
    ) throws(MappingFault) -> [PropertyMapping] {
        var result: [PropertyMapping] = []
        for mapping in mappings {
            let element = entityMapping.name + "." + mapping.name
            guard destination.property(named: mapping.name, of: new)?.isAttribute == isAttribute else {
                throw MappingFault(
                    "\(new.name) has no \(isAttribute ? "attribute" : "relationship") of this name",
                    remedy: "name the models that it was written for", element: element)
            }
            guard !result.contains(where: { $0.name == mapping.name }) else {
                throw MappingFault("it is mapped twice", remedy: "keep one", element: element)
            }
            var resolved = mapping
            if mapping.isAutomatic {
                resolved.isAutomatic = false
                resolved.valueExpression = old.flatMap { automatic(mapping.name, of: $0, isAttribute: isAttribute) }
            } else if mapping.valueExpression == nil, let name = mapping.sourceName, let old {
                resolved.valueExpression = automatic(name, of: old, isAttribute: isAttribute)
            }
            result.append(resolved)
        }
        return result
    }

    /// Returns the expression for the source's property of that name, as Xcode's compiler creates it; nil if there is
    /// none.
    private func automatic(_ name: String, of entity: EntityDescription, isAttribute: Bool) -> MappingExpression? {
        switch source.property(named: name, of: entity) {
        case .attribute(let attribute)? where isAttribute && !attribute.isTransient: return .source(name)
        case .relationship(let relationship)? where !isAttribute && !relationship.isTransient:
            return instances(relationship)
        default: return nil
        }
    }

    /// Returns the expression for a relationship's migrated objects. It names the entity mapping of the destination if
    /// there is exactly one; an entity with subentities has several, so the expression covers all of them.
    private func instances(_ relationship: RelationshipDescription) -> MappingExpression {
        let family = source.family(of: relationship.destinationEntityName)
        let candidates = mapping.entityMappings.filter { candidate in
            candidate.destinationEntityName != nil && candidate.sourceEntityName.map(family.contains) ?? false
        }
        if candidates.count == 1, family.count == 1 {
            return .destinationInstances(of: candidates[0].name, relationship.name)
        }
        return .destinationInstances(ofRelationship: relationship.name, relationship.name)
    }
}

extension EntityMapping {
    /// Adds automatic mappings for unlisted properties.
    fileprivate mutating func addAutomatic(_ properties: [PropertyDescription]) {
        let listed = Set((attributeMappings + relationshipMappings).map(\.name))
        for property in properties where !property.isTransient && !listed.contains(property.name) {
            switch property {
            case .attribute(let attribute): attributeMappings.append(.automatic(attribute.name))
            case .relationship(let relationship): relationshipMappings.append(.automatic(relationship.name))
            case .fetched: break
            }
        }
        attributeMappings.sort { $0.name.precedes($1.name) }
        relationshipMappings.sort { $0.name.precedes($1.name) }
    }
}

extension PropertyDescription {
    fileprivate var isAttribute: Bool { if case .attribute = self { true } else { false } }
}

extension ManagedObjectModel {
    /// Returns the names of the entity and all of its subentities.
    package func family(of name: String) -> Set<String> {
        Set(entities.filter { $0.name == name || superentities(of: $0).contains { $0.name == name } }.map(\.name))
    }
}
