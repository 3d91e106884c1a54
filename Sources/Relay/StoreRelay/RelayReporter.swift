import LinuxSystem

/// Passes events on. A lasting error or state is reported once, and an error again only after some time, not at each
/// attempt.
final class RelayReporter {
    private let send: @Sendable (RelayEvent) -> Void
    private let now: () -> ContinuousClock.Instant
    /// The time at which each error was last reported.
    private var errors: [String: ContinuousClock.Instant] = [:]
    /// The last reported state of each type since the last error.
    private var states: [String: String] = [:]

    /// The time after which a lasting error is reported again.
    static let repetition = Duration.seconds(30)
    private static let maxErrors = 100

    init(
        now: @escaping () -> ContinuousClock.Instant = { .now }, _ send: @escaping @Sendable (RelayEvent) -> Void
    ) {
        self.now = now
        self.send = send
    }

    func report(_ event: RelayEvent) { send(event) }

    /// Reports the program's state, unless it is unchanged and no error was reported since.
    func reportState(_ event: RelayEvent) {
        let type = event.object.string("type") ?? ""
        guard states[type] != event.object.text else { return }
        states[type] = event.object.text
        send(event)
    }

    /// Reports an error, unless the same one was reported less than half a minute ago.
    func report(_ error: any ActionableError) {
        let time = now()
        if let last = errors[error.fullMessage], last.duration(to: time) < Self.repetition { return }
        if errors.count >= Self.maxErrors { errors = [:] }
        errors[error.fullMessage] = time
        states = [:]
        send(RelayEvent(error))
    }

    /// Forgets the errors, because their causes are gone: the same ones are reported again.
    func clearErrors() { errors = [:] }
}
