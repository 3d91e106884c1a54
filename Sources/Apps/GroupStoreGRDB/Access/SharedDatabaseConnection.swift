import FoundationEssentials
import GRDB
import LinuxSystem
import SystemPackage

/// A GRDB connection that a ``SharedDatabase`` opens, closes and opens again: `DatabasePool` or `DatabaseQueue`.
public protocol SharedDatabaseConnection: DatabaseWriter {
    /// Opens the database at a path. Throws GRDB's errors.
    init(path: String, configuration: GRDB.Configuration) throws
}

extension DatabasePool: SharedDatabaseConnection {}
extension DatabaseQueue: SharedDatabaseConnection {}

extension SharedDatabaseConnection {
    /// Closes all connections, and leaves no log behind if no other process uses the store: a program that moves only
    /// the store's file must not lose commits. GRDB's pool closes its readers last, and they may not truncate the log.
    /// To release them before wouldn't do: an observation may still be reading on one. Throws GRDB's errors.
    ///
    /// The caller has cancelled all observations, and begins no access.
    func closeWithoutLog() throws {
        startRequestedReads()
        try close()
        // A store that is gone must not be created.
        guard !configuration.readonly, FileStatus(following: FilePath(path)) != nil,
            FileStatus(following: FilePath(path + "-wal")) != nil
        else { return }
        // SQLite truncates the log when the last connection, which may write, is closed. If that fails, for instance
        // because another process holds a lock, the log stays, as it does when another process has the store open.
        try? DatabaseQueue(path: path, configuration: configuration).close()
    }

    /// Returns once the reads that cancelled observations have requested are under way, so that `close()` waits for
    /// them. For a read that still waits while the pool is closed, GRDB opens a new connection afterwards. If the store
    /// is moved meanwhile, that connection keeps the log under its old name beside the new one, and commits are lost.
    private func startRequestedReads() {
        // An observation requests a read during a write, and checks before each of both whether it was cancelled.
        writeWithoutTransaction { _ in }
        // Reads start in the order of their requests. `close()` waits for them too, so a deadline would gain nothing.
        let isStarted = MonotonicSemaphore()
        asyncUnsafeRead { _ in isStarted.signal() }
        isStarted.wait()
    }
}

extension GRDB.Configuration {
    /// GRDB's default configuration, except that an access waits up to 10 seconds for another process's write. GRDB's
    /// own fails at once with `SQLITE_BUSY`, "database is locked".
    ///
    ///     var configuration = Configuration.sharedStore
    ///     configuration.foreignKeysEnabled = false
    ///
    /// It is what a ``SharedDatabase`` uses that isn't given a configuration.
    public static var sharedStore: GRDB.Configuration {
        var configuration = GRDB.Configuration()
        configuration.busyMode = .timeout(10)
        return configuration
    }

    /// Opens a database and applies the busy mode while opening. SQLite doesn't call the busy handler when a store
    /// switches to write-ahead mode while another connection writes it or does the same: the switching connection has
    /// begun to read, so it gives up at once (https://sqlite.org/c3ref/busy_handler.html). Throws GRDB's errors and
    /// `CancellationError`.
    func open<Connection: SharedDatabaseConnection>(_ type: Connection.Type, at url: URL) async throws -> Connection {
        let start = ContinuousClock.now
        var attempts = 0
        while true {
            do {
                return try Connection(path: url.path, configuration: self)
            } catch let error as DatabaseError
                where error.resultCode == .SQLITE_BUSY && shouldRetry(attempts, since: start)
            {
                attempts += 1
                // No event reports the release of a lock.
                try Task.checkCancellation()
                await QueueExecutor.sleep(for: .milliseconds(Int.random(in: 2...20)))
            }
        }
    }

    private func shouldRetry(_ attempts: Int, since start: ContinuousClock.Instant) -> Bool {
        switch busyMode {
        // Another process that opens the store at the same moment is no reason to fail: that is over in an instant.
        case .immediateError: start.duration(to: .now) < .seconds(1)
        case .timeout(let seconds): start.duration(to: .now) / .seconds(1) < seconds
        case .callback(let callback): callback(attempts)
        }
    }
}
