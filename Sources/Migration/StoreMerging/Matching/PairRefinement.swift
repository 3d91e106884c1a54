import SQLiteStore
import StoreRelocation

/// Takes back matches that turn out to be wrong once all tables are matched. Rows that refer to each other in a circle
/// are first compared without those references. Each round takes back at least one match, and none is made anew, so the
/// rounds end.
extension RowMatching {
    func refine() throws {
        var isStable = false
        while !isStable {
            isStable = true
            for index in session.schema.order where try dropUnequalPairs(index) { isStable = false }
            guard !isStable else { return }
            for index in session.schema.order { try renumberExtensions(index) }
        }
    }

    /// Turns matched rows that aren't equal in everything, or whose keys no longer agree, into added ones. Returns true
    /// if there were any.
    private func dropUnequalPairs(_ index: Int) throws -> Bool {
        let table = session.schema.tables[index]
        let map = session.map(index)
        let equal = table.columns.filter(\.isCompared).map { RowComparison.isEqual($0, session) }
        var conditions = ["m.w = 1 AND NOT (\((["TRUE"] + equal).joined(separator: " AND ")))"]
        if !table.keyReferences.isEmpty {
            let rules = table.rules.map { rule in
                let values = rule.columns.compactMap(table.column).map { column in
                    session.hasKeyValue(column)
                }
                return "(\(values.joined(separator: " AND ")))"
            }
            conditions.append("m.w = 0 AND (\(rules.joined(separator: " OR "))) IS NOT TRUE")
        }
        try store.execute("CREATE TEMP TABLE gs_dropped (lid INTEGER PRIMARY KEY)")
        try store.execute(
            "INSERT INTO temp.gs_dropped SELECT m.lid FROM \(map) AS m CROSS JOIN \(session.legacyView(index)) AS l "
                + "ON l.gs_id = m.lid CROSS JOIN \(session.groupView(index)) AS g ON g.gs_id = m.gid "
                + "WHERE m.s <> \(MergeSession.State.added.rawValue) AND (\(conditions.joined(separator: " OR ")))")
        let count = try store.integer("SELECT count(*) FROM temp.gs_dropped") ?? 0
        if count > 0 {
            try collectNamedNumbers(index)
            let highest = max(
                try store.integer("SELECT max(gid) FROM \(map)") ?? 0, try highestNumber(index))
            guard highest <= Int64.max - count else {
                throw RelocationFailure.mergeUnsupported("the table \(table.name) has no numbers left for more rows")
            }
            try store.execute(
                "UPDATE \(map) AS m SET s = \(MergeSession.State.added.rawValue), gid = \(highest) + d.n FROM "
                    + "(SELECT lid, row_number() OVER (ORDER BY lid) AS n FROM temp.gs_dropped) AS d "
                    + "WHERE d.lid = m.lid")
        }
        try store.execute("DROP TABLE temp.gs_dropped")
        return count > 0
    }

    /// Gives added rows whose number is a reference the number that the reference has now.
    private func renumberExtensions(_ index: Int) throws {
        let table = session.schema.tables[index]
        guard table.numberReference != nil, let column = table.number.flatMap(table.column) else { return }
        try store.execute(
            "UPDATE \(session.map(index)) AS m SET gid = (SELECT \(session.translated(column)) "
                + "FROM \(session.legacyView(index)) AS l WHERE l.gs_id = m.lid) "
                + "WHERE s = \(MergeSession.State.added.rawValue)")
    }
}
