/// When to try again what was tried in vain: after 1 s, then twice as long each time, to 5 min.
struct Backoff {
    private var delay = Duration.seconds(1)
    private static let longest = Duration.seconds(300)

    mutating func next() -> ContinuousClock.Instant {
        defer { delay = min(delay * 2, Self.longest) }
        return .now.advanced(by: delay)
    }
}
