import LinuxSystem
import SQLiteStore
import StoreRelocation

/// Numbers for the rows that the result gets from the legacy store.
extension RowMatching {
    func number(_ index: Int) throws {
        let table = session.schema.tables[index]
        let map = session.map(index)
        let added = "\(MergeSession.State.added.rawValue)"
        let entity = session.entity("l", of: table)
        let unmatched = "\(session.legacyView(index)) AS l WHERE l.gs_id NOT IN (SELECT lid FROM \(map))"
        if let target = table.numberReference, let column = table.number.flatMap(table.column) {
            let orphan = try store.integer(
                "SELECT l.gs_id FROM \(unmatched) AND \(session.translated(column)) IS NULL LIMIT 1")
            if let orphan {
                throw RelocationFailure.merge(
                    "merge_foreign_key",
                    "the row \(orphan) of \(PrintableText(table.name)) in the legacy store refers to no row of "
                        + "\(PrintableText(session.schema.tables[target].name))",
                    remedy: "repair the legacy store first")
            }
            try store.execute(
                "INSERT INTO \(map) (lid, gid, s, e) SELECT l.gs_id, \(session.translated(column)), \(added), \(entity) FROM \(unmatched)"
            )
        } else {
            try collectNamedNumbers(index)
            let highest = try highestNumber(index)
            if !table.isCoreData, table.number != nil {
                let floor = try sequences(of: table).first ?? 0
                let beyond = table.isAutoincrement && !table.keyIsNumber ? " AND l.gs_id > \(floor)" : ""
                let named = table.keyIsNumber ? "" : " AND l.gs_id NOT IN (SELECT n FROM temp.gs_named)"
                try store.execute(
                    "INSERT INTO \(map) (lid, gid, s, e) SELECT l.gs_id, l.gs_id, \(added), \(entity) FROM \(unmatched) "
                        + "AND l.gs_id NOT IN (SELECT gs_id FROM \(session.groupView(index)))\(beyond)\(named)")
            }
            let count = try store.integer("SELECT count(*) FROM \(unmatched)") ?? 0
            guard count == 0 || highest <= Int64.max - count else {
                throw RelocationFailure.mergeUnsupported("the table \(table.name) has no numbers left for more rows")
            }
            try store.execute(
                "INSERT INTO \(map) (lid, gid, s, e) SELECT l.gs_id, \(highest) + row_number() OVER (ORDER BY l.gs_id), \(added), \(entity) "
                    + "FROM \(unmatched)")
        }
        do {
            try store.execute("CREATE UNIQUE INDEX temp.gs_i\(index) ON gs_m\(index) (gid)")
        } catch let error as StoreError where error.isConstraint {
            throw RelocationFailure.merge(
                "merge_constraint", "two rows of \(PrintableText(table.name)) would have the same number",
                remedy: "choose another key")
        }
    }

    /// Collects the numbers that references of the group's store name although it has no such rows. An added row must
    /// not get one of them: the reference would lead to a stranger.
    func collectNamedNumbers(_ index: Int) throws {
        try store.execute("DROP TABLE IF EXISTS temp.gs_named")
        try store.execute("CREATE TEMP TABLE gs_named (n INTEGER PRIMARY KEY)")
        func collect(_ column: String, _ source: String) throws {
            try store.execute(
                "INSERT OR IGNORE INTO temp.gs_named SELECT \(column) FROM \(source) WHERE typeof(\(column)) = 'integer' "
                    + "AND \(column) NOT IN (SELECT gs_id FROM \(session.groupView(index)))")
        }
        for (other, table) in session.schema.tables.enumerated() {
            for column in table.columns where column.reference == index {
                try collect(MergeSession.quote(column.name), session.groupView(other))
            }
        }
        for join in session.schema.joinTables {
            for side in join.sides where side.table == index {
                try collect(MergeSession.quote(side.column), "main.\(MergeSession.quote(join.name))")
            }
        }
    }

    /// Returns the highest number that was ever used, as far as it is known.
    func highestNumber(_ index: Int) throws -> Int64 {
        let table = session.schema.tables[index]
        let named = try store.integer("SELECT max(n) FROM temp.gs_named") ?? 0
        var highest = max(named, try store.integer("SELECT max(gs_id) FROM \(session.groupView(index))") ?? 0)
        if table.isCoreData {
            let root = table.entities.first?.number ?? 0
            let recorded = try store.integer(
                "SELECT Z_MAX FROM main.Z_PRIMARYKEY WHERE Z_ENT = ?1", [.integer(root)])
            return max(highest, recorded ?? 0, 0)
        }
        highest = max(highest, try store.integer("SELECT max(gs_id) FROM \(session.legacyView(index))") ?? 0, 0)
        return try sequences(of: table).reduce(highest, max)
    }

    /// Returns AUTOINCREMENT's counters in the group's store and in the legacy one.
    private func sequences(of table: MergeTable) throws -> [Int64] {
        guard table.isAutoincrement else { return [] }
        return try [("main", table.name), ("legacy", table.legacyName)].map { database, name in
            guard try store.hasTables("sqlite_sequence", in: database) else { return 0 }
            return try store.integer(
                "SELECT max(seq) FROM \(database).sqlite_sequence WHERE name = ?1", [.text(name)]) ?? 0
        }
    }
}
