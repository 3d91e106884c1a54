import SQLiteFormat

/// The tables that one or more transactions changed, as far as they are known.
package struct TableChanges: Sendable, Equatable {
    /// The tables' names as in `sqlite_schema`: a superset of the changed ones if `isComplete`, else only those known.
    package private(set) var names: Set<ExactName>
    /// True if no other table was changed.
    package private(set) var isComplete: Bool

    package init(_ names: Set<ExactName>, isComplete: Bool) {
        self.names = names
        self.isComplete = isComplete
    }

    /// No changed table.
    package static let nothing = TableChanges([], isComplete: true)
    /// A change of unknown tables.
    package static let unknown = TableChanges([], isComplete: false)

    /// Merges other changes. The result is complete only if both are.
    package mutating func add(_ other: TableChanges) {
        if names.isEmpty { names = other.names } else { names.formUnion(other.names) }
        isComplete = isComplete && other.isComplete
    }
}

/// The reason a page can't be charged to a table, or pages can't be read. It invalidates the page map.
package enum Unattributable: Error, Equatable {
    /// A page does not match the pages that link to it.
    case malformed(page: UInt32)
    /// Two pages link to the page, or the page changed its owner without being written.
    case conflict(page: UInt32)
    /// The page was written and no page links to it.
    case unreached(page: UInt32)
    /// The page size, reserved space, auto-vacuum mode or encoding changed.
    case formatChanged
    case schemaNotUnderstood
    /// There are more pages or frames than are tracked.
    case tooLarge
    /// The WAL does not continue where it was left.
    case gap
    /// The pages were written while they were read.
    case disturbed
    case cancelled
}
