import SQLiteStore

/// Checks, without writing, whether the triggers still record each change of a store whose schema has changed since
/// they were made. What passes here, `HistoryUpdate` updates without a gap.
enum HistoryAssessment {
    /// Returns a table whose changes may have gone unrecorded, or whose rows may have other keys now; nil if there is
    /// none.
    static func firstDoubtful(_ database: SQLiteConnection) throws -> String? {
        try doubtful(database, limit: 1).first
    }

    /// Returns up to `limit` such tables.
    static func doubtful(_ database: SQLiteConnection, limit: Int = .max) throws -> [String] {
        let schema = try DatabaseSchema(database)
        let installed = InstalledTriggers(schema)
        let others = HistoryTables.thirdPartyTriggers(schema)
        /// Returns true if the table may have unrecorded changes, or rows with other keys.
        func isDoubtful(_ table: DatabaseSchema.Table) throws -> Bool {
            let own = installed.number(of: table.name)
            do {
                let table = try RecordedTable(table, triggers: others)
                guard let number = own else { return true }
                // VACUUM may have renumbered the rows.
                if case .rowid(_, isStable: false) = table.key { return true }
                let present = Set(installed.byNumber[number, default: []].map(\.creation))
                return !HistoryTriggers(table, number: number).essential.allSatisfy { present.contains($0.sql) }
            } catch is RecordedTable.Unrecordable {
                return own != nil
            }
        }
        var found: [String] = []
        for table in HistoryTables.apps(schema) where try isDoubtful(table) {
            found.append(table.name)
            if found.count == limit { return found }
        }
        let known = try database.rows("SELECT id, name FROM GS_TABLE WHERE installed = 1 ORDER BY id") {
            (number: $0.decodedInteger(0) ?? 0, name: $0.decodedText(1) ?? "")
        }
        return found + known.filter { installed.byNumber[$0.number] == nil }.map(\.name).prefix(limit - found.count)
    }
}
