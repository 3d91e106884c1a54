import GRDB
import Synchronization

/// An observer that outlives the connection that it was started on.
protocol ReopeningObserver: Sendable {
    /// Attaches to a connection before anybody has it, so that no commit is missed. Calls no code of the app's, which
    /// may wait for the connection. `begin` follows.
    func attach(to connection: any DatabaseWriter)
    /// Starts on a connection that is open, in place of the former one. Must not be called while the connection may be
    /// closed.
    func begin(on connection: any DatabaseWriter)
    /// Stops, because the connection is about to be closed, or because the observer was removed.
    func pause()
    /// Reports that the database was closed for good.
    func end()
}

extension ReopeningObserver {
    func attach(to connection: any DatabaseWriter) {}
}

/// Runs one of GRDB's value observations on one connection after another.
final class ReopeningValueObserver<Reducer: ValueReducer, Scheduler: ValueObservationScheduler>: ReopeningObserver {
    private let observation: ValueObservation<Reducer>
    private let scheduler: Scheduler
    private let standIn: UnavailableDatabase
    private let onChange: @Sendable (Reducer.Value) -> Void
    private let state = Mutex(State())

    private struct State {
        var current: AnyDatabaseCancellable?
        var hasBegun = false
        var isCancelled = false
    }

    init(
        _ observation: ValueObservation<Reducer>, _ scheduler: Scheduler, standIn: UnavailableDatabase,
        onChange: @escaping @Sendable (Reducer.Value) -> Void
    ) {
        self.observation = observation
        self.scheduler = scheduler
        self.standIn = standIn
        self.onChange = onChange
    }

    /// The first time, the scheduler decides whether the initial value is delivered at once, on the calling thread.
    /// Later, nobody waits for it, and the thread is another one.
    func begin(on connection: any DatabaseWriter) {
        let isFirst = state.withLock { state in
            defer { state.hasBegun = true }
            return !state.hasBegun
        }
        if isFirst {
            replace { connection._add(observation: observation, scheduling: scheduler, onChange: onChange) }
        } else {
            let later = LaterValueScheduler(base: scheduler)
            replace { connection._add(observation: observation, scheduling: later, onChange: onChange) }
        }
    }

    /// Ends the current observation, then starts the next, so that values of the former don't come after its values.
    private func replace(with start: () -> AnyDatabaseCancellable) {
        pause()
        // Outside the lock: an immediate value is delivered in this call.
        let started = start()
        let obsolete = state.withLock { state -> AnyDatabaseCancellable? in
            if state.isCancelled { return started }
            defer { state.current = started }
            return state.current
        }
        obsolete?.cancel()
    }

    func pause() { state.withLock { $0.current.take() }?.cancel() }

    func cancel() {
        state.withLock { $0.isCancelled = true }
        pause()
    }

    func end() {
        replace { standIn.fail(observation, scheduling: LaterValueScheduler(base: scheduler), onChange: onChange) }
    }
}

/// Schedules all values on the base scheduler, and none at once.
private struct LaterValueScheduler<Base: ValueObservationScheduler>: ValueObservationScheduler {
    let base: Base

    func immediateInitialValue() -> Bool { false }
    func schedule(_ action: @escaping @Sendable () -> Void) { base.schedule(action) }
}
