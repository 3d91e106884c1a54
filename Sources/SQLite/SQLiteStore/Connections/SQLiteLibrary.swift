import CSQLite
import Glibc
import SystemPackage

/// The SQLite library of this process.
package enum SQLiteLibrary {
    /// The version, such as `3.40.1`.
    package static var version: String { String(cString: sqlite3_libversion()) }

    /// True if `PRAGMA table_list` exists, which SQLite 3.37 introduced.
    package static var isRecentEnough: Bool { sqlite3_libversion_number() >= 3_037_000 }

    /// Prevents a connection from checkpointing a WAL by itself, after a commit or on close.
    ///
    /// Before 3.51.3, SQLite can corrupt a database whose WAL is restarted while a second connection checkpoints it
    /// (https://sqlite.org/wal.html, "The WAL-Reset Bug"). Other programs write the stores opened here, so that second
    /// connection must not be this process's. The WAL also keeps its name (`SQLITE_FCNTL_PERSIST_WAL`), because SQLite
    /// would unlink a file by name that may be another one by then.
    static func disableCheckpoints(_ connection: OpaquePointer?, of store: FilePath) throws {
        var persist: CInt = 1
        guard sqlite3_wal_autocheckpoint(connection, 0) == SQLITE_OK, gs_keep_log_on_close(connection) == SQLITE_OK,
            sqlite3_file_control(connection, "main", SQLITE_FCNTL_PERSIST_WAL, &persist) == SQLITE_OK
        else {
            throw StoreError(code: SQLITE_ERROR, message: "automatic checkpoints could not be turned off", path: store)
        }
    }

    /// Takes a double-quoted name that no column has for an error, not for a text
    /// (https://sqlite.org/quirks.html, §8).
    static func rejectDoubleQuotedTexts(_ connection: OpaquePointer, of store: FilePath) throws {
        guard gs_reject_double_quoted_texts(connection) == SQLITE_OK else {
            throw StoreError(code: SQLITE_ERROR, message: "double-quoted texts could not be turned off", path: store)
        }
    }

    /// Compares bytes for any collation that only the store's own program defines.
    ///
    /// SQLite asks for its own collations too in a UTF-16 store, for which they have no function, before it uses those
    /// for UTF-8. To define one of them then would put an index of the store into another order.
    static func acceptUnknownCollations(_ connection: OpaquePointer) {
        sqlite3_collation_needed(connection, nil) { _, connection, _, name in
            guard let name, !["BINARY", "NOCASE", "RTRIM"].contains(String(cString: name).uppercased()) else { return }
            sqlite3_create_collation_v2(
                connection, name, SQLITE_UTF8, nil,
                { _, oneLength, one, otherLength, other in
                    let common = Int(min(oneLength, otherLength))
                    let order = one.flatMap { one in other.map { memcmp(one, $0, common) } } ?? 0
                    return order == 0 ? oneLength - otherLength : order
                }, nil)
        }
    }

    /// True if this library treats its own JSON functions as unsafe in a schema, as SQLite 3.38 to 3.40 do. Their table
    /// has SQLITE_INNOCUOUS, which only sqlite3_create_function() inverts.
    fileprivate static let treatsJSONAsUnsafe: Bool = {
        var connection: OpaquePointer?
        defer { sqlite3_close_v2(connection) }
        let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_MEMORY | SQLITE_OPEN_NOMUTEX
        guard sqlite3_open_v2(":memory:", &connection, flags, nil) == SQLITE_OK else { return false }
        let sql = "PRAGMA trusted_schema = OFF; CREATE TABLE t (a, b AS (json_type(a))); SELECT b FROM t"
        return sqlite3_exec(connection, sql, nil, nil, nil) != SQLITE_OK
    }()
}

extension SQLiteConnection {
    /// Prevents side effects of the file's schema, and enables page checks that cost nothing.
    ///
    /// A library that treats JSON functions as unsafe could not read a table whose indexes or generated columns use
    /// them. It trusts the schema, because an index or a generated column calls only deterministic functions.
    func distrustSchema() throws {
        try execute("PRAGMA cell_size_check = ON")
        if !SQLiteLibrary.treatsJSONAsUnsafe { try execute("PRAGMA trusted_schema = OFF") }
    }
}
