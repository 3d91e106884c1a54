/// How often the watching thread looks while programs write without rest: each wake-up then costs the writers time, and a
/// look after a short pause finds all that a hundred looks would.
struct PollingThrottle {
    /// Rounds whose events came at once, with few others between them.
    private var restless = 0
    /// Thousands of commits a second, and no program that waits for something between two of them.
    private static let atOnce = Duration.microseconds(200)
    private static let patience = 64
    /// With pauses between them: after a tenth of a second the pauses become longer.
    private static let longPatience = 96
    private static let pause = Duration.milliseconds(3)
    private static let longPause = Duration.milliseconds(5)
    /// A writer that is held up for a moment is one without rest still.
    private static let forgiven = Duration.milliseconds(20)

    /// Since the last round with events.
    private var waited = Duration.zero

    /// A round without events: a look that was due.
    mutating func waited(_ time: Duration) { waited += time }

    /// The pause after a round whose events were waited for that long; nil: none. `isBacklogged`: more are there.
    mutating func rest(afterWaiting time: Duration, isBacklogged: Bool) -> Duration? {
        waited += time
        defer { waited = .zero }
        if waited >= Self.forgiven { restless = 0 }
        guard waited < Self.atOnce else {
            restless = min(restless, Self.patience - 8)
            return nil
        }
        restless += 1
        guard restless > Self.patience, !isBacklogged else { return nil }
        return restless > Self.longPatience ? Self.longPause : Self.pause
    }
}
