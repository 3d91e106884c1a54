import SQLiteStore

/// A reference that the schema doesn't declare, as a user declares it: `note_tag.tag_id=tag.id`.
package struct MergeReference: Sendable, Equatable {
    /// A column of a table.
    package struct Place: Sendable, Equatable {
        package let table: String
        package let column: String

        /// Parses `table.column`; a dot may be part of the table's name. Returns nil if a name is missing.
        fileprivate init?(_ text: Substring) {
            guard let dot = text.lastIndex(of: "."), dot != text.startIndex, text.index(after: dot) != text.endIndex
            else { return nil }
            table = String(text[..<dot])
            column = String(text[text.index(after: dot)...])
        }

        package var text: String { table + "." + column }
    }

    /// The column that holds the reference.
    package let source: Place
    /// The column with the values that it holds.
    package let target: Place

    /// Parses the form of the command line; returns nil if it isn't one.
    package init?(_ text: String) {
        let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
        guard parts.count == 2, let source = Place(parts[0]), let target = Place(parts[1]) else { return nil }
        self.source = source
        self.target = target
    }

    /// The form of the command line.
    package var text: String { source.text + "=" + target.text }

    /// True if both declare the same column's reference.
    package func hasSource(of other: MergeReference) -> Bool {
        DatabaseSchema.key(of: source.table) == DatabaseSchema.key(of: other.source.table)
            && DatabaseSchema.key(of: source.column) == DatabaseSchema.key(of: other.source.column)
    }
}

extension [MergeReference] {
    /// The first whose column an earlier one has declared; nil if there is none.
    package var firstRepeated: MergeReference? {
        indices.first { place in self[..<place].contains { $0.hasSource(of: self[place]) } }.map { self[$0] }
    }
}
