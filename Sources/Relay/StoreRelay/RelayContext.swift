import LinuxSystem
import NATSStreams
import RelayStatus
import SQLiteFormat
import SystemPackage

/// The configuration that publishing and following share.
package struct RelayOptions: Sendable {
    package let stream: RelayStream
    package var connection: ConnectionOptions
    /// The key that the home shares with its followers; nil to believe every message.
    package var key: RelayKey?
    /// The directory of the status record; nil to write none.
    package var status: FilePath?

    package init(_ stream: RelayStream, _ connection: ConnectionOptions) {
        self.stream = stream
        self.connection = connection
    }
}

/// The values that all parts of one publisher or follower share: the configuration, the status record, the reports, and
/// the request to stop.
struct RelayContext {
    let location: StoreLocation
    let options: RelayOptions
    let status: StatusWriter
    let reporter: RelayReporter
    let stop: RelayStop
    /// The clock, which a test may set.
    var now: () -> ContinuousClock.Instant = { .now }

    var stream: RelayStream { options.stream }
    var key: RelayKey? { options.key }

    /// Reports that a broker serves the session.
    func reportConnection(_ connection: NATSConnection) {
        let server = "\(connection.server)"
        status.record.server = server
        reporter.reportState(RelayEvent("connected", ["server": .string(server)], "connected to \(server)"))
    }

    /// Reports an error whose cause must end before the session continues. The connection stays.
    func reportWaiting(for error: any ActionableError) {
        status.setWaiting(error)
        reporter.report(error)
    }
}

/// A stream over one connection: its name and subjects, and the key of its messages.
struct StreamLink: Sendable {
    let connection: NATSConnection
    let stream: RelayStream
    let key: RelayKey?

    /// Returns the stream's first and last message.
    func state() throws(NATSError) -> StreamState { try connection.state(ofStream: stream.streamName) }

    /// Returns the message of this number; nil if the stream doesn't have it.
    func message(_ number: UInt64) throws(NATSError) -> NATSMessage? {
        try connection.message(number, ofStream: stream.streamName)
    }

    /// Returns the part of a batch that the message is; nil for any other message, and for one that isn't authentic.
    func batch(_ message: NATSMessage) throws(RelayError) -> BatchMessage? {
        guard let batch = BatchMessage(message), try batch.isAuthentic(in: stream, key: key) else { return nil }
        return batch
    }

    /// Returns the last part of a batch among the messages of these numbers, with its number; nil if there is none.
    func lastBatch(from lowest: UInt64, upTo highest: UInt64) throws -> (sequence: UInt64, message: BatchMessage)? {
        var number = highest
        while number >= max(1, lowest) {
            if let message = try message(number), let batch = try batch(message) { return (number, batch) }
            number -= 1
        }
        return nil
    }
}
