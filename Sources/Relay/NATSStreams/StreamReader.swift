import AgentProtocol
import LinuxSystem

/// A message of a stream, with its number there.
package struct StreamMessage: Sendable {
    package let sequence: UInt64
    package let message: NATSMessage
    /// The number of messages after it that the stream was known to have.
    package let pending: UInt64
}

/// Reads a stream in order from a number on, message by message.
///
/// It requests each message by its number, some ahead, without a consumer at the broker: the right to create consumers
/// is the right to have the broker publish anywhere. Publishers announce their messages on a subject of their own;
/// because announcements get lost, the reader also checks the stream's state from time to time. Used by one thread.
package final class StreamReader {
    private let connection: NATSConnection
    private let stream: String
    private let inbox: String
    private let answers: NATSSubscription
    private let news: NATSSubscription
    /// The number of the last message that was returned.
    private var lastSequence: UInt64
    /// The time of that message, in nanoseconds since 1970; nil while it isn't known.
    private var lastTime: Int64?
    /// The number of the stream's last message, as far as it is known.
    private var known: UInt64
    /// The number after the last one that was requested.
    private var nextRequest: UInt64
    /// The requests that have no answer yet, by number, with their times.
    private var awaited: [UInt64: ContinuousClock.Instant] = [:]
    /// Counts the times that requests were made again.
    private var round = 0
    /// The number of a message that wasn't there, although the stream has later ones.
    private var missing: UInt64?
    /// The answers that came before an earlier one; nil if there is no such message.
    private var early: [UInt64: StoredMessage?] = [:]
    /// The messages that are requested ahead: more over a fast link.
    private var window = 1
    /// The size of the last answer, in bytes.
    private var lastSize = 0
    private var lastReceived = ContinuousClock.now
    /// The time of the next look at the stream's state.
    private var nextLook: ContinuousClock.Instant

    private static let maxWindow = 32
    /// The limit of bytes in transit, unless one answer has more. A broker closes a connection that doesn't accept its
    /// output within some seconds, or if that exceeds its `max_pending`.
    private static let maxBytes = 1 << 20
    /// An answer that comes within this time shows that more may be requested ahead.
    private static let fast = Duration.seconds(1)
    /// The time between two looks at the stream. A request without an answer after six of them has failed.
    private let patience: Duration

    /// Throws `NATSError`.
    ///
    /// - Parameters:
    ///   - sequence: The number of the first message to read, or of one before the first that is kept.
    ///   - subject: The subject on which publishers name the stream's last number.
    package init(
        _ connection: NATSConnection, stream: String, news subject: String, from sequence: UInt64,
        patience: Duration = .seconds(10)
    ) throws(NATSError) {
        self.connection = connection
        self.stream = stream
        self.patience = patience
        lastSequence = max(1, sequence) - 1
        nextRequest = max(1, sequence)
        inbox = try connection.uniqueSubject()
        answers = try connection.subscribe(inbox + ".*")
        // Before the look: what is published afterwards is announced.
        news = try connection.subscribe(subject)
        nextLook = .now + patience
        let state = try connection.state(ofStream: stream)
        known = state.last
        skip(before: state.first)
    }

    /// Returns the next message, or nil if none comes in time.
    ///
    /// Throws `NATSError`: with `streamBroken` if the stream was set back, and with `timedOut` if the broker has been
    /// silent for too long. The reader is then of no further use.
    package func next(within limit: Duration) throws(NATSError) -> StreamMessage? {
        let deadline = Deadline(after: limit)
        while true {
            if let found = try takeEarly() { return found }
            try ask()
            let remaining = max(deadline.remaining ?? .zero, .milliseconds(1))
            if awaited.isEmpty {
                try waitForNews(within: min(remaining, patience))
            } else if let answer = try answers.next(within: min(remaining, patience)) {
                try receive(answer)
                continue
            } else if lastReceived.duration(to: .now) > patience * 6 {
                throw NATSError(
                    .timedOut, "read stream \(stream) \(connection.server): no answer for \(patience * 6)")
            }
            if deadline.hasPassed, early.isEmpty { return nil }
        }
    }

    /// Returns the message after the last one, if it has arrived.
    private func takeEarly() throws(NATSError) -> StreamMessage? {
        while let answer = early.removeValue(forKey: lastSequence + 1) {
            let sequence = lastSequence + 1
            guard let found = answer else {
                try skipMissing(sequence)
                continue
            }
            lastSequence = sequence
            lastTime = found.time
            known = max(known, sequence)
            return StreamMessage(sequence: sequence, message: found.message, pending: known - sequence)
        }
        return nil
    }

    /// Continues after a message that the stream doesn't have: it was dropped, or doesn't exist yet.
    private func skipMissing(_ sequence: UInt64) throws(NATSError) {
        let state = try connection.state(ofStream: stream)
        try check(state)
        guard state.last >= sequence else {
            // The announced message isn't there, so none after it is either.
            return begin(at: sequence, upto: lastSequence)
        }
        // It may have arrived after the request.
        guard sequence < state.first || missing == sequence else {
            missing = sequence
            return begin(at: sequence, upto: state.last)
        }
        known = state.last
        skip(before: max(state.first, sequence + 1))
    }

    /// Requests everything from this number on again. Answers to earlier requests are ignored.
    private func begin(at sequence: UInt64, upto last: UInt64) {
        round += 1
        known = last
        nextRequest = sequence
        awaited = [:]
        early = [:]
    }

    /// Reads nothing before this number.
    private func skip(before first: UInt64) {
        guard first > lastSequence + 1 else { return }
        lastSequence = first - 1
        lastTime = nil
        nextRequest = max(nextRequest, first)
        awaited = awaited.filter { $0.key >= first }
        early = early.filter { $0.key >= first }
    }

    private func ask() throws(NATSError) {
        while nextRequest <= known,
            awaited.isEmpty || awaited.count + early.count < min(window, Self.maxBytes / max(1, lastSize))
        {
            if awaited.isEmpty { lastReceived = .now }
            try connection.publish(
                OutgoingMessage(
                    "\(connection.apiPrefix).STREAM.MSG.GET.\(stream)", reply: "\(inbox).\(round)-\(nextRequest)",
                    body: Array("{\"seq\":\(nextRequest)}".utf8)))
            awaited[nextRequest] = .now
            nextRequest += 1
        }
    }

    private func receive(_ answer: NATSMessage) throws(NATSError) {
        let prefix = "\(inbox).\(round)-"
        guard answer.subject.hasPrefix(prefix), let number = UInt64(answer.subject.dropFirst(prefix.count)),
            let asked = awaited.removeValue(forKey: number)
        else { return }
        lastReceived = .now
        lastSize = answer.body.count
        let isFast = asked.duration(to: .now) < Self.fast
        window = isFast ? min(Self.maxWindow, window + 1) : max(1, window / 2)
        let operation = "read message \(number) of stream \(stream)"
        guard let object = answer.json else {
            throw NATSError(.rejected, "\(operation) \(connection.server): the reply is not JSON")
        }
        if let error = object.object("error") {
            guard error.integer("err_code") == 10037 else {
                throw NATSError(api: error, operation, at: connection.server)
            }
            early.updateValue(nil, forKey: number)
            return
        }
        guard let found = object.object("message").flatMap(StoredMessage.init), found.sequence == number else {
            throw NATSError(.rejected, "\(operation) \(connection.server): the reply is no message")
        }
        early[number] = found
    }

    private func waitForNews(within limit: Duration) throws(NATSError) {
        let untilLook = ContinuousClock.now.duration(to: nextLook)
        if untilLook > .zero, let found = try news.next(within: min(limit, untilLook)) {
            if let number = UInt64(String(decoding: found.body.prefix(20), as: UTF8.self)),
                number <= StreamState.maxNumber
            {
                known = max(known, number)
            }
            return
        }
        guard nextLook <= .now else { return }
        nextLook = .now + patience
        let state = try connection.state(ofStream: stream)
        try check(state)
        if state.last == lastSequence { lastTime = state.lastTime }
        known = state.last
        skip(before: state.first)
    }

    /// Throws `streamBroken` if the stream was set back. A new leader may have lost messages, and may have given their
    /// numbers to others since.
    private func check(_ state: StreamState) throws(NATSError) {
        guard state.last > lastSequence || state.last == lastSequence && state.lastTime == lastTime ?? state.lastTime
        else {
            throw NATSError(
                .streamBroken,
                "read stream \(stream) \(connection.server): it has gone back to message \(state.last), and "
                    + "\(lastSequence) was read")
        }
    }
}
