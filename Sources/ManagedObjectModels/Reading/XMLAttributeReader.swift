import FoundationEssentials
import PropertyLists

/// Reads one `<attribute>` of a model's XML: its type, default and validation.
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

    /// Its renaming identifier and a composite's elements left out. Throws `ModelError`.
    func attribute() throws -> AttributeDescription {
        // Xcode writes no type for one that was never given any.
        let word = element["attributeType"] ?? AttributeType.undefined.name
        guard let type = AttributeType(name: word) else {
            throw fault("“\(word)” is no attribute type", "choose a type in Xcode")
        }
        var attribute = AttributeDescription(name: name, type: type)
        attribute.isOptional = try reader.truth("optional", element)
        attribute.isTransient = try reader.truth("transient", element)
        attribute.valueClassName = element["customClassName"]?.nonEmpty
        attribute.valueTransformerName = element["valueTransformerName"]?.nonEmpty
        attribute.allowsExternalBinaryDataStorage = try reader.truth("allowsExternalBinaryDataStorage", element)
        attribute.preservesValueInHistoryOnDeletion = try reader.truth("preserveAfterDeletion", element)
        attribute.allowsCloudEncryption = try reader.truth("allowsCloudEncryption", element)
        attribute.isIndexed = try reader.truth("indexed", element)
        attribute.isIndexedBySpotlight = try reader.truth("spotlightIndexingEnabled", element)
        if element["usesScalarValueType"] != nil {
            attribute.usesScalarValueType = try reader.truth("usesScalarValueType", element)
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
        guard try reader.truth("derived", element) else { return nil }
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
        case .boolean: return .boolean(try truth(text))
        // Xcode's compiler takes a truth value for a number too.
        case .integer16, .integer32, .integer64: return .integer(try integer(text, type))
        case .double, .float: return .real(try truthNumber(text).map(Double.init) ?? number(text))
        case .decimal:
            _ = try truthNumber(text).map(Double.init) ?? number(text)
            return .decimal(truthNumber(text).map(String.init) ?? text)
        case .uuid:
            guard let uuid = UUID(uuidString: text) else { throw wrong(text) }
            return .uuid(uuid)
        case .uri: return .url(text)
        case .undefined, .date, .binaryData, .transformable, .objectID, .composite: return nil
        }
    }

    private func integer(_ text: String, _ type: AttributeType) throws -> Int64 {
        let value = truthNumber(text) ?? Int64(text) ?? Double(text).flatMap(Int64.init(exactly:))
        let bits = type == .integer16 ? 16 : type == .integer32 ? 32 : 64
        guard let value, value >> (bits - 1) == 0 || value >> (bits - 1) == -1 else { throw wrong(text) }
        return value
    }

    private func truthNumber(_ text: String) -> Int64? { text == "YES" ? 1 : text == "NO" ? 0 : nil }

    private func truth(_ text: String) throws -> Bool {
        switch text {
        case "YES", "1", "true": true
        case "NO", "0", "false": false
        default: throw wrong(text)
        }
    }

    private func number(_ text: String) throws -> Double {
        guard let value = Double(text), value.isFinite else { throw wrong(text) }
        return value
    }

    private func wrong(_ text: String) -> ModelError {
        fault("“\(text)” is no value of the type \(element["attributeType"] ?? "")", "correct the default or limit")
    }

    /// The predicates that Xcode's compiler makes of an attribute's limits, and the errors they raise
    /// (CoreDataErrors.h).
    private func validations(_ type: AttributeType) throws -> [ValidationRule] {
        var rules: [ValidationRule] = []
        func add(_ limit: String?, _ predicate: (String) -> String, _ code: Int) {
            if let limit = limit?.nonEmpty {
                rules.append(ValidationRule(predicate: predicate(limit), errorCode: code))
            }
        }
        switch type {
        case .string:
            add(element["minValueString"], { "length >= \($0)" }, 1670)
            add(element["maxValueString"], { "length <= \($0)" }, 1660)
            add(element["regularExpressionString"], { "SELF MATCHES \"\($0)\"" }, 1680)
        case .date:
            add(element["minDateTimeInterval"], { "SELF >= CAST(\($0), \"NSDate\")" }, 1640)
            add(element["maxDateTimeInterval"], { "SELF <= CAST(\($0), \"NSDate\")" }, 1630)
        case _ where type.isNumeric:
            add(element["minValueString"], { "SELF >= \($0)" }, 1620)
            add(element["maxValueString"], { "SELF <= \($0)" }, 1610)
        default: break
        }
        return rules
    }

    private func fault(_ message: String, _ remedy: String) -> ModelError {
        reader.fault(message, remedy, element, entity, name)
    }
}
