import LinuxSystem
import SQLiteStore
import StoreRelocation

/// Compares matched rows, and decides which of two different ones is kept.
struct RowComparison {
    let session: MergeSession
    /// The columns of `newer:`, by attribute, table and entity.
    private let newer: [String: [Int: [Int64: String]]]

    init(_ session: MergeSession, newer: [String: [Int: [Int64: String]]]) {
        self.session = session
        self.newer = newer
    }

    private var store: StoreWriter { session.store }

    func run() throws {
        for (index, table) in session.schema.tables.enumerated() {
            try checkReferencedColumns(of: table, index)
            let equal = table.columns.filter(\.isCompared).map { Self.isEqual($0, session) }
            let state = MergeSession.State.self
            let decided = decision(index).map { "coalesce(\($0), \(state.undecided.rawValue))" }
            try store.execute(
                """
                UPDATE \(session.map(index)) AS m SET s = (SELECT CASE WHEN \(([ "TRUE" ] + equal).joined(separator: " AND ")) \
                THEN \(state.equal.rawValue) ELSE \(decided ?? "\(state.undecided.rawValue)") END \
                FROM \(session.legacyView(index)) AS l, \(session.groupView(index)) AS g \
                WHERE l.gs_id = m.lid AND g.gs_id = m.gid) WHERE s <> \(state.added.rawValue)
                """)
        }
    }

    /// Returns an SQL condition that is true if the rows `l` and `g` agree in the column.
    static func isEqual(_ column: MergeTable.Column, _ session: MergeSession) -> String {
        let name = MergeSession.quote(column.name)
        if column.role == .external {
            // Most are inline or the same file's name: their bytes are compared only if these differ.
            return "(l.\(name) IS g.\(name) AND substr(l.\(name), 1, 1) IS NOT x'02' "
                + "OR gs_external('legacy', l.\(name)) IS gs_external('group', g.\(name)))"
        }
        guard let target = column.reference, session.translates(target) else {
            return "(l.\(name) COLLATE BINARY IS g.\(name))"
        }
        return session.refersAlike(column, target, by: "COLLATE BINARY IS")
    }

    /// Returns an SQL condition that is true if the group's row `g` has the value that the legacy store's row `l` gives
    /// to the result: a reference to nothing gives NULL.
    static func hasResult(_ column: MergeTable.Column, _ session: MergeSession) -> String {
        guard column.role != .external else { return isEqual(column, session) }
        return "(\(session.translated(column)) COLLATE BINARY IS g.\(MergeSession.quote(column.name)))"
    }

    /// Returns the SQL of the decision, NULL if nothing decides; nil without a preference.
    private func decision(_ index: Int) -> String? {
        let table = session.schema.tables[index]
        let state = MergeSession.State.self
        let rules = session.options.preferences.compactMap { preference -> String? in
            switch preference {
            case .group: return "\(state.keepsGroup.rawValue)"
            case .legacy: return "\(state.takesLegacy.rawValue)"
            case .newer(let attribute):
                guard let columns = newer[attribute]?[index], !columns.isEmpty else { return nil }
                let cases = columns.sorted { $0.key < $1.key }.map { entity, column in
                    let condition = session.condition("l", [entity], of: table)
                    return "WHEN \(condition) THEN \(Self.later(MergeSession.quote(column)))"
                }
                return "CASE \(cases.joined(separator: " ")) END"
            }
        }
        switch rules.count {
        case 0: return nil
        case 1: return rules[0]
        default: return "coalesce(\(rules.joined(separator: ", ")))"
        }
    }

    private static func later(_ column: String) -> String {
        let state = MergeSession.State.self
        func compared(_ types: String, _ collation: String) -> String {
            "WHEN typeof(l.\(column)) IN (\(types)) AND typeof(g.\(column)) IN (\(types)) THEN CASE "
                + "WHEN g.\(column)\(collation) > l.\(column) THEN \(state.keepsGroup.rawValue) "
                + "WHEN g.\(column)\(collation) < l.\(column) THEN \(state.takesLegacy.rawValue) END"
        }
        return "CASE \(compared("'integer', 'real'", "")) \(compared("'text'", " COLLATE BINARY")) END"
    }

    /// Throws `RelocationFailure` if matched rows differ in a column that other tables refer to by its value.
    private func checkReferencedColumns(of table: MergeTable, _ index: Int) throws {
        for name in table.referencedColumns {
            guard let column = table.column(name) else { continue }
            let quoted = MergeSession.quote(column.name)
            let row = try store.integer(
                "SELECT m.lid FROM \(session.map(index)) AS m CROSS JOIN \(session.legacyView(index)) AS l "
                    + "ON l.gs_id = m.lid CROSS JOIN \(session.groupView(index)) AS g ON g.gs_id = m.gid "
                    + "WHERE m.s <> \(MergeSession.State.added.rawValue) AND l.\(quoted) COLLATE BINARY IS NOT g.\(quoted) "
                    + "LIMIT 1")
            guard row == nil else {
                throw RelocationFailure.mergeUnsupported(
                    "matched rows of the table \(table.name) differ in \(name), which foreign keys of other tables name"
                )
            }
        }
    }
}

/// Counts what a merge does, and shows samples. Reads the rows before anything is written.
struct MergePlan {
    let session: MergeSession

    private var store: StoreWriter { session.store }
    /// The number of samples of a kind.
    private static let samples = 3

    func report() throws -> MergeReport {
        var report = MergeReport()
        for (index, table) in session.schema.tables.enumerated() { report.entities += try entities(index, table) }
        report.entities = report.entities.filter { !$0.isEmpty }
        return report
    }

    private func entities(_ index: Int, _ table: MergeTable) throws -> [MergeReport.Entity] {
        let state = MergeSession.State.self
        var found: [Int64: MergeReport.Entity] = [:]
        for entity in table.entities {
            found[entity.number] = MergeReport.Entity(entity: entity.name, table: table.name, keys: entity.keys)
        }
        let renumbered = table.hasVisibleNumber ? "sum(lid <> gid)" : "0"
        let states = try store.prepare("SELECT e, s, count(*), \(renumbered) FROM \(session.map(index)) GROUP BY e, s")
        while try states.step() {
            let (number, count) = (states.integer(0), states.integer(2))
            found[number]?.renumbered += states.integer(3)
            switch MergeSession.State(rawValue: states.integer(1)) {
            case .added: found[number]?.onlyLegacy = count
            case .equal: found[number]?.equal = count
            case .keepsGroup: found[number]?.takesGroup = count
            case .takesLegacy: found[number]?.takesLegacy = count
            case .undecided, nil: found[number]?.undecided = count
            }
        }
        let matched = "SELECT gid FROM \(session.map(index)) WHERE s <> \(state.added.rawValue)"
        let alone = try store.prepare(
            "SELECT \(session.entity("g", of: table)), count(*) FROM \(session.groupView(index)) AS g "
                + "WHERE g.gs_id NOT IN (\(matched)) GROUP BY 1")
        while try alone.step() { found[alone.integer(0)]?.onlyGroup = alone.integer(1) }
        for entity in table.entities {
            guard var report = found[entity.number], !report.isEmpty else { continue }
            try addSamples(to: &report, index, table, entity.number)
            found[entity.number] = report
        }
        return table.entities.compactMap { found[$0.number] }
    }

    private func addSamples(
        to report: inout MergeReport.Entity, _ index: Int, _ table: MergeTable, _ entity: Int64
    ) throws {
        let added = MergeSession.State.added.rawValue
        if report.onlyGroup > 0 {
            let rows = try store.prepare(
                "SELECT g.gs_id FROM \(session.groupView(index)) AS g WHERE \(session.condition("g", [entity], of: table)) "
                    + "AND g.gs_id NOT IN (SELECT gid FROM \(session.map(index)) WHERE s <> \(added)) "
                    + "ORDER BY 1 LIMIT \(Self.samples)")
            while try rows.step() {
                report.samplesOnlyGroup.append(
                    MergeReport.Sample(
                        key: try session.key(of: rows.integer(0), in: index, entity: entity, fromLegacy: false)))
            }
        }
        let rows = try store.prepare(
            "SELECT lid, gid, s FROM \(session.map(index)) WHERE e = ?1 AND s = ?2 ORDER BY lid LIMIT ?3")
        func forEach(
            _ state: MergeSession.State, _ limit: Int, _ body: (Int64, Int64) throws -> Void
        ) throws {
            rows.reset()
            try rows.bind([.integer(entity), .integer(state.rawValue), .integer(Int64(limit))])
            while try rows.step() { try body(rows.integer(0), rows.integer(1)) }
        }
        try forEach(.added, Self.samples) { legacy, _ in
            report.samplesOnlyLegacy.append(
                MergeReport.Sample(key: try session.key(of: legacy, in: index, entity: entity, fromLegacy: true)))
        }
        for state in [MergeSession.State.undecided, .takesLegacy, .keepsGroup] {
            let limit = session.options.differencesShown
            try forEach(state, limit) { legacy, group in
                guard report.samplesDifferent.count < limit else { return }
                var sample = MergeReport.Sample(
                    key: try session.key(of: group, in: index, entity: entity, fromLegacy: false),
                    takes: state == .takesLegacy ? .legacy : state == .keepsGroup ? .group : nil)
                sample.differences = try differences(legacy, group, index, table, entity)
                report.samplesDifferent.append(sample)
            }
        }
    }

    private func differences(
        _ legacy: Int64, _ group: Int64, _ index: Int, _ table: MergeTable, _ entity: Int64
    ) throws -> [MergeReport.Difference] {
        let columns = table.columns.filter(\.isCompared)
        let selected = columns.flatMap { column in
            let name = MergeSession.quote(column.name)
            return [RowComparison.isEqual(column, session), "g.\(name)", "l.\(name)"]
        }
        let row = try store.prepare(
            "SELECT \(selected.joined(separator: ", ")) FROM \(session.legacyView(index)) AS l, "
                + "\(session.groupView(index)) AS g WHERE l.gs_id = ?1 AND g.gs_id = ?2",
            [.integer(legacy), .integer(group)])
        guard try row.step() else { return [] }
        return columns.enumerated().compactMap { place, column in
            let first = Int32(3 * place)
            guard row.integer(first) == 0 else { return nil }
            return MergeReport.Difference(
                name: column.property(entity), group: session.value(row, first + 1),
                legacy: session.value(row, first + 2))
        }
    }
}
