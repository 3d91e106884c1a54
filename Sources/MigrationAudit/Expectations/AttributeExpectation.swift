import FoundationEssentials
import ManagedObjectModels

/// What the columns of attributes must hold after a migration.
struct AttributeExpectation {
    let pairing: EntityPairing
    let old: AuditLayout
    let new: AuditLayout

    /// The rules for all attributes of an entity's objects, which were of its predecessor.
    func rules(of entity: String, in table: AuditSchema.Table) -> [ColumnRule] {
        var rules: [ColumnRule] = []
        for declaring in new.tree.line(of: entity) {
            for attribute in new.tree.model.entity(named: declaring)?.attributes ?? [] {
                for stored in StoredAttribute.all(of: attribute) {
                    guard let column = new.attributes[AttributeKey(entity: declaring, path: stored.path)] else {
                        continue
                    }
                    rules.append(rule(for: stored, column, entity, table))
                }
            }
        }
        return rules
    }

    private func rule(
        for stored: StoredAttribute, _ column: String, _ entity: String, _ table: AuditSchema.Table
    ) -> ColumnRule {
        let property = stored.path.joined(separator: ".")
        // A derived value is computed again.
        if stored.attribute.derivation != nil || stored.description.derivation != nil {
            return .free(column, of: property)
        }
        let affinity = Affinity(table.column(column)?.type ?? "")
        let defaults = self.defaults(of: stored)
        guard let source = pairing.source(of: stored, in: entity), let before = old.attributes[source.key] else {
            guard let defaults else { return .free(column, of: property) }
            // No default of an element was ever seen in a store.
            return .fresh(
                column, of: property, stored.isElement && defaults != ["NULL"] ? defaults + ["NULL"] : defaults)
        }
        let kept = conversion(
            from: source.stored.description, to: stored.description, column, before, property, affinity)
        guard !stored.description.isOptional, let defaults, defaults != ["NULL"] else { return kept }
        // An optional value that is mandatory now gets its default where there was none.
        let isOptional = source.stored.description.isOptional && !stored.isElement
        let forNone = ColumnRule.any(ColumnRule.now(column), isOptional ? defaults : defaults + ["NULL"])
        return ColumnRule(
            column: column, property: property, subject: .attribute,
            condition: "(CASE WHEN \(ColumnRule.was(before)) IS NULL THEN \(forNone) ELSE \(kept.condition) END)",
            unchanged: isOptional ? nil : kept.unchanged, converted: before)
    }

    private func conversion(
        from old: AttributeDescription, to new: AttributeDescription, _ column: String, _ before: String,
        _ property: String, _ affinity: Affinity
    ) -> ColumnRule {
        let (now, was) = (ColumnRule.now(column), ColumnRule.was(before))
        func converted(_ condition: String) -> ColumnRule {
            ColumnRule(
                column: column, property: property, subject: .attribute, condition: condition, unchanged: nil,
                converted: before)
        }
        if new.allowsExternalBinaryDataStorage, !old.allowsExternalBinaryDataStorage {
            // Inline data gets the byte before it that says so.
            return converted(
                "(CASE WHEN \(was) IS NULL THEN \(now) IS NULL ELSE "
                    + ColumnRule.equal(now, "CAST(x'01' || \(was) AS BLOB)") + " END)")
        }
        if old.allowsExternalBinaryDataStorage, !new.allowsExternalBinaryDataStorage {
            // Nobody reads the byte before it any more: no mapping may be inferred.
            return converted("(\(now) IS NULL AND \(was) IS NULL)")
        }
        guard old.type != new.type else {
            return .same(column, as: before, of: property, hasNoAffinity: affinity == .none)
        }
        if new.type.isWhole, !old.type.isWhole {
            return converted(
                ColumnRule.equal(
                    now,
                    "(CASE WHEN typeof(\(was)) IN ('integer', 'null') THEN \(was) "
                        + "ELSE CAST(\(was) AS INTEGER) END)"))
        }
        if affinity == .real, old.type != .double, old.type != .float {
            // A whole number, which a decimal one or a date may be stored as, becomes what the column can hold of it.
            return converted(
                ColumnRule.equal(
                    now, "(CASE WHEN typeof(\(was)) = 'integer' THEN CAST(\(was) AS REAL) ELSE \(was) END)"))
        }
        // Stored as it was, numbers of other types are equal to what they were.
        return ColumnRule(
            column: column, property: property, subject: .attribute, condition: ColumnRule.equal(now, was),
            unchanged: before)
    }

    /// The values that an attribute may have by default, as SQL; nil where it can't be told.
    private func defaults(of stored: StoredAttribute) -> [String]? {
        let attribute = stored.description
        guard let value = attribute.defaultValue else { return ["NULL"] }
        switch value {
        case .integer(let number): return [String(number)]
        case .boolean(let isTrue): return [isTrue ? "1" : "0"]
        case .real(let number):
            let forms = attribute.type == .float ? [number, Double(Float(number))] : [number]
            return forms.map { attribute.type.isWhole ? "CAST(\(Self.real($0)) AS INTEGER)" : Self.real($0) }
        case .date(let seconds): return [Self.real(seconds)]
        case .decimal(let digits):
            return ["CAST(\(Self.text(digits)) AS NUMERIC)", "CAST(\(Self.text(digits)) AS REAL)"]
        case .string(let text), .url(let text): return [Self.text(text)]
        case .uuid(let uuid): return [withUnsafeBytes(of: uuid.uuid) { Self.blob(Array($0)) }]
        case .data(let bytes): return [Self.blob(attribute.allowsExternalBinaryDataStorage ? [1] + bytes : bytes)]
        case .archived: return nil
        }
    }

    private static func real(_ number: Double) -> String {
        guard number.isFinite else { return number.isNaN ? "NULL" : number < 0 ? "-9e999" : "9e999" }
        return "\(number)"
    }

    /// Any text, those with a zero in it too.
    private static func text(_ text: String) -> String { "CAST(\(blob(Array(text.utf8))) AS TEXT)" }

    private static func blob(_ bytes: [UInt8]) -> String {
        "x'" + bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() + "'"
    }
}

extension AttributeType {
    /// Whether values are whole numbers, truth values among them.
    var isWhole: Bool {
        switch self {
        case .integer16, .integer32, .integer64, .boolean: true
        default: false
        }
    }
}
