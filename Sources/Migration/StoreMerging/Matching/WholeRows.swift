import SQLiteStore

/// Matches rows that no key identifies with rows that are equal in everything.
extension RowMatching {
    func matchWholeRows(_ index: Int) throws {
        let table = session.schema.tables[index]
        let columns = table.columns.filter { column in
            guard column.isCompared else { return false }
            guard let target = column.reference else { return true }
            // The objects that it leads to are matched already.
            return target != index && position(target) < position(index)
        }
        func selected(_ row: String, translating: Bool) -> [String] {
            func value(_ column: MergeTable.Column) -> String { "\(row).\(MergeSession.quote(column.name))" }
            let values = columns.map { column in
                if column.role == .external {
                    return "gs_external('\(translating ? "legacy" : "group")', \(value(column)))"
                }
                return translating ? "coalesce(\(session.translated(column, row)), \(value(column)))" : value(column)
            }
            // A reference to nothing doesn't equal one that leads to a row. No reference is neither.
            let leads = columns.compactMap { column -> String? in
                guard let target = column.reference, session.translates(target) else { return nil }
                let numbers =
                    translating
                    ? "SELECT lid FROM \(session.map(target))" : "SELECT gs_id FROM \(session.groupView(target))"
                return "CASE WHEN \(value(column)) IS NOT NULL THEN \(value(column)) IN (\(numbers)) END"
            }
            return [session.entity(row, of: table)] + values + leads
        }
        let names = selected("t", translating: true).indices.map { "c\($0)" }
        for (name, view, side, isLegacy) in [
            ("gs_wl", session.legacyView(index), "lid", true), ("gs_wg", session.groupView(index), "gid", false),
        ] {
            let values = zip(selected("t", translating: isLegacy), names).map { "\($0) AS \($1)" }
            let partition = names.map { "\($0) COLLATE BINARY" }.joined(separator: ", ")
            try store.execute(
                """
                CREATE TEMP TABLE \(name) AS SELECT gs_id, \(Self.hash(names)) AS h, \
                row_number() OVER (PARTITION BY \(partition) ORDER BY gs_id) AS n, \(names.joined(separator: ", ")) \
                FROM (SELECT t.gs_id, \(values.joined(separator: ", ")) FROM \(view) AS t \
                WHERE (\(hasNoKey("t", of: table))) AND t.gs_id NOT IN (SELECT \(side) FROM temp.gs_pairs))
                """)
        }
        try store.execute("CREATE INDEX temp.gs_wgi ON gs_wg (h, n)")
        let equal = names.map { "l.\($0) COLLATE BINARY IS g.\($0)" }.joined(separator: " AND ")
        try store.execute(
            "INSERT INTO temp.gs_pairs SELECT l.gs_id, g.gs_id, 1 FROM temp.gs_wl AS l CROSS JOIN temp.gs_wg AS g "
                + "ON g.h = l.h AND g.n = l.n AND \(equal)")
        for name in ["gs_wl", "gs_wg"] { try store.execute("DROP TABLE temp.\(name)") }
    }

    /// Returns an SQL expression for the hash of the values. A function of SQLite's takes 127 by default.
    private static func hash(_ names: [String]) -> String {
        let calls = stride(from: 0, to: names.count, by: 100).map { first in
            "gs_hash(\(names[first..<min(first + 100, names.count)].joined(separator: ", ")))"
        }
        return "gs_hash(\(calls.joined(separator: ", ")))"
    }

    private func position(_ table: Int) -> Int { session.schema.order.firstIndex(of: table) ?? .max }

    /// Returns an SQL condition for the rows that no key identifies.
    private func hasNoKey(_ row: String, of table: MergeTable) -> String {
        let conditions = table.entities.compactMap { entity -> String? in
            let entityCondition = session.condition(row, [entity.number], of: table)
            if entity.comparesWholeRows { return entityCondition }
            guard !entity.rules.isEmpty else { return nil }
            let incomplete = entity.rules.map { rule in
                "(" + rule.columns.map { "\(row).\(MergeSession.quote($0)) IS NULL" }.joined(separator: " OR ") + ")"
            }
            return ([entityCondition] + incomplete).joined(separator: " AND ")
        }
        return conditions.isEmpty ? "FALSE" : conditions.map { "(\($0))" }.joined(separator: " OR ")
    }
}
