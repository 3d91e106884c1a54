import SQLiteStore

/// A unique index, with its expressions.
struct UniqueIndex {
    struct Term {
        /// The column's name; nil for an expression.
        let column: String?
        let expression: String?
        let collation: String?
    }

    let isPrimaryKey: Bool
    /// True if the app can drop the index, and then its columns too: it isn't part of the table's own definition.
    let isDroppable: Bool
    let terms: [Term]
    /// The text after WHERE.
    let condition: String?

    /// Returns a table's unique indexes.
    static func all(of table: DatabaseSchema.Table) -> [UniqueIndex] {
        table.indexes.filter(\.isUnique).map { index in
            let text = index.creation.map(SQLText.indexParts)
            let terms = index.terms.enumerated().map { place, term in
                let written = text.flatMap { place < $0.terms.count ? $0.terms[place] : nil }
                return Term(
                    column: term.isExpression ? nil : term.column ?? "rowid",
                    expression: term.isExpression ? written : nil, collation: term.collation)
            }
            return UniqueIndex(
                isPrimaryKey: index.origin == .primaryKey, isDroppable: index.origin == .statement, terms: terms,
                condition: text?.condition)
        }
    }
}
