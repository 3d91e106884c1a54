import GRDBSQLite

/// The SQLite that this process runs.
package enum SQLiteLibrary {
    /// Such as `3.40.1`.
    package static var version: String { String(cString: sqlite3_libversion()) }

    /// `PRAGMA table_list` came with 3.37.
    package static var isRecentEnough: Bool { sqlite3_libversion_number() >= 3_037_000 }
}
