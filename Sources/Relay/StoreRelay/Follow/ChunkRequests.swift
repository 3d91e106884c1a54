/// The chunks of a snapshot that are still to be requested, and those whose answers are awaited.
///
/// A home answers requests in order, and a broker keeps that order. So the answer to a probe, a small request sent
/// after the others when no answer comes, proves that the missing earlier answers are lost.
struct ChunkRequests {
    /// The chunks of the snapshot.
    let count: Int
    /// The chunks that are requested ahead.
    private let window: Int
    /// The first chunk that wasn't received.
    private(set) var first: Int
    /// The first chunk that was never requested.
    private var next: Int
    /// The chunks to request again.
    private var lost: Set<Int> = []
    /// The number of the request for each chunk.
    private var awaited: [Int: Int] = [:]
    /// The chunks that were received before an earlier one.
    private var early: Set<Int> = []
    /// The number of requests so far, which identifies a probe.
    private(set) var sent = 0

    init(from first: Int, to count: Int, window: Int) {
        (self.count, self.window) = (count, window)
        (self.first, next) = (first, first)
    }

    var isComplete: Bool { first >= count }

    /// Returns the chunk to request now; nil if enough are awaited.
    mutating func begin() -> Int? {
        var index = lost.min()
        if let index {
            lost.remove(index)
        } else if next < min(count, first + window) {
            index = next
            next += 1
        }
        guard let index else { return nil }
        sent += 1
        awaited[index] = sent
        return index
    }

    /// Records an answer. Returns false if the chunk is no longer needed, or was never requested.
    mutating func receive(_ index: Int) -> Bool {
        guard (first..<next).contains(index), !early.contains(index) else { return false }
        awaited[index] = nil
        lost.remove(index)
        early.insert(index)
        while early.remove(first) != nil { first += 1 }
        return true
    }

    /// Records the answer to a probe that was sent after so many requests. The unanswered ones among them are repeated.
    mutating func receiveProbe(_ number: Int) {
        for (index, request) in awaited where request <= number {
            awaited[index] = nil
            lost.insert(index)
        }
    }
}
