import CSQLite
import SQLiteFormat

extension StoreContent {
    /// Returns the number of a table's rows that another store's table of that name has with the same values, each as
    /// often as both have it, whatever the row identifiers are. The other table must have all columns that rows can be
    /// given values in, and the stores one encoding.
    ///
    /// - Parameter limit: The number of rows, about, whose hashes are in memory at a time. Both tables are read as
    ///   often as that takes.
    func commonRows(of table: DatabaseSchema.Table, in other: StoreContent, limit: Int64 = 4 << 20) throws -> Int64 {
        let names = table.assignableColumns.map(\.name.sqlName).joined(separator: ", ")
        let sql = "SELECT \(names) FROM \(table.name.sqlName) NOT INDEXED"
        let parts = UInt64(max(1, try reader.rowCount(table) / limit + 1))
        var common: Int64 = 0
        for part in 0..<parts {
            var mine: [RowHash: Int64] = [:]
            try reader.forEachHash(sql) { if $0.first % parts == part { mine[$0, default: 0] += 1 } }
            try other.reader.forEachHash(sql) {
                guard $0.first % parts == part, let count = mine[$0], count > 0 else { return }
                mine[$0] = count - 1
                common += 1
            }
        }
        return common
    }
}

/// A hash of a row's values and their types. Its 128 bits are seeded anew in each process, so two rows that differ have
/// the same one only by a chance that doesn't count.
private struct RowHash: Hashable {
    let first: UInt64
    let second: UInt64

    init(_ row: SQLiteStatement) {
        var (one, other) = (Hasher(), Hasher())
        other.combine(1)
        for column in 0..<row.columnCount { row.hash(column, into: &one, &other) }
        first = UInt64(bitPattern: Int64(one.finalize()))
        second = UInt64(bitPattern: Int64(other.finalize()))
    }
}

extension StoreReader {
    fileprivate func forEachHash(_ sql: String, _ body: (RowHash) -> Void) throws {
        let rows = try prepare(sql)
        while try rows.step() { body(RowHash(rows)) }
    }
}

extension SQLiteStatement {
    fileprivate func hash(_ column: Int32, into one: inout Hasher, _ other: inout Hasher) {
        func add(_ value: some Hashable) {
            one.combine(value)
            other.combine(value)
        }
        let type = sqlite3_column_type(handle, column)
        add(type)
        switch type {
        case SQLITE_INTEGER: add(integer(column))
        case SQLITE_FLOAT: add(real(column).bitPattern)
        case SQLITE_TEXT, SQLITE_BLOB: add(bytes(column, limit: .max))
        default: break
        }
    }
}
