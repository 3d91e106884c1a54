import AgentProtocol
import LinuxSystem
import Synchronization

/// A publisher to a stream in which every message names the one that it follows: if anybody else has published, the
/// broker stores none of the messages that come after. So two homes can never interleave their batches in one stream:
/// the one that lost the race gets `streamMoved`, reads the stream's end, and finds out whether it is superseded.
///
/// Messages are sent ahead of the broker's confirmations, up to a limit. Each names the previous one by its number, and
/// also by its identifier while that isn't confirmed: a foreign message in its place would have the same number.
///
/// Used by one thread.
package final class FencedPublisher {
    private let connection: NATSConnection
    private let stream: String
    private let subject: String
    /// The subject before the confirmations' numbers.
    let inbox: String
    private let confirmations: NATSSubscription
    /// The messages that were sent and not confirmed, oldest first.
    private var unconfirmed: [(size: Int, sent: ContinuousClock.Instant)] = []
    private var unconfirmedBytes = 0
    private var sent: UInt64 {
        didSet { place.note(sent: sent) }
    }
    /// The number of the last message that the broker has confirmed.
    package private(set) var lastSequence: UInt64 {
        didSet { place.note(confirmed: lastSequence) }
    }
    /// The same numbers, for other threads.
    package let place: PublishedPlace

    private let maxMessages: Int
    /// The bytes that may be sent ahead: more over a fast link.
    private var window = 256 << 10
    private static let maxBytes = 8 << 20
    /// The thresholds of a confirmation's time: a faster one than the first lets the window grow, a slower one than the
    /// second shrinks it.
    private static let (fast, slow) = (Duration.milliseconds(500), Duration.seconds(2))
    /// The time that one message has to reach the broker, as a multiple of the connection's limit.
    private static let patience = 6

    /// - Parameters:
    ///   - last: The number of the stream's last message, as its reader knows it.
    ///   - maxMessages: The messages that may be sent ahead.
    package init(
        _ connection: NATSConnection, stream: String, subject: String, after last: UInt64, maxMessages: Int = 256
    ) throws(NATSError) {
        self.maxMessages = maxMessages
        self.connection = connection
        self.stream = stream
        self.subject = subject
        lastSequence = last
        sent = last
        place = PublishedPlace(last)
        inbox = try connection.uniqueSubject()
        confirmations = try connection.subscribe(inbox + ".*")
    }

    /// Sends a message. Waits for confirmations only while too many are missing.
    ///
    /// Throws `NATSError`, with `streamMoved` if the stream's last message is another one than expected. The publisher
    /// is then of no further use.
    package func publish(headers: [(name: String, value: String)], body: [UInt8]) throws(NATSError) {
        while unconfirmed.count >= maxMessages
            || unconfirmedBytes > 0 && unconfirmedBytes + body.count > window
        {
            try confirm()
        }
        var fence = [
            (name: "Nats-Expected-Stream", value: stream),
            (name: "Nats-Expected-Last-Sequence", value: String(sent)),
            (name: "Nats-Msg-Id", value: "\(inbox).\(sent + 1)"),
        ]
        if !unconfirmed.isEmpty { fence.append((name: "Nats-Expected-Last-Msg-Id", value: "\(inbox).\(sent)")) }
        // Before the broker has it: another thread may see it in the stream at once.
        sent += 1
        try connection.publish(
            OutgoingMessage(subject, reply: "\(inbox).\(sent)", headers: fence + headers, body: body))
        unconfirmed.append((body.count, .now))
        unconfirmedBytes += body.count
    }

    /// Waits until the broker has stored all messages. Throws `NATSError` like `publish`.
    package func finish() throws(NATSError) {
        while !unconfirmed.isEmpty { try confirm() }
    }

    /// Announces the number of the stream's last message to readers.
    package func announce(on subject: String) throws(NATSError) {
        try connection.publish(OutgoingMessage(subject, body: Array("\(lastSequence)".utf8)))
    }

    /// Returns the next message that was sent to the inbox itself. A consumer may deliver a stream's messages to any
    /// inbox; they keep their own subject.
    private func nextConfirmation(_ operation: String) throws(NATSError) -> NATSMessage {
        let deadline = Deadline(after: connection.timeout * Self.patience)
        while true {
            guard let found = try confirmations.next(within: min(deadline.remaining ?? .zero, .seconds(1))) else {
                if let error = connection.denial(of: subject, operation) { throw error }
                guard deadline.hasPassed else { continue }
                throw NATSError(.timedOut, "\(operation) \(connection.server): no confirmation")
            }
            if found.subject.hasPrefix(inbox + ".") { return found }
        }
    }

    /// Waits for the confirmation of the oldest message.
    private func confirm() throws(NATSError) {
        let operation = "publish to stream \(stream)"
        let answer: NATSMessage
        do throws(NATSError) {
            answer = try nextConfirmation(operation)
        } catch {
            guard error.code == .noJetStream else { throw error }
            throw NATSError(.noJetStream, "\(operation) \(connection.server): no stream takes the subject \(subject)")
        }
        guard let object = answer.json else {
            throw NATSError(.rejected, "\(operation) \(connection.server): the confirmation is not JSON")
        }
        if let error = object.object("error") { throw NATSError(api: error, operation, at: connection.server) }
        guard object.string("stream") == stream, object.integer("seq") == Int64(clamping: lastSequence + 1),
            answer.subject == "\(inbox).\(lastSequence + 1)"
        else {
            throw NATSError(.streamMoved, "\(operation) \(connection.server): another message was confirmed")
        }
        lastSequence += 1
        let (size, time) = unconfirmed.removeFirst()
        unconfirmedBytes -= size
        let elapsed = time.duration(to: .now)
        if elapsed < Self.fast { window = min(Self.maxBytes, window + size) }
        if elapsed > Self.slow { window = max(64 << 10, window / 2) }
    }
}

/// The last messages that a publisher has sent and the broker has confirmed, for any thread.
package final class PublishedPlace: Sendable {
    private let numbers: Mutex<(confirmed: UInt64, sent: UInt64)>

    /// - Parameter last: The number of the stream's last message, as its reader knows it.
    package init(_ last: UInt64) { numbers = Mutex((last, last)) }

    fileprivate func note(sent number: UInt64) { numbers.withLock { $0.sent = number } }
    fileprivate func note(confirmed number: UInt64) { numbers.withLock { $0.confirmed = number } }

    /// The number of the last message that the broker has confirmed.
    package var confirmed: UInt64 { numbers.withLock { $0.confirmed } }
    /// The number that the last message has that was sent, confirmed or not.
    package var sent: UInt64 { numbers.withLock { $0.sent } }
}
