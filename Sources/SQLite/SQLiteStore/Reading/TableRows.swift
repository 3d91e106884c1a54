import CSQLite

extension DatabaseSchema.Table {
    /// The columns that identify a row; empty if none can.
    var identifyingColumns: [String] {
        kind == .rowid ? [rowid].compactMap(\.self) : primaryKey.map(\.name)
    }

    /// The columns of a row that is read: the rowid if a name of its own reaches it, then each assignable column.
    var readColumns: [String] {
        (rowid == rowidAlias ? [] : [rowid].compactMap(\.self)) + assignableColumns.map(\.name)
    }
}

extension StoreReader {
    /// Counts the table's rows without an index: an index may be partial, and the table is what counts.
    package func rowCount(_ table: DatabaseSchema.Table) throws -> Int64 {
        let hint = table.kind == .virtual ? "" : " NOT INDEXED"
        return try integer("SELECT count(*) FROM \(table.name.sqlName)\(hint)") ?? 0
    }

    /// Returns the number of a table's rows; nil for a virtual table whose module is missing or fails.
    package func count(_ table: DatabaseSchema.Table) throws -> Int64? {
        do { return try rowCount(table) } catch StoreError.sqlite(let code, _, _)
            where table.kind == .virtual && code == SQLITE_ERROR
        { return nil }
    }

    func hasRows(_ table: DatabaseSchema.Table) throws -> Bool {
        try integer("SELECT 1 FROM \(table.name.sqlName) NOT INDEXED LIMIT 1") != nil
    }

    /// Returns the `readColumns` of all rows in key order.
    func rows(of table: DatabaseSchema.Table) throws -> SQLiteStatement {
        // Without ORDER BY, SQLite walks the b-tree in primary key order.
        let order = table.rowid.map { " ORDER BY \($0.sqlName)" } ?? ""
        let names = table.readColumns.map(\.sqlName).joined(separator: ", ")
        return try prepare("SELECT \(names) FROM \(table.name.sqlName) NOT INDEXED\(order)")
    }
}
