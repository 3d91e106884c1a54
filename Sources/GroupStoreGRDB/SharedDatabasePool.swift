import FoundationEssentials
import GRDB
import GroupStore
import Synchronization

/// A `DatabasePool` on a shared store. When somebody relocates, moves or replaces the store, the pool is closed once the
/// accesses under way have ended, and opened again where the store is then; accesses asked for meanwhile wait. A store
/// that isn't there any more is not made anew: they wait until it is back.
///
/// Observations (`values(of:)`, and GRDB's own on the pool) hear of what other processes commit, as long as an agent runs
/// that serves the group.
///
/// - Important: The pool checkpoints its write-ahead log as SQLite does. Before 3.51.3, SQLite can corrupt a store that two
///   connections write or checkpoint at once (https://sqlite.org/wal.html, "The WAL-Reset Bug"); `groupstore doctor` names
///   the SQLite of each program that has the store open.
public final class SharedDatabasePool: Sendable {
    /// The database is closed.
    public struct Unavailable: Error, CustomStringConvertible {
        public enum Reason: Sendable {
            /// Somebody is at work on the store, or waits for it, and it did not come back in time.
            case away
            /// It could not be opened again in time.
            case notOpened(any Error)
            /// The pool was closed for good.
            case closed
        }

        public let store: String
        public let reason: Reason

        public var description: String {
            switch reason {
            case .away: "\(store) is being relocated, and did not come back in time"
            case .notOpened(let error): "\(store) could not be opened again in time: \(error)"
            case .closed: "\(store) is closed"
            }
        }
    }

    /// An access under way; what is called inside it knows it by this.
    private final class Access: Sendable {}

    /// Accesses that what runs now is inside of. A task that outlives the access that it was begun in has it here too.
    @TaskLocal private static var outer: [Access] = []

    private struct State {
        var pool: DatabasePool?
        /// Why it is not open, where that was tried.
        var openingError: (any Error)?
        /// Accesses under way.
        var accesses: Set<ObjectIdentifier> = []
        var isClosing = false
        var isEnded = false
        /// Those who wait for the pool, by number, so that one can give up.
        var waiting: [UInt64: CheckedContinuation<Void, Never>] = [:]
        var next: UInt64 = 0
        /// Whoever closes the pool, once nobody uses it. Nobody closes it twice at once: its presentation sees to that.
        var closer: CheckedContinuation<Void, any Error>?
        /// By number, with what ends them.
        var observers: [UInt64: (observer: any PoolObserving, onClose: @Sendable () -> Void)] = [:]
        /// Follows what other processes do with the store at `followed`; nil where no agent can know it there.
        var follower: Task<Void, Never>?
        var followed: URL?
        var followingError: (any Error)?
    }

    public let store: SharedStore
    private let configuration: GRDB.Configuration
    private let prepare: @Sendable (DatabasePool) throws -> Void
    private let patience: Duration
    private let state = Mutex(State())
    private let presentation = Mutex<StorePresentation?>(nil)

    /// Opens the store, making it in the group container when it is nowhere, and presents it until `close`.
    ///
    /// - Parameters:
    ///   - patience: how long an access waits for a relocation under way.
    ///   - openableModelVersions: see `SharedStore.present`: no migration locks this program out while the pool is open.
    ///   - prepare: run on each pool that is opened, before any access: migrations, for instance.
    ///
    /// Throws GRDB's errors, `GroupStoreError`, `FileCoordinationError`, and what `prepare` throws.
    public init(
        _ store: SharedStore, configuration: GRDB.Configuration = GRDB.Configuration(),
        patience: Duration = .seconds(60), openableModelVersions: Set<String>? = nil,
        prepare: @escaping @Sendable (DatabasePool) throws -> Void = { _ in }
    ) async throws {
        self.store = store
        self.configuration = configuration
        // What a clock can't count is no longer than anybody waits.
        self.patience = min(patience, .seconds(100 * 365 * 86_400))
        self.prepare = prepare
        let made = try await store.present(
            openableModelVersions: openableModelVersions, open: { [self] url in try await open(url) },
            close: { [self] in try await closePool() }, failed: { [self] error in couldNotOpen(error) })
        presentation.withLock { $0 = made }
        follow()
    }

    /// The versions of the store's model that this program says it can open; nil: any.
    public var openableModelVersions: Set<String>? { presentation.withLock { $0?.openableModelVersions } }

    /// Who asks this process to let go of the store; nil once the pool is closed.
    public var registration: FilePresenterRegistration? { presentation.withLock { $0?.registration } }

    /// Where the database is open now, or was last.
    public var url: URL { presentation.withLock { $0?.url } ?? store.url }

    /// Reads, as `DatabasePool.read`. Throws what `value` throws, GRDB's errors, and `Unavailable`.
    public func read<Value: Sendable>(_ value: @escaping @Sendable (Database) throws -> Value) async throws -> Value {
        try await withPool { try await $0.read(value) }
    }

    /// Writes in a transaction, as `DatabasePool.write`: what returns without an error is committed, and stays so
    /// whatever is done with the store. Throws what `updates` throws, GRDB's errors, and `Unavailable`.
    public func write<Value: Sendable>(
        _ updates: @escaping @Sendable (Database) throws -> Value
    ) async throws -> Value {
        try await withPool { try await $0.write(updates) }
    }

    /// Runs `body` with the pool, which isn't closed meanwhile: keep it no longer. Accesses inside `body` don't wait for a
    /// relocation: it waits for this one. Throws what `body` throws, and `Unavailable`.
    public func withPool<Value: Sendable>(
        _ body: @Sendable (DatabasePool) async throws -> Value
    ) async throws -> Value {
        let access = Access()
        let pool = try await take(access)
        defer { giveBack(access) }
        return try await Self.$outer.withValue(Self.outer + [access]) { try await body(pool) }
    }

    /// Closes the database once the accesses under way have ended, and presents the store no longer. Throws GRDB's
    /// errors: the database is open and presented then, without accesses, and can be closed once more.
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

// MARK: - The pool comes and goes

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

    private func couldNotOpen(_ error: any Error) {
        // That the agent refuses to know of the presentation is another matter: `registration`.
        if let error = error as? FileCoordinationError, error.code == .agent { return }
        state.withLock { if $0.pool == nil { $0.openingError = error } }
    }

    private func closePool() async throws {
        do {
            try await untilUnused()
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
            // It stays open, as when whoever wanted it gave up: all that waits goes on.
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
        // GRDB closes its readers last, and they may not empty the log: the writer is to be the last one.
        pool?.invalidateReadOnlyConnections()
        try pool?.close()
        state.withLock { $0.pool = nil }
    }

    /// Lets no access begin, and returns when none is under way. Throws `CancellationError`.
    private func untilUnused() async throws {
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

    private func take(_ access: Access) async throws -> DatabasePool {
        let deadline = ContinuousClock.now.advanced(by: patience)
        while true {
            try Task.checkCancellation()
            let (pool, isEnded, error) = state.withLock { state -> (DatabasePool?, Bool, (any Error)?) in
                // Whoever closes the pool waits for the outer access, and so for this one.
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
            await untilOpen(deadline)
        }
    }

    /// Returns when the pool was opened, closed for good, or the deadline has passed.
    private func untilOpen(_ deadline: ContinuousClock.Instant) async {
        let number = state.withLock { state in
            defer { state.next += 1 }
            return state.next
        }
        let alarm = Task { [self] in
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
        alarm.cancel()
    }

    private func giveBack(_ access: Access) {
        state.withLock { state in
            state.accesses.remove(ObjectIdentifier(access))
            return state.accesses.isEmpty ? state.closer.take() : nil
        }?.resume()
    }
}

// MARK: - Other processes' commits

extension SharedDatabasePool {
    /// Why other processes' commits are not heard of although an agent runs: it doesn't serve the store, or refuses to
    /// tell of it. Nil while they are, and while no agent runs: it is looked for. What was refused is asked for again.
    public var followingError: (any Error)? { state.withLock { $0.followingError } }

    /// The agent doesn't serve the store's group.
    public struct NotFollowed: Error, CustomStringConvertible {
        public let description: String
    }

    /// Begins to follow, or follows the store under another name since it was moved.
    private func follow() {
        // Nil while it is opened for the first time: whoever opens it does this then.
        guard let presentation = presentation.withLock({ $0 }), let place = presentation.presentedItemURL,
            state.withLock({ $0.followed != place })
        else { return }
        let task = presentation.presentedStore.map { follower($0.changes()) }
        let superfluous = state.withLock { state -> Task<Void, Never>? in
            guard !state.isEnded else { return task }
            state.followed = place
            if task == nil {
                let message = "no agent tells of \(place.path): it is not directly in the group's directory"
                state.followingError = NotFollowed(description: message)
            }
            defer { state.follower = task }
            return state.follower
        }
        superfluous?.cancel()
    }

    private func follower(_ changes: StoreChanges) -> Task<Void, Never> {
        Task { [weak self] in
            var pause = Duration.seconds(1)
            while !Task.isCancelled {
                do {
                    for try await change in changes {
                        guard let self, !Task.isCancelled else { return }
                        await heard(change)
                        pause = .seconds(1)
                    }
                } catch {
                    if !Task.isCancelled { self?.state.withLock { $0.followingError = error } }
                }
                // Who may ask is a matter of the agent's configuration, which may be another one soon. A task that is
                // cancelled meanwhile ends.
                try? await Task.sleep(for: pause)
                pause = min(pause * 2, .seconds(60))
            }
        }
    }

    private func heard(_ change: StoreChange) async {
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
            // What can't be told, a fresh value makes up for, or the observation's own error.
            beginObservationsAnew()
        }
    }

    /// Where the pool is away they begin when it is opened.
    private func beginObservationsAnew() {
        state.withLock { state in
            guard let pool = state.pool, !state.isClosing else { return }
            for (observer, _) in state.observers.values { observer.begin(on: pool) }
        }
    }

    /// Nil when the pool is closed for good.
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
