extension ManagedObjectModel {
    /// Merges several models into one, like `NSManagedObjectModel(byMerging:)`. Several models may contain an entity
    /// only if it is the same in all of them.
    ///
    /// ```swift
    /// let model = try ManagedObjectModel(merging: [notes.current.model, tags.current.model])
    /// ```
    ///
    /// - Throws: ``ModelFault`` if two entities of a name differ, or the result is inconsistent.
    public init(merging models: [ManagedObjectModel]) throws {
        var entities: [String: EntityDescription] = [:]
        var configurations: [String: [String]] = [:]
        var templates: [String: FetchRequestTemplate] = [:]
        for model in models {
            for entity in model.entities {
                if let other = entities[entity.name], other != entity {
                    throw ModelFault(
                        entity: entity.name, "two models have different entities of this name",
                        remedy: "rename one of them, or make them the same"
                    ).coded(ModelError.Code.unmergeable.rawValue)
                }
                entities[entity.name] = entity
            }
            for (name, members) in model.configurations {
                let known = configurations[name] ?? []
                configurations[name] = known + members.filter { !known.contains($0) }
            }
            for template in model.fetchRequestTemplates {
                templates[template.name] = templates[template.name] ?? template
            }
        }
        do {
            try self.init(
                entities: Array(entities.values),
                versionIdentifiers: models.reduce(into: Set()) { $0.formUnion($1.versionIdentifiers) },
                configurations: configurations,
                fetchRequestTemplates: templates.values.sorted { $0.name.precedes($1.name) })
        } catch let fault as ModelFault {
            throw fault.coded(ModelError.Code.unmergeable.rawValue)
        }
    }
}
