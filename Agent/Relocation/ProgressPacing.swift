import AgentProtocol

/// Decides which of a relocation's reports are sent: at most ten a second, and always the last one. A pure value.
struct ProgressPacing {
    enum Action: Equatable {
        case send
        /// Call `takePending` after this time.
        case wait(Duration)
        /// A report that waits was replaced.
        case none
    }

    /// The shortest time between two events.
    static let interval = Duration.milliseconds(100)

    /// Two clocks differ by less.
    private static let tolerance = Duration.milliseconds(1)

    /// The time of the last event.
    private var last: ContinuousClock.Instant
    /// A report that came too soon after the last event.
    private var pending: StoreProgress?

    init(at now: ContinuousClock.Instant = .now) { last = now }

    /// Takes a report, and returns what the caller has to do.
    mutating func receive(_ progress: StoreProgress, at now: ContinuousClock.Instant = .now) -> Action {
        let elapsed = last.duration(to: now)
        guard elapsed < Self.interval else {
            last = now
            pending = nil
            return .send
        }
        defer { pending = progress }
        return pending == nil ? .wait(Self.interval - elapsed) : .none
    }

    /// Returns the report that waited, which the caller sends; nil if a later one was sent in its place. A report that
    /// waits since then has a call of its own.
    mutating func takePending(at now: ContinuousClock.Instant = .now) -> StoreProgress? {
        guard pending != nil, last.duration(to: now) >= Self.interval - Self.tolerance else { return nil }
        last = now
        return pending.take()
    }
}
