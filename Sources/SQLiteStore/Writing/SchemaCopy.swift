import GRDBSQLite
import SystemPackage

extension StoreReader {
    /// Copies the schema to a new database file, with the rows of `tables` only. Virtual tables stay out where the module
    /// isn't there.
    ///
    /// Throws `StoreError`, also where SQLite would not make a part of the schema any more, such as an index by a function
    /// that only the store's own program has.
    package func copySchema(to path: FilePath, rowsOf tables: [String]) throws {
        let target = try StoreWriter(path, creating: true)
        try target.execute("PRAGMA encoding = \(StoreTable.quote(text("PRAGMA encoding") ?? "UTF-8"))")
        try target.execute("PRAGMA journal_mode = OFF")
        try target.execute("PRAGMA synchronous = OFF")
        for statement in try creations("type = 'table' AND rootpage <> 0 AND name NOT IN (\(Self.shadowTables))") {
            try target.execute(statement)
        }
        for statement in try creations("type = 'table' AND rootpage = 0") {
            do { try target.execute(statement) } catch let error as StoreError where error.isPlain { continue }
        }
        for table in tables { try copyRows(of: table, to: target) }
        for kind in ["index", "view", "trigger"] {
            for statement in try creations("type = '\(kind)'") { try target.execute(statement) }
        }
    }

    /// The tables that a virtual table's module makes along with it.
    private static let shadowTables = "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'shadow'"

    private func creations(_ condition: String) throws -> [String] {
        let rows = try prepare(
            "SELECT sql FROM sqlite_schema WHERE \(condition) AND sql IS NOT NULL "
                + "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid")
        var statements: [String] = []
        while try rows.step() { statements.append(rows.text(0) ?? "") }
        return statements
    }

    private func copyRows(of table: String, to target: StoreWriter) throws {
        guard try integer("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", [.text(table)]) != nil else {
            return
        }
        let rows = try prepare("SELECT * FROM \(StoreTable.quote(table)) NOT INDEXED")
        let places = Array(repeating: "?", count: Int(rows.columnCount)).joined(separator: ", ")
        let insertion = try target.prepare("INSERT INTO \(StoreTable.quote(table)) VALUES (\(places))")
        while try rows.step() {
            insertion.reset()
            try insertion.bind((0..<rows.columnCount).map { rows.value($0) })
            while try insertion.step() {}
        }
    }
}

extension StoreError {
    /// SQLITE_ERROR: SQLite doesn't take the statement, such as one that names a module that isn't there.
    fileprivate var isPlain: Bool {
        guard case .sqlite(let code, _, _) = self else { return false }
        return code == SQLITE_ERROR
    }
}
