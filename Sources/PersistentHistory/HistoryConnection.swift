import CLinux
import GRDB
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import SystemPackage

/// A connection that writes to a store's history, for the short time that it takes.
enum HistoryConnection {
    /// Waits `busyTimeout` for other programs' locks, and leaves the write-ahead log to them.
    ///
    /// Throws `SystemError` when the file can't be reached, `DatabaseError` when SQLite can't read it, `StoreError`
    /// when it is no regular file, or not the granted one.
    static func open(_ location: StoreLocation, busyTimeout: Duration) throws -> DatabaseQueue {
        var configuration = Configuration()
        configuration.foreignKeysEnabled = false
        configuration.busyMode = .timeout(busyTimeout.seconds)
        let store = location.path
        configuration.prepareDatabase { try SQLiteLibrary.leaveLogAlone($0.sqliteConnection, of: store) }
        let descriptor = try location.directory.open(location.name.database, flags: gs_o_path)
        let found = try descriptor.status(path: location.path)
        // Opened as a place, a symbolic link is itself.
        guard found.kind == .regular else { throw StoreError.notAFile(location.path) }
        try location.check(found.identity)
        let queue = try DatabaseQueue(path: path(of: descriptor, at: location), configuration: configuration)
        // SQLite looks up again where the link leads, and whoever may write to the directory can put another file there
        // meanwhile. Nothing was written yet. Asked anew: an overlay's file may have another number once it is opened
        // for writing.
        try location.checkOpened(descriptor.status(path: location.path).identity)
        return queue
    }

    /// SQLite takes a path as UTF-8 text, and a path here may be any bytes. This link leads to the file whatever it
    /// is called; SQLite resolves it, and names the side files after where it leads.
    private static func path(of descriptor: borrowing Descriptor, at location: StoreLocation) -> String {
        let link = "/proc/self/fd/\(descriptor.raw)"
        if let proc = try? Directory("/proc/self/fd"), proc.raw >= 0 { return link }
        return location.path.string
    }
}
