import AgentProtocol
import NATSStreams
import PersistentHistory

/// A follower's request for a snapshot (Documentation/Relay.md, "Snapshots").
struct SnapshotRequest: Equatable {
    /// The reasons for taking a snapshot, as requests and events state them.
    enum Reason: String, Codable {
        /// There is no replica yet.
        case first
        /// Changes are no longer in the stream.
        case gap
        case otherHistory = "other_history"
        case schemaChanged = "schema_changed"
        /// Messages were forged, altered or lost.
        case damaged
        /// The stream ends before the replica's position: it was set back, or the home was.
        case setBack = "set_back"
    }

    /// The follower's name; nil for a client that doesn't send it.
    var follower: String?
    /// The position of the replica; nil if there is none yet.
    var have: HistoryToken?
    var reason: Reason?

    init(follower: String?, have: HistoryToken?, reason: Reason?) {
        (self.follower, self.have, self.reason) = (follower, have, reason)
    }

    /// Reads a request's members. A malformed member counts as missing.
    init(_ object: JSONObject) {
        follower = object.string("follower").flatMap { RelayStream.isName($0) ? $0 : nil }
        have = object.string("have").flatMap(HistoryToken.init)
        reason = object.string("reason").flatMap(Reason.init)
    }

    /// The request, with the nonce that the answer's digest covers.
    ///
    /// - Parameter challenges: The values that homes have named; none without a key.
    func object(nonce: String, challenges: [String] = []) -> JSONObject {
        var object: JSONObject = ["op": "begin", "nonce": .string(nonce)]
        if !challenges.isEmpty { object["challenges"] = .array(challenges.map { .string($0) }) }
        object["follower"] = follower.map { .string($0) }
        object["have"] = have.map { .string("\($0)") }
        object["reason"] = reason.map { .string($0.rawValue) }
        return object
    }

    /// True if the follower needs nothing when the home has published nothing after `have`: the damaged messages have
    /// no changes that it lacks.
    var acceptsCurrent: Bool { reason == nil || reason == .damaged || reason == .setBack }

    /// True if the home may be on another line of the history: then numbers can't be compared.
    private var mayBeOnAnotherLine: Bool { reason == .otherHistory || reason == .setBack }

    /// Returns true if a snapshot leads further than the replica, whenever it was made.
    func isHelped(by upto: HistoryToken) -> Bool {
        guard let have, have.history == upto.history else { return true }
        return !mayBeOnAnotherLine && upto.number > have.number
    }

    /// Throws `RelayError.oldSnapshot` if a snapshot is before the replica's position on the same line. After a home
    /// was restored and continued, the numbers of its new line may be lower.
    func check(_ upto: HistoryToken) throws(RelayError) {
        guard let have, !mayBeOnAnotherLine, have.history == upto.history, upto.number < have.number else { return }
        throw .oldSnapshot(upto, position: have)
    }
}

/// The fields that a request's digest covers. The reply subject is among them: a recorded request can't be used to send
/// the answer elsewhere.
enum SnapshotRequestDigest {
    static func fields(_ stream: RelayStream, reply: String) -> [String] { [stream.streamName, "request", reply] }
}

/// The reasons for which a home refuses a request, in the header `Gs-Error` of its answer.
enum SnapshotRefusal: String {
    case unknownSnapshot = "unknown_snapshot"
    /// The request has no digest of the home's key.
    case wrongDigest = "wrong_digest"

    /// Returns the refusal that an answer is; nil for any other answer.
    init?(_ answer: NATSMessage) {
        guard let name = answer.headers[RelayHeader.error] else { return nil }
        // Any other reason is one of a later version: the home doesn't serve this snapshot.
        self = Self(rawValue: name) ?? .unknownSnapshot
    }

    var sentence: String {
        switch self {
        case .unknownSnapshot: "the home no longer has it"
        case .wrongDigest: "the home refuses the request: it has a wrong digest"
        }
    }
}

/// The fields that a chunk's digest covers (Documentation/Relay.md, "Snapshots"). Each chunk's MAC covers its SHA-256,
/// so the chunk itself is hashed once, for this and for the whole.
enum SnapshotChunk {
    static func fields(_ stream: RelayStream, id: String, index: Int, sha256: String) -> [String] {
        [stream.streamName, "chunk", id, "\(index)", sha256]
    }
}
