import NATSStreams
import PersistentHistory

/// Finds the message from which a replica continues.
///
/// A follower never remembers a message's number: a broker that was restored from a backup gives the same numbers to
/// other messages. The messages' own tokens decide, by a binary search: the numbers of one history rise along the
/// stream.
struct StreamSearch {
    private let link: StreamLink
    private let state: StreamState

    /// The messages that are tried, downwards, if one is missing or isn't a part of a batch.
    private static let maxForeign: UInt64 = 64

    init(_ link: StreamLink) throws(NATSError) {
        self.link = link
        state = try link.state()
    }

    /// A batch's part with its number in the stream.
    private struct Found {
        let sequence: UInt64
        let message: BatchMessage

        /// The number of the batch's first part.
        var start: UInt64 {
            let before = UInt64(message.part.number - 1)
            return sequence > before ? sequence - before : 1
        }
    }

    /// Returns the number of the first message to read: the first part of the first batch that leads beyond the
    /// position, else of the last batch, which is then compared with the position. Also returns the highest number of a
    /// change that the stream leads to; nil if no message at its end has one, so that only the home knows it.
    func start(after position: HistoryToken) throws -> (sequence: UInt64, upto: Int64?) {
        guard state.messages > 0, state.last > 0, let last = try batch(at: state.last, notBefore: state.first) else {
            return (state.last + 1, nil)
        }
        // The messages after it can't be read, so only the home knows where they lead.
        let upto = last.sequence == state.last ? last.message.part.upto.number : nil
        guard leads(last, beyond: position) else { return (max(last.start, state.first), upto) }
        var (low, high, found) = (state.first, last.sequence, last)
        while low < high {
            let middle = low + (high - low) / 2
            if let batch = try batch(at: middle, notBefore: low), leads(batch, beyond: position) {
                found = batch
                high = batch.sequence
            } else {
                low = middle + 1
            }
        }
        return (max(found.start, state.first), upto)
    }

    /// Returns the token to which the stream's last messages lead; nil if none of them has one.
    func last() throws -> HistoryToken? {
        guard state.messages > 0 else { return nil }
        return try batch(at: state.last, notBefore: state.first)?.message.part.upto
    }

    /// Returns the number of the message after a part that was taken over an earlier connection; nil if the stream has
    /// another message in the part's place.
    ///
    /// - Parameter start: The number of the first part of the batch that is awaited now.
    func rest(after part: BatchMessage, ofBatchAt start: UInt64) throws -> UInt64? {
        let sequence = start + UInt64(part.part.number - 1)
        guard let message = try link.message(sequence), let found = try link.batch(message), found.isSame(as: part)
        else { return nil }
        return sequence + 1
    }

    private func leads(_ found: Found, beyond position: HistoryToken) -> Bool {
        let upto = found.message.part.upto
        return upto.history == position.history && upto.number > position.number
    }

    /// Returns the part at this number, else the nearest one below it.
    private func batch(at sequence: UInt64, notBefore lowest: UInt64) throws -> Found? {
        let reach = sequence >= Self.maxForeign ? sequence - Self.maxForeign + 1 : 1
        return try link.lastBatch(from: max(lowest, reach), upTo: sequence).map {
            Found(sequence: $0.sequence, message: $0.message)
        }
    }
}
