import FoundationEssentials
import PropertyLists
import SystemPackage

/// A reader of an archived `NSAttributeDescription`, `NSDerivedAttributeDescription` or
/// `NSCompositeAttributeDescription`.
struct ArchivedAttributeReader {
    private let object: ArchivedObject
    private let path: FilePath
    private let element: String

    /// The limit of elements in a composite attribute, counting nested ones. Elements may contain each other.
    private static let maximumElementCount = 10_000

    init(_ object: ArchivedObject, path: FilePath, element: String) {
        self.object = object
        self.path = path
        self.element = element
    }

    /// Reads the attribute. Throws `ModelError`.
    func attribute(named name: String) throws -> AttributeDescription {
        var remainingElements = Self.maximumElementCount
        return try attribute(named: name, depth: 0, &remainingElements)
    }

    private func attribute(named name: String, depth: Int, _ remainingElements: inout Int) throws
        -> AttributeDescription
    {
        let code = object.integer("NSAttributeType") ?? 0
        guard let type = Int32(exactly: code).flatMap(AttributeType.init) else {
            throw malformed("\(code) is not an attribute type")
        }
        var attribute = AttributeDescription(name: name, type: type)
        let flags = ArchivedPropertyFlags(object)
        attribute.isOptional = flags.isOptional
        attribute.isTransient = flags.isTransient
        attribute.isReadOnly = flags.isReadOnly
        attribute.allowsCloudEncryption = flags.allowsCloudEncryption
        attribute.isIndexedBySpotlight = flags.isIndexedBySpotlight
        attribute.isIndexed = object.isTrue("NSIsIndexed")
        attribute.valueClassName = object.string("NSAttributeValueClassName").flatMap {
            // The type's default class is not recorded.
            $0 == type.valueClassName ?? "" ? nil : $0
        }
        attribute.valueTransformerName = object.string("NSValueTransformerName")
        let storage = object.integer("NSFlagsKey") ?? 0
        attribute.allowsExternalBinaryDataStorage = storage & 4 != 0
        attribute.preservesValueInHistoryOnDeletion = storage & 16 != 0
        attribute.renamingIdentifier = object.string("NSRenamingIdentifier") ?? name
        attribute.versionHashModifier = object.string("NSVersionHashModifier")
        for (key, member) in object.members("NSUserInfo") {
            attribute.userInfo[key] = member.text ?? member.scalarText
        }
        attribute.defaultValue = defaultValue(type)
        attribute.validations = validations
        attribute.derivation = try derivation()
        attribute.elements = try elements(depth, &remainingElements)
        return attribute
    }

    private func derivation() throws -> AttributeDescription.Derivation? {
        guard object.className == "NSDerivedAttributeDescription" else { return nil }
        guard let expression = object.object("NSDerivationExpression") else {
            throw malformed("the derived attribute has no expression")
        }
        return .init(
            expression: ArchivedPredicate.format(expression: expression),
            filteringPredicate: object.object("NSFilteringPredicate").map { ArchivedPredicate.format($0) })
    }

    private func elements(_ depth: Int, _ remainingElements: inout Int) throws -> [AttributeDescription] {
        let parts = object.elements("NSElements")
        remainingElements -= parts.count
        guard parts.isEmpty || depth < 16, remainingElements > 0 else {
            throw malformed("composite attributes are nested too deeply")
        }
        var found: [AttributeDescription] = []
        for part in parts {
            let name = part.string("NSPropertyName") ?? ""
            let reader = ArchivedAttributeReader(part, path: path, element: element + "." + name)
            found.append(try reader.attribute(named: name, depth: depth + 1, &remainingElements))
        }
        return found
    }

    private var validations: [ValidationRule] {
        let codes = object.numbers("NSValidationWarnings")
        let messages = object.object("NSValidationWarnings")?.ownElements.map(\.text) ?? []
        return object.elements("NSValidationPredicates").enumerated().map { index, predicate in
            ValidationRule(
                predicate: ArchivedPredicate.format(predicate),
                errorCode: index < codes.count ? codes[index].map(Int.init) : nil,
                message: index < messages.count ? messages[index].flatMap { $0.isEmpty ? nil : $0 } : nil)
        }
    }

    /// Returns the default; nil for none, and for one of another type, which an attribute can't have.
    private func defaultValue(_ type: AttributeType) -> AttributeValue? {
        archivedDefault(type).flatMap { type.accepts($0) ? $0 : nil }
    }

    private func archivedDefault(_ type: AttributeType) -> AttributeValue? {
        if let plain = object["NSDefaultValue"], let value = Self.value(plain, type) { return value }
        guard let archived = object.object("NSDefaultValue") else { return nil }
        switch archived.className {
        case "NSMutableString": return archived.string("NS.string").map { .string($0) }
        case "NSDate": return Self.real(archived["NS.time"]).map { .date($0) }
        case "NSData", "NSMutableData": return archived["NS.data"]?.data.map { .data($0) }
        case "NSURL": return archived.string("NS.relative").map { .url($0) }
        case "NSUUID":
            guard let bytes = archived["NS.uuidbytes"]?.data, bytes.count == 16 else { return nil }
            return bytes.withUnsafeBytes { .uuid(UUID(uuid: $0.loadUnaligned(as: uuid_t.self))) }
        case "NSDecimalNumber": return ArchivedDecimal.digits(archived).map { .decimal($0) }
        default: return .archived(className: archived.className)
        }
    }

    private static func value(_ value: PropertyListValue, _ type: AttributeType) -> AttributeValue? {
        switch (value, type) {
        case (_, .boolean): value.boolean.map { .boolean($0) }
        case (_, .double), (_, .float): real(value).map { .real($0) }
        case (.integer(let number), .decimal): .decimal(String(number))
        case (.real(let number), .decimal): .decimal("\(number)")
        case (.integer(let number), _): .integer(number)
        case (.boolean(let truth), _): .integer(truth ? 1 : 0)
        case (.real(let number), .integer16), (.real(let number), .integer32), (.real(let number), .integer64):
            Int64(exactly: number.rounded()).map { .integer($0) }
        case (.real(let number), _): .real(number)
        case (.string(let text), .uri): .url(text)
        case (.string(let text), _): .string(text)
        case (.date(let seconds), _): .date(seconds)
        case (.data(let bytes), _): .data(bytes)
        default: nil
        }
    }

    private static func real(_ value: PropertyListValue?) -> Double? {
        switch value {
        case .real(let number)?, .date(let number)?: number
        case .integer(let number)?: Double(number)
        case .boolean(let truth)?: truth ? 1 : 0
        default: nil
        }
    }

    private func malformed(_ message: String) -> ModelError {
        ModelError(.malformed, path, element: element, message, remedy: "compile the model again")
    }
}

extension AttributeType {
    /// Returns true if the value can be that of an attribute of the type.
    fileprivate func accepts(_ value: AttributeValue) -> Bool {
        switch (self, value) {
        case (.integer16, .integer(let number)): Int16(exactly: number) != nil
        case (.integer32, .integer(let number)): Int32(exactly: number) != nil
        case (.integer64, .integer), (.boolean, .boolean), (.decimal, .decimal), (.double, .real), (.float, .real),
            (.date, .date), (.date, .real), (.date, .integer), (.string, .string), (.uri, .url), (.uuid, .uuid),
            (.binaryData, .data), (.undefined, _), (.transformable, _), (.objectID, _), (.composite, _):
            true
        default: false
        }
    }
}

/// A decoder of archived `NSDecimalNumber` values: a mantissa of up to 128 bits and a power of ten.
package enum ArchivedDecimal {
    package static func digits(_ object: ArchivedObject) -> String? {
        guard let bytes = object["NS.mantissa"]?.data, bytes.count <= 16, let exponent = object.integer("NS.exponent"),
            (-200...200).contains(exponent)
        else { return nil }
        // The mantissa is 16-bit words, lowest first. `NS.mantissa.bo` is the byte order of each: 1 for little-endian.
        let isLittle = object.integer("NS.mantissa.bo") != 2
        var mantissa: UInt128 = 0
        for index in stride(from: bytes.count - 2, through: 0, by: -2) {
            let (low, high) = isLittle ? (bytes[index], bytes[index + 1]) : (bytes[index + 1], bytes[index])
            mantissa = mantissa << 16 | UInt128(high) << 8 | UInt128(low)
        }
        let sign = object.isTrue("NS.negative") && mantissa != 0 ? "-" : ""
        return sign + scaled(String(mantissa), Int(exponent))
    }

    /// Returns the digits with a decimal point for the power of ten.
    private static func scaled(_ digits: String, _ exponent: Int) -> String {
        guard exponent < 0 else { return digits == "0" ? digits : digits + String(repeating: "0", count: exponent) }
        let padded = String(repeating: "0", count: max(0, 1 - exponent - digits.count)) + digits
        return padded.dropLast(-exponent) + "." + padded.suffix(-exponent)
    }
}
