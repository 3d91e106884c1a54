import FoundationEssentials
import XMLDocuments

/// A reader of an `<attribute>` in a model's XML: its type, default and validation.
struct XMLAttributeReader {
    private let reader: XMLModelReader
    private let element: MarkupElement
    private let entity: String
    private let name: String

    init(_ reader: XMLModelReader, _ element: MarkupElement, entity: String, name: String) {
        self.reader = reader
        self.element = element
        self.entity = entity
        self.name = name
    }

    /// Reads the attribute without its renaming identifier and without a composite's elements. Throws `ModelError`.
    func attribute() throws -> AttributeDescription {
        // Xcode writes no type for an attribute that never had one.
        let word = element["attributeType"] ?? AttributeType.undefined.name
        guard let type = AttributeType(name: word) else {
            throw fault("“\(word)” is not an attribute type", "choose a type in Xcode")
        }
        var attribute = AttributeDescription(name: name, type: type)
        attribute.isOptional = try reader.boolean("optional", element)
        attribute.isTransient = try reader.boolean("transient", element)
        attribute.valueClassName = element["customClassName"]?.nonEmpty
        attribute.valueTransformerName = element["valueTransformerName"]?.nonEmpty
        attribute.allowsExternalBinaryDataStorage = try reader.boolean("allowsExternalBinaryDataStorage", element)
        attribute.preservesValueInHistoryOnDeletion = try reader.boolean("preserveAfterDeletion", element)
        attribute.allowsCloudEncryption = try reader.boolean("allowsCloudEncryption", element)
        attribute.isIndexed = try reader.boolean("indexed", element)
        attribute.isIndexedBySpotlight = try reader.boolean("spotlightIndexingEnabled", element)
        if element["usesScalarValueType"] != nil {
            attribute.usesScalarValueType = try reader.boolean("usesScalarValueType", element)
        }
        attribute.versionHashModifier = element["versionHashModifier"]?.nonEmpty
        attribute.userInfo = try reader.userInfo(of: element)
        attribute.derivation = try derivation()
        attribute.isReadOnly = attribute.derivation != nil
        attribute.defaultValue = try defaultValue(type)
        attribute.validations = try validations(type)
        return attribute
    }

    private func derivation() throws -> AttributeDescription.Derivation? {
        guard try reader.boolean("derived", element) else { return nil }
        guard let expression = element["derivationExpression"]?.trimmed.nonEmpty else {
            throw fault("the derived attribute has no expression", "give it a derivation expression")
        }
        return .init(expression: expression)
    }

    private func defaultValue(_ type: AttributeType) throws -> AttributeValue? {
        if type == .date {
            return try element["defaultDateTimeInterval"]?.nonEmpty.map { .date(try number($0)) }
        }
        guard let text = element["defaultValueString"], type == .string || !text.isEmpty else { return nil }
        switch type {
        case .string: return .string(text)
        case .boolean: return .boolean(try boolean(text))
        // Xcode's compiler also accepts YES and NO as numbers.
        case .integer16, .integer32, .integer64: return .integer(try integer(text, type))
        case .double, .float: return .real(try booleanNumber(text).map(Double.init) ?? number(text))
        case .decimal:
            _ = try booleanNumber(text).map(Double.init) ?? number(text)
            return .decimal(booleanNumber(text).map(String.init) ?? text)
        case .uuid:
            guard let uuid = UUID(uuidString: text) else { throw invalidValue(text) }
            return .uuid(uuid)
        case .uri: return .url(text)
        case .undefined, .date, .binaryData, .transformable, .objectID, .composite: return nil
        }
    }

    private func integer(_ text: String, _ type: AttributeType) throws -> Int64 {
        let value = booleanNumber(text) ?? Int64(text) ?? Double(text).flatMap(Int64.init(exactly:))
        let bits = type == .integer16 ? 16 : type == .integer32 ? 32 : 64
        guard let value, value >> (bits - 1) == 0 || value >> (bits - 1) == -1 else { throw invalidValue(text) }
        return value
    }

    private func booleanNumber(_ text: String) -> Int64? { text == "YES" ? 1 : text == "NO" ? 0 : nil }

    private func boolean(_ text: String) throws -> Bool {
        switch text {
        case "YES", "1", "true": true
        case "NO", "0", "false": false
        default: throw invalidValue(text)
        }
    }

    private func number(_ text: String) throws -> Double {
        guard let value = Double(text), value.isFinite else { throw invalidValue(text) }
        return value
    }

    private func invalidValue(_ text: String) -> ModelError {
        fault("“\(text)” is not a value of type \(element["attributeType"] ?? "")", "correct the default or limit")
    }

    /// Returns the predicates that Xcode's compiler derives from an attribute's limits, with their error codes
    /// (CoreDataErrors.h).
    private func validations(_ type: AttributeType) throws -> [ValidationRule] {
        var rules: [ValidationRule] = []
        func add(_ limit: String?, _ predicate: (String) -> String, code: Int) {
            if let limit = limit?.nonEmpty {
                rules.append(ValidationRule(predicate: predicate(limit), errorCode: code))
            }
        }
        switch type {
        case .string:
            add(element["minValueString"], { "length >= \($0)" }, code: 1670)
            add(element["maxValueString"], { "length <= \($0)" }, code: 1660)
            add(element["regularExpressionString"], { "SELF MATCHES " + ArchivedPredicate.literal($0) }, code: 1680)
        case .date:
            add(element["minDateTimeInterval"], { "SELF >= CAST(\($0), \"NSDate\")" }, code: 1640)
            add(element["maxDateTimeInterval"], { "SELF <= CAST(\($0), \"NSDate\")" }, code: 1630)
        case _ where type.isNumeric:
            add(element["minValueString"], { "SELF >= \($0)" }, code: 1620)
            add(element["maxValueString"], { "SELF <= \($0)" }, code: 1610)
        default: break
        }
        return rules
    }

    private func fault(_ message: String, _ remedy: String) -> ModelError {
        reader.fault(message, remedy: remedy, at: element, entity: entity, property: name)
    }
}
