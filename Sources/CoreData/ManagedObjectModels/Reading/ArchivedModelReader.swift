import PropertyLists
import SystemPackage
import XMLDocuments

/// A reader of an archived `NSManagedObjectModel`: a compiled `.mom` or a store's model cache.
struct ArchivedModelReader {
    private let path: FilePath

    /// Reads a model. Throws `ModelError`.
    static func read(_ bytes: [UInt8], path: FilePath, name: String) throws -> ModelVersion {
        let archive: KeyedArchive
        do throws(PropertyListError) { archive = try KeyedArchive(bytes) } catch {
            let isArchive = bytes.starts(with: Array("bplist".utf8))
            throw ModelError(
                isArchive ? .malformed : .notAModel, path, line: error.line,
                isArchive ? "the compiled model is damaged: \(error.message)" : "the file is not a model",
                remedy: isArchive ? "compile the model again" : "name an .xcdatamodeld, .xcdatamodel, .momd or .mom")
        }
        guard archive.root.className == "NSManagedObjectModel" else {
            throw ModelError(
                .notAModel, path, "the archive holds a \(archive.root.className), not a model",
                remedy: "name an .xcdatamodeld, .xcdatamodel, .momd or .mom")
        }
        let model = try ArchivedModelReader(path: path).model(archive.root)
        guard !archive.isExhausted else {
            throw ModelError(
                .malformed, path, "the archive expands to more than any model contains",
                remedy: "compile the model again")
        }
        return ModelVersion(name: name, model: model, path: path, remarks: ModelPredicates(of: model).notes)
    }

    private func model(_ root: ArchivedObject) throws -> ManagedObjectModel {
        var entities: [EntityDescription] = []
        for (key, member) in root.members("NSEntities") {
            guard let object = member.object else { throw malformed("the value is not an entity", key) }
            entities.append(try entity(object))
        }
        var configurations: [String: [String]] = [:]
        for (name, member) in root.members("NSConfigurations") {
            configurations[name] = member.elements.compactMap { $0.string("NSEntityName") }
        }
        let templates = root.members("NSFetchRequestTemplates").compactMap { name, member in
            member.object.map { fetchRequest($0, named: name) }
        }
        do {
            return try ManagedObjectModel(
                entities: removingInheritedCopies(entities),
                versionIdentifiers: Set(root.strings("NSVersionIdentifiers")),
                configurations: configurations, fetchRequestTemplates: templates.sorted { $0.name.precedes($1.name) })
        } catch let fault as ModelFault {
            throw ModelError(fault, path)
        }
    }

    /// Returns the entities without copies of inherited properties. A model in use lists them with an entity's own, and
    /// so do archives of it.
    private func removingInheritedCopies(_ entities: [EntityDescription]) -> [EntityDescription] {
        let parents = Dictionary(entities.map { ($0.name, $0) }, uniquingKeysWith: { first, _ in first })
        return entities.map { entity in
            var inherited: Set<String> = []
            var seen: Set<String> = [entity.name]
            var name = entity.superentityName
            while let parent = name.flatMap({ parents[$0] }), seen.insert(parent.name).inserted {
                inherited.formUnion(parent.attributes.map(\.name))
                inherited.formUnion(parent.relationships.map(\.name))
                inherited.formUnion(parent.fetchedProperties.map(\.name))
                name = parent.superentityName
            }
            var result = entity
            result.attributes.removeAll { inherited.contains($0.name) }
            result.relationships.removeAll { inherited.contains($0.name) }
            result.fetchedProperties.removeAll { inherited.contains($0.name) }
            return result
        }
    }

    private func entity(_ object: ArchivedObject) throws -> EntityDescription {
        guard let name = object.string("NSEntityName") else { throw malformed("an entity has no name", nil) }
        var entity = EntityDescription(name: name)
        entity.managedObjectClassName = object.string("NSClassNameForEntity")
        entity.isAbstract = object.isTrue("NSIsAbstract")
        entity.superentityName = object.object("NSSuperentity")?.string("NSEntityName")
        entity.renamingIdentifier = object.string("NSRenamingIdentifier") ?? name
        entity.versionHashModifier = object.string("NSVersionHashModifier")
        entity.userInfo = userInfo(object)
        entity.uniquenessConstraints = tuples(object, "NSUniqueTuples")
        entity.indexes = object.elements("NSFetchIndexDescriptions").map(fetchIndex)
        // For older systems, Xcode's compiler also writes newer indexes in the older form.
        entity.compoundIndexes = entity.indexes.isEmpty ? tuples(object, "NSCompoundIndexes") : []
        for (key, member) in object.members("NSProperties") {
            guard let property = member.object.map({ $0.object("NSUnderlyingProperty") ?? $0 }) else {
                throw malformed("the value is not a property", name + "." + key)
            }
            try add(property, named: key, to: &entity)
        }
        entity.attributes.sort { $0.name.precedes($1.name) }
        entity.relationships.sort { $0.name.precedes($1.name) }
        entity.fetchedProperties.sort { $0.name.precedes($1.name) }
        return entity
    }

    private func add(_ property: ArchivedObject, named key: String, to entity: inout EntityDescription) throws {
        let name = property.string("NSPropertyName") ?? key
        switch property.className {
        case "NSRelationshipDescription":
            entity.relationships.append(try relationship(property, named: name, of: entity.name))
        case "NSFetchedPropertyDescription":
            let request = property.object("NSFetchRequest")
            var template =
                request.map { fetchRequest($0, named: name) }
                ?? FetchRequestTemplate(name: name, entityName: "")
            if template.entityName.isEmpty { template.entityName = property.string("_NSFetchRequestEntityName") ?? "" }
            var fetched = FetchedPropertyDescription(name: name, fetchRequest: template)
            fetched.renamingIdentifier = property.string("NSRenamingIdentifier") ?? name
            fetched.userInfo = userInfo(property)
            entity.fetchedProperties.append(fetched)
        case "NSExpressionDescription": break
        default:
            guard property.className.hasSuffix("AttributeDescription") else {
                throw malformed("a \(property.className) is not a property", entity.name + "." + name)
            }
            entity.attributes.append(
                try ArchivedAttributeReader(property, path: path, element: entity.name + "." + name)
                    .attribute(named: name))
        }
    }

    private func relationship(
        _ object: ArchivedObject, named name: String, of entity: String
    ) throws -> RelationshipDescription {
        let destination =
            object.string("_NSDestinationEntityName")
            ?? object.object("NSDestinationEntity")?.string("NSEntityName")
        guard let destination else { throw malformed("the relationship has no destination", entity + "." + name) }
        var relationship = RelationshipDescription(name: name, destinationEntityName: destination)
        let flags = ArchivedPropertyFlags(object)
        relationship.isOptional = flags.isOptional
        relationship.isTransient = flags.isTransient
        relationship.isReadOnly = flags.isReadOnly
        relationship.isOrdered = flags.isOrdered
        relationship.inverseName =
            object.string("_NSInverseRelationshipName")
            ?? object.object("NSInverseRelationship")?.string("NSPropertyName")
        relationship.minCount = Int32(clamping: object.integer("NSMinCount") ?? 0)
        relationship.maxCount = Int32(clamping: object.integer("NSMaxCount") ?? 0)
        relationship.deleteRule = .init(rawValue: Int(object.integer("NSDeleteRule") ?? 1)) ?? .nullify
        relationship.renamingIdentifier = object.string("NSRenamingIdentifier") ?? name
        relationship.versionHashModifier = object.string("NSVersionHashModifier")
        relationship.userInfo = userInfo(object)
        return relationship
    }

    /// Reads an array of arrays of properties or property names.
    private func tuples(_ object: ArchivedObject, _ field: String) -> [[String]] {
        object.elements(field).map { tuple in
            tuple.ownElements.compactMap { $0.text ?? $0.object?.string("NSPropertyName") }
        }
    }

    private func fetchIndex(_ object: ArchivedObject) -> FetchIndexDescription {
        let elements = object.elements("NSIndexElements").map { element in
            let expression = element.object("NSExpression").map { ArchivedPredicate.format(expression: $0) }
            return FetchIndexDescription.Element(
                property: element.string("NSPropertyName") ?? expression ?? "",
                isAscending: element["NSAscending"]?.boolean ?? true,
                kind: element.integer("NSFetchIndexElementType") == 1 ? .rTree : .binary)
        }
        return FetchIndexDescription(
            name: object.string("NSIndexName") ?? "", elements: elements,
            partialIndexPredicate: object.object("NSPartialIndexPredicate").map { ArchivedPredicate.format($0) })
    }

    private func fetchRequest(_ object: ArchivedObject, named name: String) -> FetchRequestTemplate {
        var request = FetchRequestTemplate(
            name: name,
            entityName: object.object("NSEntity")?.string("NSEntityName") ?? object.string("NSEntityName") ?? "",
            predicate: object.object("NSPredicate").map { ArchivedPredicate.format($0) })
        request.fetchLimit = Int(object.integer("NSFetchLimit") ?? 0)
        request.fetchBatchSize = Int(object.integer("NSBatchSize") ?? 0)
        return request
    }

    private func userInfo(_ object: ArchivedObject) -> [String: String] {
        var found: [String: String] = [:]
        for (key, member) in object.members("NSUserInfo") { found[key] = member.text ?? member.scalarText }
        return found
    }

    private func malformed(_ message: String, _ element: String?) -> ModelError {
        ModelError(.malformed, path, element: element, message, remedy: "compile the model again")
    }
}

/// The flags of an archived property. Each has a field of its own, or all are packed into `_P`.
struct ArchivedPropertyFlags {
    let isOptional: Bool
    let isReadOnly: Bool
    let isTransient: Bool
    let isIndexedBySpotlight: Bool
    let isOrdered: Bool
    let allowsCloudEncryption: Bool

    init(_ object: ArchivedObject) {
        let packed = object.integer("_P") ?? 0
        isOptional = object.isTrue("NSIsOptional") || packed & 0x2 != 0
        isReadOnly = object.isTrue("NSIsReadOnly") || packed & 0x4 != 0
        isTransient = object.isTrue("NSIsTransient") || packed & 0x8 != 0
        isIndexedBySpotlight = packed & 0x100 != 0
        isOrdered = object.isTrue("NSIsOrdered") || packed & 0x400 != 0
        allowsCloudEncryption = packed & 0x800 != 0
    }
}
