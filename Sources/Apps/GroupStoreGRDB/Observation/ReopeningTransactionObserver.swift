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

    func attach(to connection: any DatabaseWriter) {
        let isAdded = state.withLock { state in
            defer { state.connection = connection }
            return state.connection === connection
        }
        guard let observer, !isAdded else { return }
        connection.unsafeReentrantWrite { $0.add(transactionObserver: observer, extent: extent) }
    }

    func begin(on connection: any DatabaseWriter) {
        attach(to: connection)
        let isFirst = state.withLock { state in
            defer { state.hasBegun = true }
            return !state.hasBegun
        }
        if !isFirst, !isGone { ExternalChanges.notifyLater(connection) }
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
        /// The connection that it was attached to and on which it hasn't begun.
        weak var attached: (any DatabaseWriter)?
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

    func attach(to connection: any DatabaseWriter) {
        pause()
        let started = observation.start(in: connection, onError: onError, onChange: onChange)
        let isCancelled = state.withLock { state in
            if !state.isCancelled { (state.current, state.attached) = (started, connection) }
            return state.isCancelled
        }
        if isCancelled { started.cancel() }
    }

    func begin(on connection: any DatabaseWriter) {
        if state.withLock({ $0.attached !== connection }) { attach(to: connection) }
        let isNotified = state.withLock { state in
            defer { (state.hasBegun, state.attached) = (true, nil) }
            return state.hasBegun && !state.isCancelled
        }
        if isNotified { ExternalChanges.notifyLater(connection) }
    }

    func pause() { state.withLock { $0.current.take() }?.cancel() }

    func cancel() {
        state.withLock { $0.isCancelled = true }
        pause()
    }

    func end() { onError(SharedDatabaseUnavailable(store: store, reason: .closed)) }
}
