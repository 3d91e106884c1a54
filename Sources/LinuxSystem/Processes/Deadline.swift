import CLinux
import Glibc

/// An instant that a wait must not pass, on the monotonic clock.
package struct Deadline: Sendable {
    private let instant: ContinuousClock.Instant?

    package static let none = Deadline(instant: nil)

    private init(instant: ContinuousClock.Instant?) { self.instant = instant }

    /// However long or negative: longer than `Duration.longestWait` is as long as that.
    package init(after duration: Duration) {
        instant = ContinuousClock.now.advanced(by: max(.zero, min(duration, .longestWait)))
    }

    package var hasPassed: Bool { instant.map { ContinuousClock.now >= $0 } ?? false }

    /// Zero once it has passed; nil when there is none.
    package var remaining: Duration? {
        instant.map { max(.zero, ContinuousClock.now.duration(to: $0)) }
    }
}

extension Duration {
    package var seconds: Double {
        Double(components.seconds) + Double(components.attoseconds) / 1e18
    }

    /// What is too much for it is the most, or the least, that there is.
    package var nanoseconds: Int64 {
        let (seconds, attoseconds) = max(.nanoseconds(Int64.min), min(self, .nanoseconds(Int64.max))).components
        return seconds * 1_000_000_000 + attoseconds / 1_000_000_000
    }

    /// A hundred years: nobody waits longer, and clocks, sums and nanoseconds can count it.
    package static let longestWait = Duration.seconds(100 * 365 * 86_400)
}

/// Holds the calling thread for a bounded time; for threads of ours that do nothing else meanwhile.
package func pause(_ duration: Duration) {
    let nanoseconds = max(0, duration.nanoseconds)
    var wanted = timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
    var left = timespec()
    while nanosleep(&wanted, &left) != 0, errno == EINTR { wanted = left }
}

/// Lets the calling thread wake from `pause` within a microsecond; the kernel's default is 50.
package func wakeExactly() { gs_timer_slack(1000) }
