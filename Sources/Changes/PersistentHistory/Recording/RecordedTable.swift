import SQLiteStore

/// A table whose changes are recorded: how its rows are identified, and which rules make one row replace another.
struct RecordedTable: Equatable {
    /// Identifies a row.
    enum Key: Equatable {
        /// The rowid. `name` is a name that refers to it: a table may have ordinary columns called `rowid`. `isStable`
        /// is true for an INTEGER PRIMARY KEY, which VACUUM leaves unchanged (https://sqlite.org/lang_vacuum.html).
        case rowid(name: String, isStable: Bool)
        /// The primary key of a WITHOUT ROWID table.
        case columns([String])
    }

    let name: String
    let key: Key
    /// The columns that a statement can assign, in their order.
    let columns: [String]
    /// The column that is another name of the rowid; nil if there is none.
    let alias: String?
    let rules: [UniqueRule]
    /// True if the table's own triggers or foreign keys may write other rows of it in the middle of a statement.
    let mayNest: Bool

    var quotedName: String { name.sqlName }

    var keyColumns: [String] {
        switch key {
        case .rowid: []
        case .columns(let names): names
        }
    }

    /// Returns SQL of the key of the row that `row` (`OLD`, `NEW`, a table) names, in the form of `GS_CHANGE.key`.
    func key(of row: String) -> String {
        switch key {
        case .rowid(let name, _): "\(row).\(name)"
        case .columns(let names):
            // Text is quoted, so that no two keys look the same and no column's collation makes them equal.
            names.map { QuotedValues.expression("\(row).\($0.sqlName)") }.joined(separator: "||','||")
        }
    }

    /// Returns the condition by which SQLite finds the row of `row` that has the key of NEW.
    func matchesNewKey(_ row: String) -> String { matchesKey(row, keyOf: "NEW") }

    /// Returns the condition by which SQLite finds the row of `row` that has exactly the key of `other`.
    func isSameRow(_ row: String, keyOf other: String) -> String {
        // Under a column's collation, different keys may compare as equal.
        keyColumns.isEmpty
            ? matchesKey(row, keyOf: other) : "\(matchesKey(row, keyOf: other)) AND \(key(of: row)) = \(key(of: other))"
    }

    private func matchesKey(_ row: String, keyOf other: String) -> String {
        switch key {
        case .rowid(let name, _): "\(row).\(name) = \(other).\(name)"
        case .columns(let names):
            names.map { "\(row).\($0.sqlName) = \(other).\($0.sqlName)" }
                .joined(separator: " AND ")
        }
    }
}

extension RecordedTable {
    /// The reason why a table can't be recorded.
    struct Unrecordable: Error {
        let reason: String
    }

    /// Takes what matters of a table's description. Throws `Unrecordable`.
    init(_ table: DatabaseSchema.Table, triggers: [ThirdPartyTrigger]) throws {
        name = table.name
        columns = table.assignableColumns.map(\.name)
        alias = table.rowidAlias
        if table.kind == .rowid {
            guard let rowid = table.rowid else {
                throw Unrecordable(reason: "its columns take all names of its row numbers")
            }
            key = .rowid(name: rowid == alias ? rowid.sqlName : rowid, isStable: alias != nil)
        } else {
            // Without the collation, SQLite finds no row of such a table.
            let term = table.indexes.first { $0.origin == .primaryKey }?.termOfUnknownCollation
            if let term, let collation = term.collation, !StoreConnection.isGRDBs(collation: collation) {
                throw Unrecordable(
                    reason: "the column \(term.column ?? "") of its key has the app's own collation \(collation)")
            }
            key = .columns(table.primaryKey.map(\.name))
        }
        rules = UniqueRule.all(key: key, indexes: UniqueIndex.all(of: table), row: IncomingRow(table))
        mayNest = table.foreignKeys.contains(where: \.hasAction) || triggers.contains { $0.mayWrite(table.name) }
    }
}

extension IncomingRow {
    fileprivate init(_ table: DatabaseSchema.Table) {
        let integerKey = table.columns.first { $0.keyPlace == 1 && $0.type.uppercased() == "INTEGER" }
        alias = table.kind == .rowid ? integerKey?.name : nil
        quotedTable = table.name.sqlName
        columns = table.columns.map(\.name)
        defaults = Dictionary(
            table.columns.compactMap { column -> (String, String)? in
                guard column.isMandatory, let value = column.defaultValue else { return nil }
                return (DatabaseSchema.key(of: column.name), "(\(value))")
            }, uniquingKeysWith: { first, _ in first })
        let isComputed = table.columns.contains { $0.storage == .virtual || $0.storage == .stored }
        generated = SQLText.generatedColumns(isComputed ? table.creation : "")
    }
}

/// A trigger that isn't groupstore's.
struct ThirdPartyTrigger {
    /// The trigger's SQL from its BEGIN on, in lower case.
    private let body: String

    init(sql: String) {
        let text = sql.lowercased()
        body = text.firstRange(of: "begin").map { String(text[$0.lowerBound...]) } ?? text
    }

    /// Returns whether the trigger may write the table. True also for a trigger that only mentions it.
    func mayWrite(_ table: String) -> Bool {
        let name = table.lowercased()
        return body.contains(name) || body.contains(name.replacing("\"", with: "\"\""))
    }
}
