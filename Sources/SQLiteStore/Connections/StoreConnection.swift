import GRDB
import GRDBSQLite
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A SQLite connection that writes to a store, for the short time that we need one. One thread's.
///
/// It never checkpoints a write-ahead log unless it is told to (`SQLiteLibrary.leaveLogAlone`), and works inside the store's
/// directory, whatever stands at that directory's path now.
package final class StoreConnection {
    private let connection: OpaquePointer
    /// Kept open: SQLite's paths lead through it.
    private let location: StoreLocation

    package enum Locking {
        /// Beside other programs.
        case shared
        /// Alone, where the store has a write-ahead log. SQLite keeps the index of the log in its own memory then, and takes
        /// an exclusive lock on the database before it reads (https://sqlite.org/wal.html, §8). Every other connection
        /// to such a store holds a shared lock on it for as long as it lives, a reader's and an idle one's too: while one is
        /// there, this one gets SQLITE_BUSY, and while this one is there, another one gets it.
        case alone
    }

    /// Waits `busyTimeout` for other programs' locks. Nothing is made where there is no such file.
    ///
    /// Throws `StoreError.notAFile` when one of the store's files is none, `DatabaseError` when SQLite can't open it.
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
        try SQLiteLibrary.leaveLogAlone(opened, of: location.path)
        // Before anything is read: SQLite would map the shared index of the log otherwise, and keep to it.
        if locking == .alone { try execute("PRAGMA locking_mode = EXCLUSIVE") }
    }

    deinit { sqlite3_close_v2(connection) }

    /// Runs one statement. Returns the first column of its first row, as text; nil without one. Throws `DatabaseError`.
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

    /// What SQLite doesn't say by a result code.
    var busy: DatabaseError { DatabaseError(resultCode: .SQLITE_BUSY, message: "the write-ahead log is in use") }

    private func check(_ code: Int32) throws {
        if code != SQLITE_OK { throw error(code) }
    }

    private func error(_ code: Int32) -> DatabaseError {
        DatabaseError(resultCode: ResultCode(rawValue: code), message: String(cString: sqlite3_errmsg(connection)))
    }
}
