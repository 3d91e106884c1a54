import ManagedObjectModels
import SQLiteStore

/// The tables, indexes, triggers and views of a store.
package struct StoreSchema: Sendable {
    /// A row of `sqlite_schema`.
    package struct Object: Equatable, Sendable {
        package enum Kind: String, Sendable {
            case table, index, trigger, view
        }

        package let kind: Kind
        package let name: String
        package let table: String
        package let creation: String

        package init(kind: Kind, name: String, table: String, creation: String) {
            self.kind = kind
            self.name = name
            self.table = table
            self.creation = creation
        }
    }

    /// The objects with a statement. Objects that SQLite creates for itself have none.
    package let objects: [Object]
    /// The name and declared type of each column in order, by table; empty for a virtual table.
    package let columns: [String: [(name: String, type: String)]]
    private let columnNames: [String: Set<String>]

    package init(_ store: SQLiteConnection) throws {
        var objects: [Object] = []
        let rows = try store.prepare(
            "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
        while try rows.step() {
            guard let kind = rows.text(0).flatMap(Object.Kind.init), let name = rows.text(1) else { continue }
            objects.append(
                Object(kind: kind, name: name, table: rows.text(2) ?? "", creation: rows.text(3) ?? ""))
        }
        self.objects = objects
        var columns: [String: [(name: String, type: String)]] = [:]
        for table in objects where table.kind == .table {
            columns[table.name] = []
            // SQLite doesn't know the columns without the module, which may exist only in the store's programs.
            if table.creation.uppercased().hasPrefix("CREATE VIRTUAL") { continue }
            let rows = try store.prepare("SELECT name, type FROM pragma_table_info(?)", [.text(table.name)])
            while try rows.step() { columns[table.name, default: []].append((rows.text(0) ?? "", rows.text(1) ?? "")) }
        }
        self.columns = columns
        columnNames = columns.mapValues { Set($0.map(\.name)) }
    }

    package func has(table: String) -> Bool { columns[table] != nil }

    package func has(column: String, in table: String) -> Bool {
        columnNames[table]?.contains(column) ?? false
    }

    /// Returns what the layout has and this store lacks: tables, and columns as `TABLE.COLUMN`.
    package func missingParts(of layout: StoreLayout) -> [String] {
        var missing: [String] = []
        func check(_ table: String, _ names: [String]) {
            guard has(table: table) else { return missing.append(table) }
            missing += names.filter { !has(column: $0, in: table) }.map { table + "." + $0 }
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
    package func usingJoinTableNames(of schema: StoreSchema) -> StoreLayout {
        for rule in JoinTableNaming.Rule.allCases {
            let layout = rule == self.rule ? self : StoreLayout(model, rule: rule)
            if layout.joinTables.allSatisfy({ schema.has($0) }) { return layout }
        }
        return renamingJoinTables(to: schema)
    }

    private func renamingJoinTables(to schema: StoreSchema) -> StoreLayout {
        var usedNames = Set(joinTables.map(\.name).filter(schema.has(table:)))
        return replacing(
            joinTables.map { table in
                guard !schema.has(table: table.name) else { return table }
                let wanted = Set([table.owner.column, table.inverse.column])
                let found = schema.columns.keys.sorted().first { name in
                    name.hasPrefix("Z_") && !usedNames.contains(name)
                        && wanted.isSubset(of: (schema.columns[name] ?? []).map(\.name))
                }
                guard let found else { return table }
                usedNames.insert(found)
                let other = table.namedByInverse(numbers)
                return found == other.name ? other : table.renamed(found)
            })
    }
}

extension String {
    /// The string as a quoted SQL identifier.
    package var sqlName: String { "\"" + replacing("\"", with: "\"\"") + "\"" }

    /// The string as an SQL string literal.
    package var sqlText: String { "'" + replacing("'", with: "''") + "'" }
}
