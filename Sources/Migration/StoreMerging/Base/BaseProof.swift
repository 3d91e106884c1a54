import LinuxSystem
import SQLiteFormat
import SQLiteStore
import StoreRelocation

/// The proof that nothing but what one side alone has changed since the common base was changed before a merge.
///
/// It compares whole rows as sets, and shares no statement with `CommonBase`. A row may leave a store's copy only if
/// the base has it too, and the other store doesn't; a row may come only from the other store.
struct BaseProof {
    private let reader: ComparisonReader
    private let subjects: [BaseSubject]
    private let changes: [MergeReport.Base]

    /// - Parameters:
    ///   - group: The group's copy as the merge gets it; `before`, as it was.
    ///   - legacy: The legacy store's copy as the merge gets it; `legacyBefore`, as it was.
    init(
        _ subjects: [BaseSubject], _ changes: [MergeReport.Base], group: StoreLocation, before: StoreLocation,
        legacy: StoreLocation, legacyBefore: StoreLocation, base: StoreLocation
    ) throws {
        (self.subjects, self.changes) = (subjects, changes)
        reader = try ComparisonReader(group.pathForSQLite, beside: before.pathForSQLite)
        for (name, store) in [("now", legacy), ("old", legacyBefore), ("base", base)] {
            try reader.execute("ATTACH ?1 AS \(name)", [.text(store.pathForSQLite.sqliteURI)])
        }
    }

    /// Throws `RelocationFailure` if any part of the proof fails.
    func check() throws {
        for subject in subjects { try check(subject) }
    }

    private func check(_ subject: BaseSubject) throws {
        func rows(_ database: String, _ side: BaseSubject.Side) -> String {
            // The identity is part of a row only if no column shows the key.
            let keys = subject.key.filter { key in !subject.columns.contains { $0.name == key.name } }
            let columns = (keys + subject.columns).enumerated().map {
                "\(MergeSession.quote($1.name(side))) COLLATE BINARY AS c\($0)"
            }
            let name = side == .main ? subject.name : side == .legacy ? subject.legacyName : subject.baseName
            return "SELECT \(columns.joined(separator: ", ")) FROM \(database).\(MergeSession.quote(name))"
        }
        let base = rows("base", .base)
        let (group, groupBefore) = (rows("main", .main), rows("was", .main))
        let (legacy, legacyBefore) = (rows("now", .legacy), rows("old", .legacy))
        for (now, before, other, side) in [
            (group, groupBefore, legacyBefore, "group's store"), (legacy, legacyBefore, groupBefore, "legacy store"),
        ] {
            let gone = "SELECT * FROM (\(before)) EXCEPT SELECT * FROM (\(now))"
            let come = "SELECT * FROM (\(now)) EXCEPT SELECT * FROM (\(before))"
            try none("SELECT * FROM (\(gone)) INTERSECT SELECT * FROM (\(other))") {
                "\(subject.name) lacks \($0) that both stores have"
            }
            try none("SELECT * FROM (\(come)) EXCEPT SELECT * FROM (\(other))") {
                "\(subject.name) has \($0) from nowhere"
            }
            try none("SELECT * FROM (\(gone)) EXCEPT SELECT * FROM (\(base))") {
                "\(subject.name) lacks \($0) of the \(side) that the common base hasn't got"
            }
            let (lost, planned) = (try count(gone), planned(subject, isGroup: side == "group's store"))
            guard lost <= planned else {
                throw RelocationFailure.proof(
                    "\(subject.name) lacks \(Counted(lost, "row")) of the \(side), and the plan says \(planned)")
            }
        }
    }

    /// Returns the number of a side's rows that the plan takes out or changes.
    private func planned(_ subject: BaseSubject, isGroup: Bool) -> Int64 {
        guard let change = changes.first(where: { subject.isNamed($0.table) }) else { return 0 }
        return isGroup
            ? change.deletedByLegacy.count + change.changedByLegacy.count
            : change.deletedByGroup.count + change.changedByGroup.count
    }

    private func count(_ query: String) throws -> Int64 { try reader.integer("SELECT count(*) FROM (\(query))") ?? 0 }

    private func none(_ query: String, _ finding: (Counted) -> String) throws {
        let found = try count(query)
        if found != 0 { throw RelocationFailure.proof(finding(Counted(found, "row"))) }
    }
}
