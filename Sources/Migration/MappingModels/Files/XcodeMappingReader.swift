import FoundationEssentials
import ManagedObjectModels
import PropertyLists
import XMLDocuments

/// Reads Xcode's `.xcmappingmodel`. Its `xcmapping.xml` is a Core Data XML store whose objects refer to each other by
/// number; its expressions are keyed archives. Apple doesn't document the format; it was derived from files that Xcode
/// wrote.
///
/// The file has no version hashes. Xcode's compiler inserts them, together with automatic values.
struct XcodeMappingReader {
    private static let maximumObjects = 100_000
    private let objects: [String: XcodeObject]
    /// The ids of the objects that belong to an object, by its id.
    private let owners: [String: [String]]

    /// Throws `MappingFault`.
    static func read(_ bytes: [UInt8]) throws(MappingFault) -> MappingModel {
        let root: MarkupElement
        do { root = try MarkupReader.read(bytes) } catch {
            throw MappingFault(error.message, remedy: "restore the file", line: error.line)
        }
        guard root.name == "database" else {
            throw MappingFault(
                "<\(root.name)> is not the root of a mapping model", remedy: "name an .xcmappingmodel", line: root.line)
        }
        return try XcodeMappingReader(root).mappingModel(root)
    }

    private init(_ root: MarkupElement) throws(MappingFault) {
        var objects: [String: XcodeObject] = [:]
        for element in root.children(named: "object") {
            let object = try XcodeObject(element)
            guard objects.updateValue(object, forKey: object.identifier) == nil else {
                throw MappingFault("two objects have the id “\(object.identifier)”", line: element.line)
            }
        }
        guard objects.count <= Self.maximumObjects else { throw MappingFault("there are \(objects.count) objects") }
        // A relationship may be written at only one of its ends.
        var owners: [String: [String]] = [:]
        for object in objects.values {
            for reference in ["mappingmodel", "entitymapping"].flatMap(object.references) {
                owners[reference, default: []].append(object.identifier)
            }
        }
        self.objects = objects
        self.owners = owners
    }

    private func mappingModel(_ root: MarkupElement) throws(MappingFault) -> MappingModel {
        let models = objects.values.filter { $0.type == "XDDEVMAPPINGMODEL" }
        guard let model = models.first, models.count == 1 else {
            throw MappingFault("there are \(models.count) mapping models in the file", line: root.line)
        }
        let numbered = try members(model, "entitymappings", type: "XDDEVENTITYMAPPING").sorted {
            ($0.number, $0.identifier) < ($1.number, $1.identifier)
        }
        var mappings: [EntityMapping] = []
        for object in numbered { mappings.append(try entityMapping(object)) }
        var mappingModel = MappingModel(entityMappings: mappings)
        mappingModel.sourceVersionName = model["sourcemodelpath"].flatMap(Self.versionName)
        mappingModel.destinationVersionName = model["destinationmodelpath"].flatMap(Self.versionName)
        return mappingModel
    }

    /// Returns the version's name from a path such as `App/Notes.xcdatamodeld/Notes 2.xcdatamodel`.
    private static func versionName(_ path: String) -> String? {
        let name = path.split(separator: "/").last.map(String.init) ?? ""
        let stem = name.hasSuffix(".xcdatamodel") ? String(name.dropLast(".xcdatamodel".count)) : name
        return stem.isEmpty ? nil : stem
    }

    /// Returns the objects that the object references, and those that reference it.
    private func members(
        _ object: XcodeObject, _ relationship: String, type: String
    ) throws(MappingFault) -> [XcodeObject] {
        var seen: Set<String> = []
        var found: [XcodeObject] = []
        for reference in object.references(relationship) + (owners[object.identifier] ?? []) {
            guard let member = objects[reference] else {
                throw MappingFault("no object has the id “\(reference)”", line: object.line, element: relationship)
            }
            if member.type == type, seen.insert(reference).inserted { found.append(member) }
        }
        return found
    }

    // MARK: Entity mappings

    private func entityMapping(_ object: XcodeObject) throws(MappingFault) -> EntityMapping {
        let (source, destination) = (object["sourcename"], object["destinationname"])
        guard source != nil || destination != nil else {
            throw MappingFault("an entity mapping has neither a source nor a destination", line: object.line)
        }
        let name = EntityMapping.name(from: source, to: destination)
        let policy = object["migrationpolicyclassname"]
        var mapping = EntityMapping(
            name: name, kind: EntityMapping.kind(from: source, to: destination, hasPolicy: policy != nil),
            sourceEntityName: source, destinationEntityName: destination)
        mapping.entityMigrationPolicyClassName = policy
        mapping.filter = try filter(object, name)
        mapping.userInfo = try object.userInfo(name)
        for attribute in try properties(object, "attributemappings", type: "XDDEVATTRIBUTEMAPPING", of: name) {
            mapping.attributeMappings.append(try attributeMapping(attribute, name))
        }
        let relationships = try properties(object, "relationshipmappings", type: "XDDEVRELATIONSHIPMAPPING", of: name)
        for relationship in relationships {
            mapping.relationshipMappings.append(try relationshipMapping(relationship, name))
        }
        return mapping
    }

    /// Returns the property mappings, sorted by name as Xcode's compiler does.
    private func properties(
        _ object: XcodeObject, _ relationship: String, type: String, of mapping: String
    ) throws(MappingFault) -> [XcodeObject] {
        let found = try members(object, relationship, type: type)
        if let nameless = found.first(where: { $0["name"] == nil }) {
            throw MappingFault("a property mapping has no name", line: nameless.line, element: mapping)
        }
        let sorted = found.sorted { ($0["name"] ?? "").precedes($1["name"] ?? "") }
        for (first, second) in zip(sorted, sorted.dropFirst()) where first["name"] == second["name"] {
            throw MappingFault("“\(first["name"] ?? "")” is mapped twice", line: second.line, element: mapping)
        }
        return sorted
    }

    /// Returns the condition, which Xcode writes as text or as the archived expression that fetches the objects.
    private func filter(_ object: XcodeObject, _ mapping: String) throws(MappingFault) -> MappingPredicate? {
        do {
            if let format = object.text(containing: "predicate") {
                let predicate = try Self.predicate(format)
                return predicate == .constant(true) ? nil : predicate
            }
            if let archive = try object.data(containing: "sourceexpression") {
                return try ArchivedExpressionReader.expression(archive).fetchedPredicate()
            }
        } catch {
            throw MappingFault(error.message, remedy: error.remedy, line: object.line, element: mapping)
        }
        return nil
    }

    private static func predicate(_ format: String) throws(MappingFault) -> MappingPredicate {
        do { return try MappingPredicate(format: format) } catch { throw MappingFault("\(error)") }
    }

    // MARK: Property mappings

    private func attributeMapping(_ object: XcodeObject, _ mapping: String) throws(MappingFault) -> PropertyMapping {
        let name = object["name"] ?? ""
        var property = PropertyMapping(name: name, valueExpression: try object.expression(mapping + "." + name))
        property.isAutomatic = property.valueExpression == nil
        property.userInfo = try object.userInfo(mapping + "." + name)
        return property
    }

    private func relationshipMapping(_ object: XcodeObject, _ mapping: String) throws(MappingFault) -> PropertyMapping {
        let name = object["name"] ?? ""
        var property = PropertyMapping(name: name, valueExpression: try object.expression(mapping + "." + name))
        property.userInfo = try object.userInfo(mapping + "." + name)
        if property.valueExpression == nil, let keyPath = object["sourcekeypath"] {
            property.valueExpression = try Self.instances(object, at: keyPath, element: mapping + "." + name)
        } else if property.valueExpression == nil {
            property.isAutomatic = object["autogenerateexpression"] != "0"
        }
        return property
    }

    private static func instances(
        _ object: XcodeObject, at keyPath: String, element: String
    ) throws(MappingFault) -> MappingExpression {
        var source: MappingExpression
        do { source = try MappingExpression(format: keyPath) } catch {
            throw MappingFault("\(error)", line: object.line, element: element)
        }
        if case .keyPath(of: .evaluatedObject, let path) = source { source = .source(path) }
        guard let mapping = object["sourcemappingname"] else {
            guard case .keyPath(_, let path) = source else { return source }
            let last = path.split(separator: ".").last.map(String.init) ?? path
            return .destinationInstances(ofRelationship: last, path)
        }
        return .message(
            to: .variable("manager"), selector: "destinationInstancesForEntityMappingNamed:sourceInstances:",
            [.constant(.string(mapping)), source])
    }
}

/// An `<object>` of the file.
private struct XcodeObject {
    let identifier: String
    let type: String
    let line: Int
    private let attributes: [String: String]
    private let relationships: [String: [String]]

    init(_ element: MarkupElement) throws(MappingFault) {
        guard let identifier = element["id"], let type = element["type"] else {
            throw MappingFault("<object> needs an id and a type", line: element.line)
        }
        if let line = element.textLine {
            throw MappingFault("there is text in <object>", line: line, element: identifier)
        }
        self.identifier = identifier
        self.type = type
        line = element.line
        var attributes: [String: String] = [:]
        var relationships: [String: [String]] = [:]
        for child in element.children {
            guard let name = child["name"] else {
                throw MappingFault("<\(child.name)> has no name", line: child.line, element: identifier)
            }
            if let line = child.children.first?.line ?? (child.name == "attribute" ? nil : child.textLine) {
                throw MappingFault("“\(name)” has content that belongs nowhere", line: line, element: identifier)
            }
            if child.name == "attribute", attributes.updateValue(child.text, forKey: name) != nil {
                throw MappingFault("“\(name)” is there twice", line: child.line, element: identifier)
            }
            if child.name == "relationship" {
                relationships[name] = (child["idrefs"] ?? "").split(separator: " ").map(String.init)
            }
        }
        self.attributes = attributes
        self.relationships = relationships
    }

    /// Returns an attribute's text; nil if it is missing or empty.
    subscript(attribute: String) -> String? { attributes[attribute].flatMap { $0.isEmpty ? nil : $0 } }

    func references(_ relationship: String) -> [String] { relationships[relationship] ?? [] }

    var number: Int { self["mappingnumber"].flatMap { Int($0) } ?? 0 }

    func text(containing part: String) -> String? {
        attributes.keys.filter { $0.contains(part) && !$0.hasSuffix("data") }.sorted().compactMap { self[$0] }.first
    }

    func data(containing part: String) throws(MappingFault) -> [UInt8]? {
        guard let name = attributes.keys.filter({ $0.contains(part) && $0.hasSuffix("data") }).min() else { return nil }
        return try data(name)
    }

    private func data(_ name: String) throws(MappingFault) -> [UInt8]? {
        guard let text = self[name] else { return nil }
        guard let data = Data(base64Encoded: text, options: .ignoreUnknownCharacters) else {
            throw MappingFault("“\(name)” is not in base64", line: line)
        }
        return data.isEmpty ? nil : Array(data)
    }

    func expression(_ element: String) throws(MappingFault) -> MappingExpression? {
        do {
            guard let archive = try data("valueexpressiondata") else { return nil }
            return try ArchivedExpressionReader.expression(archive)
        } catch {
            throw MappingFault(
                error.message, remedy: "write the expression again in Xcode", line: line, element: element)
        }
    }

    func userInfo(_ element: String) throws(MappingFault) -> [String: String] {
        guard let bytes = try data("userinfodata") else { return [:] }
        do {
            let members = try KeyedArchive(bytes).root.ownMembers
            return Dictionary(
                members.compactMap { key, value in (value.text ?? value.scalarText).map { (key, $0) } },
                uniquingKeysWith: { first, _ in first })
        } catch {
            throw MappingFault("the user info is damaged: \(error.message)", line: line, element: element)
        }
    }
}
