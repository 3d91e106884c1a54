import GRDB
import GRDBSQLite

/// A stand-in for a shared database that is closed, where GRDB demands a database.
struct UnavailableDatabase: Sendable {
    /// A database in memory on which no statement can be compiled: each fails with `SQLITE_AUTH`. Closures that may
    /// throw only their own errors run on it. GRDB's own closed database won't do: it crashes when it is asked whether
    /// it is inside a transaction.
    private let denying: DatabaseQueue
    /// A pool that was closed. A value observation that starts on it fails with `SQLITE_MISUSE`, "Connection is
    /// closed", before anything is read. GRDB alone can report an error to the observation's handler. Read-only pools
    /// use no writer for that.
    private let closed: DatabasePool

    /// Throws GRDB's errors.
    init() throws {
        denying = try DatabaseQueue()
        denying.unsafeReentrantWrite { database in
            _ = sqlite3_set_authorizer(database.sqliteConnection, { _, _, _, _, _, _ in SQLITE_DENY }, nil)
        }
        var configuration = GRDB.Configuration()
        configuration.readonly = true
        // An empty file is an empty database, and this one is everywhere.
        closed = try DatabasePool(path: "/dev/null", configuration: configuration)
        try closed.close()
    }

    /// Calls `body` with a database on which each statement fails. Throws `failure` if `body` throws.
    func run<Result>(_ body: (Database) throws -> Result, failing failure: any Error) rethrows -> Result {
        do {
            return try denying.unsafeReentrantWrite { try body($0) }
        } catch {
            throw failure
        }
    }

    /// Calls `body` later with a database on which each statement fails.
    func runLater(_ body: @escaping @Sendable (Database) -> Void) { denying.asyncWriteWithoutTransaction(body) }

    /// Starts an observation, which fails.
    func fail<Reducer: ValueReducer>(
        _ observation: ValueObservation<Reducer>, scheduling scheduler: some ValueObservationScheduler,
        onChange: @escaping @Sendable (Reducer.Value) -> Void
    ) -> AnyDatabaseCancellable {
        closed._add(observation: observation, scheduling: scheduler, onChange: onChange)
    }
}
