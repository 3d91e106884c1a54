import LinuxSystem

/// Passes events on. What lasts is said again after some time only, and not at each attempt.
final class RelayReporter {
    private let send: @Sendable (RelayEvent) -> Void
    private let now: () -> ContinuousClock.Instant
    /// When each error was passed on.
    private var errors: [String: ContinuousClock.Instant] = [:]
    /// The last state of each type that was passed on since the last error.
    private var states: [String: String] = [:]

    /// The time after which an error that lasts is passed on again.
    static let repetition = Duration.seconds(30)
    private static let maxErrors = 100

    init(
        now: @escaping () -> ContinuousClock.Instant = { .now }, _ send: @escaping @Sendable (RelayEvent) -> Void
    ) {
        self.now = now
        self.send = send
    }

    func report(_ event: RelayEvent) { send(event) }

    /// Passes on where the program stands, unless it is the same as before and no error was passed on since.
    func reportState(_ event: RelayEvent) {
        let type = event.object.string("type") ?? ""
        guard states[type] != event.object.text else { return }
        states[type] = event.object.text
        send(event)
    }

    /// Passes an error on, unless the same one was passed on less than half a minute ago.
    func report(_ error: any ActionableError) {
        let time = now()
        if let last = errors[error.fullMessage], last.duration(to: time) < Self.repetition { return }
        if errors.count >= Self.maxErrors { errors = [:] }
        errors[error.fullMessage] = time
        states = [:]
        send(RelayEvent(error))
    }

    /// The causes of the errors are gone: the same ones are passed on again.
    func clearErrors() { errors = [:] }
}
