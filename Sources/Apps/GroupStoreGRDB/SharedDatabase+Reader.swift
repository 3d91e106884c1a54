import GRDB

extension SharedDatabase: DatabaseReader {
    /// The path at which the database is open now, or was last. It changes when the store is moved.
    public var path: String { url.path }

    /// Interrupts the accesses under way, like GRDB. Does nothing while the database is closed; accesses that wait
    /// aren't interrupted.
    public func interrupt() {
        guard let session = lifecycle.currentSession() else { return }
        session.connection.interrupt()
        session.end()
    }

    // MARK: Reading

    /// Reads on the calling thread, and blocks it while the database is closed for another process.
    ///
    /// - Throws: The error of `value`, GRDB's errors, and ``SharedDatabaseUnavailable``.
    @_disfavoredOverload
    public func read<T>(_ value: (Database) throws -> T) throws -> T {
        try blocking { session in try session.connection.read { db in try session.nesting { try value(db) } } }
    }

    /// Reads from the database, like `DatabasePool.read`. Waits while it is closed for another process.
    ///
    /// - Throws: The error of `value`, GRDB's errors, ``SharedDatabaseUnavailable`` and `CancellationError`.
    public func read<T: Sendable>(_ value: @Sendable (Database) throws -> T) async throws -> T {
        try await suspending { session in
            try await session.connection.read { db in try session.nesting { try value(db) } }
        }
    }

    /// Reads later. `value` receives ``SharedDatabaseUnavailable`` if the database is closed for too long, or for good.
    public func asyncRead(_ value: @escaping @Sendable (Result<Database, any Error>) -> Void) {
        queued(value) { session, value in session.connection.asyncRead(value) }
    }

    /// Reads without a transaction, on the calling thread. See `read(_:)` for the waiting.
    ///
    /// - Throws: The error of `value`, GRDB's errors, and ``SharedDatabaseUnavailable``.
    @_disfavoredOverload
    public func unsafeRead<T>(_ value: (Database) throws -> T) throws -> T {
        try blocking { session in try session.connection.unsafeRead { db in try session.nesting { try value(db) } } }
    }

    /// Reads without a transaction. See `read(_:)` for the waiting.
    ///
    /// - Throws: The error of `value`, GRDB's errors, ``SharedDatabaseUnavailable`` and `CancellationError`.
    public func unsafeRead<T: Sendable>(_ value: @Sendable (Database) throws -> T) async throws -> T {
        try await suspending { session in
            try await session.connection.unsafeRead { db in try session.nesting { try value(db) } }
        }
    }

    /// Reads later, without a transaction. `value` receives ``SharedDatabaseUnavailable`` if the database is closed for
    /// too long, or for good.
    public func asyncUnsafeRead(_ value: @escaping @Sendable (Result<Database, any Error>) -> Void) {
        queued(value) { session, value in session.connection.asyncUnsafeRead(value) }
    }

    /// Reads on the calling thread, also inside another access, where it uses that access's connection and never waits
    /// for a relocation. Elsewhere it waits like `read(_:)`.
    ///
    /// - Throws: The error of `value`, GRDB's errors, and ``SharedDatabaseUnavailable``.
    public func unsafeReentrantRead<T>(_ value: (Database) throws -> T) throws -> T {
        try blocking { session in
            try session.connection.unsafeReentrantRead { db in try session.nesting { try value(db) } }
        }
    }
}

// MARK: - Waiting

extension SharedDatabase {
    func blocking<T>(_ body: (AccessSession<Connection>) throws -> T) throws -> T {
        let session = try lifecycle.blockingSession().get()
        defer { session.end() }
        return try body(session)
    }

    func suspending<T: Sendable>(_ body: (AccessSession<Connection>) async throws -> T) async throws -> T {
        let session = try await lifecycle.session()
        // GRDB returns a reader to its pool in the task. On the executor, that needs no thread that another access may
        // block while it waits for this one to end and the database to be reopened.
        return try await withTaskExecutorPreference(executor) {
            defer { session.end() }
            return try await body(session)
        }
    }

    /// Calls `access` when the connection is open, with a callback that calls `value` and then ends the session.
    func queued(
        _ value: @escaping @Sendable (Result<Database, any Error>) -> Void,
        _ access:
            @escaping @Sendable (
                AccessSession<Connection>, @escaping @Sendable (Result<Database, any Error>) -> Void
            ) -> Void
    ) {
        lifecycle.queuedSession { result in
            switch result {
            case .success(let session):
                access(session) { database in
                    session.nesting { value(database) }
                    session.end()
                }
            case .failure(let error): value(.failure(error))
            }
        }
    }
}
