/// The times of page map scans: at once, then after as long as the last scan took. After repeated failures the wait
/// grows to ten times as long.
struct PageMapScanSchedule {
    private(set) var current: PageMapScan?
    private var notBefore: ContinuousClock.Instant?
    /// True if the store's format was not understood. Only a commit, not time, leads to the next scan then.
    private var awaitsCommit = false
    private var failures = 0

    private static let longestFactor = 10
    private static let longest = Duration.seconds(60)

    var isDue: Bool { current == nil && notBefore.map { $0 <= .now } != false }

    /// The time at which the next scan may begin. It is nil if one may begin now or none is to come.
    var due: ContinuousClock.Instant? {
        guard current == nil, !awaitsCommit, let notBefore, notBefore > .now else { return nil }
        return notBefore
    }

    mutating func begin(_ scan: PageMapScan) { current = scan }

    /// Records the end of a scan. `error` is nil for a success.
    mutating func end(_ error: (any Error)?) {
        guard let scan = current else { return }
        current = nil
        let now = ContinuousClock.now
        let readingDuration = scan.readingDuration
        awaitsCommit = false
        switch error {
        case nil:
            failures = 0
            notBefore = now.advanced(by: min(readingDuration, Self.longest))
        case Unattributable.disturbed?:
            notBefore = now.advanced(by: min(readingDuration * min(1 << failures, Self.longestFactor), Self.longest))
            failures = min(failures + 1, 4)
        default:
            awaitsCommit = true
            notBefore = now.advanced(by: Self.longest)
        }
    }

    /// Cancels the scan. It holds no open file of the store afterwards.
    mutating func cancel() {
        current?.cancel()
        current = nil
    }
}
