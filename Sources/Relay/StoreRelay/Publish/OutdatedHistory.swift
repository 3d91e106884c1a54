import LinuxSystem
import PersistentHistory

/// The time between a change of the schema and `history enable`: changes may not be recorded, so nothing is published
/// until somebody has enabled the history again.
struct OutdatedHistory {
    private var backoff = Backoff(first: .milliseconds(100), longest: .seconds(5))
    private var next: ContinuousClock.Instant?

    /// True if the store is to be read again.
    var isDue: Bool { next.map { $0 <= .now } ?? false }

    /// The time until then; a minute if the history isn't outdated.
    var remaining: Duration { next.map { max(.zero, ContinuousClock.now.duration(to: $0)) } ?? .seconds(60) }

    /// Publishes, unless the history was outdated a moment ago. If it is, says so in the status and in an event, and
    /// tries again later. Throws the other errors of `publish`.
    mutating func waiting(
        _ status: StatusWriter, _ reporter: RelayReporter, publish: () throws -> Void
    ) throws {
        guard next == nil || isDue else { return }
        do {
            try publish()
            self = OutdatedHistory()
        } catch let error as HistoryError {
            guard case .outdated = error else { throw error }
            next = .now + backoff.next()
            // Nobody knows what is lacking.
            status.record.lag = nil
            status.setWaiting(error)
            reporter.report(error)
        }
    }
}
