import LinuxSystem
import SQLiteStore
import StoreRelocation

/// The tables that no model describes: those of a store without one, and other programs' in a Core Data store.
struct PlainTables {
    let group: DatabaseSchema
    let legacy: DatabaseSchema

    /// Adds the tables to the schema. Throws `RelocationFailure` if they differ.
    func add(_ names: [String], to schema: inout MergeSchema) throws {
        let first = schema.tables.count
        for name in names {
            guard let table = group.table(name), let other = legacy.table(name) else { continue }
            schema.tables.append(try make(table, other))
        }
        for index in first..<schema.tables.count { resolveReferences(of: index, in: &schema) }
    }

    /// Throws `RelocationFailure` unless both stores have these tables, declared the same.
    ///
    /// - Parameter keys: The tables' names in the form of `DatabaseSchema.key(of:)`.
    func check(_ keys: Set<String>) throws {
        for (one, other, side) in [(group, legacy, "legacy store"), (legacy, group, "group's store")] {
            for table in one.tables where keys.contains(DatabaseSchema.key(of: table.name)) {
                guard let counterpart = other.table(table.name) else {
                    throw RelocationFailure.schemasDiffer("the \(side) has no table \(table.name)")
                }
                guard table.kind == counterpart.kind, table.isShadow == counterpart.isShadow else {
                    throw RelocationFailure.schemasDiffer("the table \(table.name) is of different kinds")
                }
                for column in table.columns {
                    guard let found = counterpart.column(column.name) else {
                        throw RelocationFailure.schemasDiffer(
                            "the \(side)'s table \(table.name) has no column \(column.name)")
                    }
                    guard column.isDeclared(as: found) else {
                        throw RelocationFailure.schemasDiffer(
                            "the column \(column.name) of the table \(table.name) is declared differently")
                    }
                }
            }
        }
    }

    private func make(_ table: DatabaseSchema.Table, _ other: DatabaseSchema.Table) throws -> MergeTable {
        let isWithoutRowid = table.kind == .withoutRowid
        let (number, legacyNumber) = (table.rowidAlias ?? table.rowid, other.rowidAlias ?? other.rowid)
        guard isWithoutRowid || (number != nil && legacyNumber != nil) else {
            throw RelocationFailure.mergeUnsupported(
                "the table \(table.name) has columns named rowid, _rowid_ and oid, so its rows have no number")
        }
        let columns = table.assignableColumns.map { column in
            MergeTable.Column(
                name: column.name, legacyName: other.column(column.name)?.name ?? column.name,
                role: DatabaseSchema.key(of: column.name) == table.rowidAlias.map(DatabaseSchema.key) ? .number : .value
            )
        }
        let key = table.primaryKey.map(\.name)
        var entity = MergeTable.Entity(number: 0, name: nil)
        if !key.isEmpty { entity.rules = [MergeTable.Rule(columns: key, properties: key)] }
        return MergeTable(
            name: table.name, legacyName: other.name, isCoreData: false, isWithoutRowid: isWithoutRowid,
            number: isWithoutRowid ? nil : number, legacyNumber: isWithoutRowid ? nil : legacyNumber,
            hasVisibleNumber: table.rowidAlias != nil, primaryKey: isWithoutRowid ? key : [],
            isAutoincrement: table.isAutoincrement || other.isAutoincrement, columns: columns, entities: [entity])
    }

    /// Finds which columns hold numbers of rows, by the declared foreign keys. A key may lead to another reference.
    private func resolveReferences(of index: Int, in schema: inout MergeSchema) {
        let name = schema.tables[index].name
        guard let table = group.table(name) else { return }
        for key in table.foreignKeys {
            guard let place = schema.tables[index].columns.firstIndex(where: { Self.isSame($0.name, key.column) })
            else { continue }
            if let target = referenced(key, from: table, steps: 0, in: schema) {
                schema.tables[index].columns[place].role = .reference(target)
            } else if let (other, column) = target(of: key), let parent = schema.index(of: other.name) {
                let isKnown = schema.tables[parent].referencedColumns.contains { Self.isSame($0, column) }
                if !isKnown {
                    schema.tables[parent].referencedColumns.append(column)
                }
            }
        }
    }

    private static func isSame(_ one: String, _ other: String) -> Bool {
        DatabaseSchema.key(of: one) == DatabaseSchema.key(of: other)
    }

    private func target(of key: DatabaseSchema.ForeignKey) -> (DatabaseSchema.Table, String)? {
        guard let table = group.table(key.table) else { return nil }
        if let target = key.target { return table.column(target).map { (table, $0.name) } }
        let primary = table.primaryKey
        return key.place < primary.count ? (table, primary[key.place].name) : nil
    }

    /// Returns the table whose row numbers the key's column holds.
    private func referenced(
        _ key: DatabaseSchema.ForeignKey, from table: DatabaseSchema.Table, steps: Int, in schema: MergeSchema
    ) -> Int? {
        guard steps < 16, let (parent, column) = target(of: key) else { return nil }
        if let number = parent.rowidAlias, Self.isSame(number, column) {
            // The number of a row may itself be the number of another one: a table that extends another.
            let next = parent.foreignKeys.first {
                Self.isSame($0.column, column) && !Self.isSame($0.table, parent.name)
            }
            if let next, let further = referenced(next, from: parent, steps: steps + 1, in: schema) { return further }
            return schema.index(of: parent.name)
        }
        guard let next = parent.foreignKeys.first(where: { Self.isSame($0.column, column) }) else { return nil }
        return referenced(next, from: parent, steps: steps + 1, in: schema)
    }
}

extension DatabaseSchema.Table {
    fileprivate var isAutoincrement: Bool { rowidAlias != nil && creation.uppercased().contains("AUTOINCREMENT") }
}

extension DatabaseSchema.Column {
    /// True if both are declared the same, whatever their order.
    fileprivate func isDeclared(as other: DatabaseSchema.Column) -> Bool {
        DatabaseSchema.key(of: name) == DatabaseSchema.key(of: other.name)
            && type.uppercased() == other.type.uppercased()
            && isMandatory == other.isMandatory && keyPlace == other.keyPlace && isAssignable == other.isAssignable
    }
}
