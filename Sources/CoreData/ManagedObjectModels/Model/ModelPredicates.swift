import PropertyLists

/// The predicates of a model that aren't in format syntax. A store's model cache can't hold what depends on them.
struct ModelPredicates {
    /// A note for each such predicate.
    private(set) var notes: [ModelReadingNote] = []

    init(of model: ManagedObjectModel, lines: [String: Int] = [:]) {
        for entity in model.entities {
            for index in entity.indexes where !index.hasReadablePredicate {
                add(entity.name, nil, "the index “\(index.name)”", index.partialIndexPredicate, lines)
            }
            for fetched in entity.fetchedProperties where !fetched.fetchRequest.hasReadablePredicate {
                add(entity.name, fetched.name, "the fetched property", fetched.fetchRequest.predicate, lines)
            }
            for attribute in entity.attributes { add(entity.name, attribute.name, attribute, lines) }
        }
        for template in model.fetchRequestTemplates where !template.hasReadablePredicate {
            add(nil, nil, "the fetch request “\(template.name)”", template.predicate, lines)
        }
    }

    private mutating func add(
        _ entity: String, _ path: String, _ attribute: AttributeDescription, _ lines: [String: Int]
    ) {
        for rule in attribute.validations where !rule.predicate.isReadablePredicate {
            add(entity, path, "the rule", rule.predicate, lines)
        }
        if let filter = attribute.derivation?.filteringPredicate, !filter.isReadablePredicate {
            add(entity, path, "the derivation's filter", filter, lines)
        }
        for element in attribute.elements { add(entity, path + "." + element.name, element, lines) }
    }

    private mutating func add(
        _ entity: String?, _ property: String?, _ subject: String, _ predicate: String?, _ lines: [String: Int]
    ) {
        let line = entity.flatMap { entity in property.flatMap { lines[entity + "." + $0] } ?? lines[entity] }
        notes.append(
            ModelReadingNote(
                entity: entity, property: property, line: line,
                "\(subject) has a predicate that can't be parsed, “\(predicate ?? "")”; stores' model caches lack it",
                remedy: "correct the predicate, or build it in code"))
    }
}

extension String {
    fileprivate var isReadablePredicate: Bool { (try? MappingPredicate(format: self)) != nil }
}

extension FetchRequestTemplate {
    /// True if there is no predicate, or one in format syntax.
    var hasReadablePredicate: Bool { predicate?.isReadablePredicate ?? true }
}

extension FetchIndexDescription {
    /// True if there is no predicate, or one in format syntax.
    var hasReadablePredicate: Bool { partialIndexPredicate?.isReadablePredicate ?? true }
}

extension KeyedArchiveBuilder {
    /// Adds a predicate in format syntax. Returns the reference to nil for none, or if the text can't be parsed.
    mutating func predicate(format: String?) -> PropertyListValue {
        guard let format, let parsed = try? MappingPredicate(format: format) else { return Self.null }
        return predicate(parsed)
    }
}
