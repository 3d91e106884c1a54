import NATSStreams
import PersistentHistory
import RelayStatus
import SQLiteStore
import StoreReplication

/// A follower's message: it has all changes up to a token (Documentation/Relay.md, "Acknowledgements").
struct Acknowledgement: Equatable {
    let follower: String
    let token: HistoryToken

    init(_ token: HistoryToken, by follower: String) {
        self.token = token
        self.follower = follower
    }

    /// Parses a message. Returns nil for anything else, and for one with a wrong digest.
    init?(_ message: NATSMessage, _ stream: RelayStream, key: RelayKey?) throws(RelayError) {
        let prefix = stream.acknowledgements(of: "")
        guard message.subject.hasPrefix(prefix), message.body.count <= 1024 else { return nil }
        let name = String(message.subject.dropFirst(prefix.count))
        guard RelayStream.isName(name), let token = HistoryToken(String(decoding: message.body, as: UTF8.self)) else {
            return nil
        }
        self.init(token, by: name)
        if let key {
            guard try key.accepts(message.headers[RelayHeader.mac], of: fields(stream), message.body) else {
                return nil
            }
        }
    }

    func message(_ stream: RelayStream, key: RelayKey?) throws(RelayError) -> OutgoingMessage {
        let body = Array("\(token)".utf8)
        return OutgoingMessage(
            stream.acknowledgements(of: follower), headers: try RelayKey.header(key, of: fields(stream), body),
            body: body)
    }

    private func fields(_ stream: RelayStream) -> [String] { [stream.streamName, "ack", follower] }
}

/// Records followers' confirmations in the home's history, as named subscribers, so that a purge keeps the changes that
/// they lack.
///
/// Each write is a commit of the home, so it happens at most every five seconds, and only for positions that have
/// moved. A token that the history doesn't have is dropped: it neither counts as the follower's position nor delays its
/// later confirmations.
struct FollowerConfirmations {
    private let stream: RelayStream
    private var waiting: [String: HistoryToken] = [:]
    /// The tokens that were written, by the followers' names.
    private var known: [String: HistoryToken] = [:]
    private var lastWrite: ContinuousClock.Instant?

    private static let interval = Duration.seconds(5)
    /// The maximum number of followers whose confirmations are kept. Without a key, a client that may publish
    /// confirmations can invent names.
    static let maxFollowers = 1000

    init(_ stream: RelayStream) { self.stream = stream }

    /// True if something remains to be written.
    var isPending: Bool { !waiting.isEmpty }

    /// Adds a confirmation to those that wait for the publisher.
    static func add(_ found: Acknowledgement, to confirmed: inout [String: HistoryToken]) {
        guard confirmed[found.follower] != nil || confirmed.count < maxFollowers else { return }
        confirmed[found.follower] = found.token
    }

    mutating func add(_ confirmed: [String: HistoryToken]) {
        for (follower, token) in confirmed where known[follower] != token {
            let isKnown = known[follower] != nil || waiting[follower] != nil
            guard isKnown || known.count + waiting.count < Self.maxFollowers else { continue }
            waiting[follower] = token
        }
    }

    /// Writes the waiting confirmations, if it is time. Retries a busy store later. Throws as `acknowledge` does.
    mutating func write(to source: ReplicationSource, _ record: inout RelayRecord) throws {
        guard isPending else { return }
        if let lastWrite, lastWrite.duration(to: .now) < Self.interval { return }
        lastWrite = .now
        let stream = stream
        try write(to: &record) { follower, token in
            try source.acknowledge(token, by: stream.subscriber(follower))
        }
    }

    /// Writes what waits through `acknowledge`.
    mutating func write(
        to record: inout RelayRecord, acknowledge: (_ follower: String, HistoryToken) throws -> Void
    ) throws {
        for (follower, token) in waiting {
            if let former = known[follower], former.history == token.history, former.number >= token.number {
                waiting[follower] = nil
                continue
            }
            do {
                try acknowledge(follower, token)
                known[follower] = token
                record.followers.removeAll { $0.name == follower }
                record.followers.append(.init(name: follower, position: "\(token)", time: RelayRecord.now))
                record.followers.sort { $0.name < $1.name }
            } catch StoreError.busy {
                continue
            } catch is StoreHistory.Discontinuity {
                // A token of another history, or a purged one, protects nothing from a purge.
            }
            waiting[follower] = nil
        }
    }
}
