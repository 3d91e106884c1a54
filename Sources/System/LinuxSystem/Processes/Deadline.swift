import CLinux
import Glibc

/// A time limit for a wait, on the monotonic clock.
package struct Deadline: Sendable {
    private let instant: ContinuousClock.Instant?

    package static let none = Deadline(instant: nil)

    private init(instant: ContinuousClock.Instant?) { self.instant = instant }

    /// Creates a deadline. A negative duration counts as zero, one above `Duration.longestWait` as that.
    package init(after duration: Duration) {
        instant = ContinuousClock.now.advanced(by: max(.zero, min(duration, .longestWait)))
    }

    package var hasPassed: Bool { instant.map { ContinuousClock.now >= $0 } ?? false }

    /// The remaining time, zero once the deadline has passed, or nil without a deadline.
    package var remaining: Duration? {
        instant.map { max(.zero, ContinuousClock.now.duration(to: $0)) }
    }
}

extension Duration {
    package var seconds: Double {
        Double(components.seconds) + Double(components.attoseconds) / 1e18
    }

    /// The duration in nanoseconds, clamped to the range of `Int64`.
    package var nanoseconds: Int64 {
        let (seconds, attoseconds) = max(.nanoseconds(Int64.min), min(self, .nanoseconds(Int64.max))).components
        return seconds * 1_000_000_000 + attoseconds / 1_000_000_000
    }

    /// A hundred years: longer than any real wait, and within the range of clocks, sums and nanoseconds.
    package static let longestWait = Duration.seconds(100 * 365 * 86_400)
}

/// Suspends the calling thread for a bounded time. Use it on dedicated threads only.
package func pause(_ duration: Duration) {
    let end = ContinuousClock.now.advanced(by: min(duration, .longestWait))
    var left = max(0, duration.nanoseconds)
    repeat {
        var wanted = timespec(tv_sec: Int(left / 1_000_000_000), tv_nsec: Int(left % 1_000_000_000))
        guard nanosleep(&wanted, nil) != 0, errno == EINTR else { return }
        // By the clock: an interrupted call needn't say how much is left.
        left = ContinuousClock.now.duration(to: end).nanoseconds
    } while left > 0
}

/// Lets the calling thread wake from `pause` within a microsecond. The kernel's default is 50.
package func reduceTimerSlack() { gs_timer_slack(1000) }

/// Lets a thread that wakes have its turn soon, although the calling thread, or one that it starts from then on, isn't
/// done. The kernel's default is some milliseconds. The share of the processor stays the same.
package func shortenTimeSlices() { gs_time_slice(100_000) }
