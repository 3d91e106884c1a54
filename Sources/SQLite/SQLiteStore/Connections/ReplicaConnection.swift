import CSQLite
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A connection that writes the rows of a replica as another store has them. Confined to one thread.
///
/// The app's triggers and foreign keys are off, because their effects are rows of the other store too. CHECK
/// constraints are ignored: the other store's program may have ignored them, or may call functions that this process
/// lacks. Like `StoreConnection`, it works inside the store's open directory and never checkpoints by itself.
package final class ReplicaConnection: SQLiteConnection {
    /// Stays open because SQLite's paths lead through it.
    private let location: StoreLocation

    /// Opens the store, and waits up to `busyTimeout` for other programs' locks. It creates no file. Throws
    /// `StoreError`: `.notAFile` if one of the store's files is not a regular file, `.sideFileIsDatabase`,
    /// `.foreignLog`.
    package init(_ location: StoreLocation, busyTimeout: Duration) throws {
        try HeldDirectoryVFS.register()
        for name in [location.name.database] + location.name.sideFiles {
            guard let kind = try location.directory.status(name)?.kind, kind != .regular else { continue }
            throw StoreError.notAFile(location.directory.path.appending(name))
        }
        if let found = try location.databaseInPlaceOfSideFile() { throw StoreError.sideFileIsDatabase(found) }
        guard try location.directory.status(location.name.database) != nil else {
            throw StoreError.missing(location.path)
        }
        self.location = location
        try super.init(
            opening: "file:\(location.encodedPath)?mode=rw&vfs=\(HeldDirectoryVFS.name)", of: location.path,
            flags: SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI, acceptsUnknownCollations: false)
        try location.checkOpened(location.granted)
        try checkLog(beside: location)
        sqlite3_busy_timeout(connection, Int32(clamping: busyTimeout.nanoseconds / 1_000_000))
        try SQLiteLibrary.disableCheckpoints(connection, of: location.path)
        try SQLiteLibrary.rejectDoubleQuotedTexts(connection, of: location.path)
        try writeRowsOnly()
        try distrustSchema()
        try execute("PRAGMA synchronous = FULL")
        statementCache = StatementCache()
    }

    /// Makes the log start over if it is longer than this many bytes and no reader needs it. Waits for nobody.
    ///
    /// Before 3.51.3, SQLite can corrupt a database whose log is restarted by one connection while another one
    /// checkpoints it (https://sqlite.org/wal.html, "The WAL-Reset Bug"). A FULL checkpoint excludes writers.
    package func checkpoint(above limit: Int64, busyTimeout: Duration) throws {
        guard let size = try location.directory.status(location.name.wal)?.size, size > limit else { return }
        sqlite3_busy_timeout(connection, 0)
        defer { sqlite3_busy_timeout(connection, Int32(clamping: busyTimeout.nanoseconds / 1_000_000)) }
        do {
            try execute("PRAGMA wal_checkpoint(FULL)")
        } catch StoreError.busy {}
    }

    /// Lets the connection write the shadow tables of virtual tables, as another store's pages have them
    /// (https://sqlite.org/vtab.html, §2.1.1). No virtual table may be written over it then.
    package func acceptShadowTables() throws {
        let code = gs_write_shadow_tables(connection)
        if code != SQLITE_OK { throw error(code) }
    }

    /// Attaches a database that nobody writes meanwhile. It gets no file beside it, and no lock; a log beside it is
    /// ignored.
    package func attach(unchanging path: FilePath, as name: String) throws {
        let uri = "file:" + path.encodedForURI + "?mode=ro&immutable=1&vfs=unix"
        try execute("ATTACH ?1 AS \(name.sqlName)", [.text(uri)])
    }

    /// A number that changes when another connection commits
    /// (https://sqlite.org/pragma.html#pragma_data_version).
    package func dataVersion() throws -> Int64 { try integer("PRAGMA main.data_version") ?? 0 }
}

extension SQLiteConnection {
    fileprivate func writeRowsOnly() throws {
        let code = gs_write_rows_only(connection)
        if code != SQLITE_OK { throw error(code) }
        try execute("PRAGMA ignore_check_constraints = ON")
    }

    /// The compile errors that statements have in a process that knows none of the app's collations and functions.
    ///
    /// Use it before anything else is prepared on the connection: a collation that was once accepted stays known.
    package func withoutUnknownCollations<Success>(_ body: () throws -> Success) throws -> Success {
        let kept = statementCache
        statementCache = nil
        sqlite3_collation_needed(connection, nil, nil)
        defer {
            SQLiteLibrary.acceptUnknownCollations(connection)
            statementCache = kept
        }
        try writeRowsOnly()
        return try body()
    }
}

/// A copy of a whole database over another one, in one transaction of the latter (https://sqlite.org/backup.html).
package final class ContentReplacement {
    private let source: StoreWriter
    private let target: ReplicaConnection
    private var backup: OpaquePointer?

    /// Locks the target for writing. Its readers see the former content until `finish`.
    package init(of target: ReplicaConnection, by source: StoreWriter) throws {
        (self.source, self.target) = (source, target)
        backup = sqlite3_backup_init(target.connection, "main", source.connection, "main")
        guard backup != nil else { throw target.error(sqlite3_errcode(target.connection)) }
        let code = sqlite3_backup_step(backup, 0)
        guard code == SQLITE_OK else {
            sqlite3_backup_finish(backup)
            backup = nil
            throw StoreError(
                code: code, message: String(cString: sqlite3_errstr(code)), path: target.path,
                errno: sqlite3_system_errno(target.connection))
        }
    }

    deinit { sqlite3_backup_finish(backup) }

    /// Copies all pages and commits.
    package func finish() throws {
        let code = sqlite3_backup_step(backup, -1)
        sqlite3_backup_finish(backup)
        backup = nil
        guard code == SQLITE_DONE else {
            throw StoreError(
                code: code, message: String(cString: sqlite3_errstr(code)), path: target.path,
                errno: sqlite3_system_errno(target.connection))
        }
    }
}
