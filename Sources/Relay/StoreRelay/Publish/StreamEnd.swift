import LinuxSystem
import NATSStreams
import PersistentHistory
import SQLiteStore
import StoreReplication

/// The end of a stream, where a publisher continues.
struct StreamEnd {
    /// The token after which the next batch begins.
    let token: HistoryToken
    /// The number of the stream's last message, whoever sent it.
    let sequence: UInt64
    /// The time at which the stream was created, as in `StreamState.created`.
    let created: Int64
    /// The digest of the last message that has one, else `BatchMessage.noPrevious`.
    let mac: String
    /// The last stored part of a batch whose last part the stream doesn't have; nil if there is none.
    let unfinished: BatchPart?
    /// The reason for which followers may lack changes that can no longer be sent, and need a snapshot; nil if none do.
    let reset: Reset?

    enum Reset: String {
        case schema, damaged, rows, history, trimmed

        init(_ renewal: StoreMirror.Renewal?) {
            self =
                switch renewal {
                case .schema: .schema
                case .damaged: .damaged
                case .rows: .rows
                case .first, nil: .history
                }
        }

        var sentence: String {
            switch self {
            case .schema: "the schema has changed"
            case .damaged: "the mirror was damaged, and is made anew"
            case .rows: "changed rows can't be sent one by one, and the mirror is made anew"
            case .history: "another history has begun"
            case .trimmed: "older changes are gone"
            }
        }
    }

    /// Messages at the end that aren't the relay's, which are skipped.
    private static let maxForeign: UInt64 = 10_000

    /// Reads the stream's end, and finds the token in the store's own history.
    ///
    /// Throws `RelayError.superseded` if the stream leads to a token that the store has never had, unless it is
    /// `takenOver`, or a mirror of this store has assigned it; `NATSError`, and the errors of
    /// `ReplicationSource`.
    init(_ link: StreamLink, _ source: ReplicationSource, takingOver takenOver: HistoryToken?) throws {
        let stream = link.stream
        let state = try link.state()
        let last = try link.connection.lastMessage(ofStream: stream.streamName, subject: stream.changes)
        sequence = last?.sequence ?? state.last
        created = state.created
        guard let found = try Self.lastBatch(link, from: last, first: state.first) else {
            mac = BatchMessage.noPrevious
            unfinished = nil
            // Followers of a stream that lost its messages continue from their position, if the history reaches so far.
            let hasFollowers = try Self.hasFollowers(source, stream)
            token = hasFollowers ? try source.oldest() : try source.current()
            reset = nil
            return
        }
        mac = found.mac ?? BatchMessage.noPrevious
        unfinished = found.part.isLast ? nil : found.part
        let reached = found.part.isLast ? found.part.upto : found.part.from
        do {
            try source.check(reached)
            token = reached
            reset = nil
        } catch StoreHistory.Discontinuity.epoch {
            guard takenOver == found.part.upto || takenOver == reached || source.hasAssigned(tokensOf: reached.history)
            else { throw RelayError.superseded(stream: stream.streamName, found.part.upto, source.path) }
            token = try source.current()
            reset = source.hasAssigned(tokensOf: reached.history) ? Reset(source.renewal) : .history
        } catch is StoreHistory.Discontinuity {
            token = try source.oldest()
            reset = .trimmed
        }
    }

    /// Returns the last authentic part of a batch, from this message downwards.
    private static func lastBatch(_ link: StreamLink, from last: NATSMessage?, first: UInt64) throws -> BatchMessage? {
        guard let last else { return nil }
        if let batch = try link.batch(last) { return batch }
        let number = last.sequence
        guard number > 0 else { return nil }
        let lowest = max(first, number > maxForeign ? number - maxForeign : 1)
        return try link.lastBatch(from: lowest, upTo: number - 1)?.message
    }

    private static func hasFollowers(_ source: ReplicationSource, _ stream: RelayStream) throws -> Bool {
        let names = try StoreReader.read(source.location) { try StoreHistory($0).summary().subscribers.map(\.name) }
        return names.contains { $0.hasPrefix(stream.subscriber("")) }
    }
}
