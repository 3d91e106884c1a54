import GRDB
import Synchronization

/// A value observation that outlives the pool that it was begun on.
protocol PoolObserving: Sendable {
    /// Begins on a pool that was opened, in place of the one before.
    func begin(on pool: DatabasePool)
    /// The pool is about to be closed.
    func pause()
}

/// Passes on what GRDB's observation of one pool after another finds.
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
        let begun = observation.start(
            in: pool, scheduling: .task, onError: { [continuation] in continuation.finish(throwing: $0) },
            onChange: { [continuation] in continuation.yield($0) })
        current.withLock { $0 = begun }
    }

    func pause() { current.withLock { $0.take() }?.cancel() }
}

extension SharedDatabasePool {
    /// The observed values: the first one at once, then a fresh one whenever this process or another one has committed
    /// something that the observation reads, and after each relocation of the store. Values may repeat:
    /// `ValueObservation.removeDuplicates()` leaves such out.
    ///
    /// Ends when the pool is closed, and when the task that iterates is cancelled. Throws what the observation throws.
    ///
    /// - Parameter bufferingPolicy: what becomes of values that come faster than they are asked for.
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
