import CSQLite
import LinuxSystem
import SQLiteFormat
import SystemPackage

/// A short-lived SQLite connection that writes to a store in use. Confined to one thread.
///
/// It never checkpoints a WAL unless told to (`SQLiteLibrary.disableCheckpoints`). It works inside the store's open
/// directory, even if another directory has that path now.
package final class StoreConnection: SQLiteConnection {
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
    /// Throws `StoreError`: `.notAFile` if one of the store's files is not a regular file, `.sideFileIsDatabase`,
    /// `.foreignLog`.
    package init(_ location: StoreLocation, busyTimeout: Duration, locking: Locking = .shared) throws {
        try HeldDirectoryVFS.register()
        for name in [location.name.database] + location.name.sideFiles {
            guard let kind = try location.directory.status(name)?.kind, kind != .regular else { continue }
            throw StoreError.notAFile(location.directory.path.appending(name))
        }
        if let found = try location.databaseInPlaceOfSideFile() { throw StoreError.sideFileIsDatabase(found) }
        self.location = location
        try super.init(
            opening: "file:\(location.encodedPath)?mode=rw&vfs=\(HeldDirectoryVFS.name)", of: location.path,
            flags: SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI, acceptsUnknownCollations: false)
        try checkLog(beside: location)
        sqlite3_busy_timeout(connection, Int32(clamping: busyTimeout.nanoseconds / 1_000_000))
        try SQLiteLibrary.disableCheckpoints(connection, of: location.path)
        try SQLiteLibrary.rejectDoubleQuotedTexts(connection, of: location.path)
        // Must come before any read. Otherwise SQLite would map the shared index of the WAL and stay with it.
        if locking == .exclusive { try execute("PRAGMA locking_mode = EXCLUSIVE") }
    }
}
