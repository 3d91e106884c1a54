import SQLiteFormat

/// What differs between two states of a database, as far as tables show it.
package struct PageDifference {
    /// A table that differs: in its definition, its name, its root or its rows.
    package struct Table {
        /// The table's entry in the schema of the earlier state. Nil if there was no such table.
        package let before: SchemaEntry?
        /// The table's entry in the schema of the later state. Nil if the table is gone.
        package let after: SchemaEntry?
        /// True if rows have rowids; false for a table WITHOUT ROWID.
        package let hasRowids: Bool
        let rows: [CellPair]

        /// The number of rows that differ.
        package var rowCount: Int { rows.count }
    }

    /// A row in both states; one of them may lack it. It takes twelve bytes.
    struct CellPair {
        private let (formerPage, latterPage): (UInt32, UInt32)
        private let (formerIndex, latterIndex): (UInt16, UInt16)

        init(before: CellPlace?, after: CellPlace?) {
            // No page has the number 0.
            (formerPage, latterPage) = (before?.page ?? 0, after?.page ?? 0)
            (formerIndex, latterIndex) = (before?.index ?? 0, after?.index ?? 0)
        }

        var before: CellPlace? { formerPage == 0 ? nil : CellPlace(page: formerPage, index: formerIndex) }
        var after: CellPlace? { latterPage == 0 ? nil : CellPlace(page: latterPage, index: latterIndex) }
    }

    /// The tables that differ: the schema itself, as `sqlite_schema`, then those that are gone, those in both states,
    /// and those that are new.
    package let tables: [Table]
    /// The pages that differ, in the later state.
    package let pages: [UInt32]
    let usableSize: Int

    /// Calls `body` with each row of `table` that differs: its rowid (0 in a table WITHOUT ROWID), and its record in
    /// each state, or nil where there is none. The states are those that were compared. In a table WITHOUT ROWID the
    /// rows that are gone come first. If a table's key isn't known, a changed row is one that went and one that came.
    package func forEachRow(
        of table: Table, from old: any DatabaseState, to new: any DatabaseState,
        _ body: (_ rowid: Int64, _ before: UnsafeRawBufferPointer?, _ after: UnsafeRawBufferPointer?) throws -> Void
    ) throws {
        var (former, latter): ([UInt8], [UInt8]) = ([], [])
        for row in table.rows {
            switch (row.before, row.after) {
            case (let before?, let after?):
                try old.withRow(before, usableSize: usableSize, buffer: &former) { _, first in
                    try new.withRow(after, usableSize: usableSize, buffer: &latter) { try body($0, first, $1) }
                }
            case (let before?, nil):
                try old.withRow(before, usableSize: usableSize, buffer: &former) { try body($0, $1, nil) }
            case (nil, let after?):
                try new.withRow(after, usableSize: usableSize, buffer: &latter) { try body($0, nil, $1) }
            case (nil, nil): break
            }
        }
    }
}
