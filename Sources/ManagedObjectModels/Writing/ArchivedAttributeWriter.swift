import FoundationEssentials
import PropertyLists

/// A writer of an attribute's fields in a keyed archive.
struct ArchivedAttributeWriter {
    private(set) var builder: KeyedArchiveBuilder

    init(_ builder: KeyedArchiveBuilder) { self.builder = builder }

    /// Returns the class and the fields of the archived attribute.
    mutating func fields(
        _ attribute: AttributeDescription, entity: PropertyListValue
    ) -> (className: String, [String: PropertyListValue]) {
        var flags = ArchivedFlags(userInfo: attribute.userInfo, modifier: attribute.versionHashModifier)
        flags.set(0x2, "NSIsOptional", if: attribute.isOptional)
        flags.set(0x4, "NSIsReadOnly", if: attribute.isReadOnly)
        flags.set(0x8, "NSIsTransient", if: attribute.isTransient)
        flags.set(0x100, nil, if: attribute.isIndexedBySpotlight)
        flags.set(0x800, nil, if: attribute.allowsCloudEncryption)
        let storage: Int64 =
            (attribute.allowsExternalBinaryDataStorage ? 4 : 0) | (attribute.preservesValueInHistoryOnDeletion ? 16 : 0)
        var fields: [String: PropertyListValue] = [
            "NSPropertyName": builder.text(attribute.name), "NSEntity": entity,
            "NSRenamingIdentifier": builder.text(attribute.renamingIdentifier),
            "NSAttributeType": .integer(Int64(attribute.type.rawValue)), "NSFlagsKey": .integer(storage),
            "NSAttributeValueClassName": builder.text(attribute.valueClassName ?? attribute.type.valueClassName),
            "NSValueTransformerName": builder.text(attribute.valueTransformerName),
            "NSDefaultValue": attribute.defaultValue.map { value($0) } ?? KeyedArchiveBuilder.null,
        ]
        fields.merge(flags.fields) { _, new in new }
        if attribute.isIndexed { fields["NSIsIndexed"] = .boolean(true) }
        if let modifier = attribute.versionHashModifier { fields["NSVersionHashModifier"] = builder.text(modifier) }
        if !attribute.userInfo.isEmpty {
            let members = attribute.userInfo.sorted { $0.key.precedes($1.key) }
                .map { ($0.key, builder.text($0.value)) }
            fields["NSUserInfo"] = builder.dictionary(members, "NSDictionary")
        }
        if let derivation = attribute.derivation {
            fields["NSDerivationExpression"] = expression(derivation.expression)
            fields["NSFilteringPredicate"] = KeyedArchiveBuilder.null
            return ("NSDerivedAttributeDescription", fields)
        }
        guard attribute.type == .composite else { return ("NSAttributeDescription", fields) }
        let elements = attribute.elements.map { element in
            let (className, fields) = self.fields(element, entity: KeyedArchiveBuilder.null)
            return builder.object(className, fields)
        }
        fields["NSElements"] = builder.array(elements)
        return ("NSCompositeAttributeDescription", fields)
    }

    private mutating func value(_ value: AttributeValue) -> PropertyListValue {
        switch value {
        case .integer(let number): builder.scalar(.integer(number))
        case .real(let number): builder.scalar(.real(number))
        case .boolean(let truth): builder.scalar(.boolean(truth))
        case .string(let text): builder.text(text)
        case .date(let seconds): builder.object("NSDate", ["NS.time": .real(seconds)])
        case .data(let bytes): builder.object("NSData", ["NS.data": .data(bytes)])
        case .uuid(let uuid):
            builder.object("NSUUID", ["NS.uuidbytes": .data(withUnsafeBytes(of: uuid.uuid) { Array($0) })])
        case .url(let text):
            builder.object("NSURL", ["NS.base": KeyedArchiveBuilder.null, "NS.relative": builder.text(text)])
        case .decimal(let digits): decimal(digits)
        // Only the class is known, so the object can't be archived.
        case .archived: KeyedArchiveBuilder.null
        }
    }

    /// Archives a decimal number as 16-bit words, lowest first, and a power of ten.
    private mutating func decimal(_ digits: String) -> PropertyListValue {
        let isNegative = digits.hasPrefix("-")
        let parts = digits.drop { $0 == "-" }.split(separator: ".", omittingEmptySubsequences: false)
        let fraction = parts.count > 1 ? String(parts[1]) : ""
        guard var mantissa = UInt128((parts.first.map(String.init) ?? "0") + fraction) else {
            return KeyedArchiveBuilder.null
        }
        var bytes: [UInt8] = []
        var length: Int64 = 0
        for word in Int64(1)...8 {
            if mantissa != 0 { length = word }
            bytes += [UInt8(mantissa & 0xFF), UInt8(mantissa >> 8 & 0xFF)]
            mantissa >>= 16
        }
        return builder.object(
            "NSDecimalNumber",
            [
                "NS.mantissa": .data(bytes), "NS.mantissa.bo": .integer(1), "NS.length": .integer(length),
                "NS.exponent": .integer(Int64(-fraction.count)), "NS.negative": .boolean(isNegative),
                "NS.compact": .boolean(true),
            ])
    }

    // MARK: Derivations

    /// Archives a function such as `count:(pages)`, or a key path. The version hash covers its text.
    private mutating func expression(_ text: String) -> PropertyListValue {
        guard text.hasSuffix(")"), let open = text.firstIndex(of: "("), open > text.startIndex else {
            return keyPath(text)
        }
        let inner = text[text.index(after: open)...].dropLast()
        let arguments = Self.arguments(inner).map { expression($0) }
        let receiver = builder.object(
            "NSConstantValueExpression",
            [
                "NSExpressionType": .integer(0),
                "NSConstantValueClassName": builder.text("_NSPredicateUtilities"),
            ])
        return builder.object(
            "NSFunctionExpression",
            [
                "NSExpressionType": .integer(4), "NSOperand": receiver,
                "NSSelectorName": builder.text(String(text[..<open])), "NSArguments": builder.array(arguments),
            ])
    }

    /// Splits arguments at commas outside parentheses.
    private static func arguments(_ text: Substring) -> [String] {
        var parts: [String] = []
        var part = ""
        var depth = 0
        for character in text {
            if character == "(" { depth += 1 } else if character == ")" { depth -= 1 }
            if character == ",", depth == 0 {
                parts.append(part)
                part = ""
            } else if !(part.isEmpty && character == " ") {
                part.append(character)
            }
        }
        return part.isEmpty ? parts : parts + [part]
    }

    private mutating func keyPath(_ path: String) -> PropertyListValue {
        let receiver = builder.object("NSSelfExpression", ["NSExpressionType": .integer(1)])
        let specifier = builder.object(
            "NSKeyPathSpecifierExpression", ["NSExpressionType": .integer(10), "NSKeyPath": builder.text(path)])
        return builder.object(
            "NSKeyPathExpression",
            [
                "NSExpressionType": .integer(3), "NSOperand": receiver,
                "NSSelectorName": builder.text(path.contains(".") ? "valueForKeyPath:" : "valueForKey:"),
                "NSArguments": builder.array([specifier], "NSMutableArray"),
            ])
    }
}
