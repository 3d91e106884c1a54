import PersistentHistory
import SQLiteStore

/// Compares the rows of one table in a mirror with those of the home, which is attached, by types and values.
struct MirrorComparison {
    /// A row of the home, one of the mirror, or both if they differ and the columns' collations take their keys for
    /// equal.
    struct Difference {
        var home: MirrorRow?
        var mirror: MirrorRow?

        /// True if there are both, with exactly the same key.
        var hasOneKey: Bool {
            guard let home, let mirror else { return false }
            return zip(home.key, mirror.key).allSatisfy { $0.isIdentical(to: $1) }
        }
    }

    /// More rows differ than are worth a batch.
    struct TooManyDifferences: Error {}

    private let table: ReplicatedTable
    /// The columns that pages have. Virtual generated ones follow from them.
    private let stored: [String]

    /// The most rows that may differ, and their size in bytes.
    private static let (maxRows, maxSize) = (100_000, 64 << 20)
    /// The most columns of a result (https://sqlite.org/limits.html).
    private static let maxColumns = 2000

    init(_ table: ReplicatedTable, _ schema: DatabaseSchema) {
        self.table = table
        let columns = schema.table(table.name)?.columns.filter { $0.storage != .virtual }
        stored = columns?.map(\.name) ?? table.columns
    }

    /// Returns true if both have the same rows. The result doesn't depend on indexes. Throws `StoreError`.
    func areEqual(_ database: SQLiteConnection) throws -> Bool {
        func count(_ schema: String) -> String { "(SELECT count(*) FROM \(source(schema, "r")))" }
        let different = "SELECT 1 FROM \(join("home", "main")) WHERE NOT (\(isPresent("main")) AND \(isSame))"
        let sql = "SELECT \(count("home")) = \(count("main")) AND NOT EXISTS (\(different))"
        return try database.integer(sql) == 1
    }

    /// Returns the rows that differ. Throws `TooManyDifferences`, `StoreError`.
    func differences(_ database: SQLiteConnection, encoding: TextEncoding) throws -> [Difference] {
        let (keys, values) = (keyColumns, table.columns.map(\.sqlName))
        let width = keys.count + values.count
        guard 2 * width < Self.maxColumns else { throw TooManyDifferences() }
        let columns = ["home", "main"].map { name in (keys + values).map { "\(name).\($0)" }.joined(separator: ", ") }
        var found: [Difference] = []
        var size = 0
        func row(_ statement: SQLiteStatement, at start: Int) -> MirrorRow {
            let all = (0..<width).map { statement.storedValue(Int32(start + $0), encoding: encoding) }
            size += all.reduce(0) { $0 + $1.size }
            return MirrorRow(key: Array(all[..<keys.count]), values: Array(all[keys.count...]))
        }
        func add(_ difference: Difference) throws {
            found.append(difference)
            guard found.count <= Self.maxRows, size <= Self.maxSize else { throw TooManyDifferences() }
        }
        let differing = try database.prepare(
            "SELECT \(isPresent("main")), \(columns[0]), \(columns[1]) FROM \(join("home", "main")) "
                + "WHERE NOT (\(isPresent("main")) AND \(isSame))")
        while try differing.step() {
            let isPresent = differing.integer(0) == 1
            try add(
                Difference(home: row(differing, at: 1), mirror: isPresent ? row(differing, at: 1 + width) : nil))
        }
        let extra = try database.prepare(
            "SELECT \(columns[1]) FROM \(join("main", "home")) WHERE NOT \(isPresent("home"))")
        while try extra.step() { try add(Difference(home: nil, mirror: row(extra, at: 0))) }
        return found
    }

    // MARK: - SQL

    private var keyColumns: [String] { table.rowid.map { [$0] } ?? table.key.map(\.sqlName) }

    /// The rows themselves: an index may be damaged.
    private func source(_ schema: String, _ name: String) -> String {
        "\(schema).\(table.name.sqlName) AS \(name)\(table.rowid == nil ? "" : " NOT INDEXED")"
    }

    private func join(_ first: String, _ second: String) -> String {
        let keys = keyColumns.map { "\(first).\($0) = \(second).\($0)" }.joined(separator: " AND ")
        return "\(source(first, first)) LEFT JOIN \(source(second, second)) ON \(keys)"
    }

    private func isPresent(_ name: String) -> String { "(\(name).\(keyColumns[0]) IS NOT NULL)" }

    /// True for equal values of the same type.
    private var isSame: String {
        Self.conjunction(
            stored.map(\.sqlName).map { column in
                "home.\(column) IS main.\(column) COLLATE BINARY AND typeof(home.\(column)) = typeof(main.\(column))"
            }[...])
    }

    /// Joins conditions as a balanced tree: SQLite limits an expression's depth.
    private static func conjunction(_ terms: ArraySlice<String>) -> String {
        guard terms.count > 1 else { return terms.first ?? "1" }
        let middle = terms.startIndex + terms.count / 2
        return "(\(conjunction(terms[..<middle])) AND \(conjunction(terms[middle...])))"
    }
}

/// A row with its key: the rowid, or the values of the key's columns.
struct MirrorRow {
    let key: [StoredValue]
    let values: [StoredValue]
}

extension StoredValue {
    fileprivate var size: Int {
        switch self {
        case .null, .integer, .real: 16
        case .text(let text): 16 + text.utf8.count
        case .malformedText(let bytes), .blob(let bytes): 16 + bytes.count
        }
    }
}
