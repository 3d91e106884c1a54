import SQLiteStore

/// One row that was changed, as a store's history has it.
package struct HistoryChange: Sendable, Equatable {
    package enum Operation: Int64, Sendable, CaseIterable {
        case insert = 0, update, delete
        /// Changes of the table may have gone unrecorded.
        case gap

        package var word: String { "\(self)" }
    }

    /// Counts a store's changes from 1.
    package let number: Int64
    /// Tells this change from another one that has its number in another copy of the store.
    package let nonce: Int64
    package let table: String
    /// Of a Core Data store.
    package let entity: String?
    package let operation: Operation
    /// The rowid; of a WITHOUT ROWID table the key's columns in their order. Empty for a gap.
    package let key: [SQLiteValue]
    /// Of an update: the columns, or Core Data's properties, that were assigned; nil where it isn't known.
    package let columns: [String]?
    /// Who says to have made it; nil for writers that don't say.
    package let author: String?
    /// Seconds since 1970.
    package let time: Double
    /// Core Data's transaction.
    package let transaction: Int64?
    /// What Core Data keeps of a deleted object, by attribute; by number where the model is not known.
    package let tombstone: [String: SQLiteValue]

    /// About how many bytes it takes.
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

/// Of which changes to be told; nil: of all.
package struct HistoryFilter: Sendable, Equatable {
    package var tables: Set<String>?
    package var entities: Set<String>?
    package var operations: Set<HistoryChange.Operation>?
    package var authors: Set<String>?
    /// A subscriber's own.
    package var exceptAuthors: Set<String> = []

    package init() {}

    /// A gap may be about anything of its table, and what has no entity may be of any.
    package func admits(_ change: HistoryChange) -> Bool {
        if let tables, !tables.contains(change.table.lowercased()) {
            if entities == nil || change.operation != .gap { return false }
        }
        if change.operation == .gap { return true }
        if let entities, let entity = change.entity, !entities.contains(entity) { return false }
        if let operations, !operations.contains(change.operation) { return false }
        if let authors, !(change.author.map(authors.contains) ?? false) { return false }
        return !(change.author.map(exceptAuthors.contains) ?? false)
    }
}
