import SQLiteFormat
import SQLiteStore

/// A row that changed, as it is now.
package struct ChangedRow: Sendable, Equatable {
    /// The number of its last change in the page.
    package fileprivate(set) var number: Int64
    /// `insert` or `update` if the row exists, by its first change in the page; `delete` if it is gone.
    package let operation: HistoryChange.Operation
    /// The table's place in `ChangedRows.tables`.
    package let table: Int
    /// The rowid, or the key columns of a WITHOUT ROWID table in their order.
    package let key: [StoredValue]
    /// The values of `BatchTable.columns`; nil if the row is gone.
    package let values: [StoredValue]?
    /// The values of `BatchTable.columns` before the row's first change in the page; nil if it is new or they weren't
    /// recorded.
    package private(set) var before: [StoredValue]?
    /// The links of each of `BatchTable.toMany`: the values of its columns after the first, row by row.
    package let toMany: [[[StoredValue]]]
    /// The columns, or Core Data's properties, that all of its changes together assigned; nil if they aren't known, or
    /// one of them was no update.
    package fileprivate(set) var columns: [String]?
    /// The author and the time, in seconds since 1970, of its last change.
    package fileprivate(set) var author: String?
    package fileprivate(set) var time: Double
    /// The transaction of its last change: Core Data's number, or the number of the last change of the commit. Nil if
    /// it isn't known for certain.
    package internal(set) var transaction: Int64?
    /// About the length of its JSON, in bytes.
    private(set) var size: Int

    init(_ change: HistoryChange, table: Int, key: [StoredValue], found: FoundRow?) {
        number = change.number
        let isNew = change.operation == .insert
        operation = found == nil ? .delete : isNew ? .insert : .update
        self.table = table
        self.key = key
        values = found?.values
        toMany = found?.toMany ?? []
        columns = change.operation == .update ? change.columns : nil
        (author, time, transaction) = (change.author, change.time, change.transaction)
        let all = key + (values ?? []) + toMany.flatMap { $0.flatMap { $0 } }
        size = 160 + (change.columns ?? []).reduce(0) { $0 + $1.utf8.count } + all.reduce(0) { $0 + $1.jsonLength }
    }

    mutating func setBefore(_ values: [StoredValue]) {
        before = values
        size += values.reduce(0) { $0 + $1.jsonLength }
    }

    /// Adds a later change of the same row.
    mutating func add(_ change: HistoryChange) {
        number = change.number
        (author, time, transaction) = (change.author, change.time, change.transaction)
        if let known = columns, change.operation == .update, let later = change.columns {
            columns = known + later.filter { !known.containsExact($0) }
        } else {
            columns = nil
        }
    }
}

/// A row as the store has it.
struct FoundRow {
    let values: [StoredValue]
    var toMany: [[[StoredValue]]] = []
}

/// A table, and in a Core Data store one of its entities, as far as a reader of its rows needs to know it.
package struct BatchTable: Sendable, Equatable {
    /// A Core Data property that a column belongs to.
    package enum Property: Sendable, Equatable {
        /// An attribute, and the name of its type in a model's XML. An element of a composite attribute is `a.b`.
        case attribute(String, type: String)
        /// A relationship's reference to an object, by `Z_PK`.
        case reference(String, destination: String)
        /// The number of the entity of that object.
        case entity(String, destination: String)
        /// The position in an ordered relationship.
        case order(String, destination: String)
    }

    /// A many-to-many relationship of the entity. Core Data's own history has no changes of the table that keeps it.
    package struct ToMany: Sendable, Equatable {
        package let relationship: String
        package let destination: String
        package let table: String
        /// The column of the object, that of the related object, and those of positions.
        package let columns: [String]
    }

    package let name: String
    package let entity: String?
    /// The name by which SQL reaches the rowid; nil for a WITHOUT ROWID table.
    package let rowid: String?
    /// The columns of the key of a WITHOUT ROWID table, or the one that is the rowid; empty if no column is.
    package let key: [String]
    /// The columns that are stored, in their order. Generated columns follow from them.
    package let columns: [String]
    /// A property for each column, if it belongs to one; empty if the store has no model.
    package let properties: [Property?]
    package let toMany: [ToMany]
}

extension StoredValue {
    /// The length of its JSON in bytes, or a little more.
    fileprivate var jsonLength: Int {
        switch self {
        case .null: 5
        case .integer, .real: 26
        case .text(let text):
            text.utf8.reduce(3) { $0 + ($1 < 0x20 || $1 == 0x7F ? 6 : $1 == 0x22 || $1 == 0x5C ? 2 : 1) }
        case .malformedText(let bytes), .blob(let bytes): bytes.count / 3 * 4 + 24
        }
    }
}
