import SQLiteStore

/// Triggers to remove and to create, in time linear in their number.
///
/// `sqlite_schema` has no index: each `CREATE TRIGGER` and each `DROP TRIGGER` reads all of it, which takes minutes for
/// the triggers of some thousand tables. The rows are written at once instead, as SQLite would write them, and SQLite
/// then reads the schema again (https://sqlite.org/pragma.html#pragma_writable_schema).
struct TriggerChanges {
    private var removed: Set<String> = []
    private var created: [(name: String, table: String, sql: String)] = []

    mutating func remove(_ triggers: [DatabaseSchema.Object]) { removed.formUnion(triggers.map(\.name)) }

    mutating func create(_ triggers: HistoryTriggers) {
        created += triggers.all.map { ($0.name, triggers.table.name, $0.sql) }
    }

    /// Makes the changes in the transaction that has begun. Throws `StoreError`; the caller rolls back then.
    func apply(to database: SQLiteConnection) throws {
        guard !removed.isEmpty || !created.isEmpty else { return }
        let version = try database.firstInteger("PRAGMA main.schema_version") ?? 0
        try database.execute("PRAGMA writable_schema = ON")
        do {
            try write(to: database)
            // Other connections, and their prepared statements, notice a change of the schema by its version.
            try database.execute("PRAGMA main.schema_version = \(Int32(truncatingIfNeeded: version) &+ 1)")
        } catch {
            try? database.execute("PRAGMA writable_schema = RESET")
            throw error
        }
        try database.execute("PRAGMA writable_schema = RESET")
        // SQLite reads the schema at its next use, and refuses one with a malformed statement.
        _ = try database.firstInteger("SELECT count(*) FROM main.sqlite_schema")
    }

    private func write(to database: SQLiteConnection) throws {
        if !removed.isEmpty {
            var rows: [Int64] = []
            let present = try database.prepare("SELECT rowid, name FROM main.sqlite_schema WHERE type = 'trigger'")
            while try present.step() {
                if removed.contains(present.decodedText(1) ?? "") { rows.append(present.integer(0)) }
            }
            for row in rows { try database.execute("DELETE FROM main.sqlite_schema WHERE rowid = ?", [.integer(row)]) }
        }
        for trigger in created {
            try database.execute(
                "INSERT INTO main.sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES ('trigger', ?, ?, 0, ?)",
                [.text(trigger.name), .text(trigger.table), .text(trigger.sql)])
        }
    }
}
