import SQLiteStore

/// The row that a statement brings, as a BEFORE trigger has to work it out: where the statement says OR REPLACE, NULL is
/// going to be a default value, and a generated column is not computed from what an UPDATE leaves as it is.
struct IncomingRow {
    let quotedTable: String
    let columns: [String]
    /// The column that is the rowid; nil where there is none.
    let alias: String?
    /// Of columns that can't be NULL, by name in lower case.
    let defaults: [String: String]
    /// What generated columns are computed from, by name in lower case.
    let generated: [String: String]

    /// The value of a column in SQL.
    func value(of column: String) -> String { value(of: column, within: []) }

    /// The value of an expression of columns in SQL.
    func value(ofExpression expression: String) -> String { value(ofExpression: expression, within: []) }

    /// - Parameter open: The generated columns whose expressions it is in: a column may be called as a function is.
    private func value(of column: String, within open: Set<String>) -> String {
        let name = column.lowercased()
        if let expression = generated[name], !open.contains(name) {
            return value(ofExpression: expression, within: open.union([name]))
        }
        let value = "NEW.\(StoreTable.quote(column))"
        return defaults[name].map { "coalesce(\(value), \($0))" } ?? value
    }

    /// The first half of the union has no row. It gives the second one's values the columns' affinities and collations,
    /// which NEW lacks, and by which an expression compares.
    private func value(ofExpression expression: String, within open: Set<String>) -> String {
        let names = mentioned(in: expression)
        guard !names.isEmpty else { return "(SELECT \(expression))" }
        let stored = names.map { "\(StoreTable.quote($0)) AS \(StoreTable.quote($0))" }.joined(separator: ", ")
        let coming = names.map { value(of: $0, within: open) }.joined(separator: ", ")
        return "(SELECT \(expression) FROM (SELECT \(stored) FROM \(quotedTable) WHERE 0 UNION ALL SELECT \(coming)))"
    }

    func mentioned(in expression: String) -> [String] {
        let words = SQLText.identifiers(expression)
        return columns.filter { words.contains($0.lowercased()) }
    }

    /// The columns and all that they are computed from.
    func sources(of names: [String]) -> [String] {
        var found: [String] = []
        var waiting = names
        while let name = waiting.popLast() {
            guard !found.contains(name) else { continue }
            found.append(name)
            waiting += generated[name.lowercased()].map(mentioned) ?? []
        }
        return columns.filter(found.contains) + found.filter { !columns.contains($0) }
    }

    func isGenerated(_ column: String) -> Bool { generated[column.lowercased()] != nil }

    /// Whether NULL in one of the columns becomes a default value.
    func isReplacedByDefault(_ names: [String]) -> Bool { names.contains { defaults[$0.lowercased()] != nil } }
}
