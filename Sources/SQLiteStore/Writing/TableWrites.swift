import GRDBSQLite

/// The tables whose rows a connection may have written, by SQLite's own account: its authorizer is asked for each table
/// that a statement, or a trigger of it, writes (https://sqlite.org/c3ref/set_authorizer.html).
///
/// A table that isn't among them has the rows that it had, whatever was renamed or added to it.
package final class TableWrites {
    /// Tables of which any row may have come, gone, or got any value.
    private var written: Set<String> = []
    /// Columns that rows got values in, by their table.
    private var columns: [String: Set<String>] = [:]
    /// Tables that weren't there before.
    private var created: Set<String> = []
    /// The names that tables were given other ones for, and those of tables whose columns were.
    private var renamed: Set<String> = []
    private var regrouped: Set<String> = []
    private var lastAltered: String?

    package init() {}

    /// The columns in which rows may have got values, of a table that was called `earlier` before and is called `name` now, in
    /// lower case and under the names that they had before; nil where rows may have come or gone, or the columns aren't
    /// known. `before` are the names of all tables that there were.
    package func writtenColumns(of name: String, earlier: String, before: Set<String>) -> Set<String>? {
        let (name, earlier) = (Self.key(name), Self.key(earlier))
        if written.contains(earlier) || written.contains(name) { return nil }
        if renamed.contains(earlier) {
            // It had names that nobody knows: those of new tables and of tables that kept theirs were not among them.
            let keepers = Set(before.map(Self.key)).subtracting(renamed)
            guard written.union(columns.keys).subtracting(created).isSubset(of: keepers) else { return nil }
        }
        return (columns[earlier] ?? []).union(columns[name] ?? [])
    }

    /// A name as SQLite compares names: without regard to the case of ASCII letters, and byte by byte, which Swift doesn't do
    /// with others.
    package static func key(_ name: String) -> String {
        guard !name.utf8.allSatisfy({ $0 < 128 }) else { return name.lowercased() }
        return name.utf8.map { $0 < 128 ? String(UnicodeScalar($0)).lowercased() : "%" + String($0, radix: 16) }
            .joined()
    }

    /// - Parameter third: Where a column is dropped, that; else the database.
    fileprivate func note(_ action: Int32, _ first: String?, _ second: String?, _ third: String?) {
        switch action {
        case SQLITE_UPDATE:
            guard third != "temp", let first, !first.hasPrefix("sqlite_") else { return }
            let column = second.map(Self.key)
            // Where columns have other names already, theirs tell nothing.
            guard let column, column != "rowid", column != "z_pk", !regrouped.contains(Self.key(first)) else {
                written.insert(Self.key(first))
                return
            }
            columns[Self.key(first), default: []].insert(column)
        case SQLITE_INSERT, SQLITE_DELETE, SQLITE_DROP_TABLE, SQLITE_DROP_VTABLE:
            guard third != "temp", let first, !first.hasPrefix("sqlite_") else { return }
            written.insert(Self.key(first))
        case SQLITE_CREATE_TABLE, SQLITE_CREATE_VTABLE:
            guard third != "temp", let first else { return }
            // It may have the pages of another one that was dropped.
            created.insert(Self.key(first))
            written.insert(Self.key(first))
        case SQLITE_ALTER_TABLE:
            guard first != "temp", let second else { return }
            lastAltered = Self.key(second)
            // A column is dropped by writing each row without it.
            if third != nil { written.insert(Self.key(second)) }
        case SQLITE_FUNCTION where second == "sqlite_rename_table":
            // What SQLite rewrites the schema with when it gives a table another name.
            guard let name = lastAltered else { return }
            renamed.insert(name)
            if created.remove(name) != nil { written.remove(name) }
        case SQLITE_FUNCTION where second == "sqlite_rename_column":
            guard let name = lastAltered else { return }
            regrouped.insert(name)
        default: break
        }
    }
}

extension StoreWriter {
    /// Notes from now on which tables are written.
    package func record(_ writes: TableWrites) {
        recorder = writes
        sqlite3_set_authorizer(
            connection,
            { context, action, first, second, database, _ in
                guard let context else { return SQLITE_OK }
                Unmanaged<TableWrites>.fromOpaque(context).takeUnretainedValue().note(
                    action, first.map { String(cString: $0) }, second.map { String(cString: $0) },
                    database.map { String(cString: $0) })
                return SQLITE_OK
            }, Unmanaged.passUnretained(writes).toOpaque())
    }
}
