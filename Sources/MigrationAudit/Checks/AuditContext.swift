import ManagedObjectModels
import SQLiteStore

/// What all checks of one migration share: the two databases, as `was` and `main`, and the models' layouts.
struct AuditContext {
    let reader: ComparisonReader
    let was: AuditSchema
    let now: AuditSchema
    let old: AuditLayout
    let new: AuditLayout
    let pairing: EntityPairing
    /// Nil where nobody watched the connection that migrated: then each table may have been written.
    let writes: TableWrites?

    init(_ reader: ComparisonReader, from: ManagedObjectModel, to: ManagedObjectModel, writes: TableWrites?) throws {
        self.reader = reader
        self.writes = writes
        was = try AuditSchema(reader, "was")
        now = try AuditSchema(reader, "main")
        old = AuditLayout(from)
        new = AuditLayout(to)
        pairing = EntityPairing(old.tree, new.tree)
        try old.verify(was)
        try new.verify(now)
    }

    /// Whether a table has the rows that it had, as they were: its tree begins where it began, and nobody wrote to it.
    func isUntouched(_ table: AuditSchema.Table, earlier: AuditSchema.Table) -> Bool {
        writtenColumns(of: table, earlier: earlier)?.isEmpty ?? false
    }

    /// The columns that rows got values in, in lower case, of a table whose rows are those that it had; nil where they may
    /// be others.
    func writtenColumns(of table: AuditSchema.Table, earlier: AuditSchema.Table) -> Set<String>? {
        guard let writes, table.rootPage == earlier.rootPage, table.rootPage != 0 else { return nil }
        return writes.writtenColumns(of: table.name, earlier: earlier.name, before: was.names)
    }

    /// The first column of the first row; nil when there is none, or NULL.
    func integer(_ sql: String) throws -> Int64? {
        let statement = try reader.prepare(sql)
        return try statement.step() && !statement.isNull(0) ? statement.integer(0) : nil
    }

    func isTrue(_ condition: String) throws -> Bool { try integer("SELECT " + condition) == 1 }

    /// A value as people may read it, cut off where it is long.
    func shown(_ sql: String) throws -> String {
        let statement = try reader.prepare(sql)
        guard try statement.step() else { return "no row" }
        let text = statement.text(0) ?? "NULL"
        return text.count > 80 ? text.prefix(80) + "…" : text
    }
}
