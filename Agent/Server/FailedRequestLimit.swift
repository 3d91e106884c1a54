import AgentProtocol
import Synchronization

/// Limits how often requests may name a file that the agent then finds to be a different one. A process in its own
/// mount namespace could otherwise guess which files exist outside it: `dev` and `ino` are numbers.
///
/// Any thread may call it.
final class FailedRequestLimit: Sendable {
    private struct State {
        var remaining = FailedRequestLimit.maximum
        var lastRefill = ContinuousClock.now
    }

    private let state = Mutex(State())
    static let maximum = 256
    /// The time after which one more attempt is allowed.
    private static let interval = Duration.seconds(1)

    /// An attempt. It counts as failed until it succeeds.
    final class Attempt: Sendable {
        private let limit: FailedRequestLimit
        private let isOpen = Mutex(true)

        fileprivate init(_ limit: FailedRequestLimit) { self.limit = limit }

        /// Refunds the attempt. May be called more than once.
        func succeeded() {
            let wasOpen = isOpen.withLock { isOpen in
                defer { isOpen = false }
                return isOpen
            }
            if wasOpen { limit.refund() }
        }
    }

    /// Begins an attempt. Throws if too many have failed lately.
    func beginAttempt(now: ContinuousClock.Instant = .now) throws(WireError) -> Attempt {
        let isAllowed = state.withLock { state in
            let earned = Int(min(state.lastRefill.duration(to: now) / Self.interval, Double(Self.maximum)))
            if earned > 0 {
                state.remaining = min(Self.maximum, state.remaining + earned)
                state.lastRefill = now
            }
            guard state.remaining > 0 else { return false }
            state.remaining -= 1
            return true
        }
        guard isAllowed else {
            throw WireError(
                code: "busy", "too many relocation requests named files that the agent sees as different ones",
                hint: "ask again in a minute")
        }
        return Attempt(self)
    }

    private func refund() { state.withLock { $0.remaining = min(Self.maximum, $0.remaining + 1) } }
}
