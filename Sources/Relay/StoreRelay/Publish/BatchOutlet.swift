import NATSStreams
import StoreReplication

/// Sends the parts of batches, each with the digest of the previous one.
struct BatchOutlet {
    private let publisher: FencedPublisher
    private let link: StreamLink
    private var mac: String
    let maxPartSize: Int
    private(set) var messages: Int64 = 0
    private(set) var bytes: Int64 = 0

    /// - Parameter mac: The digest of the stream's last part, else `BatchMessage.noPrevious`.
    init(_ publisher: FencedPublisher, _ link: StreamLink, after mac: String) {
        self.publisher = publisher
        self.link = link
        self.mac = mac
        // Headers count too.
        maxPartSize = min(Self.usualPartSize, Self.body(ofMessage: link.connection.maxPayload))
    }

    mutating func send(_ part: BatchPart) throws {
        let (headers, digest) = try BatchMessage.headers(part, in: link.stream, after: mac, key: link.key)
        try publisher.publish(headers: headers, body: part.body)
        mac = digest ?? BatchMessage.noPrevious
        messages += 1
        bytes += Int64(part.body.count)
    }

    /// The size of a part, in bytes. A slow link needs small parts: a broker closes a connection if one message takes
    /// longer than some seconds.
    private static let usualPartSize = 128 << 10

    /// The smallest `max_payload` of a broker over which batches can be sent, in bytes.
    static let minPayload = 4 << 10

    /// Returns the size of a body that a message of this size has room for, beside its headers.
    static func body(ofMessage size: Int) -> Int { size - min(8 << 10, max(2 << 10, size / 2)) }

    /// Waits until the broker has stored everything, and notifies followers.
    func finish() throws {
        try publisher.finish()
        try publisher.announce(on: link.stream.news)
    }
}
