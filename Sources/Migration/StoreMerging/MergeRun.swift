import LinuxSystem
import PersistentHistory
import SQLiteFormat
import SQLiteStore
import StoreMigration
import StoreRelocation
import SystemPackage

/// One merge, in one transaction on the copy of the group's store.
struct MergeRun {
    let schema: MergeSchema
    let newer: [String: [Int: [Int64: String]]]
    let options: MergeOptions
    /// The copy of the group's store, with its external data.
    let group: StoreLocation
    /// The legacy store, with its external data.
    let legacy: StoreLocation
    /// The violations that the stores had before a common base was applied to them; nil without one.
    var violations: ForeignKeyViolations?
    let isCancelled: @Sendable () -> Bool

    /// Merges the legacy store's copy at a path, and writes the witness for the proof.
    func run(
        merging legacyCopy: FilePath, witness: StoreLocation, planned: (MergeReport) -> Void,
        progress: (_ fraction: Double, _ activity: String) -> Void
    ) throws -> MergeReport {
        let store = try StoreWriter(group.pathForSQLite)
        // A failed run discards the copy, so it needs no journal on disk. SQLite still rolls back a single failed
        // statement.
        for pragma in ["journal_mode = MEMORY", "synchronous = OFF", "temp_store = FILE"] {
            try store.execute("PRAGMA " + pragma)
        }
        try store.addCoreDataFunctions()
        try Self.addHash(to: store)
        try store.execute("ATTACH ?1 AS legacy", [.text(legacyCopy.sqliteURI)])
        store.interrupt(when: isCancelled)
        let session = try MergeSession(store, schema, options)
        try checkCollations(session)
        let violations = try violations ?? ForeignKeyViolations(store)
        let report = try store.transaction(.immediate) {
            try run(session, violations, planned, progress)
        }
        try checkStructure(store)
        try Witness(session).write(to: witness)
        return report
    }

    private func run(
        _ session: MergeSession, _ violations: ForeignKeyViolations, _ planned: (MergeReport) -> Void,
        _ progress: (_ fraction: Double, _ activity: String) -> Void
    ) throws -> MergeReport {
        let store = session.store
        let triggers = try SuspendedTriggers(store)
        let external = ExternalFiles(
            session: session, group: ExternalFolder(owner: group), legacy: ExternalFolder(owner: legacy))
        try external.register()
        progress(0.05, "matching")
        try session.makeViews()
        try RowMatching(session).run()
        progress(0.3, "comparing")
        try RowComparison(session, newer: newer).run()
        var report = try MergePlan(session: session).report()
        let links = LinkWriting(session: session)
        try links.plan(&report)
        let virtual = VirtualTableMerge(session: session)
        try virtual.check()
        report.entities += try virtual.mergeContent()
        report.dangling += try danglingReferences(session)
        report.references = try references(session)
        report.notes += renumberingNotes(report)
        planned(report)
        try checkDecided(report)
        progress(0.5, "writing")
        report.externalFiles = try external.copy()
        let changed = ChangedObjects(session)
        try changed.rememberLinks()
        try RowWriting(session).run()
        try links.run()
        let repair = ReferenceRepair(session: session)
        report.linksCleared = try repair.clearOneSidedLinks()
        try repair.order()
        if report.linksCleared > 0 {
            report.notes.append(
                "\(report.linksCleared) one-to-one links that objects of both stores claimed are cleared: the other object "
                    + "leads elsewhere")
        }
        try changed.record()
        progress(0.9, "completing")
        report.notes += try Bookkeeping(session: session).run()
        try virtual.rebuild()
        try CoreDataTransaction(session: session).record()
        try violations.check(store)
        try triggers.resume(in: store)
        return report
    }

    private func checkDecided(_ report: MergeReport) throws {
        let open = report.entities.filter { $0.undecided > 0 }
        guard !open.isEmpty else { return }
        let counts = open.map { "\($0.undecided) of \(PrintableText($0.name))" }.joined(separator: ", ")
        throw RelocationFailure(
            .conflict, code: "merge_undecided", "matched objects differ, and nothing says which to keep: \(counts)",
            remedy: "look at --dry-run, then decide: --prefer group, --prefer legacy or --prefer newer:ATTRIBUTE")
    }

    private func danglingReferences(_ session: MergeSession) throws -> Int64 {
        var count: Int64 = 0
        for (index, table) in schema.tables.enumerated() {
            for column in table.columns {
                guard let target = column.reference, session.translates(target) else { continue }
                count +=
                    try session.store.integer(
                        "SELECT count(*) FROM \(session.map(index)) AS m CROSS JOIN \(session.legacyView(index)) AS l "
                            + "ON l.gs_id = m.lid WHERE m.s IN (\(MergeSession.State.added.rawValue), "
                            + "\(MergeSession.State.takesLegacy.rawValue)) AND l.\(MergeSession.quote(column.name)) IS NOT NULL "
                            + "AND \(session.translated(column)) IS NULL") ?? 0
            }
        }
        return count
    }

    /// Returns the references that the user declares, each with the number of legacy rows in which it changes.
    private func references(_ session: MergeSession) throws -> [MergeReport.Reference] {
        try options.references.compactMap { reference in
            guard let index = schema.index(of: reference.source.table),
                let column = schema.tables[index].column(reference.source.column)
            else { return nil }
            let value = "l.\(MergeSession.quote(column.name))"
            let changed =
                try session.store.integer(
                    "SELECT count(*) FROM \(session.legacyView(index)) AS l WHERE \(value) IS NOT NULL "
                        + "AND \(session.translated(column)) IS NOT \(value)") ?? 0
            return MergeReport.Reference(
                table: schema.tables[index].name, column: column.name, targetTable: reference.target.table,
                targetColumn: reference.target.column, changed: changed)
        }
    }

    /// Returns a note for each table without a model whose rows get other numbers.
    private func renumberingNotes(_ report: MergeReport) -> [String] {
        report.entities.filter { $0.entity == nil && $0.renumbered > 0 }.map { table in
            let isOne = table.renumbered == 1
            return "\(Counted(table.renumbered, "row")) of \(table.table) "
                + "\(isOne ? "has another number" : "have other numbers") in the result; columns that hold such numbers "
                + "without a FOREIGN KEY keep the old ones, unless --reference names them"
        }
    }

    /// Checks each table and index. `quick_check` of SQLite 3.40 takes a WITHOUT ROWID table for damaged if its key has
    /// another order than its columns.
    private func checkStructure(_ store: StoreWriter) throws {
        let finding = try store.text("PRAGMA main.integrity_check(1)")
        guard finding == "ok" else {
            throw RelocationFailure.proof("SQLite finds the result damaged: \(finding ?? "nothing returned")")
        }
    }

    /// Throws `RelocationFailure` if an index orders by a collation that only the store's own program has: rows would
    /// be written in the wrong places.
    private func checkCollations(_ session: MergeSession) throws {
        let stored = try DatabaseSchema(session.store)
        for table in schema.tables {
            if let unknown = stored.table(table.name)?.indexes.lazy.compactMap(\.unknownCollation).first {
                throw RelocationFailure.mergeUnsupported(
                    "the table \(table.name) is ordered by the collation \(unknown), which only its own program has")
            }
        }
    }

    /// Adds a function that gives equal values equal numbers, whatever their types of number.
    private static func addHash(to store: StoreWriter) throws {
        try store.addFunction("gs_hash", arguments: -1) { values in
            var hash: UInt64 = 0xCBF2_9CE4_8422_2325
            func add(_ byte: UInt8) { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01B3 }
            func add(word: UInt64) {
                for place in 0..<8 as Range<UInt64> { add(UInt8(truncatingIfNeeded: word >> (8 * place))) }
            }
            for value in values {
                switch value {
                case .null: add(0)
                case .integer(let number):
                    add(1)
                    add(word: Double(number).bitPattern)
                case .real(let number):
                    add(1)
                    add(word: (number == 0 ? 0 : number).bitPattern)
                case .text(let text):
                    add(2)
                    for byte in text.utf8 { add(byte) }
                case .blob(let bytes):
                    add(3)
                    for byte in bytes { add(byte) }
                }
            }
            return .integer(Int64(bitPattern: hash))
        }
    }
}

/// The triggers of other programs, which must not fire. groupstore's own record the merge as changes.
struct SuspendedTriggers {
    private let creations: [String]
    private var formerAuthor: SQLiteValue?

    init(_ store: StoreWriter) throws {
        creations = try store.dropTriggers { !HistorySchema.isOwn($0) }
        guard try HistorySchema.tables(in: store).contains("GS_AUTHOR") else { return }
        let author = try store.prepare("SELECT name FROM main.GS_AUTHOR WHERE id = 1")
        if try author.step() { formerAuthor = author.value(0) }
        author.reset()
        if formerAuthor != nil { try store.execute("UPDATE main.GS_AUTHOR SET name = 'groupstore'") }
    }

    func resume(in store: StoreWriter) throws {
        if let formerAuthor { try store.execute("UPDATE main.GS_AUTHOR SET name = ?1", [formerAuthor]) }
        for creation in creations { try store.execute(creation) }
    }
}

/// The violations of foreign keys that the two stores have anyway.
struct ForeignKeyViolations {
    private var known: Set<String>?
    private var legacy = 0

    init(_ store: StoreWriter) throws {
        // SQLite reports an error if a key leads to a table or column that doesn't exist.
        known = (try? Self.violations("main", store)).map(Set.init)
        legacy = ((try? Self.violations("legacy", store)) ?? []).count
    }

    private static func violations(_ database: String, _ store: StoreWriter) throws -> [String] {
        let rows = try store.prepare("PRAGMA \(database).foreign_key_check")
        var found: [String] = []
        while try rows.step() {
            found.append("\(rows.text(0) ?? "")\n\(rows.integer(1))\n\(rows.text(2) ?? "")\n\(rows.integer(3))")
        }
        return found
    }

    func check(_ store: StoreWriter) throws {
        guard let known, let found = try? Self.violations("main", store) else { return }
        let new = found.filter { !known.contains($0) }
        guard new.count > legacy, let first = new.first else { return }
        let parts = first.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        throw RelocationFailure.merge(
            "merge_foreign_key",
            "the row \(parts[1]) of \(PrintableText(parts[0])) in the result would refer to no row of "
                + "\(PrintableText(parts[2]))",
            remedy: "choose another --prefer or key, or make the stores agree")
    }
}

extension RelocationFailure {
    static func proof(_ finding: String) -> RelocationFailure {
        RelocationFailure(
            .failed, code: "merge_proof", "the merged store isn't what it should be: \(PrintableText(finding))",
            remedy: "nothing was changed; report this as a bug of groupstore")
    }
}
