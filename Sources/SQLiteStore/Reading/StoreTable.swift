import SystemPackage

/// A table of a store, as far as it takes to read its rows.
package struct StoreTable: Equatable, Sendable {
    package enum Kind: Equatable, Sendable {
        case rowid, withoutRowid
        /// Its rows, if it keeps any, are in other tables.
        case virtual
    }

    package let name: String
    package let kind: Kind

    /// For SQL.
    var quotedName: String { StoreTable.quote(name) }

    /// A name as SQL writes it, whatever is in it.
    package static func quote(_ identifier: String) -> String {
        "\"" + identifier.split(separator: "\"", omittingEmptySubsequences: false).joined(separator: "\"\"") + "\""
    }
}

extension StoreReader {
    /// The store's tables by name; views, and what SQLite keeps for itself (`sqlite_…`), left out.
    package func tables() throws -> [StoreTable] {
        // A virtual table has no page of its own (https://sqlite.org/schematab.html). pragma_table_list isn't asked
        // for it: it calls a table of a module that isn't there an ordinary one.
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

    /// The table's rows counted, without an index: an index may be partial, and is not what is counted.
    package func rowCount(_ table: StoreTable) throws -> Int64 {
        let hint = table.kind == .virtual ? "" : " NOT INDEXED"
        return try integer("SELECT count(*) FROM \(table.quotedName)\(hint)") ?? 0
    }

    func hasRows(_ table: StoreTable) throws -> Bool {
        try integer("SELECT 1 FROM \(table.quotedName) NOT INDEXED LIMIT 1") != nil
    }

    /// All rows in the order of their keys: the row's identifier first where there is one, then each stored column.
    func rows(of table: StoreTable) throws -> (statement: SQLiteStatement, columns: [String]) {
        let information = try prepare("SELECT name, hidden FROM pragma_table_xinfo(?, 'main')", [.text(table.name)])
        var all: Set<String> = []
        var stored: [String] = []
        while try information.step() {
            let column = information.text(0) ?? ""
            all.insert(column.lowercased())
            // Generated columns follow from the others, and may need functions that only the store's program has.
            if information.integer(1) == 0 { stored.append(column) }
        }
        var columns = stored.map(StoreTable.quote)
        var order = ""
        if table.kind == .rowid, let rowid = ["rowid", "_rowid_", "oid"].first(where: { !all.contains($0) }) {
            columns.insert(rowid, at: 0)
            stored.insert("rowid", at: 0)
            order = " ORDER BY \(rowid)"
        }
        // Without ORDER BY the b-tree is walked, which is in the order of the primary key.
        let sql = "SELECT \(columns.joined(separator: ", ")) FROM \(table.quotedName) NOT INDEXED\(order)"
        return (try prepare(sql), stored)
    }
}
