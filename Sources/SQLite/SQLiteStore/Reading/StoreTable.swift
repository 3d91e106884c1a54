import SystemPackage

/// A table of a store, with what is needed to read its rows.
package struct StoreTable: Equatable, Sendable {
    package enum Kind: Equatable, Sendable {
        case rowid, withoutRowid
        /// A virtual table. Other tables store its rows, if any.
        case virtual
    }

    package let name: String
    package let kind: Kind

    /// A table's columns, without generated ones.
    struct Columns {
        var stored: [String] = []
        /// A name of the row identifier that no column has; nil if there is none.
        var rowid: String?
        /// The columns that identify a row; empty if none can.
        var key: [String] = []

        /// The columns of a row that is read: the row identifier if there is one, then each stored column.
        var selected: [String] { (rowid.map { [$0] } ?? []) + stored }
    }

    /// The name quoted for SQL.
    var quotedName: String { StoreTable.quote(name) }

    /// Returns any name quoted for SQL.
    package static func quote(_ identifier: String) -> String {
        "\"" + identifier.split(separator: "\"", omittingEmptySubsequences: false).joined(separator: "\"\"") + "\""
    }
}

extension StoreReader {
    /// Returns the store's tables by name, without views and SQLite's own tables (`sqlite_…`).
    package func tables() throws -> [StoreTable] {
        // A virtual table has no page of its own (https://sqlite.org/schematab.html). pragma_table_list can't tell,
        // because it reports a table of an unavailable module as an ordinary one.
        let statement = try prepare(
            """
            SELECT s.name, s.rootpage, (SELECT wr FROM pragma_table_list WHERE schema = 'main' AND name = s.name)
            FROM sqlite_schema AS s
            WHERE s.type = 'table' AND s.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY s.name
            """)
        var found: [StoreTable] = []
        while try statement.step() {
            let kind: StoreTable.Kind =
                statement.integer(1) == 0 ? .virtual : statement.integer(2) == 1 ? .withoutRowid : .rowid
            found.append(StoreTable(name: statement.text(0) ?? "", kind: kind))
        }
        return found
    }

    /// Counts the table's rows without an index: an index may be partial, and the table is what counts.
    package func rowCount(_ table: StoreTable) throws -> Int64 {
        let hint = table.kind == .virtual ? "" : " NOT INDEXED"
        return try integer("SELECT count(*) FROM \(table.quotedName)\(hint)") ?? 0
    }

    func hasRows(_ table: StoreTable) throws -> Bool {
        try integer("SELECT 1 FROM \(table.quotedName) NOT INDEXED LIMIT 1") != nil
    }

    /// Returns the table's columns that are stored, and those that identify a row.
    func columns(of table: StoreTable) throws -> StoreTable.Columns {
        let information = try prepare(
            "SELECT name, hidden, pk FROM pragma_table_xinfo(?, 'main')", [.text(table.name)])
        var all: Set<String> = []
        var columns = StoreTable.Columns()
        var key: [(position: Int64, name: String)] = []
        while try information.step() {
            let column = information.text(0) ?? ""
            all.insert(column.lowercased())
            // Generated columns follow from the others, and may need functions of the store's own program.
            if information.integer(1) == 0 { columns.stored.append(column) }
            if information.integer(2) > 0 { key.append((information.integer(2), column)) }
        }
        if table.kind == .rowid {
            columns.rowid = ["rowid", "_rowid_", "oid"].first { !all.contains($0) }
            columns.key = columns.rowid.map { [$0] } ?? []
        } else {
            columns.key = key.sorted { $0.position < $1.position }.map(\.name)
        }
        return columns
    }

    /// Returns all rows in key order: first the row identifier if there is one, then each stored column.
    func rows(of table: StoreTable) throws -> (statement: SQLiteStatement, columns: [String]) {
        let columns = try columns(of: table)
        // Without ORDER BY, SQLite walks the b-tree in primary key order.
        let order = columns.rowid.map { " ORDER BY \($0)" } ?? ""
        let names = columns.selected.map(StoreTable.quote).joined(separator: ", ")
        let sql = "SELECT \(names) FROM \(table.quotedName) NOT INDEXED\(order)"
        return (try prepare(sql), columns.selected)
    }
}
