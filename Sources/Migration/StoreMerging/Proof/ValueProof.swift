import LinuxSystem
import SQLiteStore

/// The part of the proof that compares values, keys and decisions.
extension MergeProof {
    /// Returns the SQL of a legacy row's value as the result should have it.
    private func expected(_ column: MergeTable.Column) -> String {
        let value = "l.\(quote(column.legacyName))"
        guard let target = renumberedTarget(column) else { return value }
        return "(SELECT gid FROM witness.m\(target) WHERE lid = \(value))"
    }

    /// Returns the table whose rows have other numbers in the result, if the column refers to one.
    private func renumberedTarget(_ column: MergeTable.Column) -> Int? {
        guard let target = column.reference else { return nil }
        let other = schema.tables[target]
        return other.keyIsNumber && other.numberReference == nil ? nil : target
    }

    /// Returns an SQL condition that is true if the legacy row `l` and another row have the same reference to nothing.
    private func leadsNowhereToo(_ column: MergeTable.Column, _ row: String) -> String {
        guard let target = renumberedTarget(column) else { return "FALSE" }
        let (old, now) = ("l.\(quote(column.legacyName))", "\(row).\(quote(column.name))")
        let n = names(target, schema.tables[target])
        return "(\(now) IS NOT NULL AND \(now) COLLATE BINARY IS \(old) "
            + "AND \(old) NOT IN (SELECT lid FROM \(n.witness)) AND \(now) NOT IN (SELECT \(n.number) FROM \(n.was)))"
    }

    /// Returns an SQL condition that is true if the result's row `n` has the legacy row's value.
    private func hasLegacyValue(_ column: MergeTable.Column, _ index: Int, number: String) -> String {
        let name = quote(column.name)
        if column.role == .external {
            return "proof_data('new', n.\(name)) IS proof_data('old', l.\(quote(column.legacyName)))"
        }
        return "(n.\(name) COLLATE BINARY IS \(expected(column))\(orCleared(column, index, number: number)))"
    }

    /// Returns an SQL condition that is true if the result's row `n` has the value of the group's former row `w`.
    private func hasFormerValue(_ column: MergeTable.Column, _ index: Int, number: String) -> String {
        let name = quote(column.name)
        return "(n.\(name) COLLATE BINARY IS w.\(name)\(orCleared(column, index, number: number)))"
    }

    /// Returns an SQL condition, with OR before it, that admits the NULL of a link which the merge claims to have
    /// cleared.
    private func orCleared(_ column: MergeTable.Column, _ index: Int, number: String) -> String {
        guard column.companion != nil || column.reference != nil, schema.tables[index].isCoreData else { return "" }
        return
            " OR (n.\(quote(column.name)) IS NULL AND EXISTS (SELECT 1 FROM witness.cleared AS c WHERE c.t = \(index) "
            + "AND c.c = \(column.name.sqlLiteral) AND c.gid = n.\(number)))"
    }

    private func all(_ conditions: [String]) -> String { (["TRUE"] + conditions).joined(separator: " AND ") }

    /// Checks the values of each row by its state: a row whose state is `takesLegacy` or `added` has the legacy row's
    /// values, an equal one has both stores', and any other has those of the group's former row.
    func checkValues(_ index: Int, _ table: MergeTable) throws {
        let n = names(index, table)
        let columns = table.columns.filter(\.isCompared)
        let former = all(columns.map { hasFormerValue($0, index, number: n.number) })
        let legacy = all(columns.map { hasLegacyValue($0, index, number: n.number) })
        let equal = all(
            columns.map { column in
                let value = hasLegacyValue(column, index, number: n.number)
                guard renumberedTarget(column) != nil else { return value }
                let leads = "(l.\(quote(column.legacyName)) IS NULL OR \(expected(column)) IS NOT NULL)"
                return "((\(value) AND \(leads)) OR \(leadsNowhereToo(column, "n")))"
            })
        let entity = table.entityColumn.map { " AND n.\(quote($0)) IS l.\(quote($0))" } ?? ""
        try none(
            "SELECT count(*) FROM \(n.was) AS w JOIN \(n.new) AS n ON n.\(n.number) = w.\(n.number) "
                + "WHERE w.\(n.number) NOT IN (SELECT gid FROM \(n.witness) WHERE s = 3) AND NOT (\(former))"
        ) { "\(table.name) has other values in \(Counted($0, "row")) that should be the group's" }
        try none(
            "SELECT count(*) FROM \(n.witness) AS m JOIN \(n.old) AS l ON l.\(n.oldNumber) = m.lid "
                + "JOIN \(n.new) AS n ON n.\(n.number) = m.gid WHERE m.s IN (0, 3) AND NOT (\(legacy)\(entity))"
        ) { "\(table.name) has other values in \(Counted($0, "row")) that should be the legacy store's" }
        try none(
            "SELECT count(*) FROM \(n.witness) AS m JOIN \(n.old) AS l ON l.\(n.oldNumber) = m.lid "
                + "JOIN \(n.new) AS n ON n.\(n.number) = m.gid WHERE m.s = 1 AND NOT (\(equal)\(entity))"
        ) { "\(table.name) has other values in \(Counted($0, "row")) that should be equal" }
        try none("SELECT count(*) FROM \(n.witness) WHERE s NOT IN (0, 1, 2, 3)") {
            "\(table.name) has \(Counted($0, "undecided row"))"
        }
    }

    // MARK: Keys

    /// Checks that no legacy row was added beside a row of the same key, and that no two rows were matched whose keys
    /// differ. A row without a complete key has none to compare.
    func checkKeys(_ index: Int, _ table: MergeTable) throws {
        let n = names(index, table)
        func column(_ name: String) -> MergeTable.Column? { table.column(name) }
        func isComplete(_ rule: MergeTable.Rule, _ row: String, legacyNames: Bool) -> String {
            let entities = rule.entities.map { "\(row).Z_ENT IN (\($0.map(String.init).joined(separator: ", ")))" }
            let values = rule.columns.compactMap(column).map {
                "\(row).\(quote(legacyNames ? $0.legacyName : $0.name)) IS NOT NULL"
            }
            return all(([entities].compactMap(\.self)) + values)
        }
        func isEqual(_ rule: MergeTable.Rule) -> String {
            all(
                rule.columns.compactMap(column).map {
                    guard renumberedTarget($0) != nil else { return "w.\(quote($0.name)) = \(expected($0))" }
                    // One comparison with the key's value: SQLite can use an index for it.
                    let old = "l.\(quote($0.legacyName))"
                    return "w.\(quote($0.name)) = coalesce(\(expected($0)), \(old)) "
                        + "AND (\(expected($0)) IS NOT NULL OR \(leadsNowhereToo($0, "w")))"
                })
        }
        for rule in table.rules {
            try none(
                "SELECT count(*) FROM \(n.witness) AS m CROSS JOIN \(n.old) AS l ON l.\(n.oldNumber) = m.lid "
                    + "CROSS JOIN \(n.was) AS w ON \(isEqual(rule)) WHERE m.s = 0 "
                    + "AND \(isComplete(rule, "l", legacyNames: true)) AND \(isComplete(rule, "w", legacyNames: false))"
            ) { "\(table.name) has \(Counted($0, "row")) added beside a row of the same key" }
        }
        guard !table.rules.isEmpty else { return }
        let matching = table.rules.map { rule in
            "(\(isComplete(rule, "l", legacyNames: true)) AND \(isComplete(rule, "w", legacyNames: false)) AND \(isEqual(rule)))"
        }
        let incomplete = table.rules.map { "NOT (\(isComplete($0, "l", legacyNames: true)))" }
        try none(
            "SELECT count(*) FROM \(n.witness) AS m JOIN \(n.old) AS l ON l.\(n.oldNumber) = m.lid "
                + "JOIN \(n.was) AS w ON w.\(n.number) = m.gid WHERE m.s <> 0 AND NOT (\(matching.joined(separator: " OR "))) "
                + "AND NOT (\(all(incomplete)))"
        ) { "\(table.name) has \(Counted($0, "row")) matched with a row of another key" }
    }

    // MARK: Decisions

    /// Checks that the kept rows are those that the user's first preference demands. Without a preference, no two
    /// matched rows may differ.
    func checkDecisions(_ index: Int, _ table: MergeTable) throws {
        let n = names(index, table)
        switch options.preferences.first {
        case .group?:
            try none("SELECT count(*) FROM \(n.witness) WHERE s = 3") {
                "\(table.name) has \(Counted($0, "row")) of the legacy store, although the group's are preferred"
            }
        case .legacy?:
            try none("SELECT count(*) FROM \(n.witness) WHERE s = 2") {
                "\(table.name) has \(Counted($0, "row")) of the group's store, although the legacy store's are preferred"
            }
        case .newer(let attribute)?:
            guard !table.isCoreData, let column = table.column(attribute) else { return }
            let (was, old) = ("w.\(quote(column.name))", "l.\(quote(column.legacyName))")
            try none(
                "SELECT count(*) FROM \(n.witness) AS m JOIN \(n.old) AS l ON l.\(n.oldNumber) = m.lid "
                    + "JOIN \(n.was) AS w ON w.\(n.number) = m.gid WHERE typeof(\(was)) IN ('integer', 'real') "
                    + "AND typeof(\(old)) IN ('integer', 'real') "
                    + "AND (m.s = 3 AND \(was) > \(old) OR m.s = 2 AND \(old) > \(was))"
            ) { "\(table.name) has older values in \(Counted($0, "row"))" }
        case nil:
            try none("SELECT count(*) FROM \(n.witness) WHERE s IN (2, 3)") {
                "\(table.name) has \(Counted($0, "row")) decided by nobody"
            }
        }
    }

    // MARK: Tables without numbers

    /// Checks a table whose rows have no number, only values: each row of the result comes from one of the stores, and
    /// neither store lacks more rows than the claim says were replaced by the other's.
    func checkTuples(_ index: Int, _ table: MergeTable) throws {
        let n = names(index, table)
        let columns = table.columns.map { quote($0.name) }.joined(separator: ", ")
        let old = "SELECT \(table.columns.map(expected).joined(separator: ", ")) FROM \(n.old) AS l"
        let (was, new) = ("SELECT \(columns) FROM \(n.was)", "SELECT \(columns) FROM \(n.new)")
        func states(_ condition: String) throws -> Int64 {
            try count("SELECT count(*) FROM \(n.witness) WHERE \(condition)")
        }
        try require(
            try count("SELECT count(*) FROM \(n.old)") == states("TRUE"),
            "rows of \(table.name) of the legacy store are missing")
        let (before, now) = (try count("SELECT count(*) FROM \(n.was)"), try count("SELECT count(*) FROM \(n.new)"))
        let added = try states("s = 0")
        try require(now == before + added, "\(table.name) has \(Counted(now, "row")), not \(before + added)")
        try none("SELECT count(*) FROM (\(new) EXCEPT SELECT * FROM (\(was) UNION \(old)))") {
            "\(table.name) has \(Counted($0, "row")) from nowhere"
        }
        let missing = try count("SELECT count(*) FROM (\(was) EXCEPT \(new))")
        let replaced = try states("s = 3")
        try require(missing <= replaced, "\(table.name) lacks \(Counted(missing, "row")) of the group's store")
        let lost = try count("SELECT count(*) FROM (\(old) EXCEPT \(new))")
        let kept = try states("s = 2")
        let loose = try looseTuples(index, table, new)
        try require(lost <= kept + loose, "\(table.name) lacks \(Counted(lost, "row")) of the legacy store")
    }

    /// Returns the number of the legacy store's rows with references to nothing that the result has as they were.
    private func looseTuples(_ index: Int, _ table: MergeTable, _ new: String) throws -> Int64 {
        let references = table.columns.compactMap { column -> (value: String, found: String)? in
            guard renumberedTarget(column) != nil else { return nil }
            return ("l.\(quote(column.legacyName))", expected(column))
        }
        guard !references.isEmpty else { return 0 }
        let isLoose = references.map { "(\($0.value) IS NOT NULL AND \($0.found) IS NULL)" }.joined(separator: " OR ")
        let values = table.columns.map { column in
            renumberedTarget(column) == nil
                ? expected(column) : "coalesce(\(expected(column)), l.\(quote(column.legacyName)))"
        }
        return try count(
            "SELECT count(*) FROM (SELECT \(values.joined(separator: ", ")) FROM \(names(index, table).old) AS l "
                + "WHERE \(isLoose) INTERSECT \(new))")
    }
}
