import LinuxSystem

/// The pace of a publisher beside writers that commit continuously: batches get longer, not more frequent.
///
/// After a tenth of a second in which each look has found changes, it pauses the watch, and the rests grow with the
/// publisher's own work. Confined to one thread.
struct PublishingPace {
    private let watch: StoreWatch
    private let began = ContinuousClock.now
    private var work = ThreadTime.now
    private var isWatchPaused = false

    /// The shortest time between two batches, in which a writer has the store for itself.
    private static let shortestRest = Duration.milliseconds(5)
    private static let longestRest = Duration.milliseconds(50)
    /// The rest in relation to the work before it. A batch costs half a millisecond, and each row some microseconds.
    private static let restFactor = 16
    /// The time after which a publisher that isn't done is busy.
    private static let patience = Duration.milliseconds(100)

    init(_ watch: StoreWatch) { self.watch = watch }

    /// Returns the time until the next look at the store.
    mutating func nextRest() -> Duration {
        let now = ThreadTime.now
        defer { work = now }
        let busy = began.duration(to: .now)
        if busy >= Self.patience, !isWatchPaused {
            watch.pause()
            isWatchPaused = true
        }
        return Self.rest(afterWorking: now - work, busyFor: busy)
    }

    /// - Parameters:
    ///   - work: The processor time of the batch before. A broker's answers are waited for, and aren't work.
    ///   - busy: The time since which each look has found something.
    static func rest(afterWorking work: Duration, busyFor busy: Duration) -> Duration {
        guard busy >= patience else { return shortestRest }
        return min(max(work * restFactor, shortestRest), longestRest)
    }

    /// Ends a period of publishing: nothing is left, or it has failed. From then on the watch reports changes.
    func end() { if isWatchPaused { watch.resume() } }
}
