import GRDB
import GRDBSQLite
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A short-lived SQLite connection that writes to a store in use. Confined to one thread.
///
/// It never checkpoints a WAL unless told to (`SQLiteLibrary.disableCheckpoints`). It works inside the store's open
/// directory, even if another directory has that path now.
package final class StoreConnection {
    private let connection: OpaquePointer
    /// Stays open because SQLite's paths lead through it.
    private let location: StoreLocation

    package enum Locking {
        /// Shares the store with other programs.
        case shared
        /// Excludes others from a store in WAL mode. SQLite then keeps the index of the WAL in private memory, and
        /// takes an exclusive lock on the database before it reads (https://sqlite.org/wal.html, §8). Every other
        /// connection to such a store, even a reading or idle one, holds a shared lock for as long as it lives. While
        /// one exists, this connection gets SQLITE_BUSY, and while this one exists, any other gets it.
        case exclusive
    }

    /// Opens the store, and waits up to `busyTimeout` for other programs' locks. It creates no file.
    ///
    /// Throws `StoreError.notAFile` if one of the store's files is not a regular file, and `DatabaseError` if SQLite
    /// can't open it.
    package init(_ location: StoreLocation, busyTimeout: Duration, locking: Locking = .shared) throws {
        try HeldDirectoryVFS.register()
        for name in [location.name.database] + location.name.sideFiles {
            guard let kind = try location.directory.status(name)?.kind, kind != .regular else { continue }
            throw StoreError.notAFile(location.directory.path.appending(name))
        }
        var opened: OpaquePointer?
        let code = sqlite3_open_v2(
            "file:\(location.encodedPath)?mode=rw", &opened,
            SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
            HeldDirectoryVFS.name)
        guard code == SQLITE_OK, let opened else {
            sqlite3_close_v2(opened)
            throw DatabaseError(resultCode: ResultCode(rawValue: code))
        }
        connection = opened
        self.location = location
        sqlite3_busy_timeout(opened, Int32(clamping: busyTimeout.nanoseconds / 1_000_000))
        try SQLiteLibrary.disableCheckpoints(opened, of: location.path)
        // Must come before any read. Otherwise SQLite would map the shared index of the WAL and stay with it.
        if locking == .exclusive { try execute("PRAGMA locking_mode = EXCLUSIVE") }
    }

    deinit { sqlite3_close_v2(connection) }

    /// Runs one statement. Returns the first column of its first row as text, or nil without a row. Throws
    /// `DatabaseError`.
    @discardableResult
    package func execute(_ sql: String) throws -> String? {
        var statement: OpaquePointer?
        try check(sqlite3_prepare_v2(connection, sql, -1, &statement, nil))
        defer { sqlite3_finalize(statement) }
        var first: String?
        while true {
            let code = sqlite3_step(statement)
            if code == SQLITE_DONE { return first }
            guard code == SQLITE_ROW else { throw error(code) }
            if first == nil { first = sqlite3_column_text(statement, 0).map { String(cString: $0) } }
        }
    }

    /// The error for a checkpoint that SQLite reports as busy in its row, not by a result code.
    var busy: DatabaseError { DatabaseError(resultCode: .SQLITE_BUSY, message: "the write-ahead log is in use") }

    private func check(_ code: Int32) throws {
        if code != SQLITE_OK { throw error(code) }
    }

    private func error(_ code: Int32) -> DatabaseError {
        DatabaseError(resultCode: ResultCode(rawValue: code), message: String(cString: sqlite3_errmsg(connection)))
    }
}
