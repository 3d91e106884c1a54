import GRDBSQLite
import Glibc

/// The SQLite that this process runs.
package enum SQLiteLibrary {
    /// Such as `3.40.1`.
    package static var version: String { String(cString: sqlite3_libversion()) }

    /// `PRAGMA table_list` came with 3.37.
    package static var isRecentEnough: Bool { sqlite3_libversion_number() >= 3_037_000 }

    /// Compares bytes wherever a collation is asked for that only the store's own program has.
    static func acceptUnknownCollations(_ connection: OpaquePointer) {
        sqlite3_collation_needed(connection, nil) { _, connection, _, name in
            sqlite3_create_collation_v2(
                connection, name, SQLITE_UTF8, nil,
                { _, oneLength, one, otherLength, other in
                    let common = Int(min(oneLength, otherLength))
                    let order = one.flatMap { one in other.map { memcmp(one, $0, common) } } ?? 0
                    return order == 0 ? oneLength - otherLength : order
                }, nil)
        }
    }
}
