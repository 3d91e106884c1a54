import FoundationEssentials
import XMLDocuments

extension AttributeDescription {
    /// The settings of the attribute as the XML attributes of `<attribute>`, without a composite's elements.
    var markup: MarkupWriter.Attributes {
        var attributes: MarkupWriter.Attributes = [
            ("name", name), ("optional", .flag(isOptional)), ("transient", .flag(isTransient)),
            ("attributeType", type.name), ("derived", .flag(derivation != nil)),
            ("derivationExpression", derivation?.expression.expressible),
        ]
        attributes += XMLValidation.attributes(of: self) + [defaultMarkup].compactMap(\.self)
        attributes += [
            ("usesScalarValueType", usesScalarValueType.map { $0 ? "YES" : "NO" }),
            ("valueTransformerName", valueTransformerName?.expressible),
            ("customClassName", valueClassName?.expressible), ("indexed", .flag(isIndexed)),
            ("allowsExternalBinaryDataStorage", .flag(allowsExternalBinaryDataStorage)),
            ("preserveAfterDeletion", .flag(preservesValueInHistoryOnDeletion)),
            ("spotlightIndexingEnabled", .flag(isIndexedBySpotlight)),
            ("allowsCloudEncryption", .flag(allowsCloudEncryption)),
            ("elementID", .renaming(renamingIdentifier, of: name)),
            ("versionHashModifier", versionHashModifier?.expressible), ("syncable", "YES"),
        ]
        return attributes
    }

    /// The default value; nil if there is none, or a document can't express it.
    private var defaultMarkup: (name: String, value: String?)? {
        switch (type, defaultValue) {
        case (.date, .date(let seconds)?): ("defaultDateTimeInterval", seconds.shortText)
        case (.boolean, .boolean(let truth)?): ("defaultValueString", truth ? "YES" : "NO")
        case (.integer16, .integer(let number)?), (.integer32, .integer(let number)?),
            (.integer64, .integer(let number)?):
            ("defaultValueString", String(number))
        case (.double, .real(let number)?), (.float, .real(let number)?): ("defaultValueString", number.shortText)
        case (.decimal, .decimal(let digits)?): ("defaultValueString", digits)
        case (.string, .string(let text)?): ("defaultValueString", text.expressible)
        case (.uuid, .uuid(let uuid)?): ("defaultValueString", uuid.uuidString)
        case (.uri, .url(let text)?): ("defaultValueString", text.expressible)
        default: nil
        }
    }
}

extension Double {
    /// The shortest decimal text that reads as the same number, without a fraction if it is whole.
    var shortText: String { Int64(exactly: self).map(String.init) ?? String(self) }
}

/// Writes the limits of an attribute, from which Xcode's compiler derives validation predicates. Each is the inverse of
/// a rule of `XMLAttributeReader`.
enum XMLValidation {
    /// Returns the XML attributes for the rules that have one.
    static func attributes(of attribute: AttributeDescription) -> MarkupWriter.Attributes {
        var found: [String: String] = [:]
        for rule in attribute.validations {
            guard let (name, value) = limit(rule, attribute.type), found[name] == nil, value.expressible != nil
            else { continue }
            found[name] = value
        }
        return found.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
    }

    private static func limit(_ rule: ValidationRule, _ type: AttributeType) -> (name: String, value: String)? {
        func value(after prefix: String, before suffix: String = "") -> String? {
            guard rule.predicate.hasPrefix(prefix), rule.predicate.hasSuffix(suffix),
                rule.predicate.utf8.count > prefix.utf8.count + suffix.utf8.count
            else { return nil }
            return String(rule.predicate.dropFirst(prefix.count).dropLast(suffix.count))
        }
        switch type {
        case .string:
            if let value = value(after: "length >= ") { return ("minValueString", value) }
            if let value = value(after: "length <= ") { return ("maxValueString", value) }
            return value(after: "SELF MATCHES \"", before: "\"").map {
                ("regularExpressionString", unescaped($0))
            }
        case .date:
            let end = ", \"NSDate\")"
            if let value = value(after: "SELF >= CAST(", before: end) { return ("minDateTimeInterval", value) }
            return value(after: "SELF <= CAST(", before: end).map { ("maxDateTimeInterval", $0) }
        case _ where type.isNumeric:
            if let value = value(after: "SELF >= ") { return ("minValueString", value) }
            return value(after: "SELF <= ").map { ("maxValueString", $0) }
        default: return nil
        }
    }

    private static func unescaped(_ text: String) -> String {
        var result = ""
        var isEscaped = false
        for character in text.unicodeScalars {
            if character == "\\", !isEscaped {
                isEscaped = true
            } else {
                result.unicodeScalars.append(character)
                isEscaped = false
            }
        }
        return result
    }
}
