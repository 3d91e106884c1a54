/// Decides how long the feed thread pauses while programs write without a break: each wake-up costs the writers time,
/// and one poll after a short pause finds as much as a hundred.
struct PollingThrottle {
    /// Rounds whose events came at once, with few others between them.
    private var busyRounds = 0
    /// The interval between rounds of a busy writer: thousands of commits a second, too many for a program that waits
    /// for something between two of them.
    private static let busyInterval = Duration.microseconds(200)
    private static let busyThreshold = 64
    /// The round, after a tenth of a second of short pauses, from which on pauses are longer.
    private static let longPauseThreshold = 96
    private static let shortPause = Duration.milliseconds(3)
    private static let longPause = Duration.milliseconds(5)
    /// A writer that is delayed for no longer than this still counts as busy.
    private static let idleThreshold = Duration.milliseconds(20)

    /// The time since the last round with events.
    private var waited = Duration.zero

    /// Records a round without events: a scheduled poll.
    mutating func recordIdleRound(_ time: Duration) { waited += time }

    /// Returns the pause after a round whose events took `time` to arrive; nil for none. `isBacklogged`: more events
    /// wait.
    mutating func pause(afterWaiting time: Duration, isBacklogged: Bool) -> Duration? {
        waited += time
        defer { waited = .zero }
        if waited >= Self.idleThreshold { busyRounds = 0 }
        guard waited < Self.busyInterval else {
            busyRounds = min(busyRounds, Self.busyThreshold - 8)
            return nil
        }
        busyRounds += 1
        guard busyRounds > Self.busyThreshold, !isBacklogged else { return nil }
        return busyRounds > Self.longPauseThreshold ? Self.longPause : Self.shortPause
    }
}
