/// The settings of a model that another one, read from a document that was written for it, doesn't have.
struct ModelOmissions {
    /// One note for each setting.
    private(set) var notes: [ModelReadingNote] = []

    /// Compares a model with what the document says. Renaming identifiers, which may be ambiguous, don't matter here.
    init(of model: ManagedObjectModel, in written: ManagedObjectModel) {
        for entity in model.entities {
            guard let other = written.entity(named: entity.name) else { continue }
            add(entity.name, nil, entity.aspects, other.aspects)
            for property in entity.declaredProperties {
                let counterpart = written.declaredProperty(named: property.name, of: other)
                add(entity.name, property.name, property.aspects, counterpart?.aspects ?? [])
            }
        }
        addModelSettings(model, written)
    }

    private mutating func addModelSettings(_ model: ManagedObjectModel, _ written: ManagedObjectModel) {
        let lost = model.versionIdentifiers.subtracting(written.versionIdentifiers).subtracting([""]).sorted()
        for identifier in lost { add(nil, nil, "the version identifier “\(identifier)”: the XML has one") }
        for (name, members) in model.configurations.sorted(by: { $0.key.precedes($1.key) })
        where written.configurations[name].map(Set.init) != Set(members) {
            add(nil, nil, "the configuration “\(name)”")
        }
        for template in model.fetchRequestTemplates where !written.fetchRequestTemplates.contains(template) {
            add(nil, nil, "the fetch request “\(template.name)”")
        }
    }

    private mutating func add(
        _ entity: String, _ property: String?, _ aspects: [ModelAspect], _ written: [ModelAspect]
    ) {
        for aspect in aspects where !written.contains(aspect) {
            add(entity, property, aspect.isFlag ? aspect.name : "\(aspect.name) \(aspect.value)")
        }
        for aspect in written where !aspects.contains(where: { $0.name == aspect.name }) {
            add(entity, property, "no \(aspect.name)")
        }
    }

    private mutating func add(_ entity: String?, _ property: String?, _ setting: String) {
        notes.append(
            ModelReadingNote(
                entity: entity, property: property, line: nil, "XML can't express: \(setting)",
                remedy: "set it in code where the model is loaded, if it matters"))
    }
}
