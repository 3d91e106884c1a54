import GRDB

extension SharedDatabase: DatabaseWriter {
    /// Writes on the calling thread, without a transaction, and blocks it while the database is closed for another
    /// process. `write(_:)` calls it.
    ///
    /// If the database is closed for too long, or for good, `updates` is called with a database on which each
    /// statement fails, because GRDB lets this method throw only what `updates` throws.
    ///
    /// - Throws: The error of `updates`; ``SharedDatabaseUnavailable`` in its place if the database is closed.
    @_disfavoredOverload
    public func writeWithoutTransaction<T>(_ updates: (Database) throws -> T) rethrows -> T {
        switch lifecycle.blockingSession() {
        case .success(let session):
            defer { session.end() }
            return try session.connection.writeWithoutTransaction { db in try session.nesting { try updates(db) } }
        case .failure(let unavailable):
            return try standIn.run(updates, failing: unavailable)
        }
    }

    /// Writes without a transaction. Waits while the database is closed for another process. `write(_:)` calls it: if
    /// its `updates` returns without an error, its changes are committed.
    ///
    /// - Throws: The error of `updates`, GRDB's errors, ``SharedDatabaseUnavailable`` and `CancellationError`.
    public func writeWithoutTransaction<T: Sendable>(_ updates: @Sendable (Database) throws -> T) async throws -> T {
        try await suspending { session in
            try await session.connection.writeWithoutTransaction { db in try session.nesting { try updates(db) } }
        }
    }

    /// Writes on the calling thread while no other access runs on this connection, without a transaction. Other
    /// processes aren't kept out. `DatabaseMigrator.migrate(_:)` calls it.
    ///
    /// - Throws: The error of `updates`, GRDB's errors, and ``SharedDatabaseUnavailable``.
    @_disfavoredOverload
    public func barrierWriteWithoutTransaction<T>(_ updates: (Database) throws -> T) throws -> T {
        try blocking { session in
            try session.connection.barrierWriteWithoutTransaction { db in try session.nesting { try updates(db) } }
        }
    }

    /// Writes while no other access runs on this connection, without a transaction. Other processes aren't kept out.
    ///
    /// - Throws: The error of `updates`, GRDB's errors, ``SharedDatabaseUnavailable`` and `CancellationError`.
    public func barrierWriteWithoutTransaction<T: Sendable>(
        _ updates: @Sendable (Database) throws -> T
    ) async throws -> T {
        try await suspending { session in
            try await session.connection.barrierWriteWithoutTransaction { db in
                try session.nesting { try updates(db) }
            }
        }
    }

    /// Writes later, while no other access runs on this connection. `updates` receives ``SharedDatabaseUnavailable`` if
    /// the database is closed for too long, or for good.
    public func asyncBarrierWriteWithoutTransaction(
        _ updates: @escaping @Sendable (Result<Database, any Error>) -> Void
    ) {
        queued(updates) { session, updates in session.connection.asyncBarrierWriteWithoutTransaction(updates) }
    }

    /// Writes later, without a transaction. If the database is closed for too long, or for good, `updates` is called
    /// with a database on which each statement fails with `SQLITE_AUTH`.
    public func asyncWriteWithoutTransaction(_ updates: @escaping @Sendable (Database) -> Void) {
        lifecycle.queuedSession { [standIn] result in
            switch result {
            case .success(let session):
                session.connection.asyncWriteWithoutTransaction { db in
                    session.nesting { updates(db) }
                    session.end()
                }
            case .failure: standIn.runLater(updates)
            }
        }
    }

    /// Writes on the calling thread, also inside another access, where it uses that access's connection and never waits
    /// for a relocation. Elsewhere it waits, and fails, like `writeWithoutTransaction(_:)`.
    ///
    /// - Throws: The error of `updates`; ``SharedDatabaseUnavailable`` in its place if the database is closed.
    public func unsafeReentrantWrite<T>(_ updates: (Database) throws -> T) rethrows -> T {
        switch lifecycle.blockingSession() {
        case .success(let session):
            defer { session.end() }
            return try session.connection.unsafeReentrantWrite { db in try session.nesting { try updates(db) } }
        case .failure(let unavailable):
            return try standIn.run(updates, failing: unavailable)
        }
    }

    /// Reads what the writer has just committed, on another connection if there is one. Like GRDB's, it must be called
    /// inside a write access and outside a transaction, so it never waits for a relocation. The relocation waits for
    /// it. `value` receives ``SharedDatabaseUnavailable`` if the database is closed.
    public func spawnConcurrentRead(_ value: @escaping @Sendable (Result<Database, any Error>) -> Void) {
        guard let session = lifecycle.currentSession() else {
            return value(.failure(Unavailable(store: store.name, reason: .closed)))
        }
        session.connection.spawnConcurrentRead { database in
            session.nesting { value(database) }
            session.end()
        }
    }
}
