/// When a store is surveyed: at once, and again after as long as it took; where that fails time after time, after up to
/// ten times as long.
struct PageMapScanSchedule {
    private(set) var current: PageMapScan?
    private var notBefore: ContinuousClock.Instant?
    /// The store could not be understood: no clock brings the next survey, only a commit.
    private var isHopeless = false
    private(set) var failure: (any Error)?
    private var failures = 0

    private static let longestFactor = 10
    private static let longest = Duration.seconds(60)

    var isDue: Bool { current == nil && notBefore.map { $0 <= .now } != false }

    /// When another one may begin, if that is to come; nil when it may begin now.
    var due: ContinuousClock.Instant? {
        guard current == nil, !isHopeless, let notBefore, notBefore > .now else { return nil }
        return notBefore
    }

    mutating func begin(_ survey: PageMapScan) { current = survey }

    /// Nil: it was a success.
    mutating func end(_ error: (any Error)?) {
        guard let survey = current else { return }
        current = nil
        let now = ContinuousClock.now
        let taken = survey.taken
        failure = error
        isHopeless = false
        switch error {
        case nil:
            failures = 0
            notBefore = now.advanced(by: min(taken, Self.longest))
        case Unattributable.disturbed?:
            notBefore = now.advanced(by: min(taken * min(1 << failures, Self.longestFactor), Self.longest))
            failures = min(failures + 1, 4)
        default:
            isHopeless = true
            notBefore = now.advanced(by: Self.longest)
        }
    }

    /// Nothing of the store is open in it afterwards.
    mutating func cancel() {
        current?.cancel()
        current = nil
    }
}
