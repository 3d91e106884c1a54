/// A check of the tables that belong to neither model. A migration must not change them.
struct OtherTablesCheck {
    let context: AuditContext

    func check() throws {
        let models = try modelTables()
        for earlier in context.oldSchema.all where !isManaged(earlier.name, models) {
            guard let table = context.newSchema.table(earlier.name) else {
                throw AuditFailure(entity: "the table \(earlier.name)", expected: "the table", found: "none")
            }
            guard !earlier.isVirtual, !table.isVirtual else { continue }
            guard table.columns.map({ nameKey($0.name) }) == earlier.columns.map({ nameKey($0.name) }) else {
                throw AuditFailure(
                    entity: "the table \(earlier.name)",
                    expected: earlier.columns.map(\.name).joined(separator: ", "),
                    found: table.columns.map(\.name).joined(separator: ", "))
            }
            if context.isUntouched(table, earlier: earlier) { continue }
            try TableComparison(context: context, table: table, earlier: earlier).check()
        }
        for table in context.newSchema.all
        where context.oldSchema.table(table.name) == nil && !isManaged(table.name, models) {
            throw AuditFailure(entity: "the table \(table.name)", expected: "no such table", found: "one")
        }
    }

    /// Returns true for a table of the models, Core Data, SQLite or groupstore.
    private func isManaged(_ table: String, _ models: Set<String>) -> Bool {
        let name = nameKey(table)
        if ["z_primarykey", "z_metadata", "z_modelcache"].contains(name) || models.contains(name) { return true }
        if name.hasPrefix("sqlite_") || name.hasPrefix("gs_") || name.hasPrefix("ansck") { return true }
        return HistoryCheck.tables.contains { nameKey($0) == name }
    }

    /// Returns the names of both models' tables: entity tables, join tables, and spatial indexes with their shadow
    /// tables.
    private func modelTables() throws -> Set<String> {
        var names: Set<String> = []
        for (layout, schema) in [(context.oldLayout, context.oldSchema), (context.newLayout, context.newSchema)] {
            names.formUnion(layout.columns.keys.map(nameKey))
            for (property, _) in layout.tree.relationships {
                if let links = try layout.links(of: property, in: schema) { names.insert(nameKey(links.table)) }
            }
            for entity in layout.tree.model.entities {
                for index in entity.indexes where index.elements.contains(where: { $0.kind == .rTree }) {
                    let name = nameKey("Z_\(entity.name)_\(index.name)")
                    names.formUnion([name, name + "_node", name + "_parent", name + "_rowid"])
                }
            }
        }
        return names
    }
}
