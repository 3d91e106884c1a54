import Glibc
import LinuxSystem
import PersistentHistory

/// The parts of a batch until the last one has arrived. Nothing is written to the replica before the batch's hash is
/// checked, and the replica isn't locked while a slow broker delivers.
final class IncomingBatch {
    let from: HistoryToken
    let upto: HistoryToken
    let schema: String
    private let lines = SpooledOutput()
    private let hash = SHA256Stream()
    /// The last bytes, which may be the ending.
    private var tail: [UInt8] = []
    private var lastPart = 0
    private(set) var ending: BatchEnding?

    /// The longest body of a part, in bytes.
    private static let maxPartSize = 8 << 20

    init(_ first: BatchPart) { (from, upto, schema) = (first.from, first.upto, first.schema) }

    /// True if the part is the next one of this batch.
    func isFollowed(by part: BatchPart) -> Bool {
        part.number == lastPart + 1 && part.from == from && part.upto == upto && part.schema == schema
    }

    /// Adds the next part. Checks the whole batch if it is the last one. Throws `MalformedLine`, `SystemError`.
    func add(_ part: BatchPart) throws {
        guard part.body.count <= Self.maxPartSize else {
            throw MalformedLine(what: "a part has \(part.body.count) bytes", position: 0)
        }
        lastPart = part.number
        try lines.append(part.body)
        if part.body.count > BatchEnding.maxSize {
            hash.add(tail)
            hash.add(part.body.dropLast(BatchEnding.maxSize))
            tail = Array(part.body.suffix(BatchEnding.maxSize))
        } else {
            tail += part.body
            let excess = max(tail.count - BatchEnding.maxSize, 0)
            hash.add(tail.prefix(excess))
            tail.removeFirst(excess)
        }
        if part.isLast { try finish() }
    }

    private func finish() throws {
        let newline = UInt8(ascii: "\n")
        guard tail.last == newline, let before = tail.dropLast().lastIndex(of: newline) else {
            throw MalformedLine(what: "the batch has no ending", position: 0)
        }
        hash.add(tail[...before])
        let ending = try tail[(before + 1)...].dropLast().withUnsafeBufferPointer { bytes in
            var line = LineScanner()
            line.begin(bytes)
            return try BatchEnding(&line)
        }
        guard ending.sha256 == hash.finish() else {
            throw MalformedLine(what: "the batch has another SHA-256 than its ending says", position: 0)
        }
        self.ending = ending
    }

    /// Passes each line, without its end. Throws `MalformedLine`, `SystemError`, and what `body` throws.
    func forEachLine(_ body: (UnsafeBufferPointer<UInt8>) throws -> Void) throws {
        var rest: [UInt8] = []
        try lines.forEachPiece { piece in
            try piece.withUnsafeBufferPointer { bytes in
                var start = 0
                while let end = Self.endOfLine(bytes, from: start) {
                    let line = UnsafeBufferPointer(rebasing: bytes[start..<end])
                    if rest.isEmpty {
                        try body(line)
                    } else {
                        rest.append(contentsOf: line)
                        try rest.withUnsafeBufferPointer(body)
                        rest.removeAll(keepingCapacity: rest.count < 1 << 20)
                    }
                    start = end + 1
                }
                rest.append(contentsOf: bytes[start...])
                guard rest.count <= RowReading.maxLineSize else {
                    throw MalformedLine(what: "a line is too long", position: rest.count)
                }
            }
        }
        guard rest.isEmpty else { throw MalformedLine(what: "the last line doesn't end", position: rest.count) }
    }

    private static func endOfLine(_ bytes: UnsafeBufferPointer<UInt8>, from start: Int) -> Int? {
        guard let base = bytes.baseAddress, start < bytes.count,
            let found = memchr(base + start, 0x0A, bytes.count - start)
        else { return nil }
        return UnsafeRawPointer(found) - UnsafeRawPointer(base)
    }
}
