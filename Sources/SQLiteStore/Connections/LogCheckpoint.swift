import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Brings a store's write-ahead log into its database, and empties the log: the only checkpoints that we make.
///
/// Before 3.51.3, SQLite can corrupt a database when one connection checkpoints the log while another one begins it anew
/// (https://sqlite.org/wal.html, "The WAL-Reset Bug"). So this connection must be the only one. A lease can't prove it here:
/// SQLite would wait for ours when it opens the file. SQLite's own exclusive lock can: see `StoreConnection.Locking.alone`.
package enum LogCheckpoint {
    /// Throws `DatabaseError`, its code SQLITE_BUSY where another connection has the store open. The log is as it was then.
    package static func perform(_ store: StoreLocation) throws {
        let connection = try StoreConnection(store, busyTimeout: .zero, locking: .alone)
        try connection.execute("PRAGMA synchronous = FULL")
        // The first read takes the lock, recovers the log and makes an index of it.
        try connection.execute("SELECT count(*) FROM sqlite_schema")
        guard try connection.execute("PRAGMA wal_checkpoint(TRUNCATE)") == "0" else { throw connection.busy }
    }
}
