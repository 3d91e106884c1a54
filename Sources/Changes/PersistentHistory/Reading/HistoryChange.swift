import SQLiteStore

/// One changed row, as recorded in a store's history.
package struct HistoryChange: Sendable, Equatable {
    package enum Operation: Int64, Sendable, CaseIterable {
        case insert = 0, update, delete
        /// Changes of the table may have gone unrecorded.
        case gap

        package var word: String { "\(self)" }
    }

    /// The change's number. A store's changes are counted from 1.
    package let number: Int64
    /// Distinguishes this change from one with the same number in another copy of the store.
    package let nonce: Int64
    package let table: String
    /// The entity, in a Core Data store.
    package let entity: String?
    /// The number of the entity in Core Data's own history; nil in groupstore's.
    package let entityNumber: Int64?
    package let operation: Operation
    /// The row's rowid, or the key columns of a WITHOUT ROWID table in their order. Empty for a gap.
    package let key: [SQLiteValue]
    /// The columns, or Core Data's properties, that an update assigned; nil if they aren't known.
    package let columns: [String]?
    /// The author that the writer declared; nil if it declared none.
    package let author: String?
    /// Seconds since 1970.
    package let time: Double
    /// The number of Core Data's transaction.
    package let transaction: Int64?
    /// The values that Core Data keeps of a deleted object, by attribute name, or by number if the model isn't known.
    package let tombstone: [String: SQLiteValue]

    /// The approximate memory use in bytes.
    package var size: Int {
        let texts = (columns ?? []) + [table, entity ?? "", author ?? ""] + tombstone.keys
        let values = key + tombstone.values
        return 128 + texts.reduce(0) { $0 + $1.utf8.count } + values.reduce(0) { $0 + $1.size }
    }
}

extension SQLiteValue {
    fileprivate var size: Int {
        switch self {
        case .null, .integer, .real: 16
        case .text(let text): text.utf8.count
        case .blob(let bytes): bytes.count
        }
    }
}

/// Selects changes; a nil property selects all of them.
package struct HistoryFilter: Sendable, Equatable {
    /// By `DatabaseSchema.key(of:)`.
    package var tables: Set<String>?
    package var entities: Set<String>?
    package var operations: Set<HistoryChange.Operation>?
    package var authors: Set<String>?
    /// Authors whose changes are left out, such as the subscriber's own.
    package var exceptAuthors: Set<String> = []

    package init() {}

    /// Returns true if the filter selects a change. A gap may concern anything in its table, and a change without an
    /// entity may be of any.
    package func admits(_ change: HistoryChange) -> Bool {
        if let tables, !tables.contains(DatabaseSchema.key(of: change.table)) {
            if entities == nil || change.operation != .gap { return false }
        }
        if change.operation == .gap { return true }
        if let entities, let entity = change.entity, !entities.contains(entity) { return false }
        if let operations, !operations.contains(change.operation) { return false }
        if let authors, !(change.author.map(authors.contains) ?? false) { return false }
        return !(change.author.map(exceptAuthors.contains) ?? false)
    }
}
