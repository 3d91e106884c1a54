import CoreDataStore
import SQLiteStore

/// Copies foreign tables from the database that is attached as `source`, within the current transaction.
struct ForeignTableCopy {
    private let store: StoreWriter
    /// The schema of `source`.
    private let schema: DatabaseSchema

    init(_ store: StoreWriter, _ schema: DatabaseSchema) { (self.store, self.schema) = (store, schema) }

    /// Copies a table with its rows and their rowids, which other tables such as a full-text index may refer to.
    func copy(_ table: DatabaseSchema.Table) throws {
        try store.execute(table.creation)
        // SQLite computes generated columns itself.
        var columns = table.assignableColumns.map(\.name.sqlName)
        if let rowid = table.rowid, rowid != table.rowidAlias { columns.insert(rowid, at: 0) }
        let list = columns.joined(separator: ", ")
        // The table may hold rows that its own CHECK constraints forbid. `OR ABORT` keeps a constraint's own
        // `ON CONFLICT` clause from leaving out or changing a row in silence.
        try store.execute("PRAGMA ignore_check_constraints = ON")
        try store.execute(
            "INSERT OR ABORT INTO main.\(table.name.sqlName) (\(list)) SELECT \(list) FROM source.\(table.name.sqlName)"
        )
        try store.execute("PRAGMA ignore_check_constraints = OFF")
        try copySequence(of: table)
    }

    /// Copies the highest key that `AUTOINCREMENT` has assigned, even if its row was deleted.
    private func copySequence(of table: DatabaseSchema.Table) throws {
        let name = "sqlite_sequence"
        guard try store.hasTables(name), try store.hasTables(name, in: "source") else { return }
        try store.execute("DELETE FROM main.\(name) WHERE name = ?", [.text(table.name)])
        try store.execute(
            "INSERT INTO main.\(name) (name, seq) SELECT name, seq FROM source.\(name) WHERE name = ?",
            [.text(table.name)])
    }

    /// Copies a virtual table's entry in the schema. Its content is in shadow tables, which are copied like other
    /// tables, and `CREATE VIRTUAL TABLE` would create those again. If the table worked in `source` and doesn't work
    /// here, removes it and returns SQLite's error. A table that only its own program can use, which has the module or
    /// the tokenizer, works in neither.
    func copyVirtual(_ table: DatabaseSchema.Table) throws -> String? {
        try writingSchema {
            try store.execute(
                "INSERT INTO main.sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES ('table', ?1, ?1, 0, ?2)",
                [.text(table.name), .text(table.creation)])
        }
        let refusal = store.compileError(of: "SELECT * FROM main.\(table.name.sqlName)")
        guard let refusal, store.compileError(of: "SELECT * FROM source.\(table.name.sqlName)") == nil else {
            return nil
        }
        try writingSchema {
            try store.execute(
                "DELETE FROM main.sqlite_schema WHERE type = 'table' AND name = ?", [.text(table.name)])
        }
        for shadow in schema.shadowTables(of: table) {
            try store.execute("DROP TABLE IF EXISTS main.\(shadow.name.sqlName)")
        }
        return refusal
    }

    /// Calls `body` with a writable schema, then makes SQLite reload the schema.
    private func writingSchema(_ body: () throws -> Void) throws {
        try store.execute("PRAGMA writable_schema = ON")
        try body()
        try store.execute("PRAGMA writable_schema = RESET")
    }
}
