import AgentProtocol
import PersistentHistory

/// A home's announcement of a snapshot. Without a key, anybody may have sent it: each number is checked before its use.
struct SnapshotAnnouncement: Codable, Equatable {
    let id: String
    let size: Int64
    let chunkSize: Int
    let chunksSHA256: String
    let upto: String
    let schema: String
    /// The request that it answers.
    var have: String?
    var reason: SnapshotRequest.Reason?

    /// The longest text of an announcement, in bytes.
    private static let maxText = 256
    /// The longest file that SQLite opens, in bytes: 2^32 pages of 64 KiB (https://sqlite.org/limits.html).
    static let maxSize: Int64 = 1 << 48

    /// Parses an answer. Throws `RelayError.badSnapshot` for what no home announces, and `.oldSnapshot`.
    init(_ object: JSONObject, for request: SnapshotRequest) throws(RelayError) {
        guard let id = object.string("id"), let size = object.integer("size"),
            let chunkSize = object.integer("chunk_size"), let sha256 = object.string("chunks_sha256"),
            let upto = object.string("upto"),
            // A home with an older program doesn't say the state.
            let schema = object.string("schema_state") ?? object.string("schema")
        else { throw .badSnapshot("the announcement lacks something") }
        (self.id, self.size, self.chunkSize) = (id, size, Int(clamping: chunkSize))
        (chunksSHA256, self.upto, self.schema) = (sha256, upto, schema)
        have = request.have.map { "\($0)" }
        reason = request.reason
        guard let token else { throw .badSnapshot("the announcement has impossible values") }
        try request.check(token)
    }

    /// The token of the last change that is in the snapshot; nil if a value of the announcement is impossible.
    var token: HistoryToken? {
        guard (512...Self.maxSize).contains(size), size % 512 == 0,
            ((1 << 10)...SnapshotServer.chunkSize).contains(chunkSize), RelayStream.isName(id),
            chunksSHA256.utf8.count == 64, upto.utf8.count <= Self.maxText, schema.utf8.count <= Self.maxText
        else { return nil }
        return HistoryToken(upto)
    }

    /// Returns the number of chunks of so many bytes.
    func chunkCount(_ bytes: Int64) -> Int { Int((bytes + Int64(chunkSize) - 1) / Int64(chunkSize)) }
}
