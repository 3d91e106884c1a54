/// Holds Core Data's persistent history, and what it keeps for synchronization, against the store's. Rows of entities that
/// were removed are left out.
struct HistoryCheck {
    static let tables = ["ACHANGE", "ATRANSACTION", "ATRANSACTIONSTRING"]

    let context: AuditContext

    func check() throws {
        for earlier in context.was.all where !earlier.isVirtual {
            switch earlier.name.uppercased() {
            case "ACHANGE": try checkChanges(earlier)
            case "ATRANSACTION", "ATRANSACTIONSTRING": try check(earlier, entity: nil)
            case let name where name.hasPrefix("ANSCK"): try check(earlier, entity: "ZENTITYID")
            default: break
            }
        }
    }

    private func check(_ earlier: AuditSchema.Table, entity: String?) throws {
        guard let table = context.now.table(earlier.name) else { throw missing(earlier) }
        let column = entity.flatMap { earlier.column($0)?.name }
        if column == nil || renumbering == nil, context.isUntouched(table, earlier: earlier) { return }
        try comparison(table, earlier, entity: column).check()
    }

    private func comparison(
        _ table: AuditSchema.Table, _ earlier: AuditSchema.Table, entity: String?
    ) -> TableComparison {
        var comparison = TableComparison(context: context, table: table, earlier: earlier)
        guard let entity, table.index(of: entity) != nil else { return comparison }
        let was = ColumnRule.was(entity)
        let removed = context.old.tree.names.filter { context.pairing.successors[$0] == nil }
        comparison.except = [entity]
        comparison.kept = "\(was) IS NULL OR \(was) NOT IN \(list(context.old.tree.numbers(of: removed)))"
        comparison.condition = ColumnRule.equal(ColumnRule.now(entity), renumbering.map { $0(was) } ?? was)
        return comparison
    }

    /// The newer number of an entity, as SQL; nil where all are the same.
    private var renumbering: ((String) -> String)? {
        let changed = context.pairing.successors.map {
            (context.old.tree.number(of: $0), context.new.tree.number(of: $1))
        }.filter { $0.0 != $0.1 }.sorted { $0.0 < $1.0 }
        guard !changed.isEmpty else { return nil }
        let cases = changed.map { "WHEN \($0.0) THEN \($0.1)" }.joined(separator: " ")
        return { "(CASE \($0) \(cases) ELSE \($0) END)" }
    }

    private func missing(_ earlier: AuditSchema.Table) -> AuditFailure {
        AuditFailure(entity: "the table \(earlier.name)", expected: "the table", found: "none")
    }

    // MARK: ACHANGE

    private func checkChanges(_ earlier: AuditSchema.Table) throws {
        guard let table = context.now.table(earlier.name) else { throw missing(earlier) }
        let slots = context.pairing.survivors(among: context.new.tree.names).map { HistoryPropertyChange($0, context) }
        let isSame =
            renumbering == nil && slots.allSatisfy(\.isSame)
            && context.pairing.successors.count == context.old.tree.names.count
        if isSame, table.columns.prefix(earlier.columns.count).map(\.name) == earlier.columns.map(\.name),
            context.isUntouched(table, earlier: earlier)
        {
            return
        }
        var comparison = comparison(table, earlier, entity: earlier.column("ZENTITY")?.name)
        let tombstones = earlier.columns.map(\.name).filter { $0.uppercased().hasPrefix("ZTOMBSTONE") }
        comparison.except.formUnion(tombstones + ["ZCOLUMNS"])
        try comparison.check()
        guard earlier.index(of: "ZENTITY") != nil else { return }
        try checkTombstones(slots, table, earlier)
        try checkColumns(slots, table, earlier)
    }

    /// The values of deleted objects stand in the order of the attributes that are preserved.
    private func checkTombstones(
        _ slots: [HistoryPropertyChange], _ table: AuditSchema.Table, _ earlier: AuditSchema.Table
    ) throws {
        for slot in slots {
            let kept = slot.tombstones.compactMap { new, old -> (String, String)? in
                guard let was = earlier.column("ZTOMBSTONE\(old)")?.name else { return nil }
                return (table.column("ZTOMBSTONE\(new)").map { ColumnRule.now($0.name) } ?? "NULL", ColumnRule.was(was))
            }
            for (now, was) in kept {
                let key = try context.integer(
                    "SELECT b.Z_PK FROM \(context.was.qualified("ACHANGE")) AS b "
                        + "JOIN \(context.now.qualified("ACHANGE")) AS a ON a.Z_PK = b.Z_PK "
                        + "WHERE b.ZENTITY = \(slot.oldNumber) AND NOT (\(ColumnRule.equal(now, was))) LIMIT 1")
                guard let key else { continue }
                throw AuditFailure(
                    entity: slot.entity, property: "tombstone", key: key, expected: "the deleted object's value",
                    found: "another")
            }
        }
    }

    /// Which properties an update changed is a bit for each.
    private func checkColumns(
        _ slots: [HistoryPropertyChange], _ table: AuditSchema.Table, _ earlier: AuditSchema.Table
    ) throws {
        guard earlier.index(of: "ZCOLUMNS") != nil else { return }
        for slot in slots {
            let rows = try context.reader.prepare(
                "SELECT b.Z_PK, b.ZCOLUMNS, a.ZCOLUMNS FROM \(context.was.qualified("ACHANGE")) AS b "
                    + "JOIN \(context.now.qualified("ACHANGE")) AS a ON a.Z_PK = b.Z_PK "
                    + "WHERE b.ZENTITY = \(slot.oldNumber) AND b.ZCOLUMNS IS NOT NULL"
                    + (slot.isSame ? " AND a.ZCOLUMNS IS NOT b.ZCOLUMNS LIMIT 1" : ""))
            while try rows.step() {
                let was = rows.bytes(1, limit: 1 << 20) ?? []
                let now = rows.bytes(2, limit: 1 << 20) ?? []
                guard !slot.isSame, slot.agrees(was: was, now: now) else {
                    throw AuditFailure(
                        entity: slot.entity, property: "ZCOLUMNS", key: rows.integer(0),
                        expected: "the properties that were updated", found: "others")
                }
            }
        }
    }
}
