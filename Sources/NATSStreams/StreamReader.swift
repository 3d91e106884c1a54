import AgentProtocol
import LinuxSystem

/// A message of a stream, with its number there.
package struct StreamMessage: Sendable {
    package let sequence: UInt64
    package let message: NATSMessage
    /// The number of messages after it that the broker had when it sent this one.
    package let pending: UInt64
}

/// Reads a stream in order from a number on, through a consumer of its own that the broker forgets afterwards.
///
/// It asks for as much as it has room for, so that a slow reader costs neither side memory. Used by one thread.
package final class StreamReader {
    private let connection: NATSConnection
    private let stream: String
    private let consumer: String
    private let inbox: String
    private let messages: NATSSubscription
    /// The messages that the broker may still send for the requests made so far.
    private var requested = 0
    /// The number of messages that the consumer has delivered.
    private var delivered: UInt64 = 0
    private var lastSequence: UInt64
    /// The time of that message, in nanoseconds since 1970; nil while it isn't known.
    private var lastTime: Int64?
    private var lastReceived = ContinuousClock.now
    /// When the stream's state is compared with what was delivered.
    private var nextLook: ContinuousClock.Instant
    /// The stream's last number at the last look; nil if it has no messages, or if one was delivered since.
    private var awaited: UInt64?

    private static let batch = 256
    private static let maxBytes = 8 << 20
    /// The time after which the broker ends a request that it can't fulfil, and has delivered what it has.
    private let patience: Duration

    /// Creates the consumer. Throws `NATSError`.
    ///
    /// - Parameter sequence: The number of the first message to read, or of one before the first that is kept.
    package init(
        _ connection: NATSConnection, stream: String, from sequence: UInt64, patience: Duration = .seconds(10)
    ) throws(NATSError) {
        self.connection = connection
        self.stream = stream
        self.patience = patience
        nextLook = .now + patience
        lastSequence = max(1, sequence) - 1
        inbox = try connection.uniqueSubject()
        messages = try connection.subscribe(inbox)
        let configuration: JSONObject = [
            "deliver_policy": "by_start_sequence", "opt_start_seq": .integer(Int64(clamping: max(1, sequence))),
            "ack_policy": "none", "replay_policy": "instant", "max_waiting": 8, "num_replicas": 1,
            "mem_storage": true, "inactive_threshold": .integer(Duration.seconds(60).nanoseconds),
        ]
        let request: JSONObject = ["stream_name": .string(stream), "config": .object(configuration)]
        let operation = "read stream \(stream)"
        let answer = try connection.request(
            OutgoingMessage("$JS.API.CONSUMER.CREATE.\(stream)", body: Array(request.text.utf8)))
        guard let object = answer.json else {
            throw NATSError(.rejected, "\(operation) \(connection.server): the reply is not JSON")
        }
        if let error = object.object("error") { throw NATSError(api: error, operation, connection.server) }
        guard let name = object.string("name"), !name.isEmpty, !name.contains(where: { ".*> \r\n".contains($0) }) else {
            throw NATSError(.rejected, "\(operation) \(connection.server): the broker names no consumer")
        }
        consumer = name
        try ask()
    }

    /// Removes the consumer without waiting for the broker; it would forget it anyway.
    deinit {
        try? connection.publish(OutgoingMessage("$JS.API.CONSUMER.DELETE.\(stream).\(consumer)"))
    }

    /// Returns the next message, or nil if none comes in time.
    ///
    /// Throws `NATSError`: with `streamBroken` if a delivery was lost, the stream has gone back, or the broker doesn't
    /// deliver what the stream has; with `timedOut` if it has been silent for longer than it may. The reader can't be
    /// used any more then.
    package func next(within limit: Duration) throws(NATSError) -> StreamMessage? {
        let deadline = Deadline(after: limit)
        while true {
            if requested <= Self.batch / 2 { try ask() }
            let remaining = deadline.remaining ?? .zero
            guard let message = try messages.next(within: min(max(remaining, .milliseconds(1)), patience)) else {
                guard lastReceived.duration(to: .now) < patience * 2 else {
                    throw NATSError(
                        .timedOut, "read stream \(stream) \(connection.server): no answer for \(patience * 2)")
                }
                try look()
                if deadline.hasPassed { return nil }
                continue
            }
            lastReceived = .now
            if let found = try receive(message) { return found }
        }
    }

    /// Asks for the stream's last number, now and then while nothing comes.
    ///
    /// In a cluster, a consumer may lie on a broker whose own copy of the stream has stopped, such as after a damaged
    /// file. It then answers as if there were nothing new.
    private func look() throws(NATSError) {
        guard nextLook <= .now else { return }
        nextLook = .now + patience
        if let awaited {
            throw NATSError(
                .streamBroken,
                "read stream \(stream) \(connection.server): it has message \(awaited), but nothing is delivered "
                    + "after \(lastSequence)")
        }
        let state = try connection.state(ofStream: stream)
        // A new leader may have lost messages, and has given others their numbers since.
        guard state.last > lastSequence || state.last == lastSequence && state.lastTime == lastTime ?? state.lastTime
        else {
            throw NATSError(
                .streamBroken,
                "read stream \(stream) \(connection.server): it has gone back to message \(state.last), and "
                    + "\(lastSequence) was read")
        }
        if state.last == lastSequence { lastTime = state.lastTime }
        if state.messages > 0, state.last > lastSequence { awaited = state.last }
    }

    private func ask() throws(NATSError) {
        let request: JSONObject = [
            "batch": .integer(Int64(Self.batch)), "max_bytes": .integer(Int64(Self.maxBytes)),
            "expires": .integer(patience.nanoseconds),
        ]
        try connection.publish(
            OutgoingMessage(
                "$JS.API.CONSUMER.MSG.NEXT.\(stream).\(consumer)", reply: inbox, body: Array(request.text.utf8)))
        requested += Self.batch
        if lastReceived.duration(to: .now) > patience { lastReceived = .now }
    }

    /// Returns the stream's message, or nil for a status of a request.
    private func receive(_ message: NATSMessage) throws(NATSError) -> StreamMessage? {
        if let status = message.status {
            // A number that can't be right would overflow below.
            let pending = message.headers["Nats-Pending-Messages"].flatMap { Int($0) }.map {
                min(max(0, $0), requested)
            }
            switch status {
            case 100: break
            case 404, 408: requested = max(0, requested - (pending ?? requested))
            // A full request, not a lost consumer.
            case 409 where pending != nil: requested = max(0, requested - (pending ?? 0))
            default:
                let text = PrintableText(message.headers["Description"] ?? "status \(status)")
                throw NATSError(.streamBroken, "read stream \(stream) \(connection.server): \(text)")
            }
            return nil
        }
        guard let place = DeliveryPlace(message.reply ?? "") else {
            throw NATSError(.rejected, "read stream \(stream) \(connection.server): a message without its number")
        }
        requested = max(0, requested - 1)
        guard place.delivery == delivered + 1, place.sequence > lastSequence else {
            throw NATSError(
                .streamBroken,
                "read stream \(stream) \(connection.server): message \(place.sequence) followed \(lastSequence), "
                    + "delivery \(place.delivery) followed \(delivered)")
        }
        delivered = place.delivery
        lastSequence = place.sequence
        lastTime = place.time
        awaited = nil
        return StreamMessage(sequence: place.sequence, message: message, pending: place.pending)
    }
}

/// A message's place in its stream and among a consumer's deliveries, from the subject for its acknowledgement:
/// `$JS.ACK.STREAM.CONSUMER.DELIVERIES.SEQUENCE.DELIVERY.TIME.PENDING`, with a domain and an account before the stream
/// and a token at the end in newer servers
/// (https://docs.nats.io/reference/reference-protocols/nats_api_reference#acknowledging-messages).
struct DeliveryPlace: Equatable {
    let sequence: UInt64
    let delivery: UInt64
    let pending: UInt64
    /// The message's time, in nanoseconds since 1970.
    let time: Int64

    init?(_ subject: String) {
        let parts = subject.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count >= 9, parts[0] == "$JS", parts[1] == "ACK" else { return nil }
        let first = parts.count == 9 ? 5 : 7
        guard parts.count == 9 || parts.count >= 11, let sequence = UInt64(parts[first]),
            let delivery = UInt64(parts[first + 1]), let time = Int64(parts[first + 2]),
            let pending = UInt64(parts[first + 3]), sequence <= StreamState.maxNumber, delivery <= StreamState.maxNumber
        else { return nil }
        self.sequence = sequence
        self.delivery = delivery
        self.pending = pending
        self.time = time
    }
}
