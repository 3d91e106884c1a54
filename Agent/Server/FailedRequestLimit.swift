import AgentProtocol
import Synchronization

/// How often a file may be named in a minute that the agent then finds to be another one. A process in a mount namespace of
/// its own could otherwise find out by guessing which files there are outside: `dev` and `ino` are numbers.
///
/// Any thread may call it.
final class FailedRequestLimit: Sendable {
    private struct State {
        var left = FailedRequestLimit.most
        var counted = ContinuousClock.now
    }

    private let state = Mutex(State())
    static let most = 256
    /// After so long one more may be made.
    private static let interval = Duration.seconds(1)

    /// Something that was asked for. It counts as wrong until it is known to be right.
    final class Guess: Sendable {
        private let limit: FailedRequestLimit
        private let isOpen = Mutex(true)

        fileprivate init(_ limit: FailedRequestLimit) { self.limit = limit }

        /// May be said more than once.
        func wasRight() {
            let wasOpen = isOpen.withLock { isOpen in
                defer { isOpen = false }
                return isOpen
            }
            if wasOpen { limit.giveBack() }
        }
    }

    /// Throws where too many were wrong lately.
    func begin(now: ContinuousClock.Instant = .now) throws(WireError) -> Guess {
        let mayGo = state.withLock { state in
            let earned = Int(min(state.counted.duration(to: now) / Self.interval, Double(Self.most)))
            if earned > 0 {
                state.left = min(Self.most, state.left + earned)
                state.counted = now
            }
            guard state.left > 0 else { return false }
            state.left -= 1
            return true
        }
        guard mayGo else {
            throw WireError(
                code: "busy", "too many relocations were asked for of files that are others here",
                hint: "ask again in a minute")
        }
        return Guess(self)
    }

    private func giveBack() { state.withLock { $0.left = min(Self.most, $0.left + 1) } }
}
