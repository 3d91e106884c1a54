import NATSStreams

/// Checks whether a stream is still the one that a home has read and filled. Somebody with the permissions may delete
/// or change it at the broker, or another home may publish to it. An idle home would not notice, and would continue to
/// answer followers that wait in vain. Any thread may check.
struct StreamLook: Sendable {
    private let wanted: StreamConfiguration
    /// The time at which the stream that the home has read was created.
    private let created: Int64
    private let place: PublishedPlace

    init(_ wanted: StreamConfiguration, created: Int64, _ place: PublishedPlace) {
        (self.wanted, self.created, self.place) = (wanted, created, place)
    }

    /// Throws `NATSError`: with `noStream` if the stream is gone, with `streamBroken` if it is another one or was set
    /// back, with `streamMoved` if it has messages that aren't this home's, and with `streamDiffers` if its
    /// configuration no longer is what a publisher relies on. The owner then connects again, reads the stream's end,
    /// and creates the stream, publishes what it lacks, or stops.
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
