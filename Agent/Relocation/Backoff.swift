/// Schedules retries: the first after 1 s, then after twice the delay each time, up to 5 min.
struct Backoff {
    private var delay = Duration.seconds(1)
    private static let longest = Duration.seconds(300)

    mutating func next() -> ContinuousClock.Instant {
        defer { delay = min(delay * 2, Self.longest) }
        return .now.advanced(by: delay)
    }
}
