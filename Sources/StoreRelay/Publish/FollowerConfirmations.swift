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

/// Writes what followers have confirmed into the home's history, as named subscribers: what they lack isn't purged.
///
/// It is written at most every five seconds, and only what has moved: it is a commit of the home.
struct FollowerConfirmations {
    private let stream: RelayStream
    private var waiting: [String: HistoryToken] = [:]
    private var known: [String: HistoryToken] = [:]
    private var lastWrite: ContinuousClock.Instant?

    private static let interval = Duration.seconds(5)

    init(_ stream: RelayStream) { self.stream = stream }

    /// True if something remains to be written.
    var isPending: Bool { !waiting.isEmpty }

    mutating func add(_ confirmed: [String: HistoryToken], to record: inout RelayRecord) {
        for (follower, token) in confirmed where known[follower] != token {
            if let former = known[follower], former.history == token.history, former.number > token.number { continue }
            known[follower] = token
            waiting[follower] = token
            record.followers.removeAll { $0.name == follower }
            record.followers.append(.init(name: follower, position: "\(token)", time: RelayRecord.now))
            record.followers.sort { $0.name < $1.name }
        }
    }

    /// Writes what waits, if it is time. A store that is busy is tried again later. Throws as `acknowledge` does.
    mutating func write(to source: ReplicationSource) throws {
        guard isPending else { return }
        if let lastWrite, lastWrite.duration(to: .now) < Self.interval { return }
        lastWrite = .now
        for (follower, token) in waiting {
            do {
                try source.acknowledge(token, by: stream.subscriber(follower))
            } catch StoreError.busy {
                continue
            } catch is StoreHistory.Discontinuity {
                // A token of another history, or one that was purged: it holds nothing back.
            }
            waiting[follower] = nil
        }
    }
}
