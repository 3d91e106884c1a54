import Synchronization

/// A log of events in order.
package final class Log: Sendable {
    private struct State {
        var entries: [String] = []
        var waiting: [(String, CheckedContinuation<Void, Never>)] = []
    }

    private let state = Mutex(State())

    package init() {}

    package var entries: [String] { state.withLock { $0.entries } }

    package func note(_ entry: String) {
        let ready = state.withLock { state in
            state.entries.append(entry)
            let ready = state.waiting.filter { $0.0 == entry }
            state.waiting.removeAll { $0.0 == entry }
            return ready
        }
        for (_, continuation) in ready { continuation.resume() }
    }

    /// Returns once the entry has been logged.
    package func has(_ entry: String) async {
        await withCheckedContinuation { continuation in
            let exists = state.withLock { state in
                let exists = state.entries.contains(entry)
                if !exists { state.waiting.append((entry, continuation)) }
                return exists
            }
            if exists { continuation.resume() }
        }
    }
}
