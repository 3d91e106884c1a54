/// What one column of a migrated row must hold, as SQL over `a`, the row that is there, and `b`, the row that was.
struct ColumnRule {
    enum Subject {
        case attribute
        /// Where the condition doesn't hold, the links are looked at one by one.
        case link
    }

    let column: String
    /// The attribute's or relationship's name, for people.
    let property: String
    let subject: Subject
    /// Never NULL.
    let condition: String
    /// The column of the older row whose value, unchanged, is what is expected; nil where it takes more than that.
    let unchanged: String?
    /// Whether any value is right.
    var isFree = false
    /// The values, as SQL, that a column which was added without touching a row may have as its default.
    var fresh: [String] = []
    /// The column that a value is converted from.
    var converted: String?
    /// Whether the rows are of an entity that doesn't have the property.
    var isOfAnotherEntity = false
}

extension ColumnRule {
    /// The same value, byte for byte.
    static func same(_ column: String, as source: String, of property: String, hasNoAffinity: Bool) -> ColumnRule {
        ColumnRule(
            column: column, property: property, subject: .attribute,
            condition: equal(now(column), was(source), hasNoAffinity: hasNoAffinity), unchanged: source)
    }

    static func free(_ column: String, of property: String) -> ColumnRule {
        ColumnRule(
            column: column, property: property, subject: .attribute, condition: "1", unchanged: nil, isFree: true)
    }

    /// One of some values that don't depend on the older row.
    static func fresh(_ column: String, of property: String, _ values: [String]) -> ColumnRule {
        ColumnRule(
            column: column, property: property, subject: .attribute, condition: any(now(column), values),
            unchanged: nil, fresh: values)
    }

    static func now(_ column: String) -> String { "a." + quoted(column) }
    static func was(_ column: String) -> String { "b." + quoted(column) }

    /// A unary plus takes a column's affinity away, by which SQLite would convert what it compares. Where values have no
    /// affinity, 1 and 1.0 may both be stored, and are equal.
    static func equal(_ one: String, _ other: String, hasNoAffinity: Bool = false) -> String {
        let same = "+\(one) COLLATE BINARY IS +\(other)"
        // Text and blobs, which such columns mostly hold, are no less than an empty text: then that is settled.
        return hasNoAffinity ? "(\(same) AND (+\(one) >= '' OR typeof(\(one)) = typeof(\(other))))" : same
    }

    static func any(_ value: String, _ values: [String]) -> String {
        "(" + values.map { equal(value, $0) }.joined(separator: " OR ") + ")"
    }
}

/// SQLite's rules for a declared type (https://sqlite.org/datatype3.html, §3.1).
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
