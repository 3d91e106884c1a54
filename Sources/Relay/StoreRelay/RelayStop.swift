import LinuxSystem
import NATSStreams
import SQLiteStore
import Synchronization

/// A request to end a relay or a follower, from any thread. It closes the connection, so that every wait ends.
package final class RelayStop: Sendable {
    private struct State {
        var isRequested = false
        var connection: NATSConnection?
    }

    private let state = Mutex(State())
    private let arrived = MonotonicSemaphore()

    package init() {}

    package var isRequested: Bool { state.withLock { $0.isRequested } }

    package func request() {
        let connection = state.withLock { state in
            state.isRequested = true
            return state.connection
        }
        connection?.close()
        arrived.signal()
    }

    /// Closes this connection too once the end is requested; nil for none any more.
    func use(_ connection: NATSConnection?) {
        let isRequested = state.withLock { state in
            state.connection = connection
            return state.isRequested
        }
        if isRequested { connection?.close() }
    }

    /// Waits for that long, or until the end is requested.
    func wait(_ duration: Duration) {
        if isRequested { return }
        arrived.wait(within: duration)
    }

    /// Repeats work on a store while another program keeps it busy, for up to half a minute. Throws as `body` does.
    func retryingBusy<Success>(_ body: () throws -> Success) throws -> Success {
        var backoff = Backoff(first: .milliseconds(10), longest: .seconds(1), isRandomized: true)
        let deadline = Deadline(after: .seconds(30))
        while true {
            do {
                return try body()
            } catch let error as StoreError {
                guard case .busy = error, !deadline.hasPassed, !isRequested else { throw error }
                wait(backoff.next())
            }
        }
    }
}
