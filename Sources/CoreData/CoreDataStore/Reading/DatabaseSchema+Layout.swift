import ManagedObjectModels
import SQLiteStore

/// A store's schema beside the layout of a model. Core Data's names are compared as they are written, because the
/// statements that migrate a store look them up so.
extension DatabaseSchema {
    package func has(table: String) -> Bool { self.table(table)?.name == table }

    package func has(column: String, in table: String) -> Bool { columnNames(of: table).contains(column) }

    /// Returns the names of a table's columns in order, without generated ones; empty if there is no such table, or if
    /// it is virtual.
    package func columnNames(of table: String) -> [String] {
        has(table: table) ? self.table(table)?.assignableColumns.map(\.name) ?? [] : []
    }

    /// Returns what the layout has and this store lacks: tables, and columns as `TABLE.COLUMN`.
    package func missingParts(of layout: StoreLayout) -> [String] {
        var missing: [String] = []
        func check(_ table: String, _ names: [String]) {
            guard has(table: table) else { return missing.append(table) }
            let present = Set(columnNames(of: table))
            missing += names.filter { !present.contains($0) }.map { table + "." + $0 }
        }
        for table in layout.tables { check(table.name, table.columnNames) }
        for table in layout.joinTables {
            let order = [table.owner.orderColumn, table.inverse.orderColumn].compactMap(\.self)
            check(table.name, [table.owner.column, table.inverse.column] + order)
        }
        return missing
    }

    /// True if this store lacks a table or column of the model, however its join tables are named.
    package func lacksParts(of model: ManagedObjectModel) -> Bool {
        !missingParts(of: StoreLayout(model).usingJoinTableNames(of: self)).isEmpty
    }

    fileprivate func has(_ table: JoinTableLayout) -> Bool {
        has(column: table.owner.column, in: table.name) && has(column: table.inverse.column, in: table.name)
    }
}

extension StoreLayout {
    /// Returns the layout with the join tables of a store: those of the rule that explains all of them. If none does, a
    /// join table is identified by its columns, because its name depends on the order in which the program that created
    /// it enumerated the properties.
    package func usingJoinTableNames(of schema: DatabaseSchema) -> StoreLayout {
        for rule in JoinTableNaming.Rule.allCases {
            let layout = rule == self.rule ? self : StoreLayout(model, rule: rule)
            if layout.joinTables.allSatisfy({ schema.has($0) }) { return layout }
        }
        return renamingJoinTables(to: schema)
    }

    private func renamingJoinTables(to schema: DatabaseSchema) -> StoreLayout {
        var usedNames = Set(joinTables.map(\.name).filter(schema.has(table:)))
        return replacing(
            joinTables.map { table in
                guard !schema.has(table: table.name) else { return table }
                let wanted = Set([table.owner.column, table.inverse.column])
                let found = schema.tablesByName.map(\.name).first { name in
                    name.hasPrefix("Z_") && !usedNames.contains(name)
                        && wanted.isSubset(of: schema.columnNames(of: name))
                }
                guard let found else { return table }
                usedNames.insert(found)
                let other = table.namedByInverse(numbers)
                return found == other.name ? other : table.renamed(found)
            })
    }
}
