import SQLiteStore

/// Reads rows of one table by their recorded keys.
final class RowLookup {
    let columns: [String]
    private let table: String
    private let encoding: TextEncoding
    private let reader: StoreReader
    private let key: RecordedTable.Key
    /// True if the key's index is in an order that only the store's own program knows.
    private let isOrderUnknown: Bool
    private let keySQL: String
    private let selection: String
    private var statements: [String: SQLiteStatement] = [:]

    init(_ table: RecordedTable, _ reader: StoreReader, encoding: TextEncoding) {
        self.reader = reader
        self.encoding = encoding
        self.table = "main.\(table.quotedName)"
        columns = table.columns
        key = table.key
        keySQL = table.key(of: "r")
        // SQLite takes an unknown name in quotation marks for a text, unless it is qualified.
        selection = table.columns.map { "r.\($0.sqlName)" }.joined(separator: ", ")
        let collations = table.rules.first { $0.number == 0 }?.parts.compactMap(\.collation) ?? []
        isOrderUnknown = collations.contains { !["BINARY", "NOCASE", "RTRIM"].contains($0.uppercased()) }
    }

    /// Returns the row with a rowid; nil if there is none.
    func row(_ number: Int64) throws -> FoundRow? {
        guard case .rowid(let name, _) = key else { return nil }
        let statement = try statement("SELECT \(selection) FROM \(table) AS r NOT INDEXED WHERE r.\(name) = ?1")
        try statement.bind([.integer(number)])
        return try read(statement)
    }

    /// Returns the row with exactly this key; nil if there is none. `number`: the change that recorded the key.
    func row(_ values: [StoredValue], recordedBy number: Int64) throws -> FoundRow? {
        guard case .columns(let names) = key else { return nil }
        var (conditions, parameters): ([String], [StoredValue]) = ([], [])
        for (name, value) in zip(names, values) {
            let column = (isOrderUnknown ? "+" : "") + "r.\(name.sqlName)"
            let collation = isOrderUnknown ? " COLLATE BINARY" : ""
            if case .real(let number) = value {
                // Its text may have been rounded.
                conditions.append("\(column) BETWEEN ?\(parameters.count + 1) AND ?\(parameters.count + 2)")
                parameters += [.real(number.nextDown.nextDown), .real(number.nextUp.nextUp)]
            } else {
                conditions.append("\(column) = ?\(parameters.count + 1)\(collation)")
                parameters.append(value)
            }
        }
        // A column's affinity and collation may make different keys equal.
        conditions.append("\(keySQL) IS (SELECT key FROM main.GS_CHANGE WHERE number = ?\(parameters.count + 1))")
        parameters.append(.integer(number))
        let statement = try statement(
            "SELECT \(selection) FROM \(table) AS r WHERE \(conditions.joined(separator: " AND "))")
        try statement.bind(stored: parameters)
        return try read(statement)
    }

    private func statement(_ sql: String) throws -> SQLiteStatement {
        if let known = statements[sql] { return known }
        let statement = try reader.prepare(sql)
        statements[sql] = statement
        return statement
    }

    private func read(_ statement: SQLiteStatement) throws -> FoundRow? {
        defer { statement.reset() }
        guard try statement.step() else { return nil }
        return FoundRow(values: (0..<Int32(columns.count)).map { statement.storedValue($0, encoding: encoding) })
    }
}
