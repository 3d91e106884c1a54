import PersistentHistory

/// Cuts the lines of a batch into parts, all but the last of the same size, and hashes them.
struct PartWriter {
    private let batch: BatchContent
    private let from: HistoryToken
    private let maxPartSize: Int
    private let send: (BatchPart) throws -> Void
    private let hash = SHA256Stream()
    private var number = 1
    private var part: [UInt8] = []

    init(_ batch: BatchContent, from: HistoryToken, maxPartSize: Int, send: @escaping (BatchPart) throws -> Void) {
        (self.batch, self.from, self.send) = (batch, from, send)
        self.maxPartSize = max(maxPartSize, 1)
    }

    /// Sends everything. Throws what `send` throws, and `SystemError`.
    mutating func run() throws {
        for spool in [batch.head, batch.body] { try spool.forEachPiece { try add($0, isHashed: true) } }
        try add(batch.tail[...], isHashed: true)
        let end =
            "{\"type\":\"end\",\"rows\":\(batch.rows),\"changes\":\(batch.changes),\"sha256\":\"\(hash.finish())\"}\n"
        try add(Array(end.utf8)[...], isHashed: false)
        try flush(isLast: true)
    }

    private mutating func add(_ bytes: ArraySlice<UInt8>, isHashed: Bool) throws {
        if isHashed { hash.add(bytes) }
        var rest = bytes
        while !rest.isEmpty {
            if part.count == maxPartSize { try flush(isLast: false) }
            let taken = rest.prefix(maxPartSize - part.count)
            part += taken
            rest = rest.dropFirst(taken.count)
        }
    }

    private mutating func flush(isLast: Bool) throws {
        try send(
            BatchPart(
                number: number, isLast: isLast, from: from, upto: batch.upto, schema: batch.schema, body: part))
        number += 1
        part = []
    }
}
