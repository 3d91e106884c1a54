import CoreDataStore
import ManagedObjectModels

/// The origin of one column's values, for the objects of one entity.
enum ColumnValue: Hashable {
    /// A column of the source's table, unchanged.
    case column(String)
    /// A column whose values are prefixed with the marker of an inline value (format of external binary data).
    case marked(String)
    /// A column whose values are truncated to whole numbers.
    case truncated(String)
    /// A value, with an SQL literal in place of NULL.
    indirect case defaulting(ColumnValue, literal: String)
    /// A column of entity numbers, which are renumbered.
    case entityNumber(String)
    /// An SQL literal.
    case literal(String)

    /// The source's column that the value is read from.
    var source: String? {
        switch self {
        case .column(let name), .marked(let name), .truncated(let name), .entityNumber(let name): name
        case .defaulting(let value, _): value.source
        case .literal: nil
        }
    }

    /// Returns the SQL expression of the value.
    ///
    /// - Parameter numbers: The entities' new numbers by their old ones.
    func expression(_ numbers: [Int64: Int64]) -> String {
        switch self {
        case .column(let name): name.sqlName
        case .marked(let name):
            "CASE WHEN \(name.sqlName) IS NULL THEN NULL ELSE CAST(x'01' || \(name.sqlName) AS BLOB) END"
        case .truncated(let name): "CAST(\(name.sqlName) AS INTEGER)"
        case .defaulting(let value, let literal): "IFNULL(\(value.expression(numbers)), \(literal))"
        case .entityNumber(let name): EntityNumberExpression(numbers, of: name).text
        case .literal(let text): text
        }
    }
}

/// The SQL expression that maps old entity numbers to new ones.
struct EntityNumberExpression {
    let text: String
    let isIdentity: Bool

    init(_ numbers: [Int64: Int64], of column: String) {
        let changed = numbers.filter { $0.key != $0.value }.sorted { $0.key < $1.key }
        isIdentity = changed.isEmpty
        guard !isIdentity else {
            text = column.sqlName
            return
        }
        let cases = changed.map { "WHEN \($0.key) THEN \($0.value)" }.joined(separator: " ")
        text = "CASE \(column.sqlName) \(cases) ELSE \(column.sqlName) END"
    }
}

/// The values of one column of a destination table.
struct ColumnMigration {
    let column: ColumnLayout
    /// The values by the source's entity number; the column is NULL for an entity without one.
    let values: [Int64: ColumnValue]
    /// The migrated entities that must not keep the content of the source's column.
    let clearedEntities: Set<Int64>

    /// The source's column that holds all values unchanged; nil if there is none.
    var unchangedSource: String? {
        guard clearedEntities.isEmpty, let first = values.values.first, case .column(let name) = first,
            values.values.allSatisfy({ $0 == first })
        else { return nil }
        return name
    }

    /// The only source column that values come from, changed or not; nil if there is none or more than one.
    var onlySource: String? {
        let sources = Set(values.values.compactMap(\.source))
        return sources.count == 1 ? sources.first : nil
    }

    /// Returns the SQL expression of the column's values.
    ///
    /// - Parameter family: All migrated entities of the table.
    func expression(_ numbers: [Int64: Int64], family: Set<Int64>) -> String {
        if let unchangedSource { return unchangedSource.sqlName }
        let groups = Dictionary(grouping: values, by: \.value).mapValues { $0.map(\.key).sorted() }
        if groups.count == 1, let (value, members) = groups.first, Set(members) == family {
            return value.expression(numbers)
        }
        let sorted = groups.sorted { $0.value[0] < $1.value[0] }
        guard !sorted.isEmpty else { return "NULL" }
        let cases = sorted.map { value, members in
            "WHEN Z_ENT IN (\(members.list)) THEN \(value.expression(numbers))"
        }
        return "CASE " + cases.joined(separator: " ") + " END"
    }
}

extension [Int64] {
    /// The numbers as the content of an SQL `IN` list.
    var list: String { map(String.init).joined(separator: ", ") }
}

extension [String] {
    /// The SQL disjunction of the conditions. It is grouped so that the expression doesn't become deep: SQLite's limit
    /// is 1,000 levels.
    var disjunction: String {
        guard count > 50 else { return "(" + joined(separator: " OR ") + ")" }
        let groups = stride(from: 0, to: count, by: 50).map { Array(self[$0..<Swift.min($0 + 50, count)]).disjunction }
        return groups.disjunction
    }
}

extension AttributeDescription {
    /// The default value as an SQL literal; nil if there is none, or only the app can archive it.
    var defaultLiteral: String? {
        guard derivation == nil, let value = defaultValue else { return nil }
        switch value {
        case .integer(let number): return String(number)
        case .boolean(let truth): return truth ? "1" : "0"
        case .real(let number):
            guard number.isFinite else { return nil }
            return type == .float ? "\(Double(Float(number)))" : "\(number)"
        case .decimal(let digits): return Double(digits) == nil ? nil : digits
        case .date(let seconds): return seconds.isFinite ? "\(seconds)" : nil
        case .string(let text): return type == .transformable || type == .binaryData ? nil : text.sqlText
        case .url(let text): return text.sqlText
        case .uuid(let uuid): return withUnsafeBytes(of: uuid.uuid) { Self.blob(Array($0)) }
        case .data(let bytes):
            guard type != .transformable else { return nil }
            return Self.blob(allowsExternalBinaryDataStorage ? [1] + bytes : bytes)
        case .archived: return nil
        }
    }

    private static func blob(_ bytes: [UInt8]) -> String {
        let digits = Array("0123456789ABCDEF".utf8)
        let text = bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }
        return "x'" + String(decoding: text, as: UTF8.self) + "'"
    }
}
