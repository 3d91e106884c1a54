import LinuxSystem
import PersistentStore

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
    private let model: ModelMark?

    /// Throws `HistoryError.disabled` when the store keeps none.
    package init(_ reader: StoreReader) throws {
        if let own = try RecordedHistory(reader) {
            source = own
        } else if let coreData = try CoreDataHistory(reader) {
            source = coreData
        } else {
            throw HistoryError.disabled(reader.location.path)
        }
        model = try ModelMark(reader)
    }

    init(_ source: any HistorySource, model: ModelMark? = nil) {
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

    /// What follows the token, `limit` admitted changes at most. Throws `Discontinuity`, `StoreError`.
    package func changes(after token: HistoryToken, limit: Int, filter: HistoryFilter = HistoryFilter()) throws -> Page
    {
        try source.check(token)
        if let known = token.model, known != model { throw Discontinuity.migrated }
        var admitted: [HistoryChange] = []
        var last = marked(token)
        while admitted.count < limit {
            let found = try source.changes(after: last.number, limit: Self.batch)
            for change in found {
                last = HistoryToken(history: token.history, number: change.number, nonce: change.nonce, model: model)
                if filter.admits(change) { admitted.append(change) }
                if admitted.count == limit { return page(admitted, last, isLast: false) }
            }
            if found.count < Self.batch { break }
        }
        return page(admitted, last, isLast: true)
    }

    private func page(_ changes: [HistoryChange], _ token: HistoryToken, isLast: Bool) -> Page {
        Page(changes: changes, token: token, isLast: isLast, isOutdated: source.isOutdated)
    }

    /// The last changes, in their order.
    package func latest(_ count: Int) throws -> [HistoryChange] {
        guard count > 0 else { return [] }
        let last = try source.current().number
        var back = Int64(count)
        // Numbers may have gaps.
        while true {
            let found = try source.changes(after: max(0, last - back), limit: Int(clamping: back))
            if found.count >= count || back >= last { return found.suffix(count) }
            back *= 4
        }
    }

    private static let batch = 512
}

/// Where changes are read from.
protocol HistorySource {
    var isOutdated: Bool { get }
    func summary() throws -> StoreHistory.Summary
    func current() throws -> HistoryToken
    func start() throws -> HistoryToken
    /// Throws `Discontinuity` when the token names no position in it.
    func check(_ token: HistoryToken) throws
    /// In the order of their numbers.
    func changes(after number: Int64, limit: Int) throws -> [HistoryChange]
}

/// A subscriber by name, and up to where it has acknowledged.
package struct HistorySubscriber: Sendable, Equatable {
    package let name: String
    package let number: Int64
    /// Seconds since 1970.
    package let time: Double
}
