import LinuxSystem

/// The delay until the next poll for an expected commit: 50 µs, doubling up to 20 ms, then a quarter of the time since
/// the last event. A transaction that stays open for hours costs next to nothing.
struct PollDelay {
    private static let longestStep = Duration.milliseconds(20)
    private static let longest = Duration.seconds(15)

    private var steps = Backoff(first: .microseconds(50), longest: longestStep)
    private var total = Duration.zero
    /// The time waited since the last event.
    private var sinceLastEvent = Duration.zero

    /// True if nothing has been waited for yet.
    var isFresh: Bool { total == .zero }

    mutating func next() -> Duration {
        let step = steps.next()
        let delay = step < Self.longestStep ? step : min(max(Self.longestStep, sinceLastEvent / 4), Self.longest)
        total += delay
        sinceLastEvent += delay
        return delay
    }

    /// Returns the next delay, or nil once the delays so far add up to `limit`.
    mutating func nextWithin(_ limit: Duration) -> Duration? { total < limit ? next() : nil }

    /// Shortens the next delay after a write, because its transaction may be over soon.
    mutating func recordEvent() {
        guard !isFresh else { return }
        steps.shorten(to: .milliseconds(1))
        sinceLastEvent = .zero
    }
}
