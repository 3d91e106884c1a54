import LinuxSystem
import SQLiteStore

/// A store's history, read without leaving a trace: groupstore's own, or Core Data's. Use it on one thread, inside
/// `StoreReader.read`.
package struct StoreHistory {
    package enum Kind: String, Sendable {
        case groupstore
        case coreData = "core_data"
    }

    /// The reasons why the changes after a token can't be reported.
    package enum Discontinuity: String, ActionableError {
        /// The token belongs to another history, or to a store that was restored since.
        case epoch
        /// Changes after the token were purged.
        case trimmed = "history_trimmed"
        /// Changes after the token may have gone unrecorded.
        case gap = "history_gap"
        /// The store has another model version now: the changes after the token don't cover everything that happened to
        /// its rows.
        case migrated
        /// The schema isn't the one that the caller knows, or has changed since the token: rows may have other values
        /// although none of them was written.
        case schema = "schema_changed"

        package var errorCode: String { rawValue }
        package var message: String { "the token is no longer valid in this store's history" }
        package var remedy: String { "read the store again, and continue with the current token" }
    }

    /// A page of changes, and the position after it.
    package struct Page: Sendable {
        package let changes: [HistoryChange]
        /// The position of the last change that was examined, whether the filter selected it or not.
        package let token: HistoryToken
        /// True if no change follows; false if more may follow.
        package let isLast: Bool
        /// True if the schema has changed since the triggers were created: changes of some tables may be missing.
        package let isOutdated: Bool
    }

    package struct Summary: Sendable, Equatable {
        package let kind: Kind
        package fileprivate(set) var token: HistoryToken
        package let changes: Int64
        /// The number of the first remaining change; nil if there is none.
        package let first: Int64?
        /// The number of the last purged change.
        package let trimmed: Int64
        package let tables: [String]
        /// True if the schema has changed since the triggers were created; `enable` updates them.
        package let isOutdated: Bool
        /// The tables whose rows may have other keys than an outdated history says, or changes that it lacks.
        package let doubtfulTables: [String]
        /// True if the history also records what rows held before they were changed.
        package let recordsImages: Bool
        package let subscribers: [HistorySubscriber]
    }

    let source: any HistorySource
    private let model: ModelFingerprint?

    /// Opens the store's history. Throws `HistoryError.disabled` if the store keeps none.
    package init(_ reader: StoreReader) throws {
        if let recorded = try RecordedHistory(reader) {
            source = recorded
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
        summary.token = withModel(summary.token)
        return summary
    }

    /// Returns the position after the last change.
    package func current() throws -> HistoryToken { withModel(try source.current()) }

    /// Returns the position before the first remaining change.
    package func start() throws -> HistoryToken { withModel(try source.start()) }

    private func withModel(_ token: HistoryToken) -> HistoryToken {
        HistoryToken(history: token.history, number: token.number, nonce: token.nonce, model: model)
    }

    /// Throws `Discontinuity` if the changes after the token can't be reported.
    package func check(_ token: HistoryToken) throws {
        try source.check(token)
        if let known = token.model, known != model { throw Discontinuity.migrated }
    }

    /// Returns the position of a change.
    package func position(_ number: Int64, _ nonce: Int64, _ history: String) -> HistoryToken {
        HistoryToken(history: history, number: number, nonce: nonce, model: model)
    }

    /// The end of a page.
    package struct PageEnd: Sendable {
        /// The number of changes that the filter selected.
        package let count: Int
        package let token: HistoryToken
        /// True if no change follows; false if more may follow.
        package let isLast: Bool
        package let isOutdated: Bool
        /// True if the store is a replica.
        package let isReplica: Bool
        /// The tables whose rows may have other keys than an outdated history says, or changes that it lacks.
        package let doubtfulTables: [String]
    }

    /// Returns up to `limit` selected changes after the token. Stops when their `HistoryChange.size` reaches
    /// `maxBytes`, so only the last one may exceed it. Throws `Discontinuity`, `StoreError`.
    package func changes(
        after token: HistoryToken, limit: Int, maxBytes: Int = Self.pageBytes, filter: HistoryFilter = HistoryFilter()
    ) throws -> Page {
        var admitted: [HistoryChange] = []
        let end = try changes(after: token, limit: limit, maxBytes: maxBytes, filter: filter) { change in
            admitted.append(change)
            return change.size
        }
        return Page(changes: admitted, token: end.token, isLast: end.isLast, isOutdated: end.isOutdated)
    }

    /// Passes selected changes to `receive` one at a time, with the same limits. `receive` returns how many bytes it
    /// keeps of the change; otherwise only one change is in memory.
    package func changes(
        after token: HistoryToken, limit: Int, maxBytes: Int = Self.pageBytes, filter: HistoryFilter = HistoryFilter(),
        receive: (HistoryChange) throws -> Int
    ) throws -> PageEnd {
        try check(token)
        var (count, bytes) = (0, 0)
        var last = withModel(token)
        var isFull = false
        try source.forEachChange(after: token.number) { change in
            last = position(change.number, change.nonce, token.history)
            if filter.admits(change) {
                count += 1
                bytes += try receive(change)
            }
            isFull = count >= limit || bytes >= maxBytes
            return !isFull
        }
        return PageEnd(
            count: count, token: last, isLast: !isFull, isOutdated: source.isOutdated,
            isReplica: source.isReplica,
            doubtfulTables: try source.doubtfulTables().filter {
                filter.tables?.contains(DatabaseSchema.key(of: $0)) ?? true
            })
    }

    /// Returns the last changes in order, fewer if they take more than `pageBytes`, but at least one.
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

    /// The limit in bytes for changes that are read at once.
    package static let pageBytes = 4 << 20
}

/// A source of recorded changes.
protocol HistorySource {
    var isOutdated: Bool { get }
    var isReplica: Bool { get }
    func summary() throws -> StoreHistory.Summary
    func current() throws -> HistoryToken
    func start() throws -> HistoryToken
    /// Throws `Discontinuity` if the token isn't a position in this history.
    func check(_ token: HistoryToken) throws
    /// Calls `body` for each change in ascending order, beginning with this number, until `body` returns false.
    func forEachChange(from number: Int64, _ body: (HistoryChange) throws -> Bool) throws
    /// Returns the number of the first of the last `count` changes; nil if there is none.
    func number(ofLast count: Int) throws -> Int64?
    /// Returns the tables of which an outdated history may say what is wrong.
    func doubtfulTables() throws -> [String]
}

extension HistorySource {
    var isReplica: Bool { false }

    func doubtfulTables() throws -> [String] { [] }

    func forEachChange(after number: Int64, _ body: (HistoryChange) throws -> Bool) throws {
        if number < .max { try forEachChange(from: number + 1, body) }
    }
}

/// A named subscriber, and the number of the last change that it has acknowledged.
package struct HistorySubscriber: Sendable, Equatable {
    package let name: String
    package let number: Int64
    /// Seconds since 1970.
    package let time: Double
}
