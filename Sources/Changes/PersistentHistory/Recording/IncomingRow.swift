import SQLiteFormat
import SQLiteStore

/// The row that a statement writes, as a BEFORE trigger must predict it. With OR REPLACE, NULL may become a default
/// value, and a generated column isn't yet computed from the columns that an UPDATE leaves unchanged.
struct IncomingRow {
    let quotedTable: String
    let columns: [String]
    /// The column that is an alias of the rowid; nil if there is none.
    let alias: String?
    /// The defaults of NOT NULL columns, by `DatabaseSchema.key(of:)`.
    let defaults: [String: String]
    /// The expressions of generated columns, by `DatabaseSchema.key(of:)`.
    let generated: [String: String]

    /// Returns SQL of a column's value.
    func value(of column: String) -> String { value(of: column, within: []) }

    /// Returns SQL of an expression's value.
    func value(ofExpression expression: String) -> String { value(ofExpression: expression, within: []) }

    /// - Parameter open: The generated columns whose expressions are being expanded: a column may have the same name as
    ///   a function.
    private func value(of column: String, within open: Set<String>) -> String {
        let name = DatabaseSchema.key(of: column)
        if let expression = generated[name], !open.contains(name) {
            return value(ofExpression: expression, within: open.union([name]))
        }
        let value = "NEW.\(column.sqlName)"
        return defaults[name].map { "coalesce(\(value), \($0))" } ?? value
    }

    /// Returns SQL of an expression's value. The first half of the union has no row. It gives the second half's values
    /// the columns' affinities and collations, which NEW lacks and by which an expression compares.
    private func value(ofExpression expression: String, within open: Set<String>) -> String {
        let names = mentioned(in: expression)
        guard !names.isEmpty else { return "(SELECT \(expression))" }
        let stored = names.map { "\($0.sqlName) AS \($0.sqlName)" }.joined(separator: ", ")
        let incoming = names.map { value(of: $0, within: open) }.joined(separator: ", ")
        return "(SELECT \(expression) FROM (SELECT \(stored) FROM \(quotedTable) WHERE 0 UNION ALL SELECT \(incoming)))"
    }

    func mentioned(in expression: String) -> [String] {
        let words = SQLText.identifiers(expression)
        return columns.filter { words.contains(DatabaseSchema.key(of: $0)) }
    }

    /// Returns the columns and all columns that they are computed from.
    func sources(of names: [String]) -> [String] {
        var found: [String] = []
        var pending = names
        while let name = pending.popLast() {
            guard !found.containsExact(name) else { continue }
            found.append(name)
            pending += generated[DatabaseSchema.key(of: name)].map(mentioned) ?? []
        }
        return columns.filter(found.containsExact) + found.filter { !columns.containsExact($0) }
    }

    func isGenerated(_ column: String) -> Bool { generated[DatabaseSchema.key(of: column)] != nil }

    /// Returns whether a NULL in one of the columns becomes a default value.
    func isReplacedByDefault(_ names: [String]) -> Bool {
        names.contains { defaults[DatabaseSchema.key(of: $0)] != nil }
    }
}
