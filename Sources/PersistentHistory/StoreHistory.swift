import LinuxSystem
import SQLiteStore

/// A store's history, read without a trace: groupstore's own, or Core Data's. One thread's, inside `StoreReader.read`.
package struct StoreHistory {
    package enum Kind: String, Sendable {
        case groupstore
        case coreData = "core_data"
    }

    /// Why what follows a token can't be told.
    package enum Discontinuity: String, Error, Sendable {
        /// The token is of another history, or of a store that was restored since.
        case epoch
        /// Changes after it were purged.
        case trimmed = "history_trimmed"
        /// Changes after it may have gone unrecorded.
        case gap = "history_gap"
        /// The store has come to be of another version of its model: changes after it are not all that became of its rows.
        case migrated
    }

    /// Some changes, and where the next ones follow.
    package struct Page: Sendable {
        package let changes: [HistoryChange]
        /// The last change that was looked at, whether it was admitted or not.
        package let token: HistoryToken
        /// False: more may follow.
        package let isLast: Bool
        /// The schema was changed since the triggers were made: changes of some tables may not be among these.
        package let isOutdated: Bool
    }

    package struct Summary: Sendable, Equatable {
        package let kind: Kind
        package fileprivate(set) var token: HistoryToken
        package let changes: Int64
        /// The number of the first change that is there; nil when there is none.
        package let first: Int64?
        /// Changes up to this one were purged.
        package let trimmed: Int64
        package let tables: [String]
        /// The schema was changed since the triggers were made: `enable` follows.
        package let isOutdated: Bool
        package let subscribers: [HistorySubscriber]
    }

    private let source: any HistorySource
    private let model: ModelFingerprint?

    /// Throws `HistoryError.disabled` when the store keeps none.
    package init(_ reader: StoreReader) throws {
        if let own = try RecordedHistory(reader) {
            source = own
        } else if let coreData = try CoreDataHistory(reader) {
            source = coreData
        } else {
            throw HistoryError.disabled(reader.location.path)
        }
        model = try ModelFingerprint(reader)
    }

    init(_ source: any HistorySource, model: ModelFingerprint? = nil) {
        self.source = source
        self.model = model
    }

    package func summary() throws -> Summary {
        var summary = try source.summary()
        summary.token = marked(summary.token)
        return summary
    }

    /// The position after the last change.
    package func current() throws -> HistoryToken { marked(try source.current()) }

    /// The position before the first change that is there.
    package func start() throws -> HistoryToken { marked(try source.start()) }

    private func marked(_ token: HistoryToken) -> HistoryToken {
        HistoryToken(history: token.history, number: token.number, nonce: token.nonce, model: model)
    }

    /// Where a page ends.
    package struct PageEnd: Sendable {
        /// How many were admitted.
        package let count: Int
        package let token: HistoryToken
        /// False: more may follow.
        package let isLast: Bool
        package let isOutdated: Bool
    }

    /// What follows the token, `limit` admitted changes at most, and `HistoryChange.size` of them no more than
    /// `mostBytes`, but for the last one. Throws `Discontinuity`, `StoreError`.
    package func changes(
        after token: HistoryToken, limit: Int, mostBytes: Int = Self.pageBytes, filter: HistoryFilter = HistoryFilter()
    ) throws -> Page {
        var admitted: [HistoryChange] = []
        let end = try changes(after: token, limit: limit, mostBytes: mostBytes, filter: filter) { change in
            admitted.append(change)
            return change.size
        }
        return Page(changes: admitted, token: end.token, isLast: end.isLast, isOutdated: end.isOutdated)
    }

    /// The same, one after another: `take` is given each, and says how many bytes it keeps of it. No more than one change is
    /// in memory otherwise.
    package func changes(
        after token: HistoryToken, limit: Int, mostBytes: Int = Self.pageBytes, filter: HistoryFilter = HistoryFilter(),
        take: (HistoryChange) throws -> Int
    ) throws -> PageEnd {
        try source.check(token)
        if let known = token.model, known != model { throw Discontinuity.migrated }
        var (count, bytes) = (0, 0)
        var last = marked(token)
        var isFull = false
        try source.forEachChange(after: token.number) { change in
            last = HistoryToken(history: token.history, number: change.number, nonce: change.nonce, model: model)
            if filter.admits(change) {
                count += 1
                bytes += try take(change)
            }
            isFull = count >= limit || bytes >= mostBytes
            return !isFull
        }
        return PageEnd(count: count, token: last, isLast: !isFull, isOutdated: source.isOutdated)
    }

    /// The last changes, in their order; fewer where they take more than `pageBytes`, but for one.
    package func latest(_ count: Int) throws -> [HistoryChange] {
        guard count > 0, let number = try source.number(ofLast: count) else { return [] }
        var (found, bytes): ([HistoryChange], Int) = ([], 0)
        try source.forEachChange(from: number) { change in
            found.append(change)
            bytes += change.size
            while bytes > Self.pageBytes, found.count > 1 { bytes -= found.removeFirst().size }
            return true
        }
        return found
    }

    /// Of changes that are read at once.
    package static let pageBytes = 4 << 20
}

/// Where changes are read from.
protocol HistorySource {
    var isOutdated: Bool { get }
    func summary() throws -> StoreHistory.Summary
    func current() throws -> HistoryToken
    func start() throws -> HistoryToken
    /// Throws `Discontinuity` when the token names no position in it.
    func check(_ token: HistoryToken) throws
    /// In the order of their numbers, from this one on; for as long as `body` says.
    func forEachChange(from number: Int64, _ body: (HistoryChange) throws -> Bool) throws
    /// Of the first of the last `count` changes; nil where there is none.
    func number(ofLast count: Int) throws -> Int64?
}

extension HistorySource {
    func forEachChange(after number: Int64, _ body: (HistoryChange) throws -> Bool) throws {
        if number < .max { try forEachChange(from: number + 1, body) }
    }
}

/// A subscriber by name, and up to where it has acknowledged.
package struct HistorySubscriber: Sendable, Equatable {
    package let name: String
    package let number: Int64
    /// Seconds since 1970.
    package let time: Double
}
