import GRDB
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

    /// Reads a table's description. Throws `Unrecordable`, `DatabaseError`.
    init(_ name: String, isRowid: Bool, in database: Database, triggers: [ThirdPartyTrigger]) throws {
        self.name = name
        let information = try Row.fetchAll(
            database, sql: "SELECT name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo(?)",
            arguments: [name])
        let all = information.map { $0.decoded("name", as: String.self) ?? "" }
        columns = information.filter { $0.decoded("hidden", as: Int.self) == 0 }.map {
            $0.decoded("name", as: String.self) ?? ""
        }
        let indexes = try UniqueIndex.all(of: name, in: database)
        if isRowid {
            let primary = information.filter { ($0.decoded("pk", as: Int.self) ?? 0) > 0 }
            let isAlias =
                primary.count == 1 && (primary[0].decoded("type", as: String.self) ?? "").uppercased() == "INTEGER"
                && !indexes.contains { $0.isPrimaryKey }
            let lowercase = Set(all.map { $0.lowercased() })
            if let free = ["rowid", "_rowid_", "oid"].first(where: { !lowercase.contains($0) }) {
                key = .rowid(name: free, isStable: isAlias)
            } else if isAlias {
                key = .rowid(name: StoreTable.quote(primary[0].decoded("name") ?? ""), isStable: true)
            } else {
                throw Unrecordable(reason: "its columns take all names of its row numbers")
            }
        } else {
            let primary = information.filter { ($0.decoded("pk", as: Int.self) ?? 0) > 0 }
                .sorted { ($0.decoded("pk", as: Int.self) ?? 0) < ($1.decoded("pk", as: Int.self) ?? 0) }
            key = .columns(primary.map { $0.decoded("name", as: String.self) ?? "" })
        }
        let alias = information.first {
            ($0.decoded("pk", as: Int.self) ?? 0) == 1
                && ($0.decoded("type", as: String.self) ?? "").uppercased() == "INTEGER"
        }.map { $0.decoded("name", as: String.self) ?? "" }
        let row = try IncomingRow(name, information, alias: isRowid ? alias : nil, in: database)
        rules = UniqueRule.all(key: key, indexes: indexes, row: row)
        let hasActions = try Row.fetchAll(
            database, sql: "SELECT on_update, on_delete FROM pragma_foreign_key_list(?)", arguments: [name]
        ).contains {
            $0.decoded("on_update", as: String.self) != "NO ACTION"
                || $0.decoded("on_delete", as: String.self) != "NO ACTION"
        }
        mayNest = hasActions || triggers.contains { $0.mayWrite(name) }
    }
}

extension IncomingRow {
    /// Reads the columns' description. Throws `DatabaseError`.
    fileprivate init(_ table: String, _ information: [Row], alias: String?, in database: Database) throws {
        self.alias = alias
        quotedTable = StoreTable.quote(table)
        columns = information.map { $0.decoded("name", as: String.self) ?? "" }
        defaults = Dictionary(
            information.compactMap { row -> (String, String)? in
                guard row.decoded("notnull", as: Int.self) == 1, let value = row.decoded("dflt_value", as: String.self)
                else { return nil }
                return ((row.decoded("name", as: String.self) ?? "").lowercased(), "(\(value))")
            }, uniquingKeysWith: { first, _ in first })
        // 2: computed on reading (VIRTUAL), 3: stored.
        let isComputed = information.contains { [2, 3].contains($0.decoded("hidden", as: Int.self) ?? 0) }
        let sql =
            try isComputed
            ? String.fetchOne(
                database, sql: "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = ?", arguments: [table])
            : nil
        generated = SQLText.generatedColumns(sql ?? "")
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
