import SQLiteStore

/// A unique index as SQLite describes it.
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

    /// Returns a table's unique indexes. Throws `StoreError`.
    static func all(of table: String, in database: SQLiteConnection) throws -> [UniqueIndex] {
        let indexes = try database.rows(
            "SELECT name, origin, \"unique\" FROM pragma_index_list(?) ORDER BY seq", [.text(table)]
        ) { (name: $0.decodedText(0) ?? "", origin: $0.decodedText(1), isUnique: $0.decodedInteger(2) == 1) }
        return try indexes.filter(\.isUnique).map { index in
            let sql = try database.firstText(
                "SELECT sql FROM sqlite_schema WHERE type = 'index' AND name = ?", [.text(index.name)])
            let text = sql.map(SQLText.indexParts)
            var terms: [Term] = []
            let row = try database.prepare(
                "SELECT name, coll, cid FROM pragma_index_xinfo(?) WHERE key = 1 ORDER BY seqno", [.text(index.name)])
            while try row.step() {
                let isExpression = row.decodedInteger(2) == -2
                let written = text.flatMap { terms.count < $0.terms.count ? $0.terms[terms.count] : nil }
                terms.append(
                    Term(
                        column: isExpression ? nil : row.decodedText(0) ?? "rowid",
                        expression: isExpression ? written : nil, collation: row.decodedText(1)))
            }
            return UniqueIndex(
                isPrimaryKey: index.origin == "pk", isDroppable: index.origin == "c", terms: terms,
                condition: text?.condition)
        }
    }
}
