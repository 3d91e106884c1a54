import ChangeFeed
import LinuxSystem

/// Transactions of a log that were read before the log was restarted, first in, first out.
struct CapturedTransactions {
    private var transactions: [(transaction: WALTransaction, identity: FileIdentity)?] = []
    /// The place of the first that wasn't taken.
    private var first = 0
    private var length = 0
    private var nextLook = ContinuousClock.now

    /// The length of frames from which on nothing is captured, in bytes.
    private static let maximumLength = 128 << 20
    /// A log of a thousand pages that is written without a pause is restarted after some ten milliseconds.
    private static let interval = Duration.milliseconds(1)

    var count: Int { transactions.count - first }
    var isEmpty: Bool { count == 0 }
    var isFull: Bool { length > Self.maximumLength }

    /// True if the log should be looked at again.
    var isDue: Bool { ContinuousClock.now >= nextLook }

    /// Records that the log was looked at just now.
    mutating func recordLook() { nextLook = .now.advanced(by: Self.interval) }

    mutating func append(_ found: [WALTransaction], of identity: FileIdentity) {
        for transaction in found {
            transactions.append((transaction, identity))
            length += transaction.length
        }
    }

    mutating func popFirst() -> (transaction: WALTransaction, identity: FileIdentity)? {
        // Nothing keeps the frames of what was taken.
        guard first < transactions.count, let found = transactions[first].take() else { return nil }
        length -= found.transaction.length
        first += 1
        if first == transactions.count || first >= 1024 {
            transactions.removeFirst(first)
            first = 0
        }
        return found
    }

    mutating func removeAll() { self = Self() }
}
