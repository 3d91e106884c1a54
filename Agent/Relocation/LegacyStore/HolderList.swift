import LinuxSystem

/// Who has a store open. All processes of the machine are looked at for that, and a program that opens and closes the
/// store all the time must not make it a burden.
struct HolderList {
    var holders: [FileHolder] = []
    private var restsUntil = ContinuousClock.now

    /// Of the time that naming them took, until it is done anew.
    private static let restFactor = 20
    private static let longestRest = Duration.seconds(1)

    /// Nil when they were looked for; else when they can be.
    mutating func update(_ find: () -> [FileHolder]) -> ContinuousClock.Instant? {
        let began = ContinuousClock.now
        guard began >= restsUntil else { return restsUntil }
        holders = find()
        restsUntil = .now.advanced(by: min(began.duration(to: .now) * Self.restFactor, Self.longestRest))
        return nil
    }
}
