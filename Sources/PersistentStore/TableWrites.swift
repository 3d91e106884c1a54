import GRDBSQLite

/// The tables whose rows a connection may have written, by SQLite's own account: its authorizer is asked for each table
/// that a statement, or a trigger of it, writes (https://sqlite.org/c3ref/set_authorizer.html).
///
/// A table that isn't among them has the rows that it had, whatever was renamed or added to it.
package final class TableWrites {
    private var written: Set<String> = []
    /// Tables that weren't there before.
    private var created: Set<String> = []
    /// The names that tables were given other ones for.
    private var renamed: Set<String> = []
    private var lastAltered: String?

    package init() {}

    /// Whether a table may have been written that was called `earlier` before, and is called `name` now. `before` are the
    /// names of all tables that there were.
    package func mayHaveWritten(_ name: String, earlier: String, before: Set<String>) -> Bool {
        let earlier = Self.key(earlier)
        if written.contains(earlier) || written.contains(Self.key(name)) { return true }
        guard renamed.contains(earlier) else { return false }
        // It had names that nobody knows: those of new tables and of tables that kept theirs were not among them.
        let keepers = Set(before.map(Self.key)).subtracting(renamed)
        return !written.subtracting(created).isSubset(of: keepers)
    }

    /// SQLite compares names without regard to the case of ASCII letters.
    private static func key(_ name: String) -> String { String(decoding: name.utf8.map(lowercased), as: UTF8.self) }
    private static func lowercased(_ byte: UInt8) -> UInt8 { (65...90).contains(byte) ? byte + 32 : byte }

    /// - Parameter third: Where a column is dropped, that; else the database.
    fileprivate func note(_ action: Int32, _ first: String?, _ second: String?, _ third: String?) {
        switch action {
        case SQLITE_INSERT, SQLITE_UPDATE, SQLITE_DELETE, SQLITE_DROP_TABLE, SQLITE_DROP_VTABLE:
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
