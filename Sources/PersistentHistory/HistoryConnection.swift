import CLinux
import GRDB
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A short-lived SQLite connection that writes to a store's history.
enum HistoryConnection {
    /// Opens the store for writing, waits up to `busyTimeout` for other programs' locks, and leaves the write-ahead log
    /// to them.
    ///
    /// Throws `SystemError` if the file can't be reached, `DatabaseError` if SQLite can't read it, and `StoreError` if
    /// it isn't a regular file or isn't the granted one.
    static func open(_ location: StoreLocation, busyTimeout: Duration) throws -> DatabaseQueue {
        var configuration = Configuration()
        configuration.foreignKeysEnabled = false
        configuration.busyMode = .timeout(busyTimeout.seconds)
        let store = location.path
        configuration.prepareDatabase { try SQLiteLibrary.disableCheckpoints($0.sqliteConnection, of: store) }
        let descriptor = try location.directory.open(location.name.database, flags: gs_o_path)
        let found = try descriptor.status(path: location.path)
        // O_PATH on a symbolic link opens the link itself.
        guard found.kind == .regular else { throw StoreError.notAFile(location.path) }
        try location.check(found.identity)
        let queue = try DatabaseQueue(path: path(of: descriptor, at: location), configuration: configuration)
        // SQLite resolves the link again, and a process that may write to the directory can put another file there in
        // between. Nothing has been written yet. The identity is read again because a file on an overlay may get
        // another inode number once it is opened for writing.
        try location.checkOpened(descriptor.status(path: location.path).identity)
        return queue
    }

    /// Returns a path that SQLite can open. SQLite takes a path as UTF-8 text, but a path here may be any bytes. The
    /// link in `/proc/self/fd` leads to the file whatever its name is; SQLite resolves it and names the side files
    /// after its target.
    private static func path(of descriptor: borrowing Descriptor, at location: StoreLocation) -> String {
        let link = "/proc/self/fd/\(descriptor.raw)"
        if let proc = try? Directory("/proc/self/fd"), proc.raw >= 0 { return link }
        return location.path.string
    }
}
