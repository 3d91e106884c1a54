import LinuxSystem
import SQLiteStore
import StoreRelocation

/// Finds for each legacy row the row of the group's store that is the same, or a number for it.
struct RowMatching {
    let session: MergeSession
    var store: StoreWriter { session.store }

    init(_ session: MergeSession) { self.session = session }

    func run() throws {
        try checkKeys()
        for index in session.schema.order {
            try match(index)
            try number(index)
        }
        try refine()
    }

    /// Throws `RelocationFailure` if an entity has objects on both sides and no key.
    private func checkKeys() throws {
        var missing: [String] = []
        for (index, table) in session.schema.tables.enumerated() {
            let entity = session.entity("t", of: table)
            func counted(_ view: String) throws -> Set<Int64> {
                let rows = try store.prepare("SELECT DISTINCT \(entity) FROM \(view) AS t")
                var found: Set<Int64> = []
                while try rows.step() { found.insert(rows.integer(0)) }
                return found
            }
            let both = try counted(session.groupView(index)).intersection(counted(session.legacyView(index)))
            for entity in table.entities
            where both.contains(entity.number) && entity.rules.isEmpty && !entity.comparesWholeRows {
                missing.append(entity.name ?? table.name)
            }
            let known = Set(table.entities.map(\.number))
            if let stray = both.first(where: { !known.contains($0) }) {
                throw RelocationFailure.mergeUnsupported(
                    "the table \(table.name) has rows of an entity with the number \(stray), which the model doesn't have"
                )
            }
        }
        guard let first = missing.first else { return }
        let all = missing.joined(separator: ", ")
        throw RelocationFailure.merge(
            "no_merge_key",
            "both stores have objects of \(PrintableText(all)), and nothing says which of them are the same",
            remedy: "name what identifies them: "
                + missing.map { "--merge-key \(PrintableText($0))=…" }.joined(separator: " ")
                + "; --merge-key \(PrintableText(first))='*' matches only what is equal in everything")
    }

    // MARK: Matching

    private func match(_ index: Int) throws {
        let table = session.schema.tables[index]
        try store.execute("CREATE TEMP TABLE gs_pairs (lid INTEGER NOT NULL, gid INTEGER NOT NULL, w INTEGER NOT NULL)")
        for rule in table.rules {
            try checkUnique(rule, index, in: session.groupView(index), isLegacy: false)
            try checkUnique(rule, index, in: session.legacyView(index), isLegacy: true)
            try match(index, by: rule)
        }
        try checkPairs(index)
        try matchWholeRows(index)
        try store.execute(
            "INSERT INTO \(session.map(index)) (lid, gid, s, e, w) SELECT DISTINCT p.lid, p.gid, \(MergeSession.State.equal.rawValue), "
                + "\(session.entity("l", of: table)), p.w FROM temp.gs_pairs AS p "
                + "CROSS JOIN \(session.legacyView(index)) AS l ON l.gs_id = p.lid")
        try store.execute("DROP TABLE temp.gs_pairs")
    }

    private func isComplete(_ rule: MergeTable.Rule, _ row: String, of table: MergeTable) -> String {
        let conditions = rule.columns.map { "\(row).\(MergeSession.quote($0)) IS NOT NULL" }
        return ([session.condition(row, rule.entities, of: table)] + conditions).joined(separator: " AND ")
    }

    private func checkUnique(_ rule: MergeTable.Rule, _ index: Int, in view: String, isLegacy: Bool) throws {
        let table = session.schema.tables[index]
        let columns = rule.columns.map { "t.\(MergeSession.quote($0))" }.joined(separator: ", ")
        let rows = try store.prepare(
            "SELECT \(columns), count(*) FROM \(view) AS t WHERE \(isComplete(rule, "t", of: table)) "
                + "GROUP BY \(columns) HAVING count(*) > 1 LIMIT 1")
        guard try rows.step() else { return }
        let values = rule.properties.indices.map {
            MergeReport.NamedValue(name: rule.properties[$0], value: session.value(rows, Int32($0)))
        }
        let count = rows.integer(Int32(rule.columns.count))
        let name = rule.entities.flatMap { entities in
            table.entities.first { entities.contains($0.number) && $0.rules.contains(rule) }?.name
        }
        throw RelocationFailure.merge(
            "merge_key_not_unique",
            "\(count) objects of \(PrintableText(name ?? table.name)) in the \(isLegacy ? "legacy store" : "group's store") "
                + "have the same key: \(session.text(ofKey: values))",
            remedy: "name a key that identifies each: --merge-key \(PrintableText(name ?? table.name))=…")
    }

    private func match(_ index: Int, by rule: MergeTable.Rule) throws {
        let table = session.schema.tables[index]
        let equal = rule.columns.compactMap(table.column).map { column in
            session.hasKeyValue(column)
        }
        // CROSS JOIN fixes the order of the loops: the inner one is the table that SQLite can make an index for.
        try store.execute(
            "INSERT INTO temp.gs_pairs SELECT l.gs_id, g.gs_id, 0 FROM \(session.legacyView(index)) AS l "
                + "CROSS JOIN \(session.groupView(index)) AS g ON \(equal.joined(separator: " AND ")) "
                + "WHERE \(isComplete(rule, "l", of: table)) AND \(isComplete(rule, "g", of: table))")
    }

    /// Throws `RelocationFailure` if an object matches two, or one of another entity.
    private func checkPairs(_ index: Int) throws {
        let table = session.schema.tables[index]
        func refuse(_ row: Int64, isLegacy: Bool, _ reason: String) throws -> RelocationFailure {
            let view = isLegacy ? session.legacyView(index) : session.groupView(index)
            let entity =
                try store.integer(
                    "SELECT \(session.entity("t", of: table)) FROM \(view) AS t WHERE gs_id = ?1", [.integer(row)]) ?? 0
            let name = table.entities.first { $0.number == entity }?.name ?? table.name
            let key = try session.key(of: row, in: index, entity: entity, fromLegacy: isLegacy)
            return .merge(
                "merge_ambiguous",
                "\(PrintableText(name)) with \(session.text(ofKey: key)) of the \(isLegacy ? "legacy" : "group's") store "
                    + reason,
                remedy: "make them agree in one of the stores, or name one key: --merge-key "
                    + "\(PrintableText(table.entities.first?.name ?? table.name))=…")
        }
        for (one, other, isLegacy) in [("lid", "gid", true), ("gid", "lid", false)] {
            let row = try store.integer(
                "SELECT \(one) FROM temp.gs_pairs GROUP BY \(one) HAVING count(DISTINCT \(other)) > 1 LIMIT 1")
            if let row {
                throw try refuse(row, isLegacy: isLegacy, "has the keys of two different objects of the other one")
            }
        }
        guard let column = table.entityColumn.map(MergeSession.quote) else { return }
        let row = try store.integer(
            "SELECT p.lid FROM temp.gs_pairs AS p CROSS JOIN \(session.legacyView(index)) AS l ON l.gs_id = p.lid "
                + "CROSS JOIN \(session.groupView(index)) AS g ON g.gs_id = p.gid WHERE l.\(column) <> g.\(column) LIMIT 1"
        )
        if let row {
            throw try refuse(row, isLegacy: true, "has the key of an object of another entity of the group's store")
        }
    }
}
