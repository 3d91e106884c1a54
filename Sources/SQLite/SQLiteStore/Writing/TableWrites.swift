import CSQLite

/// Records the tables whose rows a connection may have written. SQLite calls its authorizer for each table that a
/// statement or its triggers write (https://sqlite.org/c3ref/set_authorizer.html).
///
/// A table that is not recorded still has the same rows, even if it was renamed or got columns.
package final class TableWrites {
    /// Tables whose rows may have been inserted, deleted or updated in any column.
    private var written: Set<String> = []
    /// Columns whose values may have been updated, by table.
    private var columns: [String: Set<String>] = [:]
    /// Tables that did not exist before.
    private var created: Set<String> = []
    /// The former names of renamed tables, and the names of tables with renamed columns.
    private var renamed: Set<String> = []
    private var withRenamedColumns: Set<String> = []
    private var lastAltered: String?

    package init() {}

    /// Returns the columns that may have been updated in a table named `earlier` before and `name` now. The columns are
    /// in lower case, under their former names. Returns nil if rows may have been inserted or deleted, or the columns
    /// are unknown. `before` holds the names of all tables that existed before.
    package func writtenColumns(of name: String, earlier: String, before: Set<String>) -> Set<String>? {
        let (name, earlier) = (DatabaseSchema.key(of: name), DatabaseSchema.key(of: earlier))
        if written.contains(earlier) || written.contains(name) { return nil }
        if renamed.contains(earlier) {
            // Its intermediate names are unknown. They are not among those of new tables and of tables that kept
            // theirs.
            let unrenamed = Set(before.map(DatabaseSchema.key)).subtracting(renamed)
            guard written.union(columns.keys).subtracting(created).isSubset(of: unrenamed) else { return nil }
        }
        return (columns[earlier] ?? []).union(columns[name] ?? [])
    }

    /// - Parameter third: The dropped column, if a column is dropped, else the database.
    fileprivate func record(action: Int32, _ first: String?, _ second: String?, _ third: String?) {
        switch action {
        case SQLITE_UPDATE:
            guard third != "temp", let first, !first.hasPrefix("sqlite_") else { return }
            let column = second.map(DatabaseSchema.key)
            // After a column was renamed, column names prove nothing.
            guard let column, column != "rowid", column != "z_pk",
                !withRenamedColumns.contains(DatabaseSchema.key(of: first))
            else {
                written.insert(DatabaseSchema.key(of: first))
                return
            }
            columns[DatabaseSchema.key(of: first), default: []].insert(column)
        case SQLITE_INSERT, SQLITE_DELETE, SQLITE_DROP_TABLE, SQLITE_DROP_VTABLE:
            guard third != "temp", let first, !first.hasPrefix("sqlite_") else { return }
            written.insert(DatabaseSchema.key(of: first))
        case SQLITE_CREATE_TABLE, SQLITE_CREATE_VTABLE:
            guard third != "temp", let first else { return }
            // It may reuse the pages of a table that was dropped.
            created.insert(DatabaseSchema.key(of: first))
            written.insert(DatabaseSchema.key(of: first))
        case SQLITE_ALTER_TABLE:
            guard first != "temp", let second else { return }
            lastAltered = DatabaseSchema.key(of: second)
            // Dropping a column rewrites each row.
            if third != nil { written.insert(DatabaseSchema.key(of: second)) }
        case SQLITE_FUNCTION where second == "sqlite_rename_table":
            // SQLite calls this function to rewrite the schema when it renames a table.
            guard let name = lastAltered else { return }
            renamed.insert(name)
            if created.remove(name) != nil { written.remove(name) }
        case SQLITE_FUNCTION where second == "sqlite_rename_column":
            guard let name = lastAltered else { return }
            withRenamedColumns.insert(name)
        default: break
        }
    }
}

extension StoreWriter {
    /// Records the written tables in `writes` from now on.
    package func record(_ writes: TableWrites) {
        recorder = writes
        sqlite3_set_authorizer(
            connection,
            { context, action, first, second, database, _ in
                guard let context else { return SQLITE_OK }
                Unmanaged<TableWrites>.fromOpaque(context).takeUnretainedValue().record(
                    action: action, first.map { String(cString: $0) }, second.map { String(cString: $0) },
                    database.map { String(cString: $0) })
                return SQLITE_OK
            }, Unmanaged.passUnretained(writes).toOpaque())
    }
}
