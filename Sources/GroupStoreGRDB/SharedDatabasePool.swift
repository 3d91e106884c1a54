import FoundationEssentials
import GRDB
import GroupStore
import Synchronization

/// A `DatabasePool` on a shared store that closes and reopens when the store is relocated.
///
///     let notes = try await SharedDatabasePool(store)
///     try await notes.write { try $0.execute(sql: "INSERT INTO note (title) VALUES (?)", arguments: ["New"]) }
///     let count = try await notes.read { try Int.fetchOne($0, sql: "SELECT count(*) FROM note") }
///     try await notes.close()
///
/// When another process relocates, moves or replaces the store, the pool is closed once the accesses under way have
/// ended, and opened again at the store's new location. Accesses wait meanwhile. A store that is gone isn't created
/// again: accesses wait until it is back.
///
/// Observations (``values(of:bufferingPolicy:)``, and GRDB's own on the pool) are notified of other processes' commits
/// while an agent runs that serves the group.
///
/// - Important: The pool checkpoints its write-ahead log as SQLite does. Before 3.51.3, SQLite can corrupt a store that two
///   connections write or checkpoint at once (https://sqlite.org/wal.html, "The WAL-Reset Bug"); `groupstore doctor` names
///   the SQLite of each program that has the store open.
public final class SharedDatabasePool: Sendable {
    /// Identifies an access under way to the accesses nested in it.
    private final class Access: Sendable {}

    /// The accesses that the current task runs inside of. A task that outlives the access it was created in keeps it
    /// here.
    @TaskLocal private static var outer: [Access] = []

    private struct State {
        var pool: DatabasePool?
        /// The error of the last attempt to open the pool.
        var openingError: (any Error)?
        /// The accesses under way.
        var accesses: Set<ObjectIdentifier> = []
        var isClosing = false
        var isEnded = false
        /// The callers that wait for the pool, by number, so that each can give up.
        var waiting: [UInt64: CheckedContinuation<Void, Never>] = [:]
        var next: UInt64 = 0
        /// The caller that closes the pool once nobody uses it. The presentation makes sure that there is only one at a
        /// time.
        var closer: CheckedContinuation<Void, any Error>?
        /// The observers by number, each with a closure that ends it.
        var observers: [UInt64: (observer: any PoolObserving, onClose: @Sendable () -> Void)] = [:]
        /// Follows other processes' changes to the store at `followed`; nil if no agent can know the store there.
        var follower: Task<Void, Never>?
        var followed: URL?
        var followingError: (any Error)?
    }

    /// The store that the pool is opened on.
    public let store: SharedStore
    private let configuration: GRDB.Configuration
    private let prepare: @Sendable (DatabasePool) throws -> Void
    private let patience: Duration
    private let state = Mutex(State())
    private let presentation = Mutex<StorePresentation?>(nil)

    /// Opens the store and presents it until ``close()``. Creates the store in the group container if it doesn't exist.
    ///
    /// - Parameters:
    ///   - store: The store to open.
    ///   - configuration: GRDB's configuration of each pool that is opened.
    ///   - patience: How long an access waits while the pool is closed for another process.
    ///   - openableModelVersions: See `GroupStore.SharedStore.present(openableModelVersions:open:close:failed:)`.
    ///     While the pool is open, no migration makes the store a version that this program can't open.
    ///   - prepare: Called with each pool that is opened, before any access; for instance to run schema migrations.
    /// - Throws: GRDB's errors, `GroupStoreError`, `FileCoordinationError`, and the error of `prepare`.
    public init(
        _ store: SharedStore, configuration: GRDB.Configuration = GRDB.Configuration(),
        patience: Duration = .seconds(60), openableModelVersions: Set<String>? = nil,
        prepare: @escaping @Sendable (DatabasePool) throws -> Void = { _ in }
    ) async throws {
        self.store = store
        self.configuration = configuration
        // The clock can't count longer durations, and nobody waits that long.
        self.patience = min(patience, .seconds(100 * 365 * 86_400))
        self.prepare = prepare
        let presented = try await store.present(
            openableModelVersions: openableModelVersions, open: { [self] url in try await open(url) },
            close: { [self] in try await closePool() }, failed: { [self] error in openingFailed(error) })
        presentation.withLock { $0 = presented }
        follow()
    }

    /// The model versions that this program declares it can open; nil for any.
    public var openableModelVersions: Set<String>? { presentation.withLock { $0?.openableModelVersions } }

    /// Tells which processes ask this one to close the store; nil once the pool is closed.
    public var registration: FilePresenterRegistration? { presentation.withLock { $0?.registration } }

    /// The location at which the database is open now, or was last.
    public var url: URL { presentation.withLock { $0?.url } ?? store.url }

    /// Reads from the database, like `DatabasePool.read`.
    ///
    /// - Throws: The error of `value`, GRDB's errors, and ``Unavailable``.
    public func read<Value: Sendable>(_ value: @escaping @Sendable (Database) throws -> Value) async throws -> Value {
        try await withPool { try await $0.read(value) }
    }

    /// Writes to the database in a transaction, like `DatabasePool.write`. If `updates` returns without an error, its
    /// changes are committed, and stay in the store wherever it is moved.
    ///
    /// - Throws: The error of `updates`, GRDB's errors, and ``Unavailable``.
    public func write<Value: Sendable>(
        _ updates: @escaping @Sendable (Database) throws -> Value
    ) async throws -> Value {
        try await withPool { try await $0.write(updates) }
    }

    /// Calls `body` with the pool, which stays open meanwhile. Accesses inside `body` don't wait for a relocation,
    /// because the relocation waits for this one.
    ///
    ///     try await notes.withPool { pool in try await migrator.migrate(pool) }
    ///
    /// - Important: Don't keep the pool beyond `body`: it is closed when the store is relocated.
    /// - Throws: The error of `body`, and ``Unavailable``.
    public func withPool<Value: Sendable>(
        _ body: @Sendable (DatabasePool) async throws -> Value
    ) async throws -> Value {
        let access = Access()
        let pool = try await acquire(access)
        defer { release(access) }
        return try await Self.$outer.withValue(Self.outer + [access]) { try await body(pool) }
    }

    /// Closes the database once the accesses under way have ended, and stops presenting the store.
    ///
    /// - Throws: GRDB's errors. The database then stays open and presented, but accepts no accesses, and this method
    ///   can be called again.
    public func close() async throws {
        let (waiting, follower, observers) = state.withLock { state in
            state.isEnded = true
            defer {
                state.waiting = [:]
                state.observers = [:]
            }
            return (state.waiting.values, state.follower.take(), state.observers.values)
        }
        for continuation in waiting { continuation.resume() }
        follower?.cancel()
        for (observer, onClose) in observers {
            observer.pause()
            onClose()
        }
        try await presentation.withLock { $0 }?.end()
    }
}

// MARK: - Opening and closing

extension SharedDatabasePool {
    private func open(_ url: URL) async throws {
        let pool = try await configuration.openPool(at: url)
        try prepare(pool)
        let waiting = state.withLock { state in
            state.pool = pool
            state.openingError = nil
            state.isClosing = false
            for (observer, _) in state.observers.values { observer.begin(on: pool) }
            defer { state.waiting = [:] }
            return state.waiting.values
        }
        for continuation in waiting { continuation.resume() }
        follow()
    }

    private func openingFailed(_ error: any Error) {
        // A refused registration is reported by `registration`.
        if let error = error as? FileCoordinationError, error.code == .agent { return }
        state.withLock { if $0.pool == nil { $0.openingError = error } }
    }

    private func closePool() async throws {
        do {
            try await waitUntilUnused()
            do {
                try closeUnused()
            } catch {
                state.withLock { state in
                    guard let pool = state.pool else { return }
                    for (observer, _) in state.observers.values { observer.begin(on: pool) }
                }
                throw error
            }
        } catch {
            // The pool stays open, also if the process that wanted the store gave up: waiting accesses continue.
            let waiting = state.withLock { state in
                state.isClosing = false
                defer { state.waiting = [:] }
                return state.waiting.values
            }
            for continuation in waiting { continuation.resume() }
            throw error
        }
    }

    private func closeUnused() throws {
        let pool = state.withLock { state in
            for (observer, _) in state.observers.values { observer.pause() }
            return state.pool
        }
        // GRDB closes its readers last, and they may not truncate the log: the writer must be the last connection.
        pool?.invalidateReadOnlyConnections()
        try pool?.close()
        state.withLock { $0.pool = nil }
    }

    /// Blocks new accesses, and returns when none is under way. Throws `CancellationError`.
    private func waitUntilUnused() async throws {
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                let result = state.withLock { state -> Result<Void, any Error>? in
                    state.isClosing = true
                    if state.accesses.isEmpty { return .success(()) }
                    if Task.isCancelled { return .failure(CancellationError()) }
                    state.closer = continuation
                    return nil
                }
                if let result { continuation.resume(with: result) }
            }
        } onCancel: {
            state.withLock { $0.closer.take() }?.resume(throwing: CancellationError())
        }
    }

    var isClosed: Bool { state.withLock { $0.pool == nil } }

    private func acquire(_ access: Access) async throws -> DatabasePool {
        let deadline = ContinuousClock.now.advanced(by: patience)
        while true {
            try Task.checkCancellation()
            let (pool, isEnded, error) = state.withLock { state -> (DatabasePool?, Bool, (any Error)?) in
                // The closing caller waits for the outer access, and so for this one.
                let isInside = Self.outer.contains { state.accesses.contains(ObjectIdentifier($0)) }
                guard let pool = state.pool, isInside || !state.isClosing && !state.isEnded else {
                    return (nil, state.isEnded, state.openingError)
                }
                state.accesses.insert(ObjectIdentifier(access))
                return (pool, false, nil)
            }
            if let pool { return pool }
            if isEnded { throw Unavailable(store: store.name, reason: .closed) }
            guard ContinuousClock.now < deadline else {
                throw Unavailable(store: store.name, reason: error.map { .notOpened($0) } ?? .away)
            }
            await waitUntilOpen(deadline)
        }
    }

    /// Returns when the pool was opened, closed for good, or the deadline has passed.
    private func waitUntilOpen(_ deadline: ContinuousClock.Instant) async {
        let number = state.withLock { state in
            defer { state.next += 1 }
            return state.next
        }
        let timeout = Task { [self] in
            try? await Task.sleep(until: deadline, clock: .continuous)
            state.withLock { $0.waiting.removeValue(forKey: number) }?.resume()
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isOver = state.withLock { state in
                    let isOver =
                        state.isEnded || state.pool != nil && !state.isClosing || Task.isCancelled
                        || ContinuousClock.now >= deadline
                    if !isOver { state.waiting[number] = continuation }
                    return isOver
                }
                if isOver { continuation.resume() }
            }
        } onCancel: {
            state.withLock { $0.waiting.removeValue(forKey: number) }?.resume()
        }
        timeout.cancel()
    }

    private func release(_ access: Access) {
        state.withLock { state in
            state.accesses.remove(ObjectIdentifier(access))
            return state.accesses.isEmpty ? state.closer.take() : nil
        }?.resume()
    }
}

// MARK: - Other processes' commits

extension SharedDatabasePool {
    /// The reason why other processes' commits aren't observed although an agent runs: it doesn't serve the store, or
    /// refuses the subscription. Nil while commits are observed, and while no agent runs; the pool keeps looking for
    /// one. A refused subscription is retried.
    public var followingError: (any Error)? { state.withLock { $0.followingError } }

    /// Starts following the store, or follows it under its new name after a move.
    private func follow() {
        // Nil during the first opening; the initializer calls this method then.
        guard let presentation = presentation.withLock({ $0 }), let presentedURL = presentation.presentedItemURL,
            state.withLock({ $0.followed != presentedURL })
        else { return }
        let task = presentation.presentedStore.map { follower($0.changes()) }
        let obsolete = state.withLock { state -> Task<Void, Never>? in
            guard !state.isEnded else { return task }
            state.followed = presentedURL
            if task == nil {
                let message = "agents don't follow \(presentedURL.path): it isn't directly in the group's directory"
                state.followingError = NotFollowed(description: message)
            }
            defer { state.follower = task }
            return state.follower
        }
        obsolete?.cancel()
    }

    private func follower(_ changes: StoreChanges) -> Task<Void, Never> {
        Task { [weak self] in
            var pause = Duration.seconds(1)
            while !Task.isCancelled {
                do {
                    for try await change in changes {
                        guard let self, !Task.isCancelled else { return }
                        await receive(change)
                        pause = .seconds(1)
                    }
                } catch {
                    if !Task.isCancelled { self?.state.withLock { $0.followingError = error } }
                }
                // The agent's configuration decides who may subscribe, and may change. A task that is cancelled
                // meanwhile ends.
                try? await Task.sleep(for: pause)
                pause = min(pause * 2, .seconds(60))
            }
        }
    }

    private func receive(_ change: StoreChange) async {
        state.withLock { state in
            if case .notServed(let message) = change {
                state.followingError = NotFollowed(description: message)
            } else {
                state.followingError = nil
            }
        }
        guard let region = ExternalChanges.region(of: change) else { return }
        do {
            try await withPool { try await ExternalChanges.notify(region, $0) }
        } catch {
            // A fresh value makes up for a failed notification, or the observation reports its own error.
            restartObservations()
        }
    }

    /// Restarts the observations. If the pool is closed, they start when it is opened.
    private func restartObservations() {
        state.withLock { state in
            guard let pool = state.pool, !state.isClosing else { return }
            for (observer, _) in state.observers.values { observer.begin(on: pool) }
        }
    }

    /// Adds an observer. Returns nil when the pool is closed for good.
    func add(_ observer: some PoolObserving, onClose: @escaping @Sendable () -> Void) -> UInt64? {
        state.withLock { state in
            guard !state.isEnded else { return nil }
            defer { state.next += 1 }
            state.observers[state.next] = (observer, onClose)
            if let pool = state.pool, !state.isClosing { observer.begin(on: pool) }
            return state.next
        }
    }

    func removeObserver(_ number: UInt64) {
        state.withLock { $0.observers.removeValue(forKey: number)?.observer }?.pause()
    }
}
