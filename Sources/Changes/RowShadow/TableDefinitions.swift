import RowChanges
import SQLiteFormat
import SQLiteStore

/// The definitions of tables, as SQLite interprets them.
final class TableDefinitions {
    /// By the bytes of the statement.
    private var keys: [ExactName: [KeyField]?] = [:]

    /// Returns the fields of the key of a table WITHOUT ROWID; nil if SQLite doesn't understand the definition.
    func key(of table: SchemaEntry) -> [KeyField]? {
        let statement = ExactName(table.sql)
        if let key = keys[statement] { return key }
        if keys.count > 512 { keys = [:] }
        let key = stored(table)?.keyIsReal.map { $0.map { $0 ? KeyField.real : .plain } }
        keys[statement] = .some(key)
        return key
    }

    /// Returns true if a row whose record is the same under both definitions of a table has the values that follow from
    /// the columns' names and places. False if a column moved, as after a `DROP COLUMN`, or has another default.
    func keepsValues(from before: SchemaEntry, to after: SchemaEntry) -> Bool {
        guard !before.sql.hasSameBytes(as: after.sql), let former = stored(before), let latter = stored(after) else {
            return true
        }
        return latter.keepsValues(of: former)
    }

    private func stored(_ table: SchemaEntry) -> StoredTable? {
        try? StoredTable(name: table.name, creation: table.sql, encoding: .utf8)
    }
}
