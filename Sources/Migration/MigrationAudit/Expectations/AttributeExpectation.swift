import FoundationEssentials
import ManagedObjectModels

/// The rules for the columns of attributes after a migration.
struct AttributeExpectation {
    let pairing: EntityPairing
    let old: AuditLayout
    let new: AuditLayout

    /// Returns the rules for all attributes of an entity. Its objects belonged to its predecessor.
    func rules(of entity: String, in table: AuditSchema.Table) -> [ColumnRule] {
        var rules: [ColumnRule] = []
        for declaring in new.tree.lineage(of: entity) {
            for attribute in new.tree.model.entity(named: declaring)?.attributes ?? [] {
                for stored in StoredAttribute.all(of: attribute) {
                    guard let column = new.attributes[AttributeKey(entity: declaring, path: stored.path)] else {
                        continue
                    }
                    rules.append(rule(for: stored, column: column, of: entity, in: table))
                }
            }
        }
        return rules
    }

    private func rule(
        for stored: StoredAttribute, column: String, of entity: String, in table: AuditSchema.Table
    ) -> ColumnRule {
        let property = stored.path.joined(separator: ".")
        // A derived value is recomputed.
        if stored.attribute.derivation != nil || stored.description.derivation != nil {
            return .anyValue(column, of: property)
        }
        let affinity = Affinity(table.column(column)?.type ?? "")
        let defaults = self.defaults(of: stored)
        guard let source = pairing.source(of: stored, in: entity), let before = old.attributes[source.key] else {
            guard let defaults else { return .anyValue(column, of: property) }
            // No store shows the default of an element.
            return .oneOf(
                column, of: property, stored.isElement && defaults != ["NULL"] ? defaults + ["NULL"] : defaults)
        }
        let kept = conversion(
            from: source.stored.description, to: stored.description, column: column, oldColumn: before,
            property: property, affinity: affinity)
        guard !stored.description.isOptional, let defaults, defaults != ["NULL"] else { return kept }
        // A value that becomes mandatory gets its default if it was missing.
        let isOptional = source.stored.description.isOptional && !stored.isElement
        let isDefault = ColumnRule.isAny(ColumnRule.newValue(column), isOptional ? defaults : defaults + ["NULL"])
        return ColumnRule(
            column: column, property: property, subject: .attribute,
            condition:
                "(CASE WHEN \(ColumnRule.oldValue(before)) IS NULL THEN \(isDefault) ELSE \(kept.condition) END)",
            unchanged: isOptional ? nil : kept.unchanged, converted: before)
    }

    private func conversion(
        from old: AttributeDescription, to new: AttributeDescription, column: String, oldColumn before: String,
        property: String, affinity: Affinity
    ) -> ColumnRule {
        let (newValue, oldValue) = (ColumnRule.newValue(column), ColumnRule.oldValue(before))
        func converted(_ condition: String) -> ColumnRule {
            ColumnRule(
                column: column, property: property, subject: .attribute, condition: condition, unchanged: nil,
                converted: before)
        }
        if new.allowsExternalBinaryDataStorage, !old.allowsExternalBinaryDataStorage {
            // Inline data gets a leading byte that marks it as inline.
            return converted(
                "(CASE WHEN \(oldValue) IS NULL THEN \(newValue) IS NULL ELSE "
                    + ColumnRule.equal(newValue, "CAST(x'01' || \(oldValue) AS BLOB)") + " END)")
        }
        if old.allowsExternalBinaryDataStorage, !new.allowsExternalBinaryDataStorage {
            // The leading byte would no longer be interpreted, so no mapping may be inferred.
            return converted("(\(newValue) IS NULL AND \(oldValue) IS NULL)")
        }
        guard old.type != new.type else {
            return .same(column, as: before, of: property, hasNoAffinity: affinity == .none)
        }
        if new.type.isInteger, !old.type.isInteger {
            return converted(
                ColumnRule.equal(
                    newValue,
                    "(CASE WHEN typeof(\(oldValue)) IN ('integer', 'null') THEN \(oldValue) "
                        + "ELSE CAST(\(oldValue) AS INTEGER) END)"))
        }
        if affinity == .real, old.type != .double, old.type != .float {
            // A decimal or date may be stored as an integer, which the column converts to a floating-point number.
            return converted(
                ColumnRule.equal(
                    newValue,
                    "(CASE WHEN typeof(\(oldValue)) = 'integer' THEN CAST(\(oldValue) AS REAL) ELSE \(oldValue) END)"))
        }
        // The value is unchanged. Numbers of other types compare equal.
        return ColumnRule(
            column: column, property: property, subject: .attribute, condition: ColumnRule.equal(newValue, oldValue),
            unchanged: before)
    }

    /// Returns the possible default values of an attribute as SQL; nil if they are unknown.
    private func defaults(of stored: StoredAttribute) -> [String]? {
        let attribute = stored.description
        guard let value = attribute.defaultValue else { return ["NULL"] }
        switch value {
        case .integer(let number): return [String(number)]
        case .boolean(let value): return [value ? "1" : "0"]
        case .real(let number):
            let values = attribute.type == .float ? [number, Double(Float(number))] : [number]
            return values.map { attribute.type.isInteger ? "CAST(\(Self.real($0)) AS INTEGER)" : Self.real($0) }
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

    /// Returns an SQL string expression that also supports NUL characters.
    private static func text(_ text: String) -> String { "CAST(\(blob(Array(text.utf8))) AS TEXT)" }

    private static func blob(_ bytes: [UInt8]) -> String {
        "x'" + bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() + "'"
    }
}

extension AttributeType {
    /// True if values are stored as integers. This includes Booleans.
    var isInteger: Bool {
        switch self {
        case .integer16, .integer32, .integer64, .boolean: true
        default: false
        }
    }
}
