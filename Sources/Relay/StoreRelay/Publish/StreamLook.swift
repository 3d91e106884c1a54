import NATSStreams

/// Looks whether a stream is still the one that a home has read and filled. Somebody with the permissions may delete or
/// change it at the broker, or another home may publish to it: one with nothing to publish would not notice, its
/// followers would wait, and it would go on answering them. Any thread may look.
struct StreamLook: Sendable {
    private let wanted: StreamConfiguration
    /// When the stream was created that the home has read.
    private let created: Int64
    private let place: PublishedPlace

    init(_ wanted: StreamConfiguration, created: Int64, _ place: PublishedPlace) {
        (self.wanted, self.created, self.place) = (wanted, created, place)
    }

    /// Throws `NATSError`, after which the owner connects again, reads the stream's end, and creates the stream,
    /// publishes what it lacks or stops: with `noStream` if it is gone, with `streamBroken` if it is another one or was
    /// set back, and with `streamMoved` if it has messages that aren't this home's. With `streamDiffers` if it isn't
    /// what a publisher relies on any more.
    func look(over connection: NATSConnection) throws(NATSError) {
        let confirmed = place.confirmed
        let state = try connection.checkedState(wanted)
        // Read after the stream's state: a message that is sent meanwhile may be in the stream already.
        let sent = place.sent
        let stream = "stream \(wanted.name) \(connection.server)"
        guard state.last >= confirmed, created == state.created else {
            throw NATSError(
                .streamBroken, "\(stream): it has gone back to message \(state.last), and \(confirmed) was confirmed")
        }
        guard state.last <= sent else {
            throw NATSError(
                .streamMoved, "\(stream): it has message \(state.last), and the last one of this home is \(sent)")
        }
    }
}
