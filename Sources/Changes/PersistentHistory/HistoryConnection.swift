import CLinux
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A short-lived SQLite connection that writes to a store's history.
enum HistoryConnection {
    /// Opens the store for writing, waits up to `busyTimeout` for other programs' locks, and leaves the write-ahead log
    /// to them.
    ///
    /// Throws `SystemError` if the file can't be reached, and `StoreError` if SQLite can't open it, it isn't a regular
    /// file or isn't the granted one.
    static func open(_ location: StoreLocation, busyTimeout: Duration) throws -> StoreConnection {
        let descriptor = try location.directory.open(location.name.database, flags: gs_o_path)
        let found = try descriptor.status(path: location.path)
        // O_PATH on a symbolic link opens the link itself.
        guard found.kind == .regular else { throw StoreError.notAFile(location.path) }
        try location.check(found.identity)
        let connection = try StoreConnection(location, busyTimeout: busyTimeout)
        // A process that may write to the directory can put another file there in between. Nothing has been written
        // yet. The identity is read again because a file on an overlay may get another inode number once it is opened
        // for writing.
        try location.checkOpened(descriptor.status(path: location.path).identity)
        try connection.acceptGRDBNames()
        return connection
    }
}
