import PersistentHistory
import SQLiteStore

/// The SQL that reads and writes a table's rows by their keys.
enum RowStatements {
    private static func name(_ table: ReplicatedTable) -> String { "main.\(table.name.sqlName)" }

    /// SQL of a key column. SQLite takes an unknown name in quotation marks for a text, unless it is qualified.
    private static func column(_ name: String) -> String { "r.\(name.sqlName)" }

    /// True if a row's number isn't one of its columns.
    static func hasHiddenKey(_ table: ReplicatedTable) -> Bool { table.rowid != nil && table.key.isEmpty }

    /// Writes a row over any existing one. The parameters are the rowid, if it is no column, and the columns.
    ///
    /// - Parameter kept: The parameters that `BoundValueTable` keeps, from 0.
    static func insertion(_ table: ReplicatedTable, kept: [Int: BoundValueTable.Kind] = [:]) -> String {
        var columns = table.columns.map(\.sqlName)
        if hasHiddenKey(table), let rowid = table.rowid { columns.insert(rowid, at: 0) }
        let values = columns.indices.map { BoundValueTable.value(ofParameter: $0 + 1, kept[$0]) }
        return "INSERT OR REPLACE INTO \(name(table)) (\(columns.joined(separator: ", "))) "
            + "VALUES (\(values.joined(separator: ", ")))"
    }

    /// Selects the columns of the row with exactly this key.
    static func selection(_ table: ReplicatedTable, reals: Set<Int>) -> String {
        let columns = table.columns.map(column).joined(separator: ", ")
        let hint = table.rowid == nil ? "" : " NOT INDEXED"
        return "SELECT \(columns) FROM \(name(table)) AS r\(hint) WHERE \(condition(table, reals: reals))"
    }

    /// Deletes the row with exactly this key.
    static func deletion(_ table: ReplicatedTable, reals: Set<Int>, kept: [Int: BoundValueTable.Kind] = [:]) -> String {
        "DELETE FROM \(name(table)) AS r WHERE \(condition(table, reals: reals, kept: kept))"
    }

    /// A statement that uses all indexes of the table.
    static func probe(_ table: ReplicatedTable) -> String { deletion(table, reals: []) }

    /// The condition for exactly this key. The parameters are the rowid; or the key's columns, their bounds for those
    /// that are REAL, and the text of the key as the home's history has it, which may be rounded.
    private static func condition(
        _ table: ReplicatedTable, reals: Set<Int>, kept: [Int: BoundValueTable.Kind] = [:]
    ) -> String {
        if let rowid = table.rowid { return "r.\(rowid) = ?1" }
        let count = table.key.count
        let values = (1...max(count, 1)).map { BoundValueTable.value(ofParameter: $0, kept[$0 - 1]) }
        var conditions: [String] = []
        for (index, name) in table.key.enumerated() {
            // The index narrows the search, by the column's own affinity and collation.
            conditions.append(
                reals.contains(index)
                    ? "\(column(name)) BETWEEN ?\(count + 2 + 2 * index) AND ?\(count + 3 + 2 * index)"
                    : "\(column(name)) = \(values[index])")
        }
        let stored = ReplicatedTable.quotedKey(table.key.map(column))
        let exact = "\(stored) = \(ReplicatedTable.quotedKey(values))"
        conditions.append(reals.isEmpty ? exact : "(\(exact) OR \(stored) = ?\(count + 1))")
        return conditions.joined(separator: " AND ")
    }
}
