import NATSStreams
import PersistentHistory
import StoreReplication

/// A part of a batch as a message of a stream (Documentation/Relay.md, "The format").
///
/// With a key, each message's digest also covers the previous message's digest. So two messages with the same digest
/// have the same predecessors, which `isSame(as:)` relies on.
struct BatchMessage {
    let part: BatchPart
    /// The digest of the previous message, as the publisher knew it; nil without a key.
    let previous: String?
    let mac: String?

    /// The header of a stream's first message. It isn't empty, because libnats loses a header after an empty one.
    static let noPrevious = "-"

    /// Returns the message's headers, and its digest if there is a key.
    static func headers(
        _ part: BatchPart, in stream: RelayStream, after previous: String, key: RelayKey?
    ) throws(RelayError) -> (list: [(name: String, value: String)], mac: String?) {
        let place = part.isLast ? "\(part.number) last" : "\(part.number)"
        var list = [
            (name: RelayHeader.from, value: "\(part.from)"), (name: RelayHeader.upto, value: "\(part.upto)"),
            (name: RelayHeader.part, value: place), (name: RelayHeader.schema, value: part.schema),
        ]
        guard let key else { return (list, nil) }
        let fields = [stream.streamName] + list.map(\.value) + [previous]
        let mac = try key.digest(of: fields, part.body)
        list.append((name: RelayHeader.previous, value: previous))
        list.append((name: RelayHeader.mac, value: mac))
        return (list, mac)
    }

    /// Parses a message. Returns nil if it isn't a part of a batch.
    init?(_ message: NATSMessage) {
        let headers = message.headers
        guard let from = headers[RelayHeader.from].flatMap(HistoryToken.init),
            let upto = headers[RelayHeader.upto].flatMap(HistoryToken.init), let schema = headers[RelayHeader.schema],
            let place = headers[RelayHeader.part]
        else { return nil }
        let words = place.split(separator: " ", omittingEmptySubsequences: false)
        guard let number = Int(words[0]), number > 0, words.count == 1 || words.count == 2 && words[1] == "last" else {
            return nil
        }
        part = BatchPart(
            number: number, isLast: words.count == 2, from: from, upto: upto, schema: schema, body: message.body)
        previous = headers[RelayHeader.previous]
        mac = headers[RelayHeader.mac]
        fields = [
            headers[RelayHeader.from] ?? "", headers[RelayHeader.upto] ?? "", place, schema, previous ?? "",
        ]
    }

    /// The headers' values as they were received, in the order of the digest.
    private let fields: [String]

    /// Returns true if both are the same part. With a key, equal digests prove that all earlier parts of their batches
    /// are the same too. Without one, the batch's own hash decides in the end.
    func isSame(as other: BatchMessage) -> Bool { part == other.part && mac == other.mac }

    /// Returns true if the message's digest is right, or if there is no key.
    func isAuthentic(in stream: RelayStream, key: RelayKey?) throws(RelayError) -> Bool {
        guard let key else { return true }
        return try key.accepts(mac, of: [stream.streamName] + fields, part.body)
    }
}
