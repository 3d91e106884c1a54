import FoundationEssentials
import GRDB
import GroupStore
import LinuxSystem
import Synchronization

/// A `DatabasePool` on a shared store that closes and reopens when the store is relocated.
///
/// See ``SharedDatabase``.
public typealias SharedDatabasePool = SharedDatabase<DatabasePool>

/// A `DatabaseQueue` on a shared store that closes and reopens when the store is relocated: one connection, on which
/// accesses run one after another.
///
/// See ``SharedDatabase``.
public typealias SharedDatabaseQueue = SharedDatabase<DatabaseQueue>

/// A GRDB database on a shared store that closes and reopens when the store is relocated. ``SharedDatabasePool`` and
/// ``SharedDatabaseQueue`` are its two kinds.
///
///     let notes = try await SharedDatabasePool.load("Notes.sqlite", in: "group.com.example.notes")
///     try await notes.write { try $0.execute(sql: "INSERT INTO note (title) VALUES (?)", arguments: ["New"]) }
///     let count = try await notes.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") }
///     try await notes.close()
///
/// When another process relocates, moves or replaces the store, the database is closed once the accesses under way have
/// ended, and opened again at the store's new location. Accesses wait meanwhile. An access nested in another one
/// doesn't wait, because the relocation waits for both. A store that is gone isn't created again: accesses wait until
/// it is back. What an access has committed stays in the store wherever it is moved.
///
/// The class is a GRDB `DatabaseReader` and `DatabaseWriter`: pass it to `ValueObservation`, `DatabaseMigrator`,
/// `backup(to:)` and GRDBQuery. Observations go on after a reopening. They are notified of other processes' commits,
/// by an agent that serves the group, or by this process itself while there is no agent.
///
/// Where GRDB's methods can't suspend, they differ in how they wait. The synchronous ones block their thread: use the
/// asynchronous ones in a task. Those with a callback return at once and keep their order. All give up after the
/// `patience` given to the initializer, and fail at once after ``close()-ql0n``, with
/// ``SharedDatabaseUnavailable`` if GRDB lets them throw any error; each method says what it does otherwise. Tasks that
/// block don't hold up the reopening.
///
/// - Important: The database checkpoints its write-ahead log as SQLite does. Before 3.51.3, SQLite can corrupt a store
///   that two connections write or checkpoint at once (https://sqlite.org/wal.html, "The WAL-Reset Bug"); `groupstore
///   doctor` names the SQLite of each program that has the store open.
public final class SharedDatabase<Connection: SharedDatabaseConnection>: Sendable {
    /// The store that the database is opened on.
    public let store: SharedStore
    /// GRDB's configuration of each connection that is opened.
    public let configuration: GRDB.Configuration
    /// The trace of the statements that the connections run.
    public let sqlTrace: SQLTrace
    private let prepare: @Sendable (Connection) async throws -> Void
    let lifecycle: ConnectionLifecycle<Connection>
    /// GRDB's methods that can't throw an error of ours use it while the shared database is closed.
    let standIn: UnavailableDatabase
    let presentation = Mutex<StorePresentation?>(nil)
    let following = Mutex(Following())
    /// Ends accesses and follows the store. Threads that wait for the database must not keep it from being closed and
    /// reopened.
    let executor = QueueExecutor("gs-database")
    let transactionObservers = Mutex<[(number: UInt64, observer: ReopeningTransactionObserver)]>([])

    /// Opens the store and presents it until ``close()-ql0n``. Creates the store in the group container if it doesn't
    /// exist. `load` also finds the container and relocates an old store.
    ///
    /// - Parameters:
    ///   - store: The store to open.
    ///   - configuration: GRDB's configuration of each connection that is opened, which should wait for other
    ///     processes' writes (`busyMode`).
    ///   - patience: How long an access waits while the database is closed for another process.
    ///   - openableModelVersions: See `GroupStore.SharedStore.present(openableModelVersions:open:close:failed:)`.
    ///     While the database is open, no migration makes the store a version that this program can't open.
    ///   - sqlTrace: What is printed of the statements that the connections run.
    ///   - prepare: Called with each connection that is opened, before any access.
    /// - Throws: GRDB's errors, `GroupStoreError`, `FileCoordinationError`, and the error of `prepare`.
    public convenience init(
        _ store: SharedStore, configuration: GRDB.Configuration = .sharedStore,
        patience: Duration = .seconds(60), openableModelVersions: Set<String>? = nil,
        sqlTrace: SQLTrace = .environment, prepare: @escaping @Sendable (Connection) throws -> Void = { _ in }
    ) async throws {
        try await self.init(
            presenting: store, configuration: configuration, patience: patience,
            openableModelVersions: openableModelVersions, sqlTrace: sqlTrace, prepare: { try prepare($0) })
    }

    init(
        presenting store: SharedStore, configuration: GRDB.Configuration, patience: Duration,
        openableModelVersions: Set<String>?, sqlTrace: SQLTrace,
        prepare: @escaping @Sendable (Connection) async throws -> Void
    ) async throws {
        self.store = store
        self.configuration = configuration
        self.sqlTrace = sqlTrace
        self.prepare = prepare
        lifecycle = ConnectionLifecycle(store: store.name, patience: patience)
        standIn = try UnavailableDatabase()
        let presented = try await store.present(
            // The presentation doesn't retain the database: one that nobody uses any more is closed.
            openableModelVersions: openableModelVersions, open: { [weak self] url in try await self?.open(url) },
            close: { [lifecycle] in try await lifecycle.close() },
            failed: { [weak self] error in self?.openingFailed(error) })
        presentation.withLock { $0 = presented }
        follow()
    }

    /// Closes the database and stops presenting the store, in the background.
    deinit {
        lifecycle.end()
        stopFollowing()
        guard let presentation = presentation.withLock({ $0 }) else { return }
        Task.detached(executorPreference: executor) { [lifecycle] in
            // If the connection can't be closed, the presentation keeps it, so that the store isn't moved under it.
            try? await presentation.end()
            lifecycle.endObservers()
        }
    }

    /// The model versions that this program declares it can open; nil for any.
    public var openableModelVersions: Set<String>? { presentation.withLock { $0?.openableModelVersions } }

    /// Tells which processes ask this one to close the store; nil once the database is closed.
    public var registration: FilePresenterRegistration? { presentation.withLock { $0?.registration } }

    /// The location at which the database is open now, or was last.
    public var url: URL { presentation.withLock { $0?.url } ?? store.url }

    var isClosed: Bool { lifecycle.isClosed }

    // MARK: Opening and closing

    private func open(_ url: URL) async throws {
        let connection = try await sqlTrace.added(to: configuration, of: store.name).open(Connection.self, at: url)
        try await prepare(connection)
        lifecycle.opened(connection)
        follow()
    }

    private func openingFailed(_ error: any Error) {
        // A refused registration is reported by `registration`.
        if let error = error as? FileCoordinationError, error.code == .agent { return }
        lifecycle.openingFailed(error)
    }

    /// Closes the database once the accesses under way have ended, and stops presenting the store. Observations end.
    ///
    /// A database that is dropped without this call closes in the background.
    ///
    /// - Throws: GRDB's errors. The database then stays open and presented, but accepts no accesses, and this method
    ///   can be called again. `SQLITE_BUSY` inside an access, which this method would wait for; nothing has changed
    ///   then.
    public func close() async throws {
        try checkIsOutsideAccess()
        lifecycle.end()
        stopFollowing()
        try await presentation.withLock { $0 }?.end()
        lifecycle.endObservers()
    }

    /// Closes the database like ``close()-ql0n``, and blocks the thread meanwhile.
    ///
    /// - Throws: GRDB's errors; `SQLITE_BUSY` inside an access, which this method would wait for.
    public func close() throws {
        try checkIsOutsideAccess()
        let result = BlockingResult()
        Task.detached(executorPreference: executor) { await result.set { try await self.close() } }
        try result.wait()
    }

    private func checkIsOutsideAccess() throws {
        guard lifecycle.isInsideAccess else { return }
        throw DatabaseError(resultCode: .SQLITE_BUSY, message: "\(store.name) can't be closed inside an access to it")
    }

    // MARK: Accesses

    /// Calls `body` with the open connection, which stays open meanwhile.
    func withConnection<Value: Sendable>(
        _ body: @Sendable (Connection) async throws -> Value
    ) async throws -> Value {
        let session = try await lifecycle.session()
        defer { session.end() }
        return try await session.nesting { try await body(session.connection) }
    }
}

extension SharedDatabase where Connection == DatabasePool {
    /// Calls `body` with the pool, which stays open meanwhile. Accesses inside `body` don't wait for a relocation,
    /// because the relocation waits for this one.
    ///
    ///     let snapshot = try await notes.withPool { pool in try await export(pool.makeSnapshot()) }
    ///
    /// - Important: Don't keep the pool beyond `body`: it is closed when the store is relocated.
    /// - Throws: The error of `body`, and ``SharedDatabaseUnavailable``.
    public func withPool<Value: Sendable>(
        _ body: @Sendable (DatabasePool) async throws -> Value
    ) async throws -> Value {
        try await withConnection(body)
    }
}

extension SharedDatabase where Connection == DatabaseQueue {
    /// Calls `body` with the queue, which stays open meanwhile. Accesses inside `body` don't wait for a relocation,
    /// because the relocation waits for this one.
    ///
    /// - Important: Don't keep the queue beyond `body`: it is closed when the store is relocated.
    /// - Throws: The error of `body`, and ``SharedDatabaseUnavailable``.
    public func withQueue<Value: Sendable>(
        _ body: @Sendable (DatabaseQueue) async throws -> Value
    ) async throws -> Value {
        try await withConnection(body)
    }
}
