import NATSStreams
import StoreReplication

/// Sends the parts of batches, each with the digest of the one before.
struct BatchOutlet {
    private let publisher: FencedPublisher
    private let stream: RelayStream
    private let key: RelayKey?
    private var mac: String
    let maxPartSize: Int
    private(set) var messages: Int64 = 0
    private(set) var bytes: Int64 = 0

    init(_ publisher: FencedPublisher, _ stream: RelayStream, key: RelayKey?, mac: String, maxPayload: Int) {
        self.publisher = publisher
        self.stream = stream
        self.key = key
        self.mac = mac
        // Headers count too.
        maxPartSize = min(Self.usualPartSize, Self.body(ofMessage: maxPayload))
    }

    mutating func send(_ part: BatchPart) throws {
        let (headers, digest) = try BatchMessage.headers(part, in: stream, after: mac, key: key)
        try publisher.publish(headers: headers, body: part.body)
        mac = digest ?? BatchMessage.noPrevious
        messages += 1
        bytes += Int64(part.body.count)
    }

    /// The size of a part, in bytes. A broker gives up a connection over which one message doesn't get within some
    /// seconds, so that a slow link needs small ones.
    private static let usualPartSize = 128 << 10

    /// The smallest `max_payload` of a broker over which batches can be sent, in bytes.
    static let minPayload = 4 << 10

    /// Returns the size of a body that a message of this size has room for, beside its headers.
    static func body(ofMessage size: Int) -> Int { size - min(8 << 10, max(2 << 10, size / 2)) }

    /// Waits until the broker has everything, and tells followers.
    func finish() throws {
        try publisher.finish()
        try publisher.announce(on: stream.news)
    }
}
