import AgentProtocol
import LinuxSystem
import NATSStreams

/// The requests of one download, and the inbox in which their answers arrive.
final class SnapshotRequests {
    private let link: StreamLink
    private let inbox: String
    private let answers: NATSSubscription
    /// The challenges that homes have issued. Two relays may serve one store, each with its own.
    private var challenges: [String] = []
    private var begun = 0

    /// The number of challenges that are kept.
    private static let maxChallenges = 4

    init(_ link: StreamLink) throws(NATSError) {
        self.link = link
        inbox = try link.connection.uniqueSubject()
        answers = try link.connection.subscribe(inbox + ".*")
    }

    /// Sends a request. Throws `NATSError`, `RelayError`.
    ///
    /// - Parameter token: The last token of the reply subject.
    func send(_ request: JSONObject, reply token: String) throws {
        let reply = "\(inbox).\(token)"
        let body = Array(request.text.utf8)
        let headers = try RelayKey.header(link.key, of: SnapshotRequestDigest.fields(link.stream, reply: reply), body)
        try link.connection.publish(OutgoingMessage(link.stream.snapshots, reply: reply, headers: headers, body: body))
    }

    /// Returns the next answer with the last token of its subject, or nil if none comes in time. Throws `NATSError`,
    /// and `RelayError.noHome` if nobody listens to requests, which the broker says at once.
    func next(within limit: Duration) throws -> (token: Substring, message: NATSMessage)? {
        let deadline = Deadline(after: limit)
        while true {
            do throws(NATSError) {
                guard let answer = try answers.next(within: deadline.remaining ?? limit) else { return nil }
                let prefix = inbox + "."
                if answer.subject.hasPrefix(prefix) { return (answer.subject.dropFirst(prefix.count), answer) }
            } catch {
                guard error.code == .noJetStream else { throw error }
                throw RelayError.noHome(stream: link.stream.streamName)
            }
        }
    }

    /// Asks for a snapshot once, and returns the home's answer. Throws `NATSError`, and `RelayError` if the answer
    /// isn't the home's.
    func begin(_ request: SnapshotRequest) throws -> JSONObject {
        for _ in 0...Self.maxChallenges {
            let object = try answer(to: request)
            guard object.string("state") == "challenge" else { return object }
            guard link.key != nil, let value = object.string("challenge"), RelayStream.isName(value) else { break }
            challenges = challenges.suffix(Self.maxChallenges - 1) + [value]
        }
        throw RelayError.badSnapshot("the home accepts no request")
    }

    private func answer(to request: SnapshotRequest) throws -> JSONObject {
        let nonce = String(UInt64.random(in: .min ... .max), radix: 16)
        begun += 1
        let token = "begin-\(begun)"
        try send(request.object(nonce: nonce, challenges: challenges), reply: token)
        let deadline = Deadline(after: link.connection.timeout)
        while let (subject, answer) = try next(within: deadline.remaining ?? link.connection.timeout) {
            // An earlier request's answer that came late.
            guard subject == token else { continue }
            if let refusal = SnapshotRefusal(answer) { throw RelayError.badSnapshot(refusal.sentence) }
            // The nonce proves that the answer is no earlier one.
            let fields = [link.stream.streamName, "snapshot", nonce]
            guard try link.key?.accepts(answer.headers[RelayHeader.mac], of: fields, answer.body) ?? true else {
                throw RelayError.badSnapshot("the answer has a wrong digest")
            }
            guard let object = answer.json else { throw RelayError.badSnapshot("the answer is not JSON") }
            return object
        }
        throw link.connection.timeoutFailure("request to \(link.stream.snapshots)")
    }
}
