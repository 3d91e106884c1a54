import PropertyLists
import SystemPackage

/// Reads the `contents` of an `.xcdatamodel`, which Xcode 4 and later write. Apple documents no schema; what the
/// elements mean was found by comparing sources with what Xcode's compiler makes of them.
struct XMLModelReader {
    let path: FilePath
    private let root: MarkupElement
    /// A composite's name to its element.
    private let composites: [String: MarkupElement]
    /// Elements of composite attributes that may still be read: composites may contain each other often.
    private var elementsLeft = 10_000
    private(set) var lines: [String: Int] = [:]
    private(set) var remarks: [ModelReadingNote] = []

    /// Throws `ModelError`.
    static func read(_ bytes: [UInt8], path: FilePath, name: String) throws -> ModelVersion {
        let root: MarkupElement
        do throws(MarkupError) { root = try MarkupReader.read(bytes) } catch {
            throw ModelError(
                .malformed, path, line: error.line, error.message, remedy: "restore the file, or save it in Xcode")
        }
        guard root.name == "model" else {
            throw ModelError(
                .notAModel, path, line: root.line, element: root.name, "the document is no <model>",
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
            uniquingKeysWith: { one, _ in one })
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
            return ModelVersion(name: name, model: model, path: path, remarks: remarks, lines: lines)
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
        entity.isAbstract = try truth("isAbstract", element)
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

    /// `<uniquenessConstraint><constraint value="…"/>…`, and older indexes, which look the same.
    private func names(in element: MarkupElement, _ group: String, _ member: String) throws -> [[String]] {
        try element.children(named: group).map { try $0.children(named: member).map { try required("value", $0) } }
    }

    private func fetchIndex(_ element: MarkupElement) throws -> FetchIndexDescription {
        let elements = try element.children(named: "fetchIndexElement").map { one in
            let kind: FetchIndexDescription.Kind
            switch one["type"] ?? "Binary" {
            case "Binary": kind = .binary
            case "RTree", "R-Tree": kind = .rTree
            case let other: throw fault("“\(other)” is no type of index", "choose Binary or RTree", one)
            }
            guard let property = one["property"] ?? one["expression"] else {
                throw fault("an index's element names no property", "choose a property", one)
            }
            return FetchIndexDescription.Element(
                property: property, isAscending: one["order"] != "descending", kind: kind)
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
        note(element, entity, name)
        guard let request = element.children(named: "fetchRequest").first else {
            throw fault("a fetched property holds no fetch request", "give it one", element, entity, name)
        }
        var property = FetchedPropertyDescription(name: name, fetchRequest: try fetchRequest(request, name: name))
        property.renamingIdentifier = renamingIdentifier(element, entity: entity, property: name) ?? name
        property.userInfo = try userInfo(of: element)
        return property
    }

    private mutating func relationship(_ element: MarkupElement, of entity: String) throws -> RelationshipDescription {
        let name = try required("name", element, of: entity)
        note(element, entity, name)
        guard let destination = element["destinationEntity"]?.nonEmpty else {
            throw fault("the relationship has no destination", "choose a destination entity", element, entity, name)
        }
        var relationship = RelationshipDescription(name: name, destinationEntityName: destination)
        relationship.inverseName = element["inverseName"]?.nonEmpty
        relationship.isOptional = try truth("optional", element)
        relationship.isTransient = try truth("transient", element)
        relationship.isOrdered = try truth("ordered", element)
        let isToMany = try truth("toMany", element)
        relationship.minCount = try integer("minCount", element) ?? 0
        relationship.maxCount = try integer("maxCount", element) ?? (isToMany ? 0 : 1)
        relationship.deleteRule = try deleteRule(element, entity, name)
        relationship.renamingIdentifier = renamingIdentifier(element, entity: entity, property: name) ?? name
        relationship.versionHashModifier = element["versionHashModifier"]?.nonEmpty
        relationship.userInfo = try userInfo(of: element)
        return relationship
    }

    private func deleteRule(
        _ element: MarkupElement, _ entity: String, _ name: String
    ) throws -> RelationshipDescription.DeleteRule {
        guard let word = element["deletionRule"] else { return .nullify }
        guard let rule = RelationshipDescription.DeleteRule.allCases.first(where: { $0.name == word }) else {
            throw fault("“\(word)” is no delete rule", "choose one in Xcode", element, entity, name)
        }
        return rule
    }

    mutating func attribute(
        _ element: MarkupElement, of entity: String, within composites: [String]
    ) throws -> AttributeDescription {
        let name = try required("name", element, of: entity)
        if composites.isEmpty { note(element, entity, name) }
        var attribute = try XMLAttributeReader(self, element, entity: entity, name: name).attribute()
        attribute.renamingIdentifier = renamingIdentifier(element, entity: entity, property: name) ?? name
        if attribute.type == .composite {
            attribute.elements = try elements(of: element, entity, name, within: composites)
        }
        return attribute
    }

    /// A composite attribute names its composite, which stands beside the entities.
    private mutating func elements(
        of element: MarkupElement, _ entity: String, _ name: String, within outer: [String]
    ) throws -> [AttributeDescription] {
        let reference = ["compositeName", "elementName", "compositeAttributeName"].compactMap { element[$0] }.first
        guard let reference, let composite = composites[reference] else {
            let message = reference.map { "there is no composite “\($0)”" } ?? "the attribute names no composite"
            throw fault(message, "choose a composite of the model", element, entity, name)
        }
        guard !outer.contains(reference), outer.count < 16 else {
            throw fault("the composite “\(reference)” contains itself", "break the circle", element, entity, name)
        }
        var found: [AttributeDescription] = []
        for child in composite.children(named: "attribute") {
            elementsLeft -= 1
            guard elementsLeft > 0 else {
                throw fault("composites are nested too often", "flatten them", element, entity, name)
            }
            found.append(try attribute(child, of: entity, within: outer + [reference]))
        }
        return found
    }

    // MARK: What all elements have

    private mutating func note(_ element: MarkupElement, _ entity: String, _ property: String) {
        let key = entity + "." + property
        lines[key] = lines[key] ?? element.line
    }

    /// Xcode keeps it in `elementID`. An attribute `renamingIdentifier`, which one could think of, is not compiled.
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
            throw fault("<\(element.name)> has no “\(attribute)”", "add it", element, entity)
        }
        return value
    }

    func truth(_ attribute: String, _ element: MarkupElement) throws -> Bool {
        switch element[attribute] {
        case nil, "NO", "": return false
        case "YES": return true
        case let other?: throw fault("“\(attribute)” is YES or NO, not “\(other)”", "correct it", element)
        }
    }

    private func integer<Value: FixedWidthInteger>(_ attribute: String, _ element: MarkupElement) throws -> Value? {
        guard let text = element[attribute]?.nonEmpty else { return nil }
        guard let value = Value(text) else {
            throw fault("“\(attribute)” is a number, not “\(text)”", "correct it", element)
        }
        return value
    }

    func fault(
        _ message: String, _ remedy: String, _ element: MarkupElement, _ entity: String? = nil,
        _ property: String? = nil
    ) -> ModelError {
        let name = entity.map { entity in property.map { entity + "." + $0 } ?? entity } ?? element["name"]
        return ModelError(
            .invalid, path, line: element.line, element: name ?? element.name, message, remedy: remedy)
    }
}

extension String {
    /// Nil when empty: Xcode writes attributes that say nothing.
    var nonEmpty: String? { isEmpty ? nil : self }
}
