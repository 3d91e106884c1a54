/// How long until the next look for a commit that is on its way: 50 µs, and twice as long each time, to 20 ms.
struct LookDelay {
    private var delay: Duration
    private let longest: Duration
    private var total = Duration.zero

    init(first: Duration = .microseconds(50), longest: Duration = .milliseconds(20)) {
        delay = first
        self.longest = longest
    }

    /// Nothing was expected until now.
    var isFresh: Bool { total == .zero }

    mutating func next() -> Duration {
        defer { delay = min(delay * 2, longest) }
        total += delay
        return delay
    }

    /// Nil when all the waiting so far is as long as the limit.
    mutating func nextWithin(_ limit: Duration) -> Duration? { total < limit ? next() : nil }
}
