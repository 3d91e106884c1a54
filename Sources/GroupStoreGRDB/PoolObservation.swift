import GRDB
import Synchronization

/// A value observation that outlives the pool that it was started on.
protocol PoolObserving: Sendable {
    /// Starts on a pool that was opened, in place of the former one.
    func begin(on pool: DatabasePool)
    /// Stops, because the pool is about to be closed.
    func pause()
}

/// Forwards the values of GRDB's observation on one pool after another.
final class PoolObservation<Reducer: ValueReducer>: PoolObserving where Reducer.Value: Sendable {
    typealias Stream = AsyncThrowingStream<Reducer.Value, any Error>

    private let observation: ValueObservation<Reducer>
    private let continuation: Stream.Continuation
    private let current = Mutex<AnyDatabaseCancellable?>(nil)

    init(_ observation: ValueObservation<Reducer>, _ continuation: Stream.Continuation) {
        self.observation = observation
        self.continuation = continuation
    }

    func begin(on pool: DatabasePool) {
        let started = observation.start(
            in: pool, scheduling: .task, onError: { [continuation] in continuation.finish(throwing: $0) },
            onChange: { [continuation] in continuation.yield($0) })
        current.withLock { $0 = started }
    }

    func pause() { current.withLock { $0.take() }?.cancel() }
}

extension SharedDatabasePool {
    /// Returns the observed values: the current one at once, then a fresh one whenever this or another process commits
    /// something that the observation reads, and after each relocation of the store. Values may repeat;
    /// `ValueObservation.removeDuplicates()` removes repetitions.
    ///
    ///     let titles = ValueObservation.tracking { try String.fetchAll($0, sql: "SELECT title FROM note") }
    ///     for try await fresh in notes.values(of: titles) { show(fresh) }
    ///
    /// The sequence ends when the pool is closed or the iterating task is cancelled. It throws the observation's error.
    ///
    /// - Parameters:
    ///   - observation: The value observation, which is started on each pool that is opened.
    ///   - bufferingPolicy: Decides about values that come faster than they are consumed; by default only the newest is
    ///     kept.
    public func values<Reducer: ValueReducer>(
        of observation: ValueObservation<Reducer>,
        bufferingPolicy: AsyncThrowingStream<Reducer.Value, any Error>.Continuation.BufferingPolicy = .bufferingNewest(
            1)
    ) -> AsyncThrowingStream<Reducer.Value, any Error> where Reducer.Value: Sendable {
        let (stream, continuation) = AsyncThrowingStream.makeStream(
            of: Reducer.Value.self, throwing: (any Error).self, bufferingPolicy: bufferingPolicy)
        let observer = PoolObservation(observation, continuation)
        guard let number = add(observer, onClose: { continuation.finish() }) else {
            continuation.finish()
            return stream
        }
        continuation.onTermination = { [weak self] _ in self?.removeObserver(number) }
        return stream
    }
}
