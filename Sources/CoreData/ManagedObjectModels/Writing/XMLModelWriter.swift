import XMLDocuments

/// A writer of models as the `contents` of an `.xcdatamodel`, in the form of Xcode 4 and later (`XMLModelReader`).
///
/// Some settings of a model can't be expressed: Xcode's editor has no field for them. The writer leaves them out;
/// `ModelOmissions` finds them by comparing the model with what the document says.
struct XMLModelWriter {
    private let model: ManagedObjectModel
    private var writer = MarkupWriter()
    /// The composites, which follow the entities.
    private var composites: [(name: String, elements: [AttributeDescription])] = []

    private init(_ model: ManagedObjectModel) { self.model = model }

    /// Returns the document. Throws `ModelFault` if a name contains a character that XML doesn't permit.
    static func document(of model: ManagedObjectModel) throws -> String {
        var writer = XMLModelWriter(model)
        try writer.requireExpressibleNames()
        writer.write()
        return writer.writer.text
    }

    private mutating func write() {
        writer.begin(
            "model",
            [
                ("type", "com.apple.IDECoreDataModeler.DataModel"), ("documentVersion", "1.0"),
                ("lastSavedToolsVersion", "22522"), ("systemVersion", "23E224"), ("minimumToolsVersion", "Automatic"),
                ("sourceLanguage", "Swift"), ("userDefinedModelVersionIdentifier", versionIdentifier),
            ])
        for entity in model.entities { write(entity) }
        writeComposites()
        for template in model.fetchRequestTemplates { write(template, name: template.name) }
        for (name, members) in model.configurations.sorted(by: { $0.key.precedes($1.key) }) {
            writer.begin("configuration", [("name", name.expressible)])
            for member in members { writer.element("memberEntity", [("name", member)]) }
            writer.end()
        }
        writer.end()
    }

    /// The version identifier. The document holds exactly one, which may be empty.
    private var versionIdentifier: String {
        model.versionIdentifiers.filter { !$0.isEmpty }.min { $0.precedes($1) }?.expressible ?? ""
    }

    private func requireExpressibleNames() throws {
        for entity in model.entities {
            let properties = entity.declaredProperties.map(\.name)
            guard entity.name.expressible != nil else { throw Self.badName(entity.name, nil) }
            if let bad = properties.first(where: { $0.expressible == nil }) { throw Self.badName(entity.name, bad) }
        }
    }

    private static func badName(_ entity: String, _ property: String?) -> ModelFault {
        ModelFault(
            entity: entity, property: property, "the name contains a character that XML does not permit",
            remedy: "use the store itself as the model")
    }

    // MARK: Entities

    private mutating func write(_ entity: EntityDescription) {
        writer.begin(
            "entity",
            [
                ("name", entity.name), ("representedClassName", entity.managedObjectClassName?.expressible),
                ("isAbstract", .flag(entity.isAbstract)), ("parentEntity", entity.superentityName),
                ("elementID", .renaming(entity.renamingIdentifier, of: entity.name)),
                ("versionHashModifier", entity.versionHashModifier?.expressible), ("syncable", "YES"),
            ])
        for attribute in entity.attributes { write(attribute) }
        for relationship in entity.relationships { write(relationship) }
        for property in entity.fetchedProperties { write(property) }
        for index in entity.indexes { write(index, of: entity) }
        writeNames(entity.compoundIndexes, in: "compoundIndexes", "compoundIndex", "index")
        writeNames(entity.uniquenessConstraints, in: "uniquenessConstraints", "uniquenessConstraint", "constraint")
        write(entity.userInfo)
        writer.end()
    }

    private mutating func writeNames(_ groups: [[String]], in list: String, _ group: String, _ member: String) {
        guard !groups.isEmpty else { return }
        writer.begin(list)
        for names in groups {
            writer.begin(group)
            for name in names { writer.element(member, [("value", name.expressible)]) }
            writer.end()
        }
        writer.end()
    }

    private mutating func write(_ index: FetchIndexDescription, of entity: EntityDescription) {
        writer.begin(
            "fetchIndex",
            [
                ("name", index.name.expressible),
                ("partialIndexPredicate", index.partialIndexPredicate?.expressible),
            ])
        for element in index.elements {
            let isProperty = model.property(named: element.property, of: entity) != nil
            writer.element(
                "fetchIndexElement",
                [
                    (isProperty ? "property" : "expression", element.property.expressible),
                    ("type", element.kind == .rTree ? "RTree" : "Binary"),
                    ("order", element.isAscending ? "ascending" : "descending"),
                ])
        }
        writer.end()
    }

    private mutating func write(_ userInfo: [String: String]) {
        let entries = userInfo.filter { !$0.key.isEmpty && $0.key.expressible != nil && $0.value.expressible != nil }
        guard !entries.isEmpty else { return }
        writer.begin("userInfo")
        for (key, value) in entries.sorted(by: { $0.key.precedes($1.key) }) {
            writer.element("entry", [("key", key), ("value", value)])
        }
        writer.end()
    }

    // MARK: Properties

    private mutating func write(_ attribute: AttributeDescription) {
        var attributes = attribute.markup
        if attribute.type == .composite { attributes.append(("compositeName", compositeName(of: attribute))) }
        writer.begin("attribute", attributes)
        write(attribute.userInfo)
        writer.end()
    }

    /// Returns the name of the composite that lists the attribute's elements. Attributes with equal elements share it.
    private mutating func compositeName(of attribute: AttributeDescription) -> String {
        if let known = composites.first(where: { $0.elements == attribute.elements }) { return known.name }
        let base = attribute.valueClassName?.expressible ?? attribute.name
        let names = Set(composites.map(\.name))
        let name = ([base] + (2...names.count + 2).map { "\(base) \($0)" }).first { !names.contains($0) } ?? base
        composites.append((name, attribute.elements))
        return name
    }

    private mutating func writeComposites() {
        var written = 0
        // Writing a composite may add those of its own elements.
        while written < composites.count {
            let composite = composites[written]
            writer.begin("composite", [("name", composite.name)])
            for element in composite.elements { write(element) }
            writer.end()
            written += 1
        }
    }

    private mutating func write(_ relationship: RelationshipDescription) {
        let isUnlimited = relationship.maxCount == 0
        writer.begin(
            "relationship",
            [
                ("name", relationship.name), ("optional", .flag(relationship.isOptional)),
                ("transient", .flag(relationship.isTransient)), ("toMany", .flag(relationship.isToMany)),
                ("minCount", relationship.minCount == 0 ? nil : String(relationship.minCount)),
                ("maxCount", isUnlimited ? nil : String(relationship.maxCount)),
                ("ordered", .flag(relationship.isOrdered)), ("deletionRule", relationship.deleteRule.name),
                ("destinationEntity", relationship.destinationEntityName), ("inverseName", relationship.inverseName),
                ("inverseEntity", relationship.inverseName.map { _ in relationship.destinationEntityName }),
                ("elementID", .renaming(relationship.renamingIdentifier, of: relationship.name)),
                ("versionHashModifier", relationship.versionHashModifier?.expressible), ("syncable", "YES"),
            ])
        write(relationship.userInfo)
        writer.end()
    }

    private mutating func write(_ property: FetchedPropertyDescription) {
        writer.begin(
            "fetchedProperty",
            [
                ("name", property.name), ("optional", "YES"),
                ("elementID", .renaming(property.renamingIdentifier, of: property.name)), ("syncable", "YES"),
            ])
        write(property.fetchRequest, name: "fetchedPropertyFetchRequest")
        write(property.userInfo)
        writer.end()
    }

    private mutating func write(_ request: FetchRequestTemplate, name: String) {
        writer.element(
            "fetchRequest",
            [
                ("name", name.expressible), ("entity", request.entityName.expressible),
                ("predicateString", request.predicate?.expressible),
                ("fetchLimit", request.fetchLimit == 0 ? nil : String(request.fetchLimit)),
                ("fetchBatchSize", request.fetchBatchSize == 0 ? nil : String(request.fetchBatchSize)),
            ])
    }
}

extension String {
    /// The text; nil if XML can't express it, so that its attribute is left out.
    var expressible: String? { isExpressibleInMarkup ? self : nil }
}

extension String? {
    static func flag(_ isSet: Bool) -> String? { isSet ? "YES" : nil }

    static func renaming(_ identifier: String, of name: String) -> String? {
        identifier == name ? nil : identifier.expressible
    }
}
