import SystemPackage
import XMLDocuments

/// A reader of the `contents` of an `.xcdatamodel`, as Xcode 4 and later write it. Apple documents no schema; the
/// meaning of the elements was derived by comparing sources with the output of Xcode's compiler.
struct XMLModelReader {
    let path: FilePath
    private let root: MarkupElement
    /// The element of each composite, by name.
    private let composites: [String: MarkupElement]
    /// The elements of composite attributes that may still be read. Composites may contain each other many times.
    private var remainingElements = 10_000
    private(set) var lines: [String: Int] = [:]
    private(set) var remarks: [ModelReadingNote] = []

    /// Reads a model. Throws `ModelError`.
    static func read(_ bytes: [UInt8], path: FilePath, name: String) throws -> ModelVersion {
        let root: MarkupElement
        do throws(MarkupError) { root = try MarkupReader.read(bytes) } catch {
            throw ModelError(
                .malformed, path, line: error.line, error.message, remedy: "restore the file, or save it in Xcode")
        }
        guard root.name == "model" else {
            throw ModelError(
                .notAModel, path, line: root.line, element: root.name, "the root element is not <model>",
                remedy: "name the contents of an .xcdatamodel")
        }
        var reader = XMLModelReader(path, root)
        return try reader.version(named: name)
    }

    private init(_ path: FilePath, _ root: MarkupElement) {
        self.path = path
        self.root = root
        let composites = root.children.filter { ["composite", "compositeAttribute"].contains($0.name) }
        self.composites = Dictionary(
            composites.compactMap { element in element["name"].map { ($0, element) } },
            uniquingKeysWith: { first, _ in first })
    }

    private mutating func version(named name: String) throws -> ModelVersion {
        var entities: [EntityDescription] = []
        for element in root.children(named: "entity") { entities.append(try entity(element)) }
        let identifier = root["userDefinedModelVersionIdentifier"] ?? ""
        let templates = try root.children(named: "fetchRequest").map { try fetchRequest($0) }
        do {
            let model = try ManagedObjectModel(
                entities: entities, versionIdentifiers: [identifier], configurations: try configurations(),
                fetchRequestTemplates: templates)
            let notes = remarks + ModelPredicates(of: model, lines: lines).notes
            return ModelVersion(name: name, model: model, path: path, remarks: notes, lines: lines)
        } catch let fault as ModelFault {
            throw ModelError(
                fault, path, line: fault.element.flatMap { lines[$0] } ?? fault.entity.flatMap { lines[$0] })
        }
    }

    private func configurations() throws -> [String: [String]] {
        var found: [String: [String]] = [:]
        for element in root.children(named: "configuration") {
            found[try required("name", element)] = try element.children(named: "memberEntity").map {
                try required("name", $0)
            }
        }
        return found
    }

    private mutating func entity(_ element: MarkupElement) throws -> EntityDescription {
        let name = try required("name", element)
        var entity = EntityDescription(name: name)
        lines[name] = lines[name] ?? element.line
        entity.managedObjectClassName = element["representedClassName"]?.nonEmpty
        entity.isAbstract = try boolean("isAbstract", element)
        entity.superentityName = element["parentEntity"]?.nonEmpty
        entity.renamingIdentifier = renamingIdentifier(element, entity: name, property: nil) ?? name
        entity.versionHashModifier = element["versionHashModifier"]?.nonEmpty
        for child in element.children {
            switch child.name {
            case "attribute":
                entity.attributes.append(try attribute(child, of: name, within: []))
            case "relationship": entity.relationships.append(try relationship(child, of: name))
            case "fetchedProperty": entity.fetchedProperties.append(try fetchedProperty(child, of: name))
            case "fetchIndex": entity.indexes.append(try fetchIndex(child))
            case "compoundIndexes": entity.compoundIndexes = try names(in: child, "compoundIndex", "index")
            case "uniquenessConstraints":
                entity.uniquenessConstraints = try names(in: child, "uniquenessConstraint", "constraint")
            case "userInfo": entity.userInfo = try userInfo(child)
            default: break
            }
        }
        return entity
    }

    /// Reads `<uniquenessConstraint><constraint value="…"/>…` and older indexes, which have the same form.
    private func names(in element: MarkupElement, _ group: String, _ member: String) throws -> [[String]] {
        try element.children(named: group).map { try $0.children(named: member).map { try required("value", $0) } }
    }

    private func fetchIndex(_ element: MarkupElement) throws -> FetchIndexDescription {
        let elements = try element.children(named: "fetchIndexElement").map { child in
            let kind: FetchIndexDescription.Kind
            switch child["type"] ?? "Binary" {
            case "Binary": kind = .binary
            case "RTree", "R-Tree": kind = .rTree
            case let other: throw fault("“\(other)” is not an index type", remedy: "choose Binary or RTree", at: child)
            }
            guard let property = child["property"] ?? child["expression"] else {
                throw fault("an index element names no property", remedy: "choose a property", at: child)
            }
            return FetchIndexDescription.Element(
                property: property, isAscending: child["order"] != "descending", kind: kind)
        }
        return FetchIndexDescription(
            name: try required("name", element), elements: elements,
            partialIndexPredicate: element["partialIndexPredicate"]?.nonEmpty)
    }

    private func fetchRequest(_ element: MarkupElement, name: String? = nil) throws -> FetchRequestTemplate {
        var request = FetchRequestTemplate(
            name: try name ?? required("name", element), entityName: element["entity"] ?? "",
            predicate: element["predicateString"]?.nonEmpty)
        request.fetchLimit = try integer("fetchLimit", element) ?? 0
        request.fetchBatchSize = try integer("fetchBatchSize", element) ?? 0
        return request
    }

    private mutating func fetchedProperty(
        _ element: MarkupElement, of entity: String
    ) throws -> FetchedPropertyDescription {
        let name = try required("name", element, of: entity)
        recordLine(element, of: entity, name)
        guard let request = element.children(named: "fetchRequest").first else {
            throw fault(
                "the fetched property has no fetch request", remedy: "add one", at: element, entity: entity,
                property: name)
        }
        var property = FetchedPropertyDescription(name: name, fetchRequest: try fetchRequest(request, name: name))
        property.renamingIdentifier = renamingIdentifier(element, entity: entity, property: name) ?? name
        property.userInfo = try userInfo(of: element)
        return property
    }

    private mutating func relationship(_ element: MarkupElement, of entity: String) throws -> RelationshipDescription {
        let name = try required("name", element, of: entity)
        recordLine(element, of: entity, name)
        guard let destination = element["destinationEntity"]?.nonEmpty else {
            throw fault(
                "the relationship has no destination", remedy: "choose a destination entity", at: element,
                entity: entity, property: name)
        }
        var relationship = RelationshipDescription(name: name, destinationEntityName: destination)
        relationship.inverseName = element["inverseName"]?.nonEmpty
        relationship.isOptional = try boolean("optional", element)
        relationship.isTransient = try boolean("transient", element)
        relationship.isOrdered = try boolean("ordered", element)
        let isToMany = try boolean("toMany", element)
        relationship.minCount = try integer("minCount", element) ?? 0
        relationship.maxCount = try integer("maxCount", element) ?? (isToMany ? 0 : 1)
        relationship.deleteRule = try deleteRule(element, of: entity, name)
        relationship.renamingIdentifier = renamingIdentifier(element, entity: entity, property: name) ?? name
        relationship.versionHashModifier = element["versionHashModifier"]?.nonEmpty
        relationship.userInfo = try userInfo(of: element)
        return relationship
    }

    private func deleteRule(
        _ element: MarkupElement, of entity: String, _ name: String
    ) throws -> RelationshipDescription.DeleteRule {
        guard let word = element["deletionRule"] else { return .nullify }
        guard let rule = RelationshipDescription.DeleteRule.allCases.first(where: { $0.name == word }) else {
            throw fault(
                "“\(word)” is not a delete rule", remedy: "choose one in Xcode", at: element, entity: entity,
                property: name)
        }
        return rule
    }

    mutating func attribute(
        _ element: MarkupElement, of entity: String, within composites: [String]
    ) throws -> AttributeDescription {
        let name = try required("name", element, of: entity)
        if composites.isEmpty { recordLine(element, of: entity, name) }
        var reader = XMLAttributeReader(self, element, entity: entity, name: name)
        var attribute = try reader.attribute()
        if let remark = reader.remark { remarks.append(remark) }
        attribute.renamingIdentifier = renamingIdentifier(element, entity: entity, property: name) ?? name
        if attribute.type == .composite {
            attribute.elements = try elements(of: element, entity, name, within: composites)
        }
        return attribute
    }

    /// Reads the elements of a composite attribute. The attribute names a composite, which is a sibling of the
    /// entities.
    private mutating func elements(
        of element: MarkupElement, _ entity: String, _ name: String, within outer: [String]
    ) throws -> [AttributeDescription] {
        let reference = ["compositeName", "elementName", "compositeAttributeName"].compactMap { element[$0] }.first
        guard let reference, let composite = composites[reference] else {
            let message = reference.map { "there is no composite “\($0)”" } ?? "the attribute names no composite"
            throw fault(message, remedy: "choose a composite of the model", at: element, entity: entity, property: name)
        }
        guard !outer.contains(reference), outer.count < 16 else {
            throw fault(
                "the composite “\(reference)” contains itself", remedy: "break the cycle", at: element, entity: entity,
                property: name)
        }
        var found: [AttributeDescription] = []
        for child in composite.children(named: "attribute") {
            remainingElements -= 1
            guard remainingElements > 0 else {
                throw fault(
                    "composites expand to too many elements", remedy: "flatten them", at: element, entity: entity,
                    property: name)
            }
            found.append(try attribute(child, of: entity, within: outer + [reference]))
        }
        return found
    }

    // MARK: Common to all elements

    private mutating func recordLine(_ element: MarkupElement, of entity: String, _ property: String) {
        let key = entity + "." + property
        lines[key] = lines[key] ?? element.line
    }

    /// Returns the renaming identifier, which Xcode stores in `elementID`. Xcode ignores an attribute
    /// `renamingIdentifier`.
    private mutating func renamingIdentifier(
        _ element: MarkupElement, entity: String, property: String?
    ) -> String? {
        if let ignored = element["renamingIdentifier"] {
            remarks.append(
                ModelReadingNote(
                    entity: entity, property: property, line: element.line,
                    "renamingIdentifier=\"\(ignored)\" is ignored by Xcode's model compiler",
                    remedy: "write elementID=\"\(ignored)\", or set the Renaming ID in Xcode's inspector"))
        }
        return element["elementID"]?.nonEmpty
    }

    func userInfo(of element: MarkupElement) throws -> [String: String] {
        try element.children(named: "userInfo").first.map { try userInfo($0) } ?? [:]
    }

    private func userInfo(_ element: MarkupElement) throws -> [String: String] {
        var found: [String: String] = [:]
        for entry in element.children(named: "entry") { found[try required("key", entry)] = entry["value"] ?? "" }
        return found
    }

    private func required(_ attribute: String, _ element: MarkupElement, of entity: String? = nil) throws -> String {
        guard let value = element[attribute]?.nonEmpty else {
            throw fault("<\(element.name)> has no “\(attribute)”", remedy: "add it", at: element, entity: entity)
        }
        return value
    }

    func boolean(_ attribute: String, _ element: MarkupElement) throws -> Bool {
        switch element[attribute] {
        case nil, "NO", "": return false
        case "YES": return true
        case let other?:
            throw fault("“\(attribute)” must be YES or NO, not “\(other)”", remedy: "correct it", at: element)
        }
    }

    private func integer<Value: FixedWidthInteger>(_ attribute: String, _ element: MarkupElement) throws -> Value? {
        guard let text = element[attribute]?.nonEmpty else { return nil }
        guard let value = Value(text) else {
            throw fault("“\(attribute)” must be a number, not “\(text)”", remedy: "correct it", at: element)
        }
        return value
    }

    func fault(
        _ message: String, remedy: String, at element: MarkupElement, entity: String? = nil, property: String? = nil
    ) -> ModelError {
        let name = entity.map { entity in property.map { entity + "." + $0 } ?? entity } ?? element["name"]
        return ModelError(
            .invalid, path, line: element.line, element: name ?? element.name, message, remedy: remedy)
    }
}

extension String {
    /// The string, or nil if it is empty. Xcode writes attributes without a value.
    var nonEmpty: String? { isEmpty ? nil : self }
}
