import LinuxSystem
import PersistentHistory

/// The wait between a change of the schema and `history enable`.
///
/// Triggers of the former schema may have missed changes since. Nothing is published until the history is enabled
/// again: a batch that lacks one of its transaction's rows would show followers a state that the home never had.
struct OutdatedHistory {
    private var backoff = Backoff(first: .milliseconds(100), longest: .seconds(5))
    private var next: ContinuousClock.Instant?

    /// True if the store is to be read again.
    var isDue: Bool { next.map { $0 <= .now } ?? false }

    /// True if the history was outdated when the store was last read.
    var isWaiting: Bool { next != nil }
    /// The time until the store is to be read again; nil if the history isn't outdated.
    var remaining: Duration? { next.map { max(.zero, ContinuousClock.now.duration(to: $0)) } }

    /// Calls `publish`, unless the history was outdated a moment ago. Reports an outdated history, and delays the next
    /// attempt. Throws the other errors of `publish`.
    mutating func waiting(_ context: RelayContext, publish: () throws -> Void) throws {
        guard next == nil || isDue else { return }
        do {
            try publish()
            self = OutdatedHistory()
        } catch let error as HistoryError {
            guard case .outdated = error else { throw error }
            next = .now + backoff.next()
            // The history can't say how many changes are missing.
            context.status.record.lag = nil
            context.reportWaiting(for: error)
        }
    }
}
