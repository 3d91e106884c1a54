import SQLiteStore
import StoreRelocation

/// Adds the legacy store's links of many-to-many relationships.
struct LinkWriting {
    let session: MergeSession
    private var store: StoreWriter { session.store }

    /// The translated links, as `gs_jK`: the two rows, the places of both in the other's order, and whether the group's
    /// store has the link too.
    private func links(_ index: Int) -> String { "temp.gs_j\(index)" }

    /// Counts the links, before anything is written. Adds to the report what refers to nothing.
    func plan(_ report: inout MergeReport) throws {
        for (index, join) in session.schema.joinTables.enumerated() {
            let sides = join.sides
            let columns = sides.enumerated().map { place, side in
                "(SELECT gid FROM \(session.map(side.table)) WHERE lid = l.\(MergeSession.quote(side.column))) AS r\(place)"
            }
            let orders = sides.enumerated().map { place, side in
                (side.order.map { "l.\(MergeSession.quote($0))" } ?? "NULL") + " AS o\(place)"
            }
            let selected = (columns + orders).joined(separator: ", ")
            try store.execute(
                "CREATE TEMP TABLE gs_j\(index) AS SELECT *, 0 AS known FROM (SELECT \(selected) FROM "
                    + "legacy.\(MergeSession.quote(join.legacyName)) AS l)")
            report.dangling +=
                try store.integer("SELECT count(*) FROM \(links(index)) WHERE r0 IS NULL OR r1 IS NULL") ?? 0
            try store.execute("DELETE FROM \(links(index)) WHERE r0 IS NULL OR r1 IS NULL")
            let (first, second) = (MergeSession.quote(sides[0].column), MergeSession.quote(sides[1].column))
            let name = MergeSession.quote(join.name)
            try store.execute(
                "UPDATE \(links(index)) AS j SET known = 1 WHERE EXISTS (SELECT 1 FROM main.\(name) AS g "
                    + "WHERE g.\(first) = j.r0 AND g.\(second) = j.r1)")
            let all = try store.integer("SELECT count(*) FROM main.\(name)") ?? 0
            let equal = try store.integer("SELECT count(*) FROM \(links(index)) WHERE known") ?? 0
            let added = try store.integer("SELECT count(*) FROM \(links(index)) WHERE NOT known") ?? 0
            guard all + added > 0 else { continue }
            report.links.append(
                MergeReport.Links(
                    table: join.name, relationship: join.relationship, onlyGroup: all - equal, onlyLegacy: added,
                    equal: equal))
        }
    }

    func run() throws {
        for (index, join) in session.schema.joinTables.enumerated() {
            var targets = join.sides.map { MergeSession.quote($0.column) }
            var values = ["r0", "r1"]
            for (place, side) in join.sides.enumerated() {
                guard let order = side.order else { continue }
                targets.append(MergeSession.quote(order))
                values.append("o\(place)")
            }
            try store.execute(
                "INSERT OR ABORT INTO main.\(MergeSession.quote(join.name)) (\(targets.joined(separator: ", "))) "
                    + "SELECT \(values.joined(separator: ", ")) FROM \(links(index)) WHERE NOT known")
            try order(index, join)
        }
    }

    private func order(_ index: Int, _ join: MergeJoinTable) throws {
        for (place, side) in join.sides.enumerated() {
            guard let order = side.order else { continue }
            let (one, other) = (MergeSession.quote(join.sides[0].column), MergeSession.quote(join.sides[1].column))
            let link = "SELECT 1 FROM \(links(index)) AS j WHERE j.r0 = t.\(one) AND j.r1 = t.\(other)"
            let legacyPlace =
                "(SELECT j.o\(place) FROM \(links(index)) AS j WHERE j.r0 = t.\(one) AND j.r1 = t.\(other))"
            try MergedOrder(
                table: join.name, number: "rowid", owner: join.sides[1 - place].column, order: order,
                isFromLegacy: session.options.alwaysPrefersLegacy
                    ? "EXISTS (\(link))" : "EXISTS (\(link) AND NOT j.known)",
                legacyPlace: legacyPlace, prefersLegacy: session.options.alwaysPrefersLegacy
            ).write(to: store)
        }
    }
}

/// An ordered relationship that gets objects from both stores: one side's come first in their order, then the other's.
struct MergedOrder {
    let table: String
    let number: String
    /// The column with the object that has the relationship.
    let owner: String
    /// The column with the places.
    let order: String
    /// SQL conditions and values for the row `t`.
    let isFromLegacy: String
    let legacyPlace: String
    let prefersLegacy: Bool

    /// The places that Core Data gives to new objects: from 2048 in steps of 1024 (Documentation/Formats.md).
    private static let first = 2048
    private static let step = 1024

    func write(to store: StoreWriter) throws {
        let (name, number) = (table.sqlName, number.sqlName)
        let (owner, order) = (owner.sqlName, order.sqlName)
        let rank =
            prefersLegacy
            ? "CASE WHEN \(isFromLegacy) THEN 0 ELSE 1 END" : "CASE WHEN \(isFromLegacy) THEN 1 ELSE 0 END"
        let place = "CASE WHEN \(isFromLegacy) THEN \(legacyPlace) ELSE t.\(order) END"
        try store.execute(
            "CREATE TEMP TABLE gs_order AS SELECT t.\(number) AS id, t.\(owner) AS p, \(rank) AS r, \(place) AS f "
                + "FROM main.\(name) AS t WHERE t.\(owner) IS NOT NULL")
        try store.execute("CREATE INDEX temp.gs_orderi ON gs_order (p, r, f)")
        try store.execute(
            """
            CREATE TEMP TABLE gs_places AS SELECT id, CASE WHEN mixed THEN \(Self.first) + \(Self.step) * (n - 1) ELSE f END AS f
            FROM (SELECT id, f, row_number() OVER (PARTITION BY p ORDER BY r, f, id) AS n,
            p IN (SELECT p FROM temp.gs_order GROUP BY p HAVING min(r) < max(r)) AS mixed FROM temp.gs_order)
            """)
        try store.execute("CREATE UNIQUE INDEX temp.gs_placesi ON gs_places (id)")
        try store.execute(
            "UPDATE main.\(name) AS t SET \(order) = n.f FROM temp.gs_places AS n "
                + "WHERE n.id = t.\(number) AND t.\(order) IS NOT n.f")
        for temporary in ["gs_order", "gs_places"] { try store.execute("DROP TABLE temp.\(temporary)") }
    }
}

/// The orders of to-many relationships that the destinations' tables hold, and one-to-one relationships.
struct ReferenceRepair {
    let session: MergeSession
    private var store: StoreWriter { session.store }

    func order() throws {
        let state = MergeSession.State.self
        for (index, table) in session.schema.tables.enumerated() where table.isCoreData {
            for column in table.columns {
                guard case .order(let reference) = column.role, let number = table.number else { continue }
                let row = "t.\(MergeSession.quote(number))"
                let (name, owner) = (MergeSession.quote(column.name), MergeSession.quote(reference))
                // The row's reference is the legacy store's: that of a row with an equal one, too, if that store is
                // always preferred.
                let moved =
                    "SELECT 1 FROM \(session.map(index)) AS m WHERE m.gid = \(row) AND (m.s = \(state.added.rawValue) "
                    + "OR EXISTS (SELECT 1 FROM temp.gs_moved AS v WHERE v.t = \(index) AND v.c = \(reference.sqlLiteral) "
                    + "AND v.gid = \(row)))"
                let source =
                    "FROM \(session.map(index)) AS m CROSS JOIN \(session.legacyView(index)) AS l ON l.gs_id = m.lid "
                    + "WHERE m.gid = \(row)"
                let anywhere = "SELECT 1 \(source) AND l.\(owner) IS NOT NULL"
                try MergedOrder(
                    table: table.name, number: number, owner: reference, order: column.name,
                    isFromLegacy: "EXISTS (\(session.options.alwaysPrefersLegacy ? anywhere : moved))",
                    legacyPlace: "(SELECT l.\(name) \(source))", prefersLegacy: session.options.alwaysPrefersLegacy
                ).write(to: store)
            }
        }
    }

    /// Clears links of one-to-one relationships that the other object doesn't have. Returns their number.
    func clearOneSidedLinks() throws -> Int64 {
        var count: Int64 = 0
        let state = MergeSession.State.self
        func isTouched(_ row: String, _ index: Int) -> String {
            "EXISTS (SELECT 1 FROM \(session.map(index)) AS m WHERE m.gid = \(row) "
                + "AND m.s IN (\(state.added.rawValue), \(state.takesLegacy.rawValue)))"
        }
        // The links are found before any is cleared: clearing one must not make another one-sided.
        try store.execute("CREATE TEMP TABLE gs_cleared (t INTEGER, c TEXT, gid INTEGER, PRIMARY KEY (t, c, gid))")
        for pair in session.schema.pairs {
            let (table, other) = (session.schema.tables[pair.table], session.schema.tables[pair.otherTable])
            let (column, otherColumn) = (MergeSession.quote(pair.column), MergeSession.quote(pair.otherColumn))
            let found =
                "FROM main.\(MergeSession.quote(table.name)) AS t JOIN main.\(MergeSession.quote(other.name)) AS o "
                + "ON o.Z_PK = t.\(column) WHERE \(session.condition("t", pair.entities, of: table)) "
                + "AND o.\(otherColumn) IS NOT t.Z_PK "
                + "AND (\(isTouched("t.Z_PK", pair.table)) OR \(isTouched("o.Z_PK", pair.otherTable)))"
            if pair.isMandatory, let row = try store.integer("SELECT t.Z_PK \(found) LIMIT 1") {
                throw RelocationFailure.merge(
                    "merge_relationship",
                    "\(pair.name) is mandatory, and its object \(row) in the result would lose it: another object has the "
                        + "one that it leads to",
                    remedy: "choose another --prefer or key, or make the stores agree")
            }
            try store.execute(
                "INSERT OR IGNORE INTO temp.gs_cleared SELECT \(pair.table), \(pair.column.sqlLiteral), t.Z_PK \(found)"
            )
        }
        for pair in session.schema.pairs {
            let table = session.schema.tables[pair.table]
            let names = [pair.column] + [table.column(pair.column)?.companion].compactMap(\.self)
            let set = names.map { "\(MergeSession.quote($0)) = NULL" }.joined(separator: ", ")
            try store.execute(
                "UPDATE main.\(MergeSession.quote(table.name)) SET \(set) WHERE \(MergeSession.quote(pair.column)) IS NOT NULL "
                    + "AND Z_PK IN (SELECT gid FROM temp.gs_cleared WHERE t = \(pair.table) "
                    + "AND c = \(pair.column.sqlLiteral))")
            count += store.changes
        }
        return count
    }
}

extension String {
    /// The string as an SQL literal.
    var sqlLiteral: String {
        "'" + split(separator: "'", omittingEmptySubsequences: false).joined(separator: "''") + "'"
    }
}
