import SQLiteStore

/// What SQLite says of a store's tables, indexes, triggers and views.
package struct StoreSchema: Sendable {
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

    /// Those that somebody has written: what SQLite makes for itself has no statement.
    package let objects: [Object]
    /// By table: each column's name and declared type, in order; none of a virtual table.
    package let columns: [String: [(name: String, type: String)]]

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
            // SQLite doesn't know them without the module, which may be one of the store's programs only.
            if table.creation.uppercased().hasPrefix("CREATE VIRTUAL") { continue }
            let rows = try store.prepare("SELECT name, type FROM pragma_table_info(?)", [.text(table.name)])
            while try rows.step() { columns[table.name, default: []].append((rows.text(0) ?? "", rows.text(1) ?? "")) }
        }
        self.columns = columns
    }

    package func has(table: String) -> Bool { columns[table] != nil }

    package func has(column: String, in table: String) -> Bool {
        columns[table]?.contains { $0.name == column } ?? false
    }

    /// What a store of this layout should have and this one has not: tables, or columns as `TABLE.COLUMN`.
    package func missing(of layout: StoreLayout) -> [String] {
        var missing: [String] = []
        func look(_ table: String, _ names: [String]) {
            guard has(table: table) else { return missing.append(table) }
            missing += names.filter { !has(column: $0, in: table) }.map { table + "." + $0 }
        }
        for table in layout.tables { look(table.name, table.columnNames) }
        for table in layout.joinTables {
            let order = [table.owner.orderColumn, table.inverse.orderColumn].compactMap(\.self)
            look(table.name, [table.owner.column, table.inverse.column] + order)
        }
        return missing
    }
}

extension StoreLayout {
    /// The same, its join tables under the names that they have in the store: a table is known by its columns, since its
    /// name depends on the order in which the program that made it met the properties.
    package func named(as schema: StoreSchema) -> StoreLayout {
        var taken = Set(joinTables.map(\.name).filter(schema.has(table:)))
        return replacing(
            joinTables.map { table in
                guard !schema.has(table: table.name) else { return table }
                let wanted = Set([table.owner.column, table.inverse.column])
                let found = schema.columns.keys.sorted().first { name in
                    name.hasPrefix("Z_") && !taken.contains(name)
                        && wanted.isSubset(of: (schema.columns[name] ?? []).map(\.name))
                }
                guard let found else { return table }
                taken.insert(found)
                return table.renamed(found)
            })
    }
}

extension String {
    /// As SQL writes a name.
    package var sqlName: String { "\"" + replacing("\"", with: "\"\"") + "\"" }

    /// As SQL writes a text.
    package var sqlText: String { "'" + replacing("'", with: "''") + "'" }
}
