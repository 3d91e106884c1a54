import CSQLite
import SQLiteFormat

/// What a store that has been written to still has of an earlier copy of it.
package struct ContentRetention: Equatable, Sendable {
    /// The rows of one table of the copy.
    package struct Table: Equatable, Sendable {
        package let name: String
        /// The number of rows in the copy.
        package let rows: Int64
        /// The number of rows that the store lacks: it has none with their keys.
        package var missing: Int64 = 0
        /// The number of rows that have other values in the store.
        package var changed: Int64 = 0
        /// A column that has a value in most rows of the copy that both have, and none in most of those in the store.
        var emptied: String?
        /// True for a table of Core Data's history.
        package var isHistory = false
        /// A phrase on why the table can't vouch for the copy's: `has no table note`; nil if it can.
        package var obstacle: String?

        var kept: Int64 { rows - missing - changed }
        package var isComplete: Bool { missing == 0 && changed == 0 && obstacle == nil }
    }

    /// The copy's tables that have rows.
    package let tables: [Table]
    /// Those of Core Data's history, which prove and contradict nothing: Core Data deletes it when it is old.
    let history: [Table]
    /// True if both are Core Data's and have different identities.
    let isAnotherStore: Bool

    /// The tables of which the store has less than the copy, also those of Core Data's history.
    package var incomplete: [Table] { (tables + history).filter { !$0.isComplete } }

    /// True if the store has every row of the copy, except for Core Data's history.
    package var isComplete: Bool { tables.allSatisfy(\.isComplete) && !isAnotherStore }

    /// The first phrase on why the store is not the copied one, gone on since; nil if nothing contradicts it.
    package var contradiction: String? {
        if isAnotherStore { return "is another store" }
        if let obstacle = tables.lazy.compactMap(\.obstacle).first { return obstacle }
        // A store that has lost most rows of a table is no later state of the copy: it has lost its content too.
        if let lost = tables.first(where: { $0.rows - $0.missing < $0.missing }) {
            return "lacks \(lost.missing) of \(lost.rows) rows in \(lost.name)"
        }
        // The same goes for a column: its values may be nowhere else.
        for table in tables {
            if let column = table.emptied { return "has lost most values of \(column) in \(table.name)" }
        }
        // Another store of the same program has rows with the same keys. Of those that both have, most must be equal.
        let telling = tables.filter { !Self.bookkeeping.contains($0.name) }
        let kept = telling.reduce(0) { $0 + $1.kept }
        let changed = telling.reduce(0) { $0 + $1.changed }
        return kept > 0 && kept >= changed ? nil : "has other rows"
    }

    /// Core Data's tables whose rows are alike in all stores of a model.
    private static let bookkeeping: Set = ["Z_METADATA", "Z_MODELCACHE", "Z_PRIMARYKEY"]
}

/// How the rows of two stores correspond.
enum RowPairing {
    /// By the row identifier, or the primary key of a table without one.
    case rowid
    /// By the declared primary key. A program that makes a table anew may number its rows again.
    case primaryKey

    func key(of table: DatabaseSchema.Table) -> [String] {
        usesRowid(of: table) ? table.identifyingColumns : table.primaryKey.map(\.name)
    }

    /// The columns to compare.
    func columns(of table: DatabaseSchema.Table) -> [String] {
        usesRowid(of: table) ? table.readColumns : table.assignableColumns.map(\.name)
    }

    private func usesRowid(of table: DatabaseSchema.Table) -> Bool { self == .rowid || table.primaryKey.isEmpty }
}

extension StoreContent {
    /// Compares each row with the one that has its key in the other store. The key is the row identifier, or the
    /// primary key of a table without one. Both readers must be valid.
    package func retention(in other: StoreContent) throws -> ContentRetention {
        let identities = try [reader, other.reader].compactMap { try CoreDataMetadata($0)?.uuid }
        let history = try coreDataHistory()
        let compared = try tables.filter { $0.kind != .virtual }.compactMap { table in
            var found = try retention(of: table, in: other, pairing: .rowid)
            found?.isHistory = history.contains(table.name)
            return found
        }
        return ContentRetention(
            tables: compared.filter { !$0.isHistory }, history: compared.filter(\.isHistory),
            isAnotherStore: Set(identities).count > 1)
    }

    /// Returns nil if the table is empty. Its counterpart is what SQLite takes its name for: the case of ASCII letters
    /// doesn't matter, nor whether either is `WITHOUT ROWID`, as long as both have the key.
    func retention(
        of table: DatabaseSchema.Table, in other: StoreContent, pairing: RowPairing
    ) throws -> ContentRetention.Table? {
        var found = ContentRetention.Table(name: table.name, rows: try reader.rowCount(table))
        guard found.rows > 0 else { return nil }
        guard let counterpart = other.schema.table(table.name) else {
            (found.missing, found.obstacle) = (found.rows, "has no table \(table.name)")
            return found
        }
        guard counterpart.kind != .virtual else {
            (found.changed, found.obstacle) = (found.rows, "has a virtual table \(table.name)")
            return found
        }
        guard try other.reader.hasRows(table) else {
            (found.missing, found.obstacle) = (found.rows, "has no rows in \(table.name)")
            return found
        }
        guard try reader.text("PRAGMA encoding") == other.reader.text("PRAGMA encoding") else {
            (found.changed, found.obstacle) = (found.rows, "has another text encoding")
            return found
        }
        let theirs = Set(counterpart.assignableColumns.map { DatabaseSchema.key(of: $0.name) })
        if let lost = table.assignableColumns.first(where: { !theirs.contains(DatabaseSchema.key(of: $0.name)) }) {
            let verb = counterpart.column(lost.name) == nil ? "has no" : "computes the"
            (found.changed, found.obstacle) = (found.rows, "\(verb) column \(lost.name) in \(table.name)")
            return found
        }
        let key = pairing.key(of: table)
        guard !key.isEmpty, key.map(DatabaseSchema.key) == pairing.key(of: counterpart).map(DatabaseSchema.key) else {
            (found.changed, found.obstacle) = (found.rows, "has other keys in \(table.name)")
            return found
        }
        // Where the keys have other types, several of the copy's rows may find one: '7' and '07' both find 7.
        let types = [table, counterpart].map { owner in
            key.map { (owner.column($0)?.type ?? "INTEGER").uppercased() }
        }
        try compareRows(of: table, with: other, pairing, hasOtherKeyTypes: types[0] != types[1], &found)
        return found
    }

    private func compareRows(
        of table: DatabaseSchema.Table, with other: StoreContent, _ pairing: RowPairing, hasOtherKeyTypes: Bool,
        _ found: inout ContentRetention.Table
    ) throws {
        let (names, key) = (pairing.columns(of: table), pairing.key(of: table))
        let rows = try reader.prepare(
            "SELECT \(names.map(\.sqlName).joined(separator: ", ")) FROM \(table.name.sqlName) NOT INDEXED")
        let counterpart = try other.reader.prepare(
            "SELECT \(names.map(\.sqlName).joined(separator: ", ")) FROM \(table.name.sqlName) WHERE "
                + zip(1..., key).map { number, column in
                    // The other store's collation may take two keys as one.
                    let collation = table.keyCollation(of: column)
                    return "\(column.sqlName) IS ?\(number)"
                        + (collation.map { " AND \(column.sqlName) COLLATE \($0) IS ?\(number)" } ?? "")
                }.joined(separator: " AND "))
        let positions = key.compactMap { names.firstIndex(ofExact: $0) }.map(Int32.init)
        let columns = Int32(0)..<Int32(names.count)
        var (had, lost) = (names.map { _ in Int64(0) }, names.map { _ in Int64(0) })
        var foundKeys: Set<[SQLiteValue]> = []
        while try rows.step() {
            counterpart.reset()
            for (parameter, position) in zip(Int32(1)..., positions) {
                try counterpart.bind(parameter, toColumn: position, of: rows)
            }
            guard try counterpart.step(),
                !hasOtherKeyTypes || foundKeys.insert(positions.map(counterpart.value)).inserted
            else {
                found.missing += 1
                continue
            }
            let isChanged = rows.firstDifference(from: counterpart) != nil
            if isChanged { found.changed += 1 }
            for column in columns where rows.hasContent(column) {
                had[Int(column)] += 1
                if isChanged, !counterpart.hasContent(column) { lost[Int(column)] += 1 }
            }
        }
        let common = found.rows - found.missing
        found.emptied = names.indices.first { had[$0] * 2 > common && lost[$0] * 2 > had[$0] }.map { names[$0] }
    }
}

extension DatabaseSchema.Table {
    /// The collation by which the primary key tells a column's values apart; nil for one that SQLite doesn't have
    /// itself.
    fileprivate func keyCollation(of column: String) -> String? {
        let terms = indexes.first { $0.origin == .primaryKey }?.terms ?? []
        let name = terms.first { $0.column?.hasSameBytes(as: column) == true }?.collation ?? "BINARY"
        return ["BINARY", "NOCASE", "RTRIM"].contains(name.uppercased()) ? name : nil
    }
}

extension StoreContent {
    /// Returns those of the names that a value refers to as Core Data refers to a file of external data: the name,
    /// after a marker byte and before a NUL, or alone.
    package func references(to names: Set<[UInt8]>) throws -> Set<[UInt8]> {
        guard let longest = names.map(\.count).max() else { return [] }
        var found: Set<[UInt8]> = []
        for table in tables where table.kind != .virtual {
            let rows = try reader.rows(of: table)
            while try rows.step() {
                for column in 0..<rows.columnCount {
                    guard let bytes = rows.bytes(column, limit: longest + 2) else { continue }
                    let name = bytes.drop { $0 < 3 }.prefix { $0 != 0 }
                    if names.contains(Array(name)) { found.insert(Array(name)) }
                }
            }
        }
        return found
    }

    /// True if the store is Core Data's.
    package var isCoreData: Bool { get throws { try CoreDataMetadata(reader) != nil } }
}

extension StoreContent {
    private struct HistoryTable {
        let name: String
        let entity: Int64
        let columns: Set<String>
        var others: @Sendable (String) -> Bool = { _ in false }
    }

    /// The framework's entities and their columns, as stores have them. The table of an app's entity begins with `Z`.
    private static let historyTables = [
        HistoryTable(
            name: "CHANGE", entity: 16001,
            columns: ["ZCHANGETYPE", "ZENTITY", "ZENTITYPK", "ZTRANSACTIONID", "ZCOLUMNS"],
            others: {
                $0.hasPrefix("ZTOMBSTONE") && !$0.dropFirst(10).isEmpty && $0.dropFirst(10).allSatisfy(\.isNumber)
            }),
        HistoryTable(
            name: "TRANSACTION", entity: 16002, columns: ["ZTIMESTAMP", "ZAUTHOR"],
            others: {
                [
                    "ZAUTHORTS", "ZBUNDLEIDTS", "ZCONTEXTNAMETS", "ZPROCESSIDTS", "ZBUNDLEID", "ZCONTEXTNAME",
                    "ZPROCESSID", "ZQUERYGEN",
                ].contains($0)
            }),
        HistoryTable(name: "TRANSACTIONSTRING", entity: 16003, columns: ["ZNAME"]),
    ]

    /// Returns the tables of Core Data's history that this store has. Their columns, the list of entities and all their
    /// rows say so: an app may have a table with such a name.
    private func coreDataHistory() throws -> Set<String> {
        guard try isCoreData, let list = tables.first(where: { $0.name == "Z_PRIMARYKEY" }),
            Set(list.assignableColumns.map(\.name)).isSuperset(of: ["Z_ENT", "Z_NAME"])
        else { return [] }
        let found = try Self.historyTables.filter { history in
            guard let table = tables.first(where: { $0.name == "A\(history.name)" }) else { return false }
            let columns = Set(table.assignableColumns.map(\.name))
            let known = history.columns.union(["Z_PK", "Z_ENT", "Z_OPT"])
            guard columns.isSuperset(of: known), columns.subtracting(known).allSatisfy(history.others) else {
                return false
            }
            let entry = "Z_ENT = \(history.entity) AND Z_NAME = '\(history.name)'"
            return try reader.integer("SELECT 1 FROM Z_PRIMARYKEY WHERE \(entry)") != nil
                && reader.integer("SELECT 1 FROM \(table.name) WHERE Z_ENT IS NOT \(history.entity) LIMIT 1") == nil
        }
        return Set(found.map { "A\($0.name)" })
    }
}

extension SQLiteStatement {
    /// Binds a parameter to the value of another statement's current row.
    fileprivate func bind(_ parameter: Int32, toColumn column: Int32, of other: SQLiteStatement) throws {
        let code = sqlite3_bind_value(handle, parameter, sqlite3_column_value(other.handle, column))
        if code != SQLITE_OK { throw connection.error(code) }
    }
}
