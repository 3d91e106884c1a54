import CSQLite
import GRDBSQLite
import Glibc
import SystemPackage

/// The SQLite that this process runs.
package enum SQLiteLibrary {
    /// Such as `3.40.1`.
    package static var version: String { String(cString: sqlite3_libversion()) }

    /// `PRAGMA table_list` came with 3.37.
    package static var isRecentEnough: Bool { sqlite3_libversion_number() >= 3_037_000 }

    /// Keeps a connection from checkpointing a write-ahead log by itself: after a commit, and when it is closed.
    ///
    /// Before 3.51.3, SQLite can corrupt a database whose log begins anew while a second connection checkpoints it
    /// (https://sqlite.org/wal.html, "The WAL-Reset Bug"). Other programs write the stores that we open, so that second
    /// connection must not be ours. The log keeps its name as well (`SQLITE_FCNTL_PERSIST_WAL`): SQLite would unlink by
    /// name a file that may be another one by then.
    package static func leaveLogAlone(_ connection: OpaquePointer?, of store: FilePath) throws {
        var persist: CInt = 1
        guard sqlite3_wal_autocheckpoint(connection, 0) == SQLITE_OK, gs_keep_log_on_close(connection) == SQLITE_OK,
            sqlite3_file_control(connection, "main", SQLITE_FCNTL_PERSIST_WAL, &persist) == SQLITE_OK
        else { throw StoreError(code: SQLITE_ERROR, message: "it can't be kept from checkpointing", path: store) }
    }

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

    /// Whether this library takes its own JSON functions for unsafe in a schema, as SQLite 3.38 to 3.40 do: their table has
    /// SQLITE_INNOCUOUS, which only sqlite3_create_function() turns round.
    fileprivate static let takesJSONForUnsafe: Bool = {
        var connection: OpaquePointer?
        defer { sqlite3_close_v2(connection) }
        let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY | SQLITE_OPEN_NOMUTEX
        guard sqlite3_open_v2(":memory:", &connection, flags, nil) == SQLITE_OK else { return false }
        let sql = "PRAGMA trusted_schema = OFF; CREATE TABLE t (a, b AS (json_type(a))); SELECT b FROM t"
        return sqlite3_exec(connection, sql, nil, nil, nil) != SQLITE_OK
    }()
}

extension SQLiteConnection {
    /// Keeps what the file's schema says from having side effects, and checks pages as far as that costs nothing.
    ///
    /// A library that takes JSON functions for unsafe could not read a table with such an index or generated column. It
    /// trusts the schema then: an index or a generated column calls deterministic functions only.
    func distrustSchema() throws {
        try execute("PRAGMA cell_size_check = ON")
        if !SQLiteLibrary.takesJSONForUnsafe { try execute("PRAGMA trusted_schema = OFF") }
    }
}
