import NATSStreams

/// A look at the stream each minute. Somebody with the permissions may delete or change it at the broker: a home with
/// nothing to publish would not notice, and its followers would wait.
struct StreamLook {
    private let wanted: StreamConfiguration
    private var created: Int64?
    private var next = ContinuousClock.now
    private let interval: Duration

    init(_ wanted: StreamConfiguration, interval: Duration = .seconds(60)) {
        self.wanted = wanted
        self.interval = interval
    }

    /// Looks, if it is time.
    ///
    /// Throws `NATSError`, after which the owner connects again, and creates the stream or publishes what it lacks:
    /// with `noStream` if it is gone, and `streamBroken` if it is another one or was set back. With `streamDiffers` if
    /// it isn't what a publisher relies on any more.
    ///
    /// - Parameter last: The number of the last message that the broker has confirmed.
    mutating func look(over connection: NATSConnection, confirmed last: UInt64) throws(NATSError) {
        guard next <= .now else { return }
        next = .now + interval
        let state = try connection.checkedState(wanted)
        guard state.last >= last, created == nil || created == state.created else {
            throw NATSError(
                .streamBroken,
                "stream \(wanted.name) \(connection.server): it has gone back to message \(state.last), and \(last) "
                    + "was confirmed")
        }
        created = state.created
    }
}
