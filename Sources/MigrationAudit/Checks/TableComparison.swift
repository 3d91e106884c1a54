/// Compares a table's rows with those that it had, where they should be the same.
struct TableComparison {
    let context: AuditContext
    let table: AuditSchema.Table
    let earlier: AuditSchema.Table
    /// Columns that are compared otherwise, or not at all.
    var except: Set<String> = []
    /// SQL over `b`, the row that was: only such rows have to be there. Never NULL.
    var kept = "1"
    /// More that must hold between `a`, the row that is, and `b`, the row that was. Never NULL.
    var condition = "1"

    /// Throws `AuditFailure` with the first row that differs.
    func check() throws {
        let columns = earlier.columns.filter { !except.contains($0.name) }
        for column in columns where table.index(of: column.name) == nil {
            throw failure(nil, expected: "the column \(column.name)", found: "none")
        }
        guard !earlier.isWithoutRowID, !table.isWithoutRowID, let id = rowID else { return try checkAsSets(columns) }
        try checkByRowID(columns, id)
    }

    /// A name of the row's number that no column takes.
    private var rowID: String? {
        ["rowid", "_rowid_", "oid"].first { table.index(of: $0) == nil && earlier.index(of: $0) == nil }
    }

    private func checkByRowID(_ columns: [AuditSchema.Column], _ id: String) throws {
        let (was, now) = (context.was.qualified(earlier.name), context.now.qualified(table.name))
        for part in stride(from: 0, to: max(columns.count, 1), by: 400) {
            let some = columns.dropFirst(part).prefix(400)
            let same = stride(from: 0, to: some.count, by: 50).map { group in
                "("
                    + some.dropFirst(group).prefix(50).map { column in
                        ColumnRule.equal(
                            ColumnRule.now(column.name), ColumnRule.was(column.name),
                            hasNoAffinity: Affinity(column.type) == .none)
                    }.joined(separator: " AND ") + ")"
            }
            let all = (same + ["(\(condition))"]).joined(separator: " AND ")
            let differing = try context.integer(
                "SELECT b.\(id) FROM \(was) AS b NOT INDEXED LEFT JOIN \(now) AS a ON a.\(id) = b.\(id) "
                    + "WHERE (\(kept)) AND (a.\(id) IS NULL OR NOT (\(all))) LIMIT 1")
            if let differing { throw failure(differing, expected: "the row as it was", found: "another, or none") }
        }
        let added = try context.integer(
            "SELECT a.\(id) FROM \(now) AS a NOT INDEXED WHERE NOT EXISTS "
                + "(SELECT 1 FROM \(was) AS b WHERE b.\(id) = a.\(id)) LIMIT 1")
        if let added { throw failure(added, expected: "no such row", found: "one") }
    }

    private func checkAsSets(_ columns: [AuditSchema.Column]) throws {
        let names = columns.map { quoted($0.name) }.joined(separator: ", ")
        let was = "SELECT \(names) FROM \(context.was.qualified(earlier.name))"
        let now = "SELECT \(names) FROM \(context.now.qualified(table.name))"
        for (one, other) in [(was, now), (now, was)] {
            guard try context.integer("SELECT count(*) FROM (SELECT 1 FROM (\(one) EXCEPT \(other)) LIMIT 1)") == 0
            else {
                throw failure(nil, expected: "the rows as they were", found: "others")
            }
        }
    }

    private func failure(_ row: Int64?, expected: String, found: String) -> AuditFailure {
        AuditFailure(entity: "the table \(earlier.name)", key: row, expected: expected, found: found)
    }
}
