import SQLiteStore

/// The rows of a UTF-16 store from which SQLite may compute something else when they are written again: those with a
/// BLOB in a table with a STORED generated column, or with a unique index on what follows from columns.
///
/// Where such a column or index reads a BLOB as text, SQLite takes one that the app binds for UTF-8, and one that it
/// reads from a table for UTF-16. The row doesn't say which it was.
package enum UnrepeatableRows {
    /// Returns the last change after this number of such a row; nil if there is none.
    static func lastChange(
        after number: Int64, _ database: SQLiteConnection
    ) throws -> (number: Int64, nonce: Int64)? {
        let schema = try DatabaseSchema(database)
        guard schema.tables.contains(where: isConcerned) else { return nil }
        var last: (number: Int64, nonce: Int64)?
        for table in try ReplicatedTable.survey(schema).tables where schema.table(table.name).map(isConcerned) == true {
            let row = try database.prepare(changes(of: table), [.integer(last?.number ?? number)])
            if try row.step() { last = (row.integer(0), row.integer(1)) }
        }
        return last
    }

    /// True if SQLite computes values of the table's rows, or whether they are unique, from other values of them. In a
    /// UTF-16 store, a row with a BLOB is such a row then. Another version of SQLite may also convert a REAL to another
    /// text.
    package static func isConcerned(_ table: DatabaseSchema.Table) -> Bool {
        table.columns.contains { $0.storage == .stored }
            || table.indexes.contains { index in
                index.isUnique
                    && (index.isPartial
                        || index.terms.contains { term in
                            term.isExpression || term.column.flatMap(table.column)?.storage == .virtual
                        })
            }
    }

    /// SQL of the last change of a row that has a BLOB. In a WITHOUT ROWID table, any row with one counts.
    private static func changes(of table: ReplicatedTable) -> String {
        let types = table.columns.map { "typeof(r.\($0.sqlName))" }.joined(separator: ", ")
        let key = table.rowid.map { "r.\($0) = c.key AND " } ?? ""
        return """
            SELECT c.number, c.nonce FROM main.GS_CHANGE AS c
            WHERE c.number > ?1 AND c.table_id = \(table.number) AND c.\(HistorySchema.isChange)
            AND EXISTS (
                SELECT 1 FROM main.\(table.name.sqlName) AS r NOT INDEXED WHERE \(key)'blob' IN (\(types)))
            ORDER BY c.number DESC LIMIT 1
            """
    }
}
