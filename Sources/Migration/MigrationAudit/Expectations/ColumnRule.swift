/// The rule for a column of a migrated row, as SQL over the new row `a` and the old row `b`.
struct ColumnRule {
    /// The kind of value.
    enum Subject {
        case attribute
        /// A link. If the condition fails, the links are checked one by one.
        case link
    }

    let column: String
    /// The name of the attribute or relationship, for messages.
    let property: String
    let subject: Subject
    /// The SQL condition. Never NULL.
    let condition: String
    /// The column of the old row whose unchanged value is expected; nil if the rule is another.
    let unchanged: String?
    /// True if any value is valid.
    var allowsAnyValue = false
    /// The valid constants, as SQL. A column that was added without writing rows may have one as its default.
    var constants: [String] = []
    /// The column of the old row that the value is converted from.
    var converted: String?
    /// True if the rows belong to an entity without the property.
    var isOfAnotherEntity = false
}

extension ColumnRule {
    /// Requires the same value, byte for byte.
    static func same(_ column: String, as source: String, of property: String, hasNoAffinity: Bool) -> ColumnRule {
        ColumnRule(
            column: column, property: property, subject: .attribute,
            condition: equal(newValue(column), oldValue(source), hasNoAffinity: hasNoAffinity), unchanged: source)
    }

    /// Accepts any value.
    static func anyValue(_ column: String, of property: String) -> ColumnRule {
        ColumnRule(
            column: column, property: property, subject: .attribute, condition: "1", unchanged: nil,
            allowsAnyValue: true)
    }

    /// Requires one of several constants.
    static func oneOf(_ column: String, of property: String, _ values: [String]) -> ColumnRule {
        ColumnRule(
            column: column, property: property, subject: .attribute, condition: isAny(newValue(column), values),
            unchanged: nil, constants: values)
    }

    static func newValue(_ column: String) -> String { "a." + quoted(column) }
    static func oldValue(_ column: String) -> String { "b." + quoted(column) }

    /// Returns an SQL condition: two values are equal. A unary plus removes a column's affinity, which would make
    /// SQLite convert the compared values. A column without affinity may store both 1 and 1.0, which compare equal.
    static func equal(_ lhs: String, _ rhs: String, hasNoAffinity: Bool = false) -> String {
        let same = "+\(lhs) COLLATE BINARY IS +\(rhs)"
        // Such columns mostly hold text and blobs, which sort at or after an empty string. The first test settles
        // those.
        return hasNoAffinity ? "(\(same) AND (+\(lhs) >= '' OR typeof(\(lhs)) = typeof(\(rhs))))" : same
    }

    /// Returns an SQL condition: a value equals one of several.
    static func isAny(_ value: String, _ values: [String]) -> String {
        "(" + values.map { equal(value, $0) }.joined(separator: " OR ") + ")"
    }
}

/// The affinity of a declared type (https://sqlite.org/datatype3.html, §3.1).
enum Affinity {
    case integer, text, none, real, numeric

    init(_ type: String) {
        let type = type.uppercased()
        func has(_ part: String) -> Bool { type.contains(part) }
        if has("INT") {
            self = .integer
        } else if has("CHAR") || has("CLOB") || has("TEXT") {
            self = .text
        } else if has("BLOB") || type.isEmpty {
            self = .none
        } else if has("REAL") || has("FLOA") || has("DOUB") {
            self = .real
        } else {
            self = .numeric
        }
    }
}
