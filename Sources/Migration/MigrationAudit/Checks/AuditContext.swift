import ManagedObjectModels
import SQLiteStore

/// The shared state of a migration's checks: the two databases, attached as `was` and `main`, and the layouts of the
/// models.
struct AuditContext {
    let reader: ComparisonReader
    let oldSchema: AuditSchema
    let newSchema: AuditSchema
    let oldLayout: AuditLayout
    let newLayout: AuditLayout
    let pairing: EntityPairing
    let search: RowSearch
    /// The writes of the migrating connection; nil if they weren't recorded, so any table may have been written.
    let writes: TableWrites?

    init(
        _ reader: ComparisonReader, search: RowSearch, from: ManagedObjectModel, to: ManagedObjectModel,
        writes: TableWrites?
    ) throws {
        self.reader = reader
        self.search = search
        self.writes = writes
        oldSchema = try AuditSchema(reader, "was")
        newSchema = try AuditSchema(reader, "main")
        oldLayout = AuditLayout(from)
        newLayout = AuditLayout(to)
        pairing = EntityPairing(oldLayout.tree, newLayout.tree)
        try oldLayout.verify(oldSchema)
        try newLayout.verify(newSchema)
    }

    /// Returns true if a table has its old rows unchanged: its root page is the same, and it wasn't written.
    func isUntouched(_ table: AuditSchema.Table, earlier: AuditSchema.Table) -> Bool {
        writtenColumns(of: table, earlier: earlier)?.isEmpty ?? false
    }

    /// Returns the written columns, in lower case, of a table that kept its rows; nil if its rows may be others.
    func writtenColumns(of table: AuditSchema.Table, earlier: AuditSchema.Table) -> Set<String>? {
        guard let writes, table.rootPage == earlier.rootPage, table.rootPage != 0 else { return nil }
        return writes.writtenColumns(of: table.name, earlier: earlier.name, before: oldSchema.names)
    }

    /// Returns the first column of the first row; nil if there is no row or the value is NULL.
    func integer(_ sql: String) throws -> Int64? {
        let statement = try reader.prepare(sql)
        return try statement.step() && !statement.isNull(0) ? statement.integer(0) : nil
    }

    /// Returns true if the SQL condition holds.
    func isTrue(_ condition: String) throws -> Bool { try integer("SELECT " + condition) == 1 }

    /// Returns a value in readable form, truncated to 80 characters.
    func displayText(_ sql: String) throws -> String {
        let statement = try reader.prepare(sql)
        guard try statement.step() else { return "no row" }
        let text = statement.text(0) ?? "NULL"
        return text.count > 80 ? text.prefix(80) + "…" : text
    }
}
