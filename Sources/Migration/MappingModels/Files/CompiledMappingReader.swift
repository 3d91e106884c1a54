import ManagedObjectModels
import PropertyLists
import XMLDocuments

/// Reads a compiled `.cdm`: a keyed archive of an `NSMappingModel` without implicit parts. The format was derived from
/// files that Xcode compiled.
enum CompiledMappingReader {
    /// Throws `MappingFault`.
    static func read(_ bytes: [UInt8]) throws(MappingFault) -> MappingModel {
        let archive: KeyedArchive
        do { archive = try KeyedArchive(bytes) } catch {
            throw MappingFault("the compiled mapping model is damaged: \(error.message)", remedy: "compile it again")
        }
        guard archive.root.className == "NSMappingModel" else {
            throw MappingFault(
                "the archive holds a \(archive.root.className), not a mapping model", remedy: "name a .cdm")
        }
        var objects = archive.root.elements("NSEntityMappings")
        if objects.isEmpty { objects = archive.root.members("NSEntityMappingsByName").compactMap(\.value.object) }
        var mappings: [EntityMapping] = []
        for object in objects { mappings.append(try entityMapping(object)) }
        guard !archive.isExhausted else { throw MappingFault("it is larger than any mapping model") }
        return MappingModel(entityMappings: mappings)
    }

    private static func entityMapping(_ object: ArchivedObject) throws(MappingFault) -> EntityMapping {
        let (source, destination) = (object.string("NSSourceEntityName"), object.string("NSDestinationEntityName"))
        guard source != nil || destination != nil else {
            throw MappingFault("an entity mapping has neither a source nor a destination")
        }
        let name = object.string("NSMappingName") ?? EntityMapping.name(from: source, to: destination)
        let policy = object.string("NSEntityMigrationPolicyClassName")
        let number = object.integer("NSMappingType").flatMap { Int(exactly: $0) }
        var mapping = EntityMapping(
            name: name,
            kind: number.flatMap(EntityMapping.Kind.init)
                ?? EntityMapping.kind(from: source, to: destination, hasPolicy: policy != nil),
            sourceEntityName: source, destinationEntityName: destination,
            sourceEntityVersionHash: hash(object, "NSSourceEntityVersionHash"),
            destinationEntityVersionHash: hash(object, "NSDestinationEntityVersionHash"),
            attributeMappings: try properties(object, "NSAttributeMappings", of: name),
            relationshipMappings: try properties(object, "NSRelationshipMappings", of: name))
        mapping.entityMigrationPolicyClassName = policy
        mapping.userInfo = userInfo(object)
        if let expression = object.object("NSSourceExpression") {
            do { mapping.filter = try ArchivedExpressionReader.expression(expression).fetchedPredicate() } catch {
                throw MappingFault(error.message, remedy: error.remedy, element: name)
            }
        }
        return mapping
    }

    private static func properties(
        _ object: ArchivedObject, _ field: String, of mapping: String
    ) throws(MappingFault) -> [PropertyMapping] {
        var found: [PropertyMapping] = []
        for property in object.elements(field) {
            guard let name = property.string("NSDestinationPropertyName") else {
                throw MappingFault("a property mapping has no name", element: mapping)
            }
            var mapped = PropertyMapping(name: name, valueExpression: nil)
            if let archived = property.object("NSValueExpression") {
                do { mapped.valueExpression = try ArchivedExpressionReader.expression(archived) } catch {
                    throw MappingFault(error.message, remedy: error.remedy, element: mapping + "." + name)
                }
            }
            mapped.userInfo = userInfo(property)
            found.append(mapped)
        }
        return found
    }

    /// Returns the 32 bytes of a hash, stored as the property list's data or as `NSData`.
    private static func hash(_ object: ArchivedObject, _ field: String) -> [UInt8]? {
        switch object[field] {
        case .data(let bytes)?: bytes
        default: object.object(field)?["NS.data"]?.data
        }
    }

    private static func userInfo(_ object: ArchivedObject) -> [String: String] {
        Dictionary(
            object.members("NSUserInfo").compactMap { key, value in
                (value.text ?? value.scalarText).map { (key, $0) }
            }, uniquingKeysWith: { first, _ in first })
    }
}

extension MappingExpression {
    /// Returns the condition of the request that fetches an entity mapping's objects; nil for all of them. Throws
    /// `MappingFault` for any other expression.
    func fetchedPredicate() throws(MappingFault) -> MappingPredicate? {
        var expression = self
        if case .fetch(let request, _, false) = expression { expression = request }
        guard
            case .message(.variable("manager"), "fetchRequestForSourceEntityNamed:predicateString:", let arguments) =
                expression, arguments.count == 2, case .constant(.string(let format)?) = arguments[1]
        else {
            throw MappingFault(
                "the source's objects are fetched by “\(self)”",
                remedy: "use fetchRequestForSourceEntityNamed:predicateString:")
        }
        let predicate: MappingPredicate
        do { predicate = try MappingPredicate(format: format) } catch { throw MappingFault("\(error)") }
        return predicate == .constant(true) ? nil : predicate
    }
}

extension EntityMapping {
    /// Returns the name that Xcode gives to the mapping.
    static func name(from source: String?, to destination: String?) -> String {
        guard let source else { return destination ?? "" }
        return destination.map { source + "To" + $0 } ?? source
    }

    static func kind(from source: String?, to destination: String?, hasPolicy: Bool) -> Kind {
        if hasPolicy { return .custom }
        if source == nil { return .add }
        return destination == nil ? .remove : .transform
    }
}
