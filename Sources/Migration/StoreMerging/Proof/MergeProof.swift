import Glibc
import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreRelocation
import SystemPackage

/// The proof that a merged store has every object of both stores, each once, with the values that it should have.
///
/// It reads the result, the group's former store, and the legacy store again, with statements of its own: a statement
/// shared with the merge would repeat its error. It takes only one thing from the merge, the claim which legacy row
/// became which row of the result, and checks that claim too.
struct MergeProof {
    let schema: MergeSchema
    let options: MergeOptions
    let report: MergeReport
    let reader: ComparisonReader
    private let resultFolder: ExternalFolder
    private let legacyFolder: ExternalFolder

    init(
        _ schema: MergeSchema, _ options: MergeOptions, _ report: MergeReport, group: StoreLocation,
        before: StoreLocation, legacy: StoreLocation, legacyOwner: StoreLocation, witness: StoreLocation
    ) throws {
        self.schema = schema
        self.options = options
        self.report = report
        resultFolder = ExternalFolder(owner: group)
        legacyFolder = ExternalFolder(owner: legacyOwner)
        reader = try ComparisonReader(group.pathForSQLite, beside: before.pathForSQLite)
        try reader.execute("ATTACH ?1 AS old", [.text(legacy.pathForSQLite.sqliteURI)])
        try reader.execute("ATTACH ?1 AS witness", [.text(witness.pathForSQLite.sqliteURI)])
        let (result, other) = (resultFolder, legacyFolder)
        try reader.addFunction("proof_data", arguments: 2) { values in
            try (values[0] == .text("old") ? other : result).data(values[1], isNamed: false)
        }
    }

    /// Throws `RelocationFailure` if any part of the proof fails.
    func check() throws {
        for (index, table) in schema.tables.enumerated() {
            if table.number == nil {
                try checkTuples(index, table)
            } else {
                try checkAccounts(index, table)
                try checkKeys(index, table)
                try checkValues(index, table)
                try checkDecisions(index, table)
            }
            try checkReport(index, table)
        }
        for join in schema.joinTables { try checkLinks(join) }
        try checkCounters()
    }

    func quote(_ name: String) -> String { name.sqlName }

    func count(_ sql: String) throws -> Int64 { try reader.integer(sql) ?? 0 }

    func require(_ isTrue: Bool, _ finding: @autoclosure () -> String) throws {
        if !isTrue { throw RelocationFailure.proof(finding()) }
    }

    func none(_ sql: String, _ finding: (Int64) -> String) throws {
        let found = try count(sql)
        if found != 0 { throw RelocationFailure.proof(finding(found)) }
    }

    /// The names in a statement of a table in the result, in the group's former store, and in the legacy store.
    struct Names {
        let new: String
        let was: String
        let old: String
        let number: String
        let oldNumber: String
        let witness: String
    }

    func names(_ index: Int, _ table: MergeTable) -> Names {
        Names(
            new: "main.\(quote(table.name))", was: "was.\(quote(table.name))", old: "old.\(quote(table.legacyName))",
            number: quote(table.number ?? "rowid"), oldNumber: quote(table.legacyNumber ?? "rowid"),
            witness: "witness.m\(index)")
    }

    // MARK: Every row is accounted for

    /// Checks that the claim maps the legacy rows one to one into the result, and that the result has no row of
    /// another origin.
    ///
    /// The claim covers each legacy row and no other, no two of them share a row of the result, and all rows of the
    /// group's former store and of the claim are there. Then counting suffices: a result with as many rows as the
    /// former store and the added ones together has none that came from elsewhere.
    private func checkAccounts(_ index: Int, _ table: MergeTable) throws {
        let n = names(index, table)
        try none("SELECT count(*) FROM \(n.old) WHERE \(n.oldNumber) NOT IN (SELECT lid FROM \(n.witness))") {
            "\(table.name) lacks \(Counted($0, "row")) of the legacy store"
        }
        try none("SELECT count(*) FROM \(n.witness) WHERE lid NOT IN (SELECT \(n.oldNumber) FROM \(n.old))") {
            "\(table.name) has \(Counted($0, "row")) from nowhere"
        }
        try none("SELECT count(*) - count(DISTINCT gid) FROM \(n.witness)") {
            "\(table.name) has \(Counted($0, "row")) of the legacy store in the place of another"
        }
        try none("SELECT count(*) FROM \(n.was) WHERE \(n.number) NOT IN (SELECT \(n.number) FROM \(n.new))") {
            "\(table.name) lacks \(Counted($0, "row")) of the group's store"
        }
        try none("SELECT count(*) FROM \(n.witness) WHERE gid NOT IN (SELECT \(n.number) FROM \(n.new))") {
            "\(table.name) lacks \(Counted($0, "row")) that the legacy store's became"
        }
        let added = try count(
            "SELECT count(*) FROM \(n.witness) WHERE gid NOT IN (SELECT \(n.number) FROM \(n.was))")
        let (before, now) = (try count("SELECT count(*) FROM \(n.was)"), try count("SELECT count(*) FROM \(n.new)"))
        try require(now == before + added, "\(table.name) has \(Counted(now, "row")), not \(before + added)")
        try none(
            "SELECT count(*) FROM \(n.witness) WHERE (s = 0) <> (gid NOT IN (SELECT \(n.number) FROM \(n.was)))"
        ) { "\(table.name) has \(Counted($0, "row")) of another origin than claimed" }
    }

    /// Checks that the result has the numbers of rows in the plan, which the user has seen.
    private func checkReport(_ index: Int, _ table: MergeTable) throws {
        let n = names(index, table)
        let planned = report.entities.filter { DatabaseSchema.key(of: $0.table) == DatabaseSchema.key(of: table.name) }
        let all = planned.reduce(0) { $0 + $1.onlyGroup + $1.onlyLegacy + $1.equal + $1.different }
        let now = try count("SELECT count(*) FROM \(n.new)")
        try require(now == all, "\(table.name) has \(Counted(now, "row")), and the plan \(all)")
        let legacy = planned.reduce(0) { $0 + $1.onlyLegacy + $1.equal + $1.different }
        let old = try count("SELECT count(*) FROM \(n.old)")
        try require(
            old == legacy, "\(table.name) of the legacy store has \(Counted(old, "row")), and the plan \(legacy)")
    }

    // MARK: Links and counters

    /// Checks that the result has the union of both stores' links and no others. A legacy link to a row that doesn't
    /// exist leads nowhere in the result, so it isn't required.
    private func checkLinks(_ join: MergeJoinTable) throws {
        let (first, second) = (quote(join.sides[0].column), quote(join.sides[1].column))
        let translated = join.sides.map { side in
            "(SELECT gid FROM witness.m\(side.table) WHERE lid = l.\(quote(side.column)))"
        }
        let old =
            "SELECT * FROM (SELECT \(translated[0]) AS a, \(translated[1]) AS b FROM old.\(quote(join.legacyName)) AS l) "
            + "WHERE a IS NOT NULL AND b IS NOT NULL"
        let was = "SELECT \(first), \(second) FROM was.\(quote(join.name))"
        let new = "SELECT \(first), \(second) FROM main.\(quote(join.name))"
        try none("SELECT count(*) FROM (SELECT * FROM (\(was) UNION \(old)) EXCEPT \(new))") {
            "\(join.relationship) lacks \(Counted($0, "link"))"
        }
        try none("SELECT count(*) FROM (\(new) EXCEPT SELECT * FROM (\(was) UNION \(old)))") {
            "\(join.relationship) has \(Counted($0, "link")) from nowhere"
        }
    }

    /// Checks that Core Data would assign no number again that an object of the result has.
    private func checkCounters() throws {
        for table in schema.tables where table.isCoreData {
            guard let root = table.entities.first?.number else { continue }
            try none(
                "SELECT count(*) FROM main.Z_PRIMARYKEY WHERE Z_ENT = \(root) "
                    + "AND Z_MAX < coalesce((SELECT max(Z_PK) FROM main.\(quote(table.name))), 0)"
            ) { _ in "Z_MAX of \(table.name) is too low" }
        }
    }
}
