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
        maxPartSize = max(16 << 10, min(BatchPart.maxBodySize, maxPayload - (8 << 10)))
    }

    mutating func send(_ part: BatchPart) throws {
        let (headers, digest) = try BatchMessage.headers(part, in: stream, after: mac, key: key)
        try publisher.publish(headers: headers, body: part.body)
        mac = digest ?? BatchMessage.noPrevious
        messages += 1
        bytes += Int64(part.body.count)
    }

    /// Waits until the broker has everything.
    func finish() throws { try publisher.finish() }
}
