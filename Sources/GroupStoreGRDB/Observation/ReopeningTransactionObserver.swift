import GRDB
import Synchronization

/// Adds a transaction observer to one connection after another.
///
/// @unchecked: `state` protects the connection. The observer is only handed to GRDB, which calls it on the writer's
/// queue; the reference itself never changes.
final class ReopeningTransactionObserver: ReopeningObserver, @unchecked Sendable {
    private weak var observer: (any TransactionObserver)?
    /// Nil unless the observer lives as long as the database.
    private let retained: (any TransactionObserver)?
    private let extent: Database.TransactionObservationExtent
    private let state = Mutex(State())

    private struct State {
        /// The connection that has the observer.
        weak var connection: (any DatabaseWriter)?
        var hasBegun = false
    }

    init(_ observer: any TransactionObserver, extent: Database.TransactionObservationExtent) {
        self.observer = observer
        retained = extent == .databaseLifetime ? observer : nil
        self.extent = extent
    }

    /// True if the observer has been released.
    var isGone: Bool { observer == nil }

    func isFor(_ other: any TransactionObserver) -> Bool { observer === other }

    func begin(on connection: any DatabaseWriter) {
        let (isFirst, isAdded) = state.withLock { state in
            defer { (state.hasBegun, state.connection) = (true, connection) }
            return (!state.hasBegun, state.connection === connection)
        }
        guard let observer else { return }
        connection.unsafeReentrantWrite { database in
            if !isAdded { database.add(transactionObserver: observer, extent: extent) }
        }
        if !isFirst { ExternalChanges.notifyLater(connection) }
    }

    /// The connection forgets the observer when it is closed.
    func pause() {}
    func end() {}
}

/// Runs one of GRDB's region observations on one connection after another.
final class ReopeningRegionObserver: ReopeningObserver {
    private let observation: DatabaseRegionObservation
    private let onError: @Sendable (any Error) -> Void
    private let onChange: @Sendable (Database) -> Void
    private let state = Mutex(State())

    private struct State {
        var current: AnyDatabaseCancellable?
        var hasBegun = false
        var isCancelled = false
    }

    private let store: String

    init(
        _ observation: DatabaseRegionObservation, store: String, onError: @escaping @Sendable (any Error) -> Void,
        onChange: @escaping @Sendable (Database) -> Void
    ) {
        self.observation = observation
        self.store = store
        self.onError = onError
        self.onChange = onChange
    }

    func begin(on connection: any DatabaseWriter) {
        pause()
        let started = observation.start(in: connection, onError: onError, onChange: onChange)
        let (isFirst, isCancelled) = state.withLock { state in
            defer { state.hasBegun = true }
            if !state.isCancelled { state.current = started }
            return (!state.hasBegun, state.isCancelled)
        }
        if isCancelled { return started.cancel() }
        if !isFirst { ExternalChanges.notifyLater(connection) }
    }

    func pause() { state.withLock { $0.current.take() }?.cancel() }

    func cancel() {
        state.withLock { $0.isCancelled = true }
        pause()
    }

    func end() { onError(SharedDatabaseUnavailable(store: store, reason: .closed)) }
}
