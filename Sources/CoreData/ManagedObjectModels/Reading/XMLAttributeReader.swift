import FoundationEssentials
import XMLDocuments

/// A reader of an `<attribute>` in a model's XML: its type, default and validation.
struct XMLAttributeReader {
    private let reader: XMLModelReader
    private let element: MarkupElement
    private let entity: String
    private let name: String
    /// The default that was ignored, as a note.
    private(set) var remark: ModelReadingNote?

    init(_ reader: XMLModelReader, _ element: MarkupElement, entity: String, name: String) {
        self.reader = reader
        self.element = element
        self.entity = entity
        self.name = name
    }

    /// Reads the attribute without its renaming identifier and without a composite's elements. Throws `ModelError`.
    mutating func attribute() throws -> AttributeDescription {
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
        attribute.defaultValue = defaultValue(type)
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

    /// Returns the default; nil for none. Xcode accepts a text that isn't of the attribute's type, and apps with one
    /// have no default.
    private mutating func defaultValue(_ type: AttributeType) -> AttributeValue? {
        let text = element[type == .date ? "defaultDateTimeInterval" : "defaultValueString"]
        guard let text, type == .string || !text.isEmpty else { return nil }
        switch type {
        case .undefined, .binaryData, .transformable, .objectID, .composite: return nil
        default: break
        }
        if let value = Self.value(text, type) { return value }
        remark = ModelReadingNote(
            entity: entity, property: name, line: element.line,
            "the default “\(text)” is not a value of type \(type.name): the attribute has no default",
            remedy: "correct the default, or remove it")
        return nil
    }

    private static func value(_ text: String, _ type: AttributeType) -> AttributeValue? {
        switch type {
        case .string: .string(text)
        case .boolean: boolean(text).map { .boolean($0) }
        case .integer16: integer(text, bits: 16).map { .integer($0) }
        case .integer32: integer(text, bits: 32).map { .integer($0) }
        case .integer64: integer(text, bits: 64).map { .integer($0) }
        case .double, .float: (truth(text).map { $0 ? 1 : 0 } ?? number(text)).map { .real($0) }
        case .decimal: truth(text).map { .decimal($0 ? "1" : "0") } ?? number(text).map { _ in .decimal(text) }
        case .date: number(text).map { .date($0) }
        case .uuid: UUID(uuidString: text).map { .uuid($0) }
        case .uri: .url(text)
        case .undefined, .binaryData, .transformable, .objectID, .composite: nil
        }
    }

    private static func integer(_ text: String, bits: Int) -> Int64? {
        let value = truth(text).map { $0 ? 1 : 0 } ?? Int64(text) ?? Double(text).flatMap(Int64.init(exactly:))
        guard let value, value >> (bits - 1) == 0 || value >> (bits - 1) == -1 else { return nil }
        return value
    }

    /// Returns the truth of YES and NO. Xcode's compiler also accepts them as numbers.
    private static func truth(_ text: String) -> Bool? { text == "YES" ? true : text == "NO" ? false : nil }

    /// Returns the Boolean value of a text. A number is true unless it is zero.
    private static func boolean(_ text: String) -> Bool? {
        switch text {
        case "true": true
        case "false": false
        default: truth(text) ?? number(text).map { $0 != 0 }
        }
    }

    private static func number(_ text: String) -> Double? {
        Double(text).flatMap { $0.isFinite ? $0 : nil }
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
