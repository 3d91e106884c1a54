import LinuxSystem
import SQLiteStore
import StoreRelocation

/// The three-way part of a merge: what only one side has done since the last state that both had.
///
/// It is done to the copies of both stores before they are merged. A row that one side has deleted and the other left
/// as it was is deleted in the other's copy; one that only one side has changed is changed in the other's copy. The
/// merge itself then finds rows that are new, and rows that both sides have changed.
///
/// The base must be an ancestor of both stores: a row of it that a store lacks must have been deleted there. The caller
/// answers for that.
struct CommonBase {
    private let store: StoreWriter
    private let subjects: [BaseSubject]
    private let unusable: [(table: String, reason: String)]
    private let references: [Reference]

    private static let samplesShown = 10

    /// A foreign key to a table whose rows may be deleted.
    private struct Reference {
        let child: String
        let legacyChild: String
        let column: String
        let parent: Int
        let parentColumn: String
    }

    /// The temporary tables with the rows of one copy: those to delete, and those that get the other copy's values.
    private struct Lists {
        let side: BaseSubject.Side
        let other: BaseSubject.Side
        let deleted: String
        let updated: String

        static let all = [
            Lists(side: .main, other: .legacy, deleted: "temp.gs_bd", updated: "temp.gs_bu"),
            Lists(side: .legacy, other: .main, deleted: "temp.gs_bo", updated: "temp.gs_bv"),
        ]
    }

    /// What was done, by table.
    struct Outcome {
        let changes: [MergeReport.Base]
        let subjects: [BaseSubject]
    }

    /// - Parameter store: A connection to the group's copy, with the legacy store's attached as `legacy`, and the base
    ///   as `base`. None of their triggers may fire but those that record a history.
    init(_ store: StoreWriter, _ schema: MergeSchema) throws {
        self.store = store
        let found = try BaseSubject.find(store, schema)
        (subjects, unusable) = (found.subjects, found.unusable)
        let stored = try DatabaseSchema(store)
        var references: [Reference] = []
        for table in stored.tables {
            guard let child = schema.index(of: table.name) else { continue }
            for key in table.foreignKeys {
                guard let parent = found.subjects.firstIndex(where: { $0.isNamed(key.table) }),
                    let primary = stored.table(key.table)?.primaryKey,
                    let column = key.target ?? (key.place < primary.count ? primary[key.place].name : nil)
                else { continue }
                references.append(
                    Reference(
                        child: table.name, legacyChild: schema.tables[child].legacyName, column: key.column,
                        parent: parent, parentColumn: column))
            }
        }
        self.references = references
    }

    /// Brings both copies up to date.
    func apply() throws -> Outcome {
        try store.addFunction("gs_is_negative", arguments: 1) { values in
            guard case .real(let number)? = values.first else { return .integer(0) }
            return .integer(number.sign == .minus ? 1 : 0)
        }
        try store.execute("CREATE TEMP TABLE gs_bk (number)")
        for index in subjects.indices { try collect(index) }
        let referenced = try keepReferenced()
        try keepIndexed()
        let changes = try subjects.indices.map { try report($0, referenced: referenced[$0]) }
        for lists in Lists.all {
            for index in subjects.indices { try remove(index, lists) }
        }
        for lists in Lists.all {
            for index in subjects.indices { try update(index, lists) }
        }
        let others = unusable.map { MergeReport.Base(table: $0.table, obstacle: $0.reason) }
        return Outcome(changes: changes + others, subjects: subjects)
    }

    // MARK: Finding

    /// Lists the rows of a table. Each has its identity as `i0`…, and its key as `k0`…; an updated row has the identity
    /// of the other copy's row as `j0`…. `gs_bx` has the rows that one side has deleted and the other changed.
    private func collect(_ index: Int) throws {
        let subject = subjects[index]
        func select(_ row: BaseSubject.Names) -> String {
            (row.identity.enumerated().map { "\($1) AS i\($0)" } + row.key.enumerated().map { "\($1) AS k\($0)" })
                .joined(separator: ", ")
        }
        let base = subject.names("b", .base)
        try store.execute(
            "CREATE TEMP TABLE gs_bx\(index) AS SELECT \(select(base)) FROM \(base.source) LIMIT 0")
        for lists in Lists.all {
            let (row, other) = (subject.names("n", lists.side), subject.names("o", lists.other))
            let isGone = "NOT EXISTS (SELECT 1 FROM \(other.source) WHERE \(other.hasKey(of: base)))"
            let pairs = "\(base.source) CROSS JOIN \(row.source) ON \(row.hasKey(of: base))"
            try store.execute(
                "CREATE TEMP TABLE \(lists.deleted.dropFirst(5))\(index) AS SELECT \(select(row)) FROM \(pairs) "
                    + "WHERE \(row.equals(base)) AND \(isGone)")
            let changed = "SELECT \(select(row)) FROM \(pairs) WHERE NOT (\(row.equals(base))) AND \(isGone)"
            try store.execute("INSERT INTO temp.gs_bx\(index) \(changed)")
            if subject.identity.count == 1 { try store.execute("INSERT INTO temp.gs_bk SELECT i0 FROM (\(changed))") }
            let identity = other.identity.enumerated().map { ", \($1) AS j\($0)" }.joined()
            try store.execute(
                "CREATE TEMP TABLE \(lists.updated.dropFirst(5))\(index) AS SELECT \(select(row))\(identity) FROM \(pairs) "
                    + "CROSS JOIN \(other.source) ON \(other.hasKey(of: base)) "
                    + "WHERE \(row.equals(base)) AND NOT (\(other.equals(base)))")
        }
    }

    /// Takes rows out of the lists of deleted ones that rows of the result may refer to. Returns their number, by
    /// table.
    private func keepReferenced() throws -> [Int64] {
        var kept = [Int64](repeating: 0, count: subjects.count)
        // A row that stays may refer to others.
        var isChanged = !references.isEmpty
        while isChanged {
            isChanged = false
            for reference in references {
                let referring = Lists.all.map { self.referring(reference, $0) }.joined(separator: " UNION ALL ")
                for lists in Lists.all {
                    let parent = subjects[reference.parent]
                    let names = parent.names("p", lists.side)
                    let column = MergeSession.quote(parent.name(ofColumn: reference.parentColumn, lists.side))
                    let identity = parent.identity.indices.map { "i\($0)" }.joined(separator: ", ")
                    let condition =
                        "(\(identity)) IN (SELECT \(names.identity.joined(separator: ", ")) FROM \(names.source) "
                        + "WHERE p.\(column) IN (\(referring)))"
                    let list = "\(lists.deleted)\(reference.parent)"
                    if parent.identity.count == 1 {
                        try store.execute("INSERT INTO temp.gs_bk SELECT i0 FROM \(list) WHERE \(condition)")
                    }
                    try store.execute("DELETE FROM \(list) WHERE \(condition)")
                    guard store.changes > 0 else { continue }
                    kept[reference.parent] += store.changes
                    isChanged = true
                }
            }
        }
        return kept
    }

    /// Returns a query for the values of a reference in the rows of one copy that the result may have.
    private func referring(_ reference: Reference, _ lists: Lists) -> String {
        let name = lists.side == .main ? reference.child : reference.legacyChild
        let table = "\(lists.side.rawValue).\(MergeSession.quote(name))"
        guard let child = subjects.firstIndex(where: { $0.isNamed(reference.child) }) else {
            return "SELECT c.\(MergeSession.quote(reference.column)) FROM \(table) AS c"
        }
        let names = subjects[child].names("c", lists.side)
        let column = MergeSession.quote(subjects[child].name(ofColumn: reference.column, lists.side))
        let identity = "(\(names.identity.joined(separator: ", ")))"
        let columns = names.identity.indices.map { "i\($0)" }.joined(separator: ", ")
        // An updated row has the values of the other copy's.
        let conditions = [lists.deleted, lists.updated].map {
            "\(identity) NOT IN (SELECT \(columns) FROM \($0)\(child))"
        }
        return "SELECT c.\(column) FROM \(table) AS c WHERE \(conditions.joined(separator: " AND "))"
    }

    /// Keeps the full-text rows that have the numbers of kept rows.
    private func keepIndexed() throws {
        for (index, subject) in subjects.enumerated() where subject.isFullText {
            for lists in Lists.all {
                try store.execute("DELETE FROM \(lists.deleted)\(index) WHERE i0 IN (SELECT number FROM temp.gs_bk)")
            }
        }
    }

    // MARK: The report

    private func report(_ index: Int, referenced: Int64) throws -> MergeReport.Base {
        let subject = subjects[index]
        let encoding = try TextEncoding(store)
        func count(_ list: String) throws -> Int64 {
            try store.integer("SELECT count(*) FROM \(list)\(index)") ?? 0
        }
        func samples(_ list: String) throws -> [MergeReport.Sample] {
            let columns = subject.key.indices.map { "k\($0)" }.joined(separator: ", ")
            let rows = try store.prepare(
                "SELECT \(columns) FROM \(list)\(index) ORDER BY \(columns) LIMIT \(Self.samplesShown)")
            var found: [MergeReport.Sample] = []
            while try rows.step() {
                let key = subject.key.enumerated().map {
                    MergeReport.NamedValue(name: $1.name, value: rows.storedValue(Int32($0), encoding: encoding))
                }
                found.append(MergeReport.Sample(key: key))
            }
            return found
        }
        func rows(_ list: String) throws -> MergeReport.Base.Rows {
            try MergeReport.Base.Rows(count: count(list), samples: samples(list))
        }
        var report = MergeReport.Base(table: subject.name)
        let (main, legacy) = (Lists.all[0], Lists.all[1])
        report.deletedByLegacy = try rows(main.deleted)
        report.deletedByGroup = try rows(legacy.deleted)
        report.changedByLegacy = try rows(main.updated)
        report.changedByGroup = try rows(legacy.updated)
        report.keptChanged = try rows("temp.gs_bx")
        report.keptReferenced = referenced
        report.hasRowsWithoutKey = try subject.hasRowsWithoutKey(store)
        return report
    }

    // MARK: Writing

    private func remove(_ index: Int, _ lists: Lists) throws {
        let subject = subjects[index]
        let identity = subject.identity.map { MergeSession.quote($0.name(lists.side)) }.joined(separator: ", ")
        let columns = subject.identity.indices.map { "i\($0)" }.joined(separator: ", ")
        try store.execute(
            "DELETE FROM \(subject.table(lists.side)) WHERE (\(identity)) IN "
                + "(SELECT \(columns) FROM \(lists.deleted)\(index))")
    }

    private func update(_ index: Int, _ lists: Lists) throws {
        let subject = subjects[index]
        let list = "\(lists.updated)\(index)"
        guard try store.integer("SELECT 1 FROM \(list) LIMIT 1") != nil else { return }
        let other = subject.names("o", lists.other)
        let isOther = other.identity.enumerated().map { "\($1) = u.j\($0)" }.joined(separator: " AND ")
        let table = subject.table(lists.side)
        let own = subject.identity.map { MergeSession.quote($0.name(lists.side)) }
        let isSame = own.enumerated().map { "\(table).\($1) = u.i\($0)" }.joined(separator: " AND ")
        let targets = subject.columns.map { MergeSession.quote($0.name(lists.side)) }.joined(separator: ", ")
        let identity = subject.identity.indices.map { "i\($0)" }.joined(separator: ", ")
        let listed = "(\(own.joined(separator: ", "))) IN (SELECT \(identity) FROM \(list))"
        do {
            try store.execute(
                "UPDATE OR ABORT \(table) SET (\(targets)) = (SELECT \(other.columns.joined(separator: ", ")) "
                    + "FROM \(list) AS u CROSS JOIN \(other.source) ON \(isOther) WHERE \(isSame)) WHERE \(listed)")
        } catch let error as StoreError where error.isConstraint {
            // Values may change places between rows.
            try store.execute("DELETE FROM \(table) WHERE \(listed)")
            let number = !subject.identityIsColumn
            try store.execute(
                "INSERT OR ABORT INTO \(table) (\(number ? own[0] + ", " : "")\(targets)) SELECT "
                    + "\(number ? "u.i0, " : "")\(other.columns.joined(separator: ", ")) FROM \(list) AS u "
                    + "CROSS JOIN \(other.source) ON \(isOther)")
        }
    }
}
