import LinuxSystem

/// How often the watching thread looks while programs write without rest: each wake-up then costs the writers time, and a
/// look after a short pause finds all that a hundred looks would.
struct Pace {
    /// Rounds in a row for which there were events already.
    private var restless = 0
    private static let patience = 64
    private static let pause = Duration.milliseconds(2)

    /// After a round: `waited` is how long its events were waited for; nil when none came.
    mutating func rest(afterWaiting waited: Duration?) {
        guard let waited, waited < .microseconds(20) else {
            restless = 0
            return
        }
        restless += 1
        if restless > Self.patience { LinuxSystem.pause(Self.pause) }
    }
}
