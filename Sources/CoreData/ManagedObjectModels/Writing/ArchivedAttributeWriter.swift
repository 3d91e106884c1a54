import PropertyLists

/// A writer of an attribute's fields in a keyed archive.
struct ArchivedAttributeWriter {
    private(set) var builder: KeyedArchiveBuilder

    init(_ builder: KeyedArchiveBuilder) { self.builder = builder }

    /// Returns the class and the fields of the archived attribute.
    mutating func fields(
        _ attribute: AttributeDescription, entity: PropertyListValue
    ) -> (className: String, [String: PropertyListValue]) {
        let rules = attribute.validations.filter { (try? MappingPredicate(format: $0.predicate)) != nil }
        var flags = ArchivedFlags(
            userInfo: attribute.userInfo, modifier: attribute.versionHashModifier, hasRules: !rules.isEmpty)
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
            "NSDefaultValue": attribute.defaultValue.map { builder.constant($0) } ?? KeyedArchiveBuilder.null,
        ]
        fields.merge(flags.fields) { _, new in new }
        if !rules.isEmpty {
            let predicates = rules.map { builder.predicate(format: $0.predicate) }
            let warnings = rules.map { rule in
                rule.message.map { builder.text($0) }
                    ?? rule.errorCode.map { builder.scalar(.integer(Int64($0))) } ?? builder.text("")
            }
            fields["NSValidationPredicates"] = builder.array(predicates)
            fields["NSValidationWarnings"] = builder.array(warnings)
        }
        if attribute.isIndexed { fields["NSIsIndexed"] = .boolean(true) }
        if let modifier = attribute.versionHashModifier { fields["NSVersionHashModifier"] = builder.text(modifier) }
        if !attribute.userInfo.isEmpty {
            let members = attribute.userInfo.sorted { $0.key.precedes($1.key) }
                .map { ($0.key, builder.text($0.value)) }
            fields["NSUserInfo"] = builder.dictionary(members, "NSDictionary")
        }
        if let derivation = attribute.derivation {
            fields["NSDerivationExpression"] = builder.expression(Self.expression(derivation.expression))
            fields["NSFilteringPredicate"] = builder.predicate(format: derivation.filteringPredicate)
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

    // MARK: Derivations

    /// Returns a function such as `count:(pages)`, or a key path. The version hash covers its text: nothing may change.
    private static func expression(_ text: String) -> MappingExpression {
        guard text.hasSuffix(")"), let open = text.firstIndex(of: "("), open > text.startIndex else {
            return .keyPath(of: .evaluatedObject, text)
        }
        let inner = text[text.index(after: open)...].dropLast()
        return .function(String(text[..<open]), arguments(inner).map { expression($0) })
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
}
