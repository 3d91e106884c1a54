import ManagedObjectModels

/// What an expression became in SQL.
enum SQLExpression {
    case value(SQLValue)
    /// An attribute of several objects.
    case values(SQLObjects, SQLValue)
    case objects(SQLObjects)
    case list([SQLValue])
}

/// One value, as SQL writes it.
struct SQLValue {
    var text: String
    /// Nil where it isn't known.
    var type: AttributeType?
    /// Whether a marker stands before binary data: kept as a column holds it (external binary data).
    var isExternal = false

    static let null = SQLValue(text: "NULL")

    /// Whether it is stored as a fraction, even where it happens to be whole.
    var isFraction: Bool { type.map { [.double, .float, .decimal, .date].contains($0) } ?? false }
}

/// Objects that a key path leads to, in a query that may be about one in a query around it.
struct SQLObjects {
    var entity: String
    /// Tables, each with its alias.
    var sources: [String] = []
    var conditions: [String] = []
    /// The objects' own table.
    var alias: String
    var isToMany = false
    /// Their place in an ordered relationship.
    var place: String?
    /// The place of what leads to them among all that do, where that is ordered.
    var ownerPlace: String?

    /// The object that a query around it is about: it needs no query of its own.
    var isRow: Bool { sources.isEmpty }

    func column(_ name: String) -> String { alias + "." + name.sqlName }
    var key: String { alias + ".Z_PK" }
    var entityNumber: String { alias + ".Z_ENT" }

    /// A query in parentheses.
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

    /// Of at most one object.
    var keyValue: String { isRow ? key : selecting(key, suffix: " LIMIT 1") }
}

extension AttributeValue {
    /// As SQL writes it; nil for what has no such form: an app's own object.
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
