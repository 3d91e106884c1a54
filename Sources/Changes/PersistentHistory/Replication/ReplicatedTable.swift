import SQLiteStore

/// A recorded table, with what a writer of its rows in another copy of the store needs.
package struct ReplicatedTable: Sendable, Equatable {
    /// Its number in `GS_TABLE`.
    package let number: Int64
    package let name: String
    /// The name by which SQL reaches the rowid; nil for a WITHOUT ROWID table.
    package let rowid: String?
    /// The columns of the key of a WITHOUT ROWID table, or the one that is the rowid; empty if no column is.
    package let key: [String]
    /// The columns that are stored, in their order. Generated columns follow from them.
    package let columns: [String]

    package init(number: Int64, name: String, rowid: String?, key: [String], columns: [String]) {
        (self.number, self.name, self.rowid, self.key, self.columns) = (number, name, rowid, key, columns)
    }

    /// The tables, and those that history can't record, with the reasons.
    package struct Survey {
        package fileprivate(set) var tables: [ReplicatedTable] = []
        package fileprivate(set) var unrecorded: [(name: String, reason: String)] = []
    }

    /// Returns SQL of a WITHOUT ROWID table's key as text, written so that no two keys look the same.
    ///
    /// - Parameter values: SQL of the values of its columns.
    package static func quotedKey(_ values: [String]) -> String {
        values.map(QuotedValues.expression).joined(separator: "||','||")
    }

    /// Parses the recorded key of a WITHOUT ROWID table's row.
    package static func values(ofKey text: [UInt8], encoding: TextEncoding) -> [StoredValue] {
        QuotedValues.parse(text, encoding: encoding)
    }

    /// The number of columns that have a bit in `GS_CHANGE.columns`.
    package static let maxRecordedColumns = HistoryTriggers.maxColumns

    /// Returns all tables that have rows, except the history's own. Shadow tables of virtual tables, whose changes no
    /// history records, have the number 0, and so has any other table that isn't recorded.
    package static func stored(_ schema: DatabaseSchema) -> [ReplicatedTable] {
        let installed = InstalledTriggers(schema)
        let tables = schema.tablesByName.filter { $0.kind != .virtual && !HistorySchema.isOwn($0) }
        return tables.compactMap { described in
            guard let table = try? RecordedTable(described, triggers: []) else { return nil }
            return ReplicatedTable(table, number: installed.number(of: table.name) ?? 0)
        }
    }

    /// Reads the tables of a store whose history isn't outdated.
    package static func survey(_ schema: DatabaseSchema) throws -> Survey {
        var found = Survey()
        let installed = InstalledTriggers(schema)
        for described in HistoryTables.apps(schema) {
            do {
                let table = try RecordedTable(described, triggers: [])
                guard let number = installed.number(of: table.name) else {
                    found.unrecorded.append((table.name, "its changes aren't recorded"))
                    continue
                }
                found.tables.append(ReplicatedTable(table, number: number))
            } catch let problem as RecordedTable.Unrecordable {
                found.unrecorded.append((described.name, problem.reason))
            }
        }
        return found
    }

    private init(_ table: RecordedTable, number: Int64) {
        self.number = number
        name = table.name
        columns = table.columns
        switch table.key {
        case .rowid(let name, _): (rowid, key) = (name, [table.alias].compactMap(\.self))
        case .columns(let names): (rowid, key) = (nil, names)
        }
    }
}
