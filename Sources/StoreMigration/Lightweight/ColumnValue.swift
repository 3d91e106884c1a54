import CoreDataStore
import ManagedObjectModels

/// Where the values of one column come from, for the objects of one entity.
enum ColumnValue: Hashable {
    /// A column of the source's table, unchanged.
    case column(String)
    /// The same, an inline value's marker put before it (format of external binary data).
    case marked(String)
    /// The same, cut to a whole number.
    case whole(String)
    /// What the column has, and this where it has none, as SQL writes it.
    indirect case orElse(ColumnValue, literal: String)
    /// A column of entity numbers, given anew.
    case entityNumber(String)
    /// As SQL writes it.
    case literal(String)

    /// The source's column that it reads.
    var source: String? {
        switch self {
        case .column(let name), .marked(let name), .whole(let name), .entityNumber(let name): name
        case .orElse(let value, _): value.source
        case .literal: nil
        }
    }

    /// - Parameter numbers: The entities' new numbers by their old ones.
    func expression(_ numbers: [Int64: Int64]) -> String {
        switch self {
        case .column(let name): name.sqlName
        case .marked(let name):
            "CASE WHEN \(name.sqlName) IS NULL THEN NULL ELSE CAST(x'01' || \(name.sqlName) AS BLOB) END"
        case .whole(let name): "CAST(\(name.sqlName) AS INTEGER)"
        case .orElse(let value, let literal): "IFNULL(\(value.expression(numbers)), \(literal))"
        case .entityNumber(let name): EntityNumberExpression(numbers, of: name).text
        case .literal(let text): text
        }
    }
}

/// An entity's number given anew.
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

/// What becomes of one column of a destination's table.
struct ColumnMigration {
    let column: ColumnLayout
    /// By the source's entity number; an entity that isn't there has no value in it.
    let values: [Int64: ColumnValue]
    /// Entities, of those whose objects come, that must not keep what the source's column has.
    let excluded: Set<Int64>

    /// The source's column that all values are in as they are; nil when there is none.
    var carried: String? {
        guard excluded.isEmpty, let first = values.values.first, case .column(let name) = first,
            values.values.allSatisfy({ $0 == first })
        else { return nil }
        return name
    }

    /// The one source's column that values come from, changed or not; nil where there is none, or several.
    var onlySource: String? {
        let sources = Set(values.values.compactMap(\.source))
        return sources.count == 1 ? sources.first : nil
    }

    /// - Parameter family: All entities whose objects come.
    func expression(_ numbers: [Int64: Int64], family: Set<Int64>) -> String {
        if let carried { return carried.sqlName }
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
    /// For SQL's IN.
    var list: String { map(String.init).joined(separator: ", ") }
}

extension AttributeDescription {
    /// The default value as it is stored; nil for none, or for one that only the app can archive.
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
