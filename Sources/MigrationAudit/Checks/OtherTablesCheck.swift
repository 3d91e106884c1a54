/// Holds the tables that are neither model's against the store's: they are somebody else's, and stay.
struct OtherTablesCheck {
    let context: AuditContext

    func check() throws {
        let models = try modelTables()
        for earlier in context.was.all where !isOurs(earlier.name, models) {
            guard let table = context.now.table(earlier.name) else {
                throw AuditFailure(entity: "the table \(earlier.name)", expected: "the table", found: "none")
            }
            guard !earlier.isVirtual, !table.isVirtual else { continue }
            guard table.columns.map({ key($0.name) }) == earlier.columns.map({ key($0.name) }) else {
                throw AuditFailure(
                    entity: "the table \(earlier.name)",
                    expected: earlier.columns.map(\.name).joined(separator: ", "),
                    found: table.columns.map(\.name).joined(separator: ", "))
            }
            if context.isUntouched(table, earlier: earlier) { continue }
            try TableComparison(context: context, table: table, earlier: earlier).check()
        }
        for table in context.now.all where context.was.table(table.name) == nil && !isOurs(table.name, models) {
            throw AuditFailure(entity: "the table \(table.name)", expected: "no such table", found: "one")
        }
    }

    private func isOurs(_ table: String, _ models: Set<String>) -> Bool {
        let name = key(table)
        if ["z_primarykey", "z_metadata", "z_modelcache"].contains(name) || models.contains(name) { return true }
        if name.hasPrefix("sqlite_") || name.hasPrefix("gs_") || name.hasPrefix("ansck") { return true }
        return HistoryCheck.tables.contains { key($0) == name }
    }

    /// The names of both models' tables: entities', join tables, spatial indexes with the tables that belong to them.
    private func modelTables() throws -> Set<String> {
        var names: Set<String> = []
        for (layout, schema) in [(context.old, context.was), (context.new, context.now)] {
            names.formUnion(layout.columns.keys.map(key))
            for (property, _) in layout.tree.relationships {
                if let links = try layout.links(of: property, in: schema) { names.insert(key(links.table)) }
            }
            for entity in layout.tree.model.entities {
                for index in entity.indexes where index.elements.contains(where: { $0.kind == .rTree }) {
                    let name = key("Z_\(entity.name)_\(index.name)")
                    names.formUnion([name, name + "_node", name + "_parent", name + "_rowid"])
                }
            }
        }
        return names
    }
}
