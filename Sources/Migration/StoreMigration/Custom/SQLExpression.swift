import ManagedObjectModels

/// A compiled expression.
enum SQLExpression {
    case value(SQLValue)
    /// An attribute of objects.
    case values(SQLObjects, SQLValue)
    case objects(SQLObjects)
    case list([SQLValue])
}

/// One value as an SQL expression.
struct SQLValue {
    var text: String
    /// The attribute type; nil if it isn't known.
    var type: AttributeType?
    /// True if the value is binary data with a marker before it, as a column of external binary data holds it.
    var isExternal = false
    /// The storage classes that the value may have, whatever the store's columns hold.
    var classes: StorageClasses = .all

    static let null = SQLValue(text: "NULL")

    /// True if values of the type may be fractions, even if a stored one is whole.
    var isFraction: Bool { type.map { [.double, .float, .decimal, .date].contains($0) } ?? false }
}

/// A to-one relationship in its owner's row.
struct SQLReference {
    let table: String
    let column: String
}

/// The objects that a key path leads to, as the parts of a query that may refer to a row of an outer query.
struct SQLObjects {
    var entity: String
    /// The tables, each with its alias.
    var sources: [String] = []
    var conditions: [String] = []
    /// The alias of the objects' own table.
    var alias: String
    var isToMany = false
    /// The column of the objects' positions in an ordered relationship.
    var place: String?
    /// The column of the owner's position in an ordered inverse relationship.
    var ownerPlace: String?
    /// The column of the outer query's row that has the key of these objects, if it determines them.
    var reference: SQLReference?

    /// True if this is the row of the outer query, which needs no query of its own.
    var isRow: Bool { sources.isEmpty }

    func column(_ name: String) -> String { alias + "." + name.sqlName }
    var key: String { alias + ".Z_PK" }
    var entityNumber: String { alias + ".Z_ENT" }

    /// Returns a query in parentheses.
    func selecting(_ columns: String, where more: [String] = [], suffix: String = "") -> String {
        let all = conditions + more
        let condition = all.isEmpty ? "" : " WHERE " + all.joined(separator: " AND ")
        let tables = isRow ? "" : " FROM " + sources.joined(separator: ", ")
        return "(SELECT \(columns)\(tables)\(condition)\(suffix))"
    }

    func exists(where more: [String] = []) -> String {
        guard isRow else { return "EXISTS " + selecting("1", where: more) }
        return more.isEmpty ? "1" : "(" + more.joined(separator: " AND ") + ")"
    }

    /// The key of at most one object.
    var keyValue: String { isRow ? key : selecting(key, suffix: " LIMIT 1") }
}

extension AttributeValue {
    /// The value as an SQL literal; nil if it has none, as an app's own archived object.
    var sqlLiteral: String? {
        switch self {
        case .integer(let value): "\(value)"
        case .real(let value), .date(let value): value.isFinite ? "\(value)" : nil
        case .decimal(let digits): Double(digits) == nil ? nil : digits
        case .boolean(let value): value ? "1" : "0"
        case .string(let text), .url(let text): text.contains("\0") ? nil : text.sqlText
        case .data(let bytes): "x'" + bytes.hexadecimal + "'"
        case .uuid(let uuid): "x'" + withUnsafeBytes(of: uuid.uuid) { Array($0) }.hexadecimal + "'"
        case .archived: nil
        }
    }

    var attributeType: AttributeType? {
        switch self {
        case .integer: .integer64
        case .real: .double
        case .decimal: .decimal
        case .boolean: .boolean
        case .string: .string
        case .date: .date
        case .data: .binaryData
        case .uuid: .uuid
        case .url: .uri
        case .archived: nil
        }
    }
}
