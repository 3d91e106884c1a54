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
        let installed = try InstalledTriggers(database)
        let others = try HistoryTables.thirdPartyTriggers(database)
        /// Returns true if the table may have unrecorded changes, or rows with other keys.
        func isDoubtful(_ name: String, isRowid: Bool) throws -> Bool {
            let own = installed.number(of: name)
            do {
                let table = try RecordedTable(name, isRowid: isRowid, in: database, triggers: others)
                guard let number = own else { return true }
                // VACUUM may have renumbered the rows.
                if case .rowid(_, isStable: false) = table.key { return true }
                let present = Set(installed.byNumber[number, default: []].map(\.sql))
                return !HistoryTriggers(table, number: number).essential.allSatisfy { present.contains($0.sql) }
            } catch is RecordedTable.Unrecordable {
                return own != nil
            }
        }
        var found: [String] = []
        for (name, isRowid) in try HistoryUpdate.tables(database) where try isDoubtful(name, isRowid: isRowid) {
            found.append(name)
            if found.count == limit { return found }
        }
        let known = try database.rows("SELECT id, name FROM GS_TABLE WHERE installed = 1 ORDER BY id") {
            (number: $0.decodedInteger(0) ?? 0, name: $0.decodedText(1) ?? "")
        }
        return found + known.filter { installed.byNumber[$0.number] == nil }.map(\.name).prefix(limit - found.count)
    }
}
