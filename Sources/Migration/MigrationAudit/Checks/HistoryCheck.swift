/// A check of Core Data's persistent history. Rows of removed entities must be gone: their numbers may be those of
/// other entities now.
struct HistoryCheck {
    static let tables = ["ACHANGE", "ATRANSACTION", "ATRANSACTIONSTRING"]

    let context: AuditContext

    func check() throws {
        for earlier in context.oldSchema.all where !earlier.isVirtual {
            switch earlier.name.uppercased() {
            case "ACHANGE": try checkChanges(earlier)
            case "ATRANSACTION", "ATRANSACTIONSTRING": try check(earlier)
            case let name where name.hasPrefix("ANSCK"): try MirroringCheck(context: context).check(earlier)
            default: break
            }
        }
    }

    private func check(_ earlier: AuditSchema.Table) throws {
        guard let table = context.newSchema.table(earlier.name) else { throw missingTable(earlier) }
        if context.isUntouched(table, earlier: earlier) { return }
        try comparison(table, earlier, entity: nil).check()
    }

    private func comparison(
        _ table: AuditSchema.Table, _ earlier: AuditSchema.Table, entity: String?
    ) -> TableComparison {
        var comparison = TableComparison(context: context, table: table, earlier: earlier)
        guard let entity, table.index(of: entity) != nil else { return comparison }
        let changes = EntityChanges(context)
        comparison.ignoredColumns = [entity]
        comparison.expect(gone: changes.isGone(ColumnRule.oldValue(entity)))
        comparison.condition = ColumnRule.equal(
            ColumnRule.newValue(entity), changes.newNumber(ColumnRule.oldValue(entity)))
        return comparison
    }

    private func missingTable(_ earlier: AuditSchema.Table) -> AuditFailure {
        AuditFailure(entity: "the table \(earlier.name)", expected: "the table", found: "none")
    }

    // MARK: ACHANGE

    private func checkChanges(_ earlier: AuditSchema.Table) throws {
        guard let table = context.newSchema.table(earlier.name) else { throw missingTable(earlier) }
        let slots = context.pairing.survivors(among: context.newLayout.tree.names).map {
            HistoryPropertyChange($0, context)
        }
        let isUnchanged =
            EntityChanges(context).keepsNumbers && slots.allSatisfy(\.isUnchanged)
        if isUnchanged, table.columns.prefix(earlier.columns.count).map(\.name) == earlier.columns.map(\.name),
            context.isUntouched(table, earlier: earlier)
        {
            return
        }
        var comparison = comparison(table, earlier, entity: earlier.column("ZENTITY")?.name)
        let tombstones = earlier.columns.map(\.name).filter { $0.uppercased().hasPrefix("ZTOMBSTONE") }
        comparison.ignoredColumns.formUnion(tombstones + ["ZCOLUMNS"])
        try comparison.check()
        guard earlier.index(of: "ZENTITY") != nil else { return }
        try checkTombstones(slots, in: table, earlier: earlier)
        try checkColumns(slots, earlier: earlier)
    }

    /// Checks the values of deleted objects, which are in the order of the preserved attributes.
    private func checkTombstones(
        _ slots: [HistoryPropertyChange], in table: AuditSchema.Table, earlier: AuditSchema.Table
    ) throws {
        for slot in slots {
            let kept = slot.tombstones.compactMap { new, old -> (String, String)? in
                guard let column = earlier.column("ZTOMBSTONE\(old)")?.name else { return nil }
                return (
                    table.column("ZTOMBSTONE\(new)").map { ColumnRule.newValue($0.name) } ?? "NULL",
                    ColumnRule.oldValue(column)
                )
            }
            for (newValue, oldValue) in kept {
                let key = try context.integer(
                    "SELECT b.Z_PK FROM \(context.oldSchema.qualified("ACHANGE")) AS b "
                        + "JOIN \(context.newSchema.qualified("ACHANGE")) AS a ON a.Z_PK = b.Z_PK "
                        + "WHERE b.ZENTITY = \(slot.oldNumber) AND NOT (\(ColumnRule.equal(newValue, oldValue))) LIMIT 1"
                )
                guard let key else { continue }
                throw AuditFailure(
                    entity: slot.entity, property: "tombstone", key: key, expected: "the deleted object's value",
                    found: "another")
            }
        }
    }

    /// Checks the bitmaps of updated properties.
    private func checkColumns(_ slots: [HistoryPropertyChange], earlier: AuditSchema.Table) throws {
        guard earlier.index(of: "ZCOLUMNS") != nil else { return }
        for slot in slots {
            let rows = try context.reader.prepare(
                "SELECT b.Z_PK, b.ZCOLUMNS, a.ZCOLUMNS FROM \(context.oldSchema.qualified("ACHANGE")) AS b "
                    + "JOIN \(context.newSchema.qualified("ACHANGE")) AS a ON a.Z_PK = b.Z_PK "
                    + "WHERE b.ZENTITY = \(slot.oldNumber) AND b.ZCOLUMNS IS NOT NULL"
                    + (slot.isUnchanged ? " AND a.ZCOLUMNS IS NOT b.ZCOLUMNS LIMIT 1" : ""))
            while try rows.step() {
                let before = rows.bytes(1, limit: 1 << 20) ?? []
                let after = rows.bytes(2, limit: 1 << 20) ?? []
                guard !slot.isUnchanged, slot.matches(before: before, after: after) else {
                    throw AuditFailure(
                        entity: slot.entity, property: "ZCOLUMNS", key: rows.integer(0),
                        expected: "the properties that were updated", found: "others")
                }
            }
        }
    }
}
