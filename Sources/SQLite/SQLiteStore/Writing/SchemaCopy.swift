import CSQLite
import SystemPackage

extension StoreReader {
    /// Copies the schema to a new database file, with the rows of `tables` only. It omits virtual tables whose module
    /// is not available.
    ///
    /// Throws `StoreError`, also if SQLite rejects another part of the schema, such as an index that uses a function of
    /// the store's own program.
    package func copySchema(to path: FilePath, rowsOf tables: [String]) throws {
        let target = try StoreWriter(path, creating: true)
        try target.execute("PRAGMA encoding = \(StoreTable.quote(text("PRAGMA encoding") ?? "UTF-8"))")
        try target.execute("PRAGMA journal_mode = OFF")
        try target.execute("PRAGMA synchronous = OFF")
        for statement in try statements(
            where: "type = 'table' AND rootpage <> 0 AND name NOT IN (\(Self.shadowTables))")
        {
            try target.execute(statement)
        }
        for statement in try statements(where: "type = 'table' AND rootpage = 0") {
            do { try target.execute(statement) } catch let error as StoreError where error.isRejectedStatement {
                continue
            }
        }
        for table in tables { try copyRows(of: table, to: target) }
        for kind in ["index", "view", "trigger"] {
            for statement in try statements(where: "type = '\(kind)'") { try target.execute(statement) }
        }
    }

    /// The tables that a virtual table's module creates along with it.
    private static let shadowTables = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'shadow'"

    private func statements(where condition: String) throws -> [String] {
        let rows = try prepare(
            "SELECT sql FROM sqlite_schema WHERE \(condition) AND sql IS NOT NULL "
                + "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid")
        var found: [String] = []
        while try rows.step() { found.append(rows.text(0) ?? "") }
        return found
    }

    private func copyRows(of table: String, to target: StoreWriter) throws {
        guard try integer("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", [.text(table)]) != nil else {
            return
        }
        let rows = try prepare("SELECT * FROM \(StoreTable.quote(table)) NOT INDEXED")
        let placeholders = Array(repeating: "?", count: Int(rows.columnCount)).joined(separator: ", ")
        let insertion = try target.prepare("INSERT INTO \(StoreTable.quote(table)) VALUES (\(placeholders))")
        while try rows.step() {
            insertion.reset()
            try insertion.bind((0..<rows.columnCount).map { rows.value($0) })
            while try insertion.step() {}
        }
    }
}

extension StoreError {
    /// True for SQLITE_ERROR: SQLite rejects the statement, for example because it names an unavailable module.
    fileprivate var isRejectedStatement: Bool {
        guard case .sqlite(let code, _, _) = self else { return false }
        return code == SQLITE_ERROR
    }
}
