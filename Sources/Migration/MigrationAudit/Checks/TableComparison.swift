/// A comparison of a table's rows with its old rows, which should be the same.
struct TableComparison {
    let context: AuditContext
    let table: AuditSchema.Table
    let earlier: AuditSchema.Table
    /// The columns that are compared elsewhere, or not at all.
    var ignoredColumns: Set<String> = []
    /// An SQL condition on the old row `b`: the row must still exist. Never NULL.
    var isRequired = "1"
    /// An SQL condition on the old row `b`: the row must not exist. Never NULL.
    var isGone = "0"
    /// A further SQL condition on the new row `a` and the old row `b`. Never NULL.
    var condition = "1"

    /// Sets a condition on the old row `b` under which the row must be gone. It may be NULL.
    mutating func expect(gone condition: String) {
        isGone = "coalesce(\(condition), 0)"
        isRequired = "NOT \(isGone)"
    }

    /// Compares the rows. Throws `AuditFailure` for the first row that differs.
    func check() throws {
        let columns = earlier.columns.filter { !ignoredColumns.contains($0.name) }
        for column in columns where table.index(of: column.name) == nil {
            throw failure(nil, expected: "the column \(column.name)", found: "none")
        }
        guard !earlier.isWithoutRowID, !table.isWithoutRowID, let id = rowID else { return try checkAsSets(columns) }
        try checkByRowID(columns, id)
    }

    /// An alias of the row ID that is not the name of a column.
    private var rowID: String? {
        ["rowid", "_rowid_", "oid"].first { table.index(of: $0) == nil && earlier.index(of: $0) == nil }
    }

    private func checkByRowID(_ columns: [AuditSchema.Column], _ id: String) throws {
        let (old, new) = (context.oldSchema.qualified(earlier.name), context.newSchema.qualified(table.name))
        for part in stride(from: 0, to: max(columns.count, 1), by: 400) {
            let batch = columns.dropFirst(part).prefix(400)
            let same = stride(from: 0, to: batch.count, by: 50).map { group in
                "("
                    + batch.dropFirst(group).prefix(50).map { column in
                        ColumnRule.equal(
                            ColumnRule.newValue(column.name), ColumnRule.oldValue(column.name),
                            hasNoAffinity: Affinity(column.type) == .none)
                    }.joined(separator: " AND ") + ")"
            }
            let all = (same + ["(\(condition))"]).joined(separator: " AND ")
            let differing = try context.integer(
                "SELECT b.\(id) FROM \(old) AS b NOT INDEXED LEFT JOIN \(new) AS a ON a.\(id) = b.\(id) "
                    + "WHERE (\(isRequired)) AND (a.\(id) IS NULL OR NOT (\(all))) LIMIT 1")
            if let differing { throw failure(differing, expected: "the row unchanged", found: "another, or none") }
        }
        let added = try context.integer(
            "SELECT a.\(id) FROM \(new) AS a NOT INDEXED WHERE NOT EXISTS "
                + "(SELECT 1 FROM \(old) AS b WHERE b.\(id) = a.\(id)) LIMIT 1")
        if let added { throw failure(added, expected: "no such row", found: "one") }
        guard isGone != "0" else { return }
        let left = try context.integer(
            "SELECT b.\(id) FROM \(old) AS b NOT INDEXED JOIN \(new) AS a ON a.\(id) = b.\(id) WHERE \(isGone) LIMIT 1")
        if let left { throw failure(left, expected: "no row about a removed entity", found: "one") }
    }

    private func checkAsSets(_ columns: [AuditSchema.Column]) throws {
        let names = columns.map { quoted($0.name) }.joined(separator: ", ")
        let old = "SELECT \(names) FROM \(context.oldSchema.qualified(earlier.name))"
        let new = "SELECT \(names) FROM \(context.newSchema.qualified(table.name))"
        for (lhs, rhs) in [(old, new), (new, old)] {
            guard try context.integer("SELECT count(*) FROM (SELECT 1 FROM (\(lhs) EXCEPT \(rhs)) LIMIT 1)") == 0
            else {
                throw failure(nil, expected: "the rows unchanged", found: "others")
            }
        }
    }

    private func failure(_ row: Int64?, expected: String, found: String) -> AuditFailure {
        AuditFailure(entity: "the table \(earlier.name)", key: row, expected: expected, found: found)
    }
}
