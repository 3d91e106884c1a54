/// How long until the next look for a commit that is on its way: 50 µs, and twice as long each time, to 20 ms; then a quarter of
/// the time since the last event. A transaction that somebody keeps open for hours costs next to nothing.
struct PollDelay {
    private var step: Duration
    private let longestStep: Duration
    private let longest: Duration
    private var total = Duration.zero
    /// Since the last event.
    private var quiet = Duration.zero

    /// `longestStep`: up to there it doubles.
    init(
        first: Duration = .microseconds(50), longestStep: Duration = .milliseconds(20), longest: Duration = .seconds(15)
    ) {
        step = first
        self.longestStep = longestStep
        self.longest = longest
    }

    /// Nothing was expected until now.
    var isFresh: Bool { total == .zero }

    mutating func next() -> Duration {
        let delay = step < longestStep ? step : min(max(longestStep, quiet / 4), longest)
        step = min(step * 2, longestStep)
        total += delay
        quiet += delay
        return delay
    }

    /// Nil when all the waiting so far is as long as the limit.
    mutating func nextWithin(_ limit: Duration) -> Duration? { total < limit ? next() : nil }

    /// Something was written: what it belongs to may be over soon.
    mutating func sawEvent() {
        guard !isFresh else { return }
        step = min(step, .milliseconds(1))
        quiet = .zero
    }
}
