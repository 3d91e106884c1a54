import PersistentHistory
import StoreReplication

/// The batch that is being published. It outlives a connection, so that a long batch gets through even if no connection
/// lasts for long: the next one continues after the last part that the stream has.
final class HeldBatch {
    private(set) var batch: UnsentBatch?
    /// The last part that the stream has of it.
    private var stored: BatchPart?
    /// True if the connection before the last `meet` stored parts of it: then the next attempt is made soon.
    private(set) var hasAdvanced = false

    /// Thrown if the stream has other parts than those of the batch.
    private struct OtherParts: Error {}

    /// Holds a batch that was just read.
    func take(_ batch: UnsentBatch) { (self.batch, stored, hasAdvanced) = (batch, nil, false) }

    /// Discards the batch.
    func clear() { (batch, stored, hasAdvanced) = (nil, nil, false) }

    /// Discards the batch unless it begins where the stream ends, and leads to a change that the store still has.
    /// Without this, a connection would send parts that don't follow the stream's.
    ///
    /// - Parameters:
    ///   - token: The token after which the stream goes on.
    ///   - unfinished: The stream's last part of a batch without its last part.
    func meet(endOf token: HistoryToken, unfinished: BatchPart?, in source: ReplicationSource) {
        guard let batch, batch.from == token, (try? source.check(batch.upto)) != nil else { return clear() }
        let last = unfinished.flatMap { $0.from == batch.from && $0.upto == batch.upto ? $0 : nil }
        hasAdvanced = (last?.number ?? 0) > (stored?.number ?? 0)
        stored = last
    }

    /// Passes the parts that the stream lacks: those after its last one if it is of this batch, else all. Throws
    /// `SystemError`, and what `send` throws.
    func forEachPart(maxSize: Int, _ send: (BatchPart) throws -> Void) throws {
        guard let batch else { return }
        if let last = stored {
            do {
                var isFound = false
                try batch.forEachPart(maxSize: maxSize) { part in
                    if part.number > last.number, isFound { return try send(part) }
                    guard part.number == last.number || part.isLast else { return }
                    guard part == last else { throw OtherParts() }
                    isFound = true
                }
                return
            } catch is OtherParts {
                stored = nil
            }
        }
        try batch.forEachPart(maxSize: maxSize, send)
    }
}
