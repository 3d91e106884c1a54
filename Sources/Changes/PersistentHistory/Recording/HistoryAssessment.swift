import SQLiteStore

/// Checks, without writing, what a history whose store's schema has changed may say wrongly or lack.
enum HistoryAssessment {
    /// Returns a table whose changes may have gone unrecorded, or whose rows may have other keys now; nil if there is
    /// none. `HistoryUpdate` records a gap for each of them.
    static func firstDoubtful(_ database: SQLiteConnection) throws -> String? {
        try incomplete(database, DatabaseSchema(database), limit: 1).first
    }

    /// Returns all such tables, and the former and the present names of renamed ones: a recorded row may be of the time
    /// when its table had the other name. Each name comes once.
    static func doubtful(_ database: SQLiteConnection) throws -> [String] {
        let schema = try DatabaseSchema(database)
        let renames = try InstalledTriggers(schema).renames(from: HistoryTables.recorded(database))
        var found: Set<String> = []
        return try (incomplete(database, schema) + renames.flatMap(\.names))
            .filter { found.insert(DatabaseSchema.key(of: $0)).inserted }
    }

    private static func incomplete(
        _ database: SQLiteConnection, _ schema: DatabaseSchema, limit: Int = .max
    ) throws -> [String] {
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
        let gone = try HistoryTables.recorded(database).filter { installed.byNumber[$0.key] == nil }
        return found + gone.sorted { $0.key < $1.key }.map(\.value).prefix(limit - found.count)
    }
}
