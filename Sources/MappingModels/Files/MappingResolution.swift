import ManagedObjectModels

extension MappingModel {
    /// The same with everything said: what is automatic is put in as Xcode's compiler does it, and the entities' hashes
    /// are the two models'. Throws `MappingModelError` where the mapping names what the models don't have.
    public func resolved(
        from source: ManagedObjectModel, to destination: ManagedObjectModel
    ) throws(MappingModelError) -> MappingModel {
        do { return try MappingResolution(self, source, destination).resolved() } catch {
            throw MappingModelError(error, .unfitting, nil)
        }
    }

    /// Whether it leads from the one model to the other: by the entities' hashes where it has them, else by what it
    /// names. The versions' own names are looked at by whoever knows them.
    public func fits(from source: ManagedObjectModel, to destination: ManagedObjectModel) -> Bool {
        (try? resolved(from: source, to: destination)) != nil
    }
}

/// Puts into a mapping model what the two models tell.
struct MappingResolution {
    private let mapping: MappingModel
    private let source: ManagedObjectModel
    private let destination: ManagedObjectModel

    init(_ mapping: MappingModel, _ source: ManagedObjectModel, _ destination: ManagedObjectModel) {
        self.mapping = mapping
        self.source = source
        self.destination = destination
    }

    func resolved() throws(MappingFault) -> MappingModel {
        var resolved = mapping
        resolved.entityMappings = []
        var names: Set<String> = []
        for one in mapping.entityMappings {
            guard names.insert(one.name).inserted else {
                throw MappingFault("two entity mappings have this name", remedy: "rename one", element: one.name)
            }
            resolved.entityMappings.append(try entityMapping(one))
        }
        for step in mapping.preparations { try check(step, source, "older") }
        for step in mapping.completions { try check(step, destination, "newer") }
        return resolved
    }

    private func check(_ step: MappingStep, _ model: ManagedObjectModel, _ which: String) throws(MappingFault) {
        guard case .drop(let name, _) = step, model.entity(named: name) == nil else { return }
        throw MappingFault("the \(which) model has no such entity to drop", remedy: "see its name", element: name)
    }

    private func entityMapping(_ mapping: EntityMapping) throws(MappingFault) -> EntityMapping {
        var found = mapping
        let old = try entity(mapping.sourceEntityName, source, "older", mapping)
        let new = try entity(mapping.destinationEntityName, destination, "newer", mapping)
        found.sourceEntityVersionHash = try hash(mapping.sourceEntityVersionHash, old, source, "older", mapping)
        found.destinationEntityVersionHash = try hash(
            mapping.destinationEntityVersionHash, new, destination, "newer", mapping)
        guard let new else { return found }
        guard !new.isAbstract || mapping.entityMigrationPolicyClassName != nil || old == nil else {
            throw MappingFault(
                "\(new.name) is abstract: there are no objects of it", remedy: "map to an entity that inherits from it",
                element: mapping.name)
        }
        if found.kind == .transform, let old, found.sourceEntityVersionHash == found.destinationEntityVersionHash,
            old.name == new.name
        {
            found.kind = .copy
        }
        if !mapping.mapsOnlyWhatIsListed {
            found.addAutomatic(destination.properties(of: new))
            found.mapsOnlyWhatIsListed = true
        }
        found.attributeMappings = try properties(found.attributeMappings, old, new, mapping, isAttribute: true)
        found.relationshipMappings = try properties(found.relationshipMappings, old, new, mapping, isAttribute: false)
        return found
    }

    private func entity(
        _ name: String?, _ model: ManagedObjectModel, _ which: String, _ mapping: EntityMapping
    ) throws(MappingFault) -> EntityDescription? {
        guard let name else { return nil }
        guard let entity = model.entity(named: name) else {
            throw MappingFault(
                "the \(which) model has no entity “\(name)”", remedy: "name the models that it was written for",
                element: mapping.name)
        }
        return entity
    }

    private func hash(
        _ hash: [UInt8]?, _ entity: EntityDescription?, _ model: ManagedObjectModel, _ which: String,
        _ mapping: EntityMapping
    ) throws(MappingFault) -> [UInt8]? {
        guard let entity else { return nil }
        let known = model.entityVersionHashesByName[entity.name]
        guard hash == nil || hash == known else {
            throw MappingFault(
                "it was written for another version of the \(which) model: \(entity.name) has another version hash",
                remedy: "compile it again for these models", element: mapping.name)
        }
        return known
    }

    // MARK: Properties

    private func properties(
        _ mappings: [PropertyMapping], _ old: EntityDescription?, _ new: EntityDescription, _ mapping: EntityMapping,
        isAttribute: Bool
    ) throws(MappingFault) -> [PropertyMapping] {
        var found: [PropertyMapping] = []
        for one in mappings {
            let element = mapping.name + "." + one.name
            guard destination.property(named: one.name, of: new)?.isAttribute == isAttribute else {
                throw MappingFault(
                    "\(new.name) has no \(isAttribute ? "attribute" : "relationship") of this name",
                    remedy: "name the models that it was written for", element: element)
            }
            guard !found.contains(where: { $0.name == one.name }) else {
                throw MappingFault("it is mapped twice", remedy: "keep one", element: element)
            }
            var resolved = one
            if one.isAutomatic {
                resolved.isAutomatic = false
                resolved.valueExpression = old.flatMap { automatic(one.name, of: $0, isAttribute: isAttribute) }
            } else if one.valueExpression == nil, let name = one.sourceName, let old {
                resolved.valueExpression = automatic(name, of: old, isAttribute: isAttribute)
            }
            found.append(resolved)
        }
        return found
    }

    /// The source's property of the same name, as Xcode's compiler puts it in; nil where there is none.
    private func automatic(_ name: String, of entity: EntityDescription, isAttribute: Bool) -> MappingExpression? {
        switch source.property(named: name, of: entity) {
        case .attribute(let attribute)? where isAttribute && !attribute.isTransient: return .source(name)
        case .relationship(let relationship)? where !isAttribute && !relationship.isTransient:
            return instances(relationship)
        default: return nil
        }
    }

    /// By the one mapping of the objects that the relationship leads to, else by whatever mapping made something of
    /// them: those of an entity that others inherit from have several.
    private func instances(_ relationship: RelationshipDescription) -> MappingExpression {
        let family = source.family(of: relationship.destinationEntityName)
        let candidates = mapping.entityMappings.filter { one in
            one.destinationEntityName != nil && one.sourceEntityName.map(family.contains) ?? false
        }
        if candidates.count == 1, family.count == 1 {
            return .destinationInstances(of: candidates[0].name, relationship.name)
        }
        return .destinationInstances(ofRelationship: relationship.name, relationship.name)
    }
}

extension EntityMapping {
    /// What has no mapping is automatic.
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
    /// The entity and all that inherit from it.
    package func family(of name: String) -> Set<String> {
        Set(entities.filter { $0.name == name || superentities(of: $0).contains { $0.name == name } }.map(\.name))
    }
}
