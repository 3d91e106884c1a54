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

    var quotedName: String { StoreTable.quote(name) }

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
            names.map { QuotedValues.expression("\(row).\(StoreTable.quote($0))") }.joined(separator: "||','||")
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
            names.map { "\(row).\(StoreTable.quote($0)) = \(other).\(StoreTable.quote($0))" }
                .joined(separator: " AND ")
        }
    }
}

extension RecordedTable {
    /// The reason why a table can't be recorded.
    struct Unrecordable: Error {
        let reason: String
    }

    /// Reads a table's description. Throws `Unrecordable`, `StoreError`.
    init(_ name: String, isRowid: Bool, in database: SQLiteConnection, triggers: [ThirdPartyTrigger]) throws {
        self.name = name
        let information = try TableColumn.all(of: name, in: database)
        columns = information.filter { $0.hidden == 0 }.map(\.name)
        let indexes = try UniqueIndex.all(of: name, in: database)
        if isRowid {
            let primary = information.filter { $0.keyPosition > 0 }
            let isAlias = primary.count == 1 && primary[0].isInteger && !indexes.contains { $0.isPrimaryKey }
            let lowercase = Set(information.map { $0.name.lowercased() })
            if let free = ["rowid", "_rowid_", "oid"].first(where: { !lowercase.contains($0) }) {
                key = .rowid(name: free, isStable: isAlias)
            } else if isAlias {
                key = .rowid(name: StoreTable.quote(primary[0].name), isStable: true)
            } else {
                throw Unrecordable(reason: "its columns take all names of its row numbers")
            }
        } else {
            let primary = information.filter { $0.keyPosition > 0 }.sorted { $0.keyPosition < $1.keyPosition }
            key = .columns(primary.map(\.name))
        }
        let integerKey = information.first { $0.keyPosition == 1 && $0.isInteger }?.name
        let row = try IncomingRow(name, information, alias: isRowid ? integerKey : nil, in: database)
        if case .rowid(_, isStable: true) = key { alias = integerKey } else { alias = nil }
        rules = UniqueRule.all(key: key, indexes: indexes, row: row)
        let actions = try database.rows(
            "SELECT on_update, on_delete FROM pragma_foreign_key_list(?)", [.text(name)]
        ) { [$0.decodedText(0), $0.decodedText(1)] }
        mayNest = actions.joined().contains { $0 != "NO ACTION" } || triggers.contains { $0.mayWrite(name) }
    }
}

extension IncomingRow {
    /// Adds what the table's SQL says to the columns' description. Throws `StoreError`.
    fileprivate init(
        _ table: String, _ information: [TableColumn], alias: String?, in database: SQLiteConnection
    ) throws {
        self.alias = alias
        quotedTable = StoreTable.quote(table)
        columns = information.map(\.name)
        defaults = Dictionary(
            information.compactMap { column -> (String, String)? in
                guard column.isNotNull, let value = column.defaultValue else { return nil }
                return (column.name.lowercased(), "(\(value))")
            }, uniquingKeysWith: { first, _ in first })
        // 2: computed on reading (VIRTUAL), 3: stored.
        let isComputed = information.contains { $0.hidden == 2 || $0.hidden == 3 }
        let sql =
            try isComputed
            ? database.firstText(
                "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", [.text(table)])
            : nil
        generated = SQLText.generatedColumns(sql ?? "")
    }
}

/// A table's column as SQLite describes it (https://sqlite.org/pragma.html#pragma_table_xinfo).
private struct TableColumn {
    let name: String
    let isInteger: Bool
    let isNotNull: Bool
    let defaultValue: String?
    /// The position in the primary key, counted from 1; 0 if the column isn't part of it.
    let keyPosition: Int64
    let hidden: Int64?

    static func all(of table: String, in database: SQLiteConnection) throws -> [TableColumn] {
        try database.rows(
            "SELECT name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo(?)", [.text(table)]
        ) { row in
            TableColumn(
                name: row.decodedText(0) ?? "", isInteger: (row.decodedText(1) ?? "").uppercased() == "INTEGER",
                isNotNull: row.decodedInteger(2) == 1, defaultValue: row.decodedText(3),
                keyPosition: row.decodedInteger(4) ?? 0, hidden: row.decodedInteger(5))
        }
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
