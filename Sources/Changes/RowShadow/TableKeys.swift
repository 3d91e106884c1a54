import RowChanges
import SQLiteFormat
import SQLiteStore

/// The keys of tables WITHOUT ROWID, as SQLite interprets their definitions.
final class TableKeys {
    private var known: [String: [KeyField]?] = [:]

    /// Returns the fields of a table's key; nil if SQLite doesn't understand the definition.
    func key(of table: SchemaEntry) -> [KeyField]? {
        if let key = known[table.sql] { return key }
        if known.count > 512 { known = [:] }
        let stored = try? StoredTable(name: table.name, creation: table.sql, encoding: .utf8)
        let key = stored?.keyIsReal.map { $0.map { $0 ? KeyField.real : .plain } }
        known[table.sql] = .some(key)
        return key
    }
}
