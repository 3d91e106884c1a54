import LinuxSystem
import SQLiteFormat
import SystemPackage

/// Checkpoints a store's WAL into its database and truncates it. Beside it, only
/// `ReplicaConnection` checkpoints, which is the writer of its store.
///
/// Before 3.51.3, SQLite can corrupt a database if one connection checkpoints the WAL while another one restarts it
/// (https://sqlite.org/wal.html, "The WAL-Reset Bug"). So this connection must be the only one. A lease can't prove
/// that, because SQLite's open would wait for it. SQLite's own exclusive lock can; see
/// `StoreConnection.Locking.exclusive`.
package enum WALCheckpoint {
    /// Performs the checkpoint. Throws `StoreError`, with the code SQLITE_BUSY if another connection has the store
    /// open. The WAL is unchanged then.
    package static func perform(_ store: StoreLocation) throws {
        let connection = try StoreConnection(store, busyTimeout: .zero, locking: .exclusive)
        try connection.execute("PRAGMA synchronous = FULL")
        // The first read takes the lock, recovers the WAL and builds its index.
        try connection.execute("SELECT count(*) FROM sqlite_schema")
        let checkpoint = try connection.prepare("PRAGMA wal_checkpoint(TRUNCATE)")
        var isBusy = true
        while try checkpoint.step() { isBusy = checkpoint.integer(0) != 0 }
        // SQLite reports this in the row, not by a result code.
        if isBusy { throw StoreError.busy(store.path, message: "the write-ahead log is in use") }
    }
}
