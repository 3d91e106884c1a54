/// The delay until the next poll for an expected commit: 50 µs, doubling up to 20 ms, then a quarter of the time since
/// the last event. A transaction that stays open for hours costs next to nothing.
struct PollDelay {
    private var step: Duration
    private let longestStep: Duration
    private let longest: Duration
    private var total = Duration.zero
    /// The time waited since the last event.
    private var sinceLastEvent = Duration.zero

    /// Creates a delay that doubles up to `longestStep`.
    init(
        first: Duration = .microseconds(50), longestStep: Duration = .milliseconds(20), longest: Duration = .seconds(15)
    ) {
        step = first
        self.longestStep = longestStep
        self.longest = longest
    }

    /// True if nothing has been waited for yet.
    var isFresh: Bool { total == .zero }

    mutating func next() -> Duration {
        let delay = step < longestStep ? step : min(max(longestStep, sinceLastEvent / 4), longest)
        step = min(step * 2, longestStep)
        total += delay
        sinceLastEvent += delay
        return delay
    }

    /// Returns the next delay, or nil once the delays so far add up to `limit`.
    mutating func nextWithin(_ limit: Duration) -> Duration? { total < limit ? next() : nil }

    /// Shortens the next delay after a write, because its transaction may be over soon.
    mutating func recordEvent() {
        guard !isFresh else { return }
        step = min(step, .milliseconds(1))
        sinceLastEvent = .zero
    }
}
