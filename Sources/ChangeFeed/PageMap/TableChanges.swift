/// Which tables transactions changed, as far as it is known.
package struct TableChanges: Sendable, Equatable {
    /// As `sqlite_schema` has them; a superset of what changed when `isComplete`, else those known of.
    package private(set) var names: Set<String>
    /// No other table was changed.
    package private(set) var isComplete: Bool

    package init(_ names: Set<String>, isComplete: Bool) {
        self.names = names
        self.isComplete = isComplete
    }

    package static let nothing = TableChanges([], isComplete: true)
    package static let unknown = TableChanges([], isComplete: false)

    package mutating func add(_ other: TableChanges) {
        if names.isEmpty { names = other.names } else { names.formUnion(other.names) }
        isComplete = isComplete && other.isComplete
    }
}

/// Why a page can't be charged to a table, or the pages can't be read. A map that met one is worth nothing.
package enum Unattributable: Error, Equatable {
    /// A page is not what the pages that lead to it say.
    case malformed(page: UInt32)
    /// Two pages lead to it, or one that was not written seems to have changed hands.
    case conflict(page: UInt32)
    /// Written, and no page leads to it.
    case unreached(page: UInt32)
    /// Page size, reserved space, auto-vacuum or encoding became others.
    case formatChanged
    case schemaNotUnderstood
    /// More pages or frames than are kept account of.
    case tooLarge
    /// The log does not go on where it was left.
    case gap
    /// The pages were written while they were read.
    case disturbed
    case cancelled
}
