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
        try target.execute("PRAGMA encoding = \((text("PRAGMA encoding") ?? "UTF-8").sqlName)")
        try target.execute("PRAGMA journal_mode = OFF")
        try target.execute("PRAGMA synchronous = OFF")
        let schema = try DatabaseSchema(self)
        // A virtual table's module creates its shadow tables along with it.
        for table in schema.tables where table.kind != .virtual && !table.isShadow {
            try target.execute(table.creation)
        }
        for table in schema.tables where table.kind == .virtual {
            do { try target.execute(table.creation) } catch let error as StoreError where error.isRejectedStatement {
                continue
            }
        }
        for table in tables where try hasTables(table) { try copyRows(of: table, to: target) }
        for kind in [DatabaseSchema.Object.Kind.index, .view, .trigger] {
            for object in schema.objects(kind) { try target.execute(object.creation) }
        }
    }

    private func copyRows(of table: String, to target: StoreWriter) throws {
        let rows = try prepare("SELECT * FROM \(table.sqlName) NOT INDEXED")
        let placeholders = Array(repeating: "?", count: Int(rows.columnCount)).joined(separator: ", ")
        let insertion = try target.prepare("INSERT INTO \(table.sqlName) VALUES (\(placeholders))")
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
