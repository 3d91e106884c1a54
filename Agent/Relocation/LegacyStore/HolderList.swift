import LinuxSystem

/// The processes that have a store open. Finding them means a scan of all processes, which a program that opens and
/// closes the store all the time must not make a burden.
struct HolderList {
    var holders: [FileHolder] = []
    private var nextScan = ContinuousClock.now

    /// The pause before the next scan, as a multiple of the last scan's duration.
    private static let pauseFactor = 20
    private static let longestPause = Duration.seconds(1)

    /// Scans for the holders. Returns nil if it did; otherwise when the next scan is allowed.
    mutating func update(_ find: () -> [FileHolder]) -> ContinuousClock.Instant? {
        let began = ContinuousClock.now
        guard began >= nextScan else { return nextScan }
        holders = find()
        nextScan = .now.advanced(by: min(began.duration(to: .now) * Self.pauseFactor, Self.longestPause))
        return nil
    }
}
