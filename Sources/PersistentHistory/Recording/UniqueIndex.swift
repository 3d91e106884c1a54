import GRDB

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

    /// Returns a table's unique indexes. Throws `DatabaseError`.
    static func all(of table: String, in database: Database) throws -> [UniqueIndex] {
        try Row.fetchAll(
            database, sql: "SELECT name, origin, \"unique\" FROM pragma_index_list(?) ORDER BY seq", arguments: [table]
        ).filter { $0.decoded("unique", as: Int.self) == 1 }.map { row in
            let name = row.decoded("name", as: String.self) ?? ""
            let sql = try String.fetchOne(
                database, sql: "SELECT sql FROM sqlite_schema WHERE type = 'index' AND name = ?", arguments: [name])
            let text = sql.map(SQLText.indexParts)
            let terms = try Row.fetchAll(
                database, sql: "SELECT name, coll, cid FROM pragma_index_xinfo(?) WHERE key = 1 ORDER BY seqno",
                arguments: [name])
            return UniqueIndex(
                isPrimaryKey: row.decoded("origin", as: String.self) == "pk",
                isDroppable: row.decoded("origin", as: String.self) == "c",
                terms: terms.enumerated().map { index, term in
                    let isExpression = term.decoded("cid", as: Int.self) == -2
                    let written = text.flatMap { index < $0.terms.count ? $0.terms[index] : nil }
                    return Term(
                        column: isExpression ? nil : term.decoded("name", as: String.self) ?? "rowid",
                        expression: isExpression ? written : nil, collation: term.decoded("coll"))
                },
                condition: text?.condition)
        }
    }
}
