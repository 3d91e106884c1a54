import CoreDataStore
import SQLiteStore

/// Copies foreign tables from the database that is attached as `source`, within the current transaction.
struct ForeignTableCopy {
    private let store: StoreWriter

    init(_ store: StoreWriter) { self.store = store }

    static func isVirtual(_ table: StoreSchema.Object) -> Bool {
        SQLTokens(table.creation).prefix(2).map(\.keyword) == ["CREATE", "VIRTUAL"]
    }

    /// Copies a table with its rows and their rowids, which other tables such as a full-text index may refer to.
    func copy(_ table: StoreSchema.Object) throws {
        try store.execute(table.creation)
        let rows = try store.prepare(
            "SELECT name, hidden FROM pragma_table_xinfo(?, 'source')", [.text(table.name)])
        var names: Set<String> = []
        var columns: [String] = []
        while try rows.step() {
            let name = rows.text(0) ?? ""
            names.insert(name.lowercased())
            // SQLite computes generated columns itself.
            if rows.integer(1) == 0 { columns.append(name.sqlName) }
        }
        let hasRowid =
            try store.integer(
                "SELECT wr = 0 FROM pragma_table_list WHERE schema = 'source' AND name = ?", [.text(table.name)]) == 1
        if hasRowid, let free = ["rowid", "_rowid_", "oid"].first(where: { !names.contains($0) }) {
            columns.insert(free, at: 0)
        }
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
    private func copySequence(of table: StoreSchema.Object) throws {
        let name = "sqlite_sequence"
        let both = "SELECT (SELECT count(*) FROM main.sqlite_schema WHERE name = ?1) "
        guard
            try store.integer(both + "+ (SELECT count(*) FROM source.sqlite_schema WHERE name = ?1)", [.text(name)])
                == 2
        else { return }
        try store.execute("DELETE FROM main.\(name) WHERE name = ?", [.text(table.name)])
        try store.execute(
            "INSERT INTO main.\(name) (name, seq) SELECT name, seq FROM source.\(name) WHERE name = ?",
            [.text(table.name)])
    }

    /// Copies a virtual table's entry in the schema. Its content is in shadow tables, which are copied like other
    /// tables, and `CREATE VIRTUAL TABLE` would create those again. If the table doesn't work, removes it and returns
    /// SQLite's error. An unknown module is not an error.
    func copyVirtual(_ table: StoreSchema.Object) throws -> String? {
        try writingSchema {
            try store.execute(
                "INSERT INTO main.sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES ('table', ?1, ?1, 0, ?2)",
                [.text(table.name), .text(table.creation)])
        }
        let refusal = store.compileError(of: "SELECT * FROM main.\(table.name.sqlName)")
        guard let refusal, !refusal.contains("no such module") else { return nil }
        try writingSchema {
            try store.execute(
                "DELETE FROM main.sqlite_schema WHERE type = 'table' AND name = ?", [.text(table.name)])
        }
        for shadow in try shadows(of: table) { try store.execute("DROP TABLE IF EXISTS main.\(shadow.sqlName)") }
        return refusal
    }

    private func shadows(of table: StoreSchema.Object) throws -> [String] {
        let rows = try store.prepare(
            "SELECT name FROM pragma_table_list WHERE schema = 'source' AND type = 'shadow' "
                + "AND substr(name, 1, length(?1) + 1) = ?1 || '_' COLLATE NOCASE", [.text(table.name)])
        var names: [String] = []
        while try rows.step() { names.append(rows.text(0) ?? "") }
        return names
    }

    /// Calls `body` with a writable schema, then makes SQLite reload the schema.
    private func writingSchema(_ body: () throws -> Void) throws {
        try store.execute("PRAGMA writable_schema = ON")
        try body()
        try store.execute("PRAGMA writable_schema = RESET")
    }
}
